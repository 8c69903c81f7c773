"""Right operands of warpgroup MMAs that consumers compute: dequantised tiles, and gathered rows."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.core.errors import VerifyError
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.text.printer import parse
from nautilus.ma_tile.verify.module import verify
from tests.simulation.test_schedules import COMPUTED


def lowered(name: str) -> str:
    """The final MA-tile IR."""
    text = dedent(COMPUTED[name]).lstrip()
    return ma_format(compile_file(Request(Path("given.naut"), "sm_90a", text=text, until="ma-tile")).modules["ma-tile"])


def test_a_tile_is_computed_once_and_serves_both_products() -> None:
    """Each consumer stores its own columns in pieces; scores read those of both, results those of one."""
    text = lowered("scales of groups")
    (made,) = set(re.findall(r"st.shared (\w+)\[consumer\] swizzle 128 from", text))
    assert {"0", "1"} <= set(re.findall(rf"mma .*smem {made}\[(\w+)\].* over r", text))
    assert re.search(rf"mma wgmma.bf16 %\w+, smem {made}\[consumer\].* over j", text)
    assert "fence.proxy\n" in text and text.count("barrier 7, 256") == 2 * text.count("from 0, ")


def test_scales_are_loaded_an_iteration_ahead() -> None:
    assert re.search(r"= ld.global Cs\[.*\] where .* vec 8 repeat 8", lowered("scales of groups"))


def test_a_result_that_the_next_product_goes_on_with_is_not_waited_for_by_name() -> None:
    """Its registers would be copied between the fence and the MMA."""
    text = lowered("rows by number")
    (before,) = set(re.findall(r"smem s_\w+\[consumer\] swizzle \d+ \+ (%\w+) over \w*rest", text))
    assert not re.search(rf"wg.wait 0 .*{before}\b", text)


def test_a_part_of_a_stage_ends_inside_of_it() -> None:
    text = lowered("scales of groups")
    assert ma_format(parse(text, "given")) == text
    verify(parse(text, "given"))
    with pytest.raises(VerifyError, match="an access moves a whole stage"):
        verify(parse(re.sub(r"(st.shared .* from) 48,", r"\1 56,", text), "given"))

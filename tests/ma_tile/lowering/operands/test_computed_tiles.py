"""Right operands of warpgroup MMAs that consumers compute: dequantised tiles, and gathered rows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from nautilus.check.compare import relative
from nautilus.check.inputs import generate
from nautilus.check.levels import run
from nautilus.core.errors import VerifyError
from nautilus.core.schedule import Schedule
from nautilus.driver import Request, compile_file
from nautilus.frontend.interp import run_spec
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from tests.endtoend.support import travel
from tests.simulation.test_schedules import COMPUTED


def lowered(name: str) -> str:
    """The final MA-tile IR of kernels without chunks."""
    text, whole = dedent(COMPUTED[name]).lstrip(), Schedule(splits=())
    request = Request(Path("given.naut"), "sm_90a", text=text, until="ma-tile", schedule=whole)
    return ma_format(compile_file(request).modules["ma-tile"])


@pytest.mark.parametrize("name", COMPUTED)
def test_the_results_are_those_of_the_spec(name: str) -> None:
    """Pieces begin at their own rows, and what a condition leaves out of a copied tile is 0."""
    made = travel(COMPUTED[name], "sm_90a", "ma-tile")
    spec = made.result.modules["spec"]
    given = generate(spec, "random")
    arrays = dict(given.arrays)
    if "len" in arrays:
        arrays["page"], arrays["len"] = np.arange(6).reshape(2, 3), np.array([70, 129])
        arrays["Cs"] = arrays["Cs"].copy()
        arrays["Cs"][:6].reshape(2, 192)[np.arange(192) >= arrays["len"][:, None]] = np.nan
    given = replace(given, arrays=arrays)
    want = run_spec(spec, arrays, given.scalars)["O"]
    assert np.isfinite(want).all() and relative(run(made.last("ma-tile"), given, "typed")["O"], want) < 0.01


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

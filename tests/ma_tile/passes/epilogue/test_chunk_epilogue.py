"""``chunk-epilogue``: results stay the same. What the pass does: ``chunk_epilogue.ma``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nautilus.core.buffers import Space
from nautilus.core.types import DType
from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.epilogue.chunk_epilogue import ChunkEpilogue
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.programs.epilogues import biased, gated, through


def chunked(m: MemModule, columns: int = 64) -> MemModule:
    out = ChunkEpilogue(store_columns=columns).apply(m)
    verify(out)
    assert parse(ma_format(out)) == out
    return out


def inputs(m: MemModule) -> dict[str, Any]:
    """Small integers: every order of additions gives the same."""
    rng = np.random.default_rng(7)
    kinds = {DType.F16: np.float16, DType.F32: np.float32}
    given = [b for b in m.buffers if b.space is Space.INPUT]
    return {b.name: rng.integers(-3, 4, b.shape).astype(kinds[b.dtype]) for b in given}  # type: ignore[arg-type]


def same(m: MemModule, other: MemModule) -> None:
    values = inputs(m)
    wanted, got = run_module(m, values), run_module(other, values)
    for name, x in wanted.items():
        np.testing.assert_array_equal(x, got[name], name)


@pytest.mark.parametrize(
    ("make", "sizes", "columns"),
    [
        (biased, {"m": 120, "n": 120}, 64),
        (biased, {"rows": 128, "m": 256, "columns": 96, "n": 96}, 64),
        (gated, {"columns": 192, "n": 184}, 64),
        (gated, {"columns": 64, "n": 64}, 32),
    ],
)
def test_same_numbers(make: Callable[..., MemModule], sizes: dict[str, Any], columns: int) -> None:
    m = make(**sizes)
    out = chunked(m, columns)
    assert out != m
    same(m, out)


@pytest.mark.parametrize(
    ("make", "sizes", "plan", "blocks"),
    [
        (biased, {"m": 120, "n": 120}, {}, 132),
        (gated, {"m": 128, "n": 128}, {"ordered_mma": True}, 132),
        (biased, {"rows": 128, "m": 512, "n": 256}, {"persistent": "static"}, 2),
        (biased, {"columns": 192, "m": 512, "n": 192}, {"persistent": "static", "stages": 3}, 2),
        (
            biased,
            {"columns": 192, "m": 512, "n": 192, "consumers": 1},
            {"persistent": "dynamic", "tile_scheduling": "pingpong"},
            2,
        ),
    ],
)
def test_same_numbers_after_all_passes(
    make: Callable[..., MemModule], sizes: dict[str, Any], plan: dict[str, Any], blocks: int
) -> None:
    m = make(**sizes)
    out = through(m, blocks, **plan)
    same(m, out)
    assert "st.matrix out_C[" in ma_format(out)


def test_an_odd_number_of_chunks_waits_at_the_start_of_a_tile() -> None:
    m = biased(columns=192, m=512, n=192)
    text = ma_format(through(m, 2, persistent="static"))
    first = text.rindex("tma.wait 0 read", 0, text.index("st.matrix"))
    behind = text.index("\n", text.index("barrier (1 + consumer), 128", first)) + 1
    wrong = parse(text[: text.rindex("\n", 0, first) + 1] + text[behind:])
    with pytest.raises(InterpError, match="overwrite-in-use"):
        run_module(wrong, inputs(m))
    even = ma_format(through(biased(m=512), 2, persistent="static"))
    assert even.count("tma.wait 0 read") == 3  # one a chunk, one at the end

"""The order of tiles that L2 supertiles give. What ``persistent-grid`` does: ``persistent_grid.ma``."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from nautilus.core.expr.nodes import Const, Expr, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.schedule import WarpPlan
from nautilus.core.types import DType
from nautilus.ma_tile.lowering.grid import decode_grid
from tests.ma_tile.lowering.support import tile
from tests.ma_tile.programs.tiles import attention


def order_of(supertiles: int, heads: int = 5) -> list[dict[str, int]]:
    """The grid variables of each block, longest rows first."""
    module = tile(attention(64, 64, 32, 16, 16, heads=heads))
    memory = WarpPlan(raster_order="longest-first", l2_supertiles=supertiles)
    blocks, decode = decode_grid(module.kernels[0], memory)
    assert isinstance(blocks, Const)
    return [{v: value(e, {"block": n}) for v, e in decode} for n in range(int(blocks.value))]


def value(e: Expr, env: Mapping[str, int]) -> int:
    out = simplify(substitute(e, {k: Const(v, DType.I32) for k, v in env.items()}))
    assert isinstance(out, Const)
    return int(out.value)


@pytest.mark.parametrize(
    ("loops", "backwards"), [(("0", "i0 + 1"), True), (("i0", "3"), False), (("i0", "i0 + 3"), True)]
)
def test_the_longest_loops_are_first(loops: tuple[str, str], backwards: bool) -> None:
    low, high = loops
    text = re.sub(r"for j0 in 0\.\..*? chain", f"for j0 in {low}..2 chain", attention(64, 64, 32, 32, 16))
    text = re.sub(r"for j0 in \(.*? chain", f"for j0 in 2..{high} chain", text)
    _, decode = decode_grid(tile(text).kernels[0], WarpPlan(raster_order="longest-first"))
    assert value(dict(decode)["i0"], {"block": 0}) == (1 if backwards else 0)


@pytest.mark.parametrize(("supertiles", "runs"), [(2, [3, 2]), (5, [1] * 5), (3, [2, 2, 1])])
def test_supertiles_follow_one_another(supertiles: int, runs: list[int]) -> None:
    found = order_of(supertiles)
    (long,) = [v for v in found[0] if len({d[v] for d in found}) == 4]
    (head,) = [v for v in found[0] if v != long]
    assert len({tuple(d.items()) for d in found}) == 20  # every tile once
    at, first = 0, 0
    for size in runs:
        part = found[at : at + 4 * size]
        assert {d[head] for d in part} == set(range(first, first + size))
        assert [d[long] for d in part] == [n for n in (3, 2, 1, 0) for _ in range(size)]
        at, first = at + 4 * size, first + size

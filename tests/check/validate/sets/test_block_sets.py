"""Passes keep the tiles of blocks, also where sizes are known at launch and names are words that isl reserves."""

from __future__ import annotations

import pytest

from nautilus.check.validate.sets.block_sets import validate
from nautilus.check.validate.sets.index_sets import implied
from nautilus.check.validate.sets.isl_text import variable
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Op, Param, Var
from nautilus.core.types import DType
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from nautilus.scalar.ir import Kind, Loop

islpy = pytest.importorskip("islpy")

RESERVED = ("mod", "exists", "min", "NaN", "and", "x'", "a$b", "%1")
BLOCK = Var("block")


def module(size: str, decode: dict[str, Expr]) -> MemModule:
    """A kernel with 16 blocks for each 128 rows of ``size``."""
    rows = calc("floordiv", calc("add", Param(size, DType.I32), 127), 128)
    kernel = MemKernel("k", calc("mul", 16, rows), 4, 1, tuple(decode.items()), {}, (), (), ())
    return MemModule("t", "sm_80", (), (), (kernel,))


def decodes(size: str, head: str, row: str, turned: bool, less: int = 0) -> MemModule:
    rows = calc("floordiv", calc("add", Param(size, DType.I32), 127), 128)
    tile: Expr = calc("floordiv", BLOCK, 16)
    if turned:
        tile = calc("sub", calc("sub", rows, tile), less)
    return module(size, {head: calc("mod", BLOCK, 16), row: tile})


@pytest.mark.parametrize(
    ("size", "head", "row"), [("M", "h", "i"), *zip(RESERVED, RESERVED[1:], RESERVED[2:], strict=False)]
)
def test_tiles_of_a_size_known_at_launch(size: str, head: str, row: str) -> None:
    plain = decodes(size, head, row, turned=False)
    found = validate(plain, decodes(size, head, row, turned=True, less=1))
    assert found is not None and found.text == "proved"
    found = validate(plain, decodes(size, head, row, turned=True))
    assert found is not None and found.status == "refuted" and "a tile is left out" in found.detail


@pytest.mark.parametrize("name", RESERVED)
def test_conditions_have_any_names(name: str) -> None:
    loop = Loop(name, integer(0), Param(name, DType.I32), Kind.PAR, ())
    below = Op("lt", (Var(name), Param(name, DType.I32)), DType.BOOL)
    assert implied([loop], [], below)
    assert not implied([loop], [], Op("lt", (Var(name), integer(3)), DType.BOOL))


def test_names_in_isl_differ() -> None:
    names = [*RESERVED, "_24_", "__", "_", "$", "$_", "_$", "a_b", "a__b", "A"]
    assert len({variable(n) for n in names}) == len(names)
    for n in names:
        assert not islpy.Set(f"{{ [{variable(n)}] : {variable(n)} = 1 }}").is_empty()

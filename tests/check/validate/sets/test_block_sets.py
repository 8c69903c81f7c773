"""Passes keep the tiles of blocks, also where sizes are known at launch and names are words that isl reserves."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.check.validate.sets.block_sets import validate
from nautilus.check.validate.sets.index_sets import implied
from nautilus.check.validate.sets.isl_text import variable
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Op, Param, Var
from nautilus.core.types import DType
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from nautilus.ma_tile.text import format, parse
from nautilus.scalar.ir import Kind, Loop
from tests.ir_files import cases_in, input_of, output_of

islpy = pytest.importorskip("islpy")

RESERVED = ("mod", "exists", "min", "NaN", "and", "x'", "a$b", "%1")
BLOCK = Var("block")
_PERSISTENT = Path(__file__).parents[3] / "ma_tile/passes/grid/persistent_grid.ma"


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


@pytest.mark.parametrize("role", [0, 1])
def test_tiles_of_the_loops_of_roles(role: int) -> None:
    """A persistent kernel has a loop over the tiles in each role; a wrong number in one of them is found."""
    case = cases_in(_PERSISTENT)["every role visits the tiles"]
    before, after = input_of(case), output_of(case)
    found = validate(before, after)
    assert found is not None and (found.text, found.points) == ("proved", 2)
    parts = format(after).split("let j0 = tile % 2")
    assert len(parts) == 3
    parts[role : role + 2] = [f"{parts[role]}let j0 = tile % 1{parts[role + 1]}"]
    found = validate(before, parse("let j0 = tile % 2".join(parts)))
    assert found is not None and found.status == "refuted"

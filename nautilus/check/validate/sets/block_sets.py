"""Whether a pass of MA-tile IR keeps what the blocks of a launch compute, at the declared sizes.

A block decodes its number into the variables of the grid; a persistent block decodes the number of each of its tiles,
and where a cluster works on neighbouring tiles, the number of the block in its cluster too.  Either is a map from
integers to points of the grid.  isl decides that no point belongs to two numbers, and that the points before and after
the pass are the same.  A role that uses only some of the variables has the same points without the others.

That every tile is taken once by the blocks of a launch is the meaning of ``tile.loop``, which the interpreter tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nautilus.check.validate.sets.index_sets import INSTALL
from nautilus.check.validate.sets.isl_text import NotAffine, isl_text, sized, variable, variables
from nautilus.check.validate.verdict import Verdict
from nautilus.core.expr.nodes import Const, Expr, Var, loads, rewrite, walk
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.ma_tile.ir.async_ops import LetOp
from nautilus.ma_tile.ir.ops import MemKernel, MemModule, RolesOp
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp


@dataclass(frozen=True)
class _Tiles:
    """The variables of the grid as expressions of numbers, each of which is in ``0..count`` (inputs by name)."""

    counts: Mapping[str, Expr | int]
    values: Mapping[str, Expr]
    whole: bool  # all variables of the grid are among ``values``


def validate(before: MemModule, after: MemModule) -> Verdict | None:
    """The verdict on the tiles of all kernels; None where no kernel decodes them in another way than before."""
    try:
        import islpy  # noqa: F401
    except ImportError:
        return Verdict("not decided", detail=INSTALL)
    compared = 0
    try:
        for old, new in zip(before.kernels, after.kernels, strict=False):
            first, then = _tiles(old), _tiles(new)
            if first == then:
                continue
            reference = first[0]
            for tiles in then:
                problem = _problem(reference, tiles)
                if problem:
                    return Verdict("refuted", detail=f"{new.name}: {problem}")
                compared += 1
    except NotAffine as error:
        return Verdict("not decided", compared, str(error))
    return Verdict("proved", compared) if compared else None


def _tiles(k: MemKernel) -> list[_Tiles]:
    """The tiles of the kernel, or of each of its roles, those with all variables first."""
    if k.decode:
        return [_Tiles({"block": k.blocks}, _without_reads(_inlined(k.decode)), True)]
    found = []
    for op in k.body:
        for role in op.roles if isinstance(op, RolesOp) else ():
            for loop in role.body:
                if isinstance(loop, TileSchedulerOp):
                    lets = [(x.var, x.expr) for x in loop.body if isinstance(x, LetOp)]
                    values = {n: e for n, e in _without_reads(_inlined(lets)).items() if _decodes(e, loop.var)}
                    counts: dict[str, Expr | int] = {loop.var: loop.count}
                    if k.cluster > 1:
                        counts["block"] = k.cluster
                    found.append(_Tiles(counts, values, False))
    most = max((len(t.values) for t in found), default=0)
    return [_Tiles(t.counts, t.values, len(t.values) == most) for t in found] or [_Tiles({}, {}, True)]


def _inlined(lets: Sequence[tuple[str, Expr]]) -> dict[str, Expr]:
    """Each value in terms of the numbers alone."""
    known: dict[str, Expr] = {}
    for name, e in lets:
        known[name] = rewrite(e, lambda n: known.get(n.name) if isinstance(n, Var) else None)
    return known


def _without_reads(values: Mapping[str, Expr]) -> dict[str, Expr]:
    """``values`` without those that are read from tensors, which say nothing about the number of a tile."""
    return {n: e for n, e in values.items() if not loads(e)}


def _decodes(e: Expr, tile: str) -> bool:
    return all(n.name in (tile, "block") for n in walk(e) if isinstance(n, Var))


def _problem(old: _Tiles, new: _Tiles) -> str:
    """The fault of the tiles ``new``; '' if there is none."""
    names = [n for n in old.values if n in new.values]
    missing = [n for n in old.values if n not in names]
    if new.whole and missing and not _map(old, missing).range().is_singleton():
        raise NotAffine(f"no value gives the new form of {', '.join(missing)}")
    if not names:
        return ""
    left, right = _map(old, names), _map(new, names)
    if new.whole and left.is_injective() and not right.is_injective():
        return "two numbers decode to one tile"
    lost, more = left.range().subtract(right.range()), right.range().subtract(left.range())
    if not lost.is_empty():
        return f"a tile is left out: {lost.sample_point()}"
    return "" if more.is_empty() else f"a tile is new: {more.sample_point()}"


def _map(tiles: _Tiles, names: Sequence[str]) -> Any:
    import islpy

    counts = {n: Const(c, DType.I32) if isinstance(c, int) else c for n, c in tiles.counts.items()}
    values = [tiles.values[n] for n in names]
    bounds = [f"0 <= {variable(n)} < {isl_text(c)}" for n, c in counts.items()]
    there = ", ".join(map(isl_text, values))
    decoded = f"{variables(counts)} -> [{there}] : {' and '.join(bounds) or 'true'}"
    return sized(islpy.Map, [*counts.values(), *values], decoded)

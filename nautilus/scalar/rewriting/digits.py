"""Positions in a dimension as two digits, ``B * x + y`` with ``y`` below B, and the dimension as one for each digit.

The dimension of an input or output keeps its place in memory (:attr:`~nautilus.core.buffers.Buffer.view_of`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Load, Op, Var, free_vars, rewrite, walk
from nautilus.core.expr.products import matrix_product, strip_conversions
from nautilus.core.index.simplify import linear_in, simplify
from nautilus.core.schedule import PackPlan
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, size, slides
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import axis_assumptions, find_defs, kernel_of

COLUMNS = 64  # of a tile of a product, at least


def viewed(program: Program, size: int) -> Program:
    """``program`` with two dimensions for each one whose positions have two digits, the last of ``size``."""
    defs = find_defs(program)
    places = _places(defs.values())
    for b in program.buffers:
        for k, extent in enumerate(b.shape):
            if b.space not in (Space.INPUT, Space.OUTPUT) or b.strides is not None or not isinstance(extent, int):
                continue
            if extent % size or not 1 < size < extent:
                continue
            if any(_is_longer(d, index[k], size) for d, index in places.get(b.name, ())):
                continue
            if (made := _all_with_digits(defs.values(), b.name, k, size)) is not None:
                shape = (*b.shape[:k], extent // size, size, *b.shape[k + 1 :])
                new = replace(b, shape=shape, view_of=b.view_of or b.shape)
                buffers = tuple(new if x.name == b.name else x for x in program.buffers)
                kernels = tuple(kernel_of(_ordered(d, new)) for d in made)
                return viewed(replace(program, buffers=buffers, kernels=kernels), size)
    return program


def _places(defs: Iterable[Def]) -> dict[str, list[tuple[Def, tuple[Expr, ...]]]]:
    """By tensor, the definitions that read or write it, with the indices."""
    found: dict[str, list[tuple[Def, tuple[Expr, ...]]]] = {}
    for d in defs:
        found.setdefault(d.name, []).append((d, d.index))
        for ld in d.reads():
            found.setdefault(ld.buffer, []).append((d, ld.index))
    return found


def _is_longer(d: Def, e: Expr, size: int) -> bool:
    """Whether the position ``e`` is an axis of ``d`` with more than ``size`` elements, whose digits are computed."""
    found = (axis.extent for axis in d.axes if isinstance(e, Var) and axis.name == e.name)
    return any(isinstance(n, int) and n > size for n in found)


def _all_with_digits(defs: Iterable[Def], buffer: str, k: int, size: int) -> list[Def] | None:
    """The definitions with two indices for index ``k`` of ``buffer``; None where one of them has no such digits."""
    made = list[Def]()
    for d in defs:
        if (changed := _with_digits(d, buffer, k, size)) is None:
            return None
        made.append(changed)
    return made


def read_by_digits(program: Program) -> PackPlan | None:
    """The axis of a temp that a definition reads at ``B * x + y`` with axes ``x`` and ``y``, with the extent B of y.

    Every other read of the temp is at such digits as well, or at an axis as a whole.  A filter along the axis, whose
    neighbouring results read neighbours in a tensor, keeps it whole, and so does a product that has rows or columns
    along it, where groups of them are less than :data:`COLUMNS`.
    """
    defs = find_defs(program)
    for name, d in defs.items():
        if d.buffer.space is not Space.TEMP or d.at is not None or d.scatter is not None:
            continue
        for n, axis in enumerate(d.par):
            if _slides(d, axis.name):
                continue
            reads = [(r, ld.index[n]) for r in defs.values() for ld in r.reads() if ld.buffer == name]
            sizes = {found for r, e in reads if (found := last_digit(r, e)) is not None}
            b = sizes.pop() if len(sizes) == 1 else 0
            whole = size(axis) or 0
            if (
                b
                and (b >= COLUMNS or not _is_side(d, axis.name, defs))
                and whole % b == 0
                and b < whole
                and all(isinstance(e, Var) or digits_of(r, e, b) is not None for r, e in reads)
            ):
                return PackPlan(name, axis.name, b)
    return None


def _slides(d: Def, axis: str) -> bool:
    """Whether a reduced axis moves a read of ``d`` along ``axis``, as the taps of a filter do.

    The positions of tiles of such a product are those of neighbours in an operand.
    """
    return slides(d, {axis}, {a.name for a in d.red})


def _is_side(d: Def, axis: str, defs: Mapping[str, Def]) -> bool:
    """Whether ``d`` has the elements of a product along the rows or columns ``axis``, of which tiles have many."""
    own = tuple(Var(a.name) for a in d.par)
    made = [d] if d.is_reduction else [defs[ld.buffer] for ld in d.reads() if ld.buffer in defs and ld.index == own]
    for x in made:
        found = matrix_product(strip_conversions(x.value), [a.name for a in x.par]) if x.op == "sum" else None
        place = next(n for n, a in enumerate(d.par) if a.name == axis)
        if found is not None and x.par[place].name in found.rows | found.columns:
            return True
    return False


def last_digit(d: Def, e: Expr) -> int | None:
    """The extent B of the axis ``y`` of ``d`` where the position ``e`` is ``B * x + y`` with another axis ``x``."""
    for y in (a for a in d.axes if a.name in free_vars(e)):
        b, found = size(y), linear_in(e, y.name)
        if b is None or b < 2 or found is None or found[0] != 1:
            continue
        if any(found[1] == calc("mul", Var(x.name), b) for x in d.axes if x is not y):
            return b
    return None


def _with_digits(d: Def, buffer: str, k: int, size: int) -> Def | None:
    """``d`` with two indices for index ``k`` of ``buffer``; None where one is not the sum of two such digits."""
    places = {ld.index[k] for ld in d.reads() if ld.buffer == buffer} | ({d.index[k]} if d.name == buffer else set())
    if not places:
        return d
    found = {e: digits for e in places if (digits := digits_of(d, e, size)) is not None}
    if len(found) < len(places):
        return None

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer != buffer:
            return None
        return replace(e, index=(*e.index[:k], *found[e.index[k]], *e.index[k + 1 :]))

    value, guard = rewrite(d.value, rule), None if d.guard is None else rewrite(d.guard, rule)
    at = (*d.index[:k], *found[d.index[k]], *d.index[k + 1 :]) if d.name == buffer else d.at
    return replace(d, value=value, guard=guard, at=at)


def digits_of(d: Def, e: Expr, size: int) -> tuple[Expr, Expr] | None:
    """Quotient and remainder of the position ``e`` by ``size``; None where they have to be computed."""
    ranges, assumptions = axis_assumptions(d.axes)
    group, member = (simplify(Op(o, (e, integer(size)), DType.I32), ranges, assumptions) for o in ("floordiv", "mod"))
    own = {n for n in walk(e) if isinstance(n, Op)}
    nodes = (n for x in (group, member) for n in walk(x) if n not in own)
    computed = any(isinstance(n, Load) or (isinstance(n, Op) and n.op in ("floordiv", "mod")) for n in nodes)
    return None if computed else (group, member)


def _ordered(d: Def, b: Buffer) -> Def:
    """``d``, which may write ``b``, with its axes in the order of the buffer where each is an index of it."""
    if d.name != b.name or d.at is None:
        return d
    axes = {a.name: a for a in d.par}
    names = [e.name for e in d.at if isinstance(e, Var)]
    whole = len(names) == len(d.at) and sorted(names) == sorted(axes)
    return replace(d, buffer=b, par=tuple(axes[x] for x in names), at=None) if whole else replace(d, buffer=b)

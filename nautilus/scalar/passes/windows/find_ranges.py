"""``find-ranges``: the blocks that a condition on memory leaves are found first, and loops visit the range of them.

Under a condition such as ``j <= i and doc[i] == doc[j]``, the loop over ``j`` of a block of rows ``i`` has to visit all
elements, although few of them may be admitted.  Three more definitions find for each block of :data:`BLOCK` rows the
blocks of ``j`` that have an admitted element, and the first and the last one of them::

    live[I, J]   any= true           where cond(64 * I + r, 64 * J + c)
    first[I]     min= 64 * J         where live[I, J]
    last[I]      max= 64 * J + 64    where live[I, J]
    O[i]         sum= ...            where cond(i, j) and first[i // 64] <= j and j < last[i // 64]

The condition implies the new parts, whatever the tensors hold.  ``partition`` begins and ends the loop at these
numbers, so blocks outside of the range are not computed; dead blocks inside of it are.  FlexAttention has a map of
blocks too (Dong et al., 2024).  Here it is made on the device in each launch, because the tensors may have changed.

The pass applies where a part of the condition reads memory at positions along the reduced axis or along the rows, and
where evaluating the condition takes a small part of the time of the products under it.  Parts that are the same for a
whole block, such as ``j < len[b]``, need no map, and where most elements are admitted whatever the tensors hold, as
those before a tree of new tokens, it would be the whole axis.  Segments, ``ptr[n] <= j < ptr[n + 1]``, and sums whose
terms are the same for all rows have loops of their own.  Sizes that are known at launch only are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import FALSE, TRUE, conjunction, conjuncts
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Param, Var, free_vars, loads, substitute, walk
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.domains import admitted_share
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, fresh_name, kernel_of, put_defs

BLOCK = 64  # rows, and elements of the reduced axis; tiles of rows are multiples of it, or divide it
LEAST = 16  # blocks along the reduced axis
WORK = 64  # terms of the largest reduction for each evaluation of the condition
CERTAIN = 0.25  # share of elements that are admitted anyway, above which a range is mostly the whole axis
_POINTS = 32  # positions along an axis at which a condition is evaluated
TERMS = 1 << 35  # of the largest reduction, below which the kernels before it are no small part of its time


@dataclass(frozen=True, slots=True)
class _Member:
    """A reduction, and the one of its reduced axes that its condition is about."""

    d: Def
    reduced: Axis


@dataclass(frozen=True, slots=True)
class _Place:
    """The axes of a condition beside the reduced one: the rows (None: there are none), and the others."""

    rows: Axis | None
    others: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class FindRanges:
    """Find the range of every condition for which that pays, or of ``every`` condition."""

    every: bool = False

    name = "find-ranges"

    def apply(self, program: Program) -> Program:
        """The program with three more definitions for each such condition."""
        for members in _groups(find_defs(program).values()):
            place = _place(members)
            if place is not None and (self.every or _pays(members, place)):
                program = _with_range(program, members, place)
        return program


def _groups(defs: Iterable[Def]) -> Iterator[list[_Member]]:
    """The reductions that have a condition in common, in the order of the program."""
    found: dict[tuple[Expr, object], list[_Member]] = {}
    for d in defs:
        if not d.is_reduction or d.at is not None or d.guard is None:
            continue
        reduced = [a for a in d.red if a.name in free_vars(d.guard)]
        if len(reduced) == 1:
            (over,) = reduced
            same = substitute(d.guard, {over.name: Var("%reduced")})
            found.setdefault((same, over.extent), []).append(_Member(d, over))
    yield from found.values()


def _place(members: Sequence[_Member]) -> _Place | None:
    """The axes of the condition of ``members``; None where the pass does not apply to it."""
    d, over = members[0].d, members[0].reduced
    assert d.guard is not None
    used = free_vars(d.guard) - {over.name}
    shared = [a for a in d.par if a.name in used]
    if len(shared) < len(used) or any(m.d.axis(a.name) != a for m in members for a in shared):
        return None
    if any(size(a) is None for a in (over, *shared)):
        return None
    rows = next((a for a in reversed(shared) if any(_shares(m, a.name) for m in members)), None)
    if _is_segment(d.guard, over.name):
        return None
    if rows is not None and all(rows.name not in free_vars(m.d.value) for m in members):
        return None
    moving = {over.name} | ({rows.name} if rows else set())
    if not any(free_vars(ld) & moving for ld in loads(d.guard)):
        return None
    return _Place(rows, tuple(a for a in shared if a is not rows))


def _is_segment(guard: Expr, over: str) -> bool:
    """Whether two elements of one tensor are the ends of a range, ``ptr[n] <= j`` and ``j < ptr[n + 1]``."""
    ends = Counter(ld.buffer for ld in loads(guard) if over not in free_vars(ld))
    return any(n > 1 for n in ends.values())


def _shares(m: _Member, rows: str) -> bool:
    """Whether ``m`` reads an operand along the reduced axis that is the same for all ``rows``, so they are a tile."""
    operands = (free_vars(ld) for ld in loads(m.d.value) if ld.dtype.is_float and len(ld.index) > 1)
    return any(m.reduced.name in names and rows not in names for names in operands)


def _pays(members: Sequence[_Member], place: _Place) -> bool:
    """Whether finding the range takes a small part of the time of the largest of ``members``, and may shorten it."""
    if _certain_share(members[0]) > CERTAIN:
        return False
    terms = max(prod(size(a) or 1 for a in m.d.axes) for m in members) * _possible_share(members[0])
    rows = (place.rows,) if place.rows else ()
    points = prod(size(a) or 1 for a in (members[0].reduced, *rows, *place.others))
    return (size(members[0].reduced) or 0) >= LEAST * BLOCK and terms >= max(WORK * points, TERMS)


def _certain_share(m: _Member) -> float:
    """The share of elements that the condition admits whatever the tensors hold, about."""
    return _share(m, FALSE)


def _possible_share(m: _Member) -> float:
    """The share of elements that the condition may admit, about."""
    return _share(m, TRUE)


def _share(m: _Member, memory: Const) -> float:
    """The share of elements that the condition admits where each condition on memory is ``memory``."""
    assert m.d.guard is not None
    guard = _with_memory(m.d.guard, memory)
    if any(isinstance(e, Param | Load) for e in walk(guard)):
        return float(bool(memory.value))
    return admitted_share(guard, m.d.axes, _POINTS)


def _with_memory(e: Expr, memory: Const) -> Expr:
    """``e`` with ``memory`` in the place of conditions on memory."""
    if not loads(e):
        return e
    if isinstance(e, Op) and e.op in ("and", "or"):
        return calc(e.op, *(_with_memory(x, memory) for x in e.args))
    if isinstance(e, Op) and e.op == "select" and not loads(e.args[0]):
        return calc("select", e.args[0], *(_with_memory(x, memory) for x in e.args[1:]))
    return memory


def _with_range(program: Program, members: Sequence[_Member], place: _Place) -> Program:
    """``program`` with the range before the first of ``members``, and with its ends in their conditions."""
    made = _range_defs(program, members[0], place)
    at = [Var(a.name) for a in place.others] + ([_block(place.rows)] if place.rows else [])
    begin, end = (Load(d.name, tuple(at), DType.I32, d.span) for d in made[1:])
    for m in members:
        j = Var(m.reduced.name)
        guard = conjunction((m.d.guard, calc("le", begin, j), calc("lt", j, end)))
        program = put_defs(program, m.d.name, (replace(m.d, guard=guard),))
    names = {m.d.name for m in members}
    before = next(n for n, k in enumerate(program.kernels) if k.name in names)
    kernels = (*program.kernels[:before], *map(kernel_of, made), *program.kernels[before:])
    return replace(program, buffers=(*program.buffers, *(d.buffer for d in made)), kernels=kernels)


def _block(axis: Axis) -> Expr:
    return calc("floordiv", Var(axis.name), integer(BLOCK))


def _range_defs(program: Program, m: _Member, place: _Place) -> tuple[Def, Def, Def]:
    """Which blocks have an admitted element, and the ends of the range of them."""
    d, others = m.d, place.others
    whole = [a for a in (place.rows, m.reduced) if a is not None]
    blocks = [replace(a, extent=-(-(size(a) or 0) // BLOCK)) for a in whole]
    inner = [Axis(f"{a.name}_in", BLOCK, a.span) for a in blocks]
    where, inside = _conditions(d, blocks, inner, {a.name: size(a) or 0 for a in whole})
    live = _temp(program, f"{d.name}_live", DType.BOOL, (*others, *blocks), d)
    guard = where if inside == TRUE else calc("select", inside, where, FALSE)
    live = replace(live, red=tuple(inner), op="any", value=TRUE, guard=guard)
    over, par = blocks[-1], (*others, *blocks[:-1])
    read = Load(live.name, live.index, DType.BOOL, d.span)
    start = calc("mul", Var(over.name), integer(BLOCK))
    first = _temp(program, f"{d.name}_first", DType.I32, par, d)
    last = _temp(program, f"{d.name}_last", DType.I32, par, d)
    return (
        live,
        replace(first, red=(over,), op="min", value=start, guard=read),
        replace(last, red=(over,), op="max", value=calc("add", start, integer(BLOCK)), guard=read),
    )


def _conditions(
    d: Def, blocks: Sequence[Axis], inner: Sequence[Axis], sizes: Mapping[str, int]
) -> tuple[Expr, Expr]:  # fmt: skip
    """The condition of ``d`` at an element of a block, and that the element is there."""
    places = {
        a.name: calc("add", calc("mul", Var(a.name), integer(BLOCK)), Var(i.name))
        for a, i in zip(blocks, inner, strict=True)
    }
    inside = [calc("lt", places[n], integer(size)) for n, size in sizes.items() if size % BLOCK]
    return conjunction(substitute(c, places) for c in conjuncts(d.guard)) or TRUE, conjunction(inside) or TRUE


def _temp(program: Program, name: str, dtype: DType, axes: Sequence[Axis], d: Def) -> Def:
    name = fresh_name(program, name)
    buffer = Buffer(name, dtype, tuple(a.extent for a in axes), Space.TEMP, d.span)
    return Def(name, buffer, tuple(axes), (), None, TRUE, None, d.span)

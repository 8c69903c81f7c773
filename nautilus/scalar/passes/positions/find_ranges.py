"""``find-ranges``: the blocks that a condition on memory leaves are found first, and loops visit the range of them.

Under a condition such as ``j <= i and doc[i] == doc[j]``, the loop over ``j`` of a block of rows ``i`` has to visit all
elements, although few of them may be admitted.  More definitions find for each block of :data:`BLOCK` rows the first
and the last block of ``j`` that may have an admitted element, from the bounds of what the condition compares
(``analysis.blocks.verdicts``)::

    least[I]     min= doc[64 * I + r]    and the greatest one
    first[I]     min= 64 * J             where J <= I and least[J] <= greatest[I] and least[I] <= greatest[J]
    last[I]      max= 64 * J + 64        where the same holds
    O[i]         sum= ...                where implied(cond(i, j), false, first[i // 64] <= j and j < last[i // 64])

The condition implies the range, whatever the tensors hold.  ``partition`` begins and ends loops at these numbers, so
blocks outside of the range are not computed; dead blocks inside of it are.  FlexAttention has a map of blocks too (Dong
et al., 2024).  Here the range is found on the device in each launch, because the tensors may have changed.

The pass applies where a part of the condition reads memory at positions along the reduced axis or along the rows, and
where the search takes a small part of the time of the products under it.  Parts that are the same for a
whole block, such as ``j < len[b]``, need no map, and where most elements are admitted whatever the tensors hold, as
those before a tree of new tokens, or all but one, ``j != best[i]``, it would be the whole axis.  Segments,
``ptr[n] <= j < ptr[n + 1]``, and sums whose terms are the same for all rows have loops of their own.  A size that is
known at launch only has the blocks of its bound, of which those beyond the size have no elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import FALSE, TRUE, conjunction, conjuncts, implied, short_circuit
from nautilus.core.expr.nodes import (
    Axis,
    Const,
    Expr,
    Load,
    Op,
    Param,
    Var,
    free_vars,
    loads,
    substitute,
    walk,
)
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import Extent, at_most, extent_expr, nominal
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.blocks.tensor_ends import Readable, reads_inside
from nautilus.scalar.analysis.blocks.verdicts import Judge
from nautilus.scalar.analysis.definitions import Def, points
from nautilus.scalar.analysis.domains import admitted_share
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import axis_assumptions, find_defs, fresh_name, kernel_of, put_defs

BLOCK = 64  # rows, and elements of the reduced axis; tiles of rows are multiples of it, or divide it
LEAST = 16  # blocks along the reduced axis
WORK = 64  # terms of the largest reduction for each evaluation of the condition
CERTAIN = 0.25  # share of elements that are admitted in any case, above which a range is mostly the whole axis
_POINTS = 32  # positions along an axis at which a condition is evaluated
TERMS = 1 << 33  # least number of terms of the largest reduction: the kernels before it take too long beside fewer
LAST = (1 << 25) - 1  # block that begins beyond the largest size
BOUND = 1 << 20  # elements, up to which an axis of a size known at launch has as many blocks as it may need


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
    """Find the range of every condition where that is predicted to save time, or of ``every`` condition."""

    every: bool = False

    name = "find-ranges"

    def apply(self, program: Program) -> Program:
        """The program with more definitions for each such condition."""
        defs = find_defs(program)
        for members in _groups(defs.values()):
            place = _place(members, defs)
            terms = _terms(members, defs)
            if place is not None and (self.every or _pays(members, place, terms)):
                program = _with_ranges(program, members, place, 0 if self.every else terms / WORK)
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


def _place(members: Sequence[_Member], defs: Mapping[str, Def]) -> _Place | None:
    """The axes of the condition of ``members``; None where the pass does not apply to it."""
    d, over = members[0].d, members[0].reduced
    assert d.guard is not None
    used = free_vars(d.guard) - {over.name}
    shared = [a for a in d.par if a.name in used]
    if len(shared) < len(used) or any(m.d.axis(a.name) != a for m in members for a in shared):
        return None
    rows = next((a for a in reversed(shared) if any(_shares(m, a.name, defs) for m in members)), None)
    if rows is not None and all(rows.name not in free_vars(m.d.value) for m in members):
        return None
    if (rows is not None and _is_segment(d.guard, rows.name)) or not _moving(d.guard, over, rows):
        return None
    return _Place(rows, tuple(a for a in shared if a is not rows))


def _moving(e: Expr, over: Axis, rows: Axis | None) -> bool:
    """Whether ``e`` reads memory at positions along ``over`` or along ``rows``."""
    names = {over.name} | ({rows.name} if rows else set())
    return any(free_vars(ld) & names for ld in loads(e))


def _is_segment(guard: Expr, rows: str) -> bool:
    """Whether two elements of one tensor are the ends of a range, ``ptr[n] <= j`` and ``j < ptr[n + 1]``."""

    def follow(a: Load, b: Load) -> bool:
        differ = [(x, y) for x, y in zip(a.index, b.index, strict=True) if x != y]
        return all(rows in free_vars(x) & free_vars(y) and not loads(x) for x, y in differ)

    return any(a.buffer == b.buffer and follow(a, b) for a, b in combinations(loads(guard), 2))


def _shares(m: _Member, rows: str, defs: Mapping[str, Def]) -> bool:
    """Whether ``m`` reads an operand along the reduced axis that is the same for all ``rows``, so they are a tile.

    An operand of a product that it reads counts too.
    """
    read = loads(m.d.value)
    inner = (_read_by(defs[ld.buffer], ld) for ld in read if ld.buffer in defs and defs[ld.buffer].is_reduction)
    operands = (free_vars(ld) for ld in (*read, *(x for found in inner for x in found)) if len(ld.index) > 1)
    return any(m.reduced.name in names and rows not in names for names in operands)


def _read_by(d: Def, at: Load) -> tuple[Load, ...]:
    """What element ``at`` of ``d`` reads."""
    return loads(substitute(d.value, {a.name: e for a, e in zip(d.par, at.index, strict=True)})) if d.at is None else ()


def _pays(members: Sequence[_Member], place: _Place, terms: float) -> bool:
    """Whether a range may shorten the largest of ``members``, of ``terms``, by more than it takes to find."""
    if _certain_share(members[0], place) > CERTAIN:
        return False
    return nominal(members[0].reduced.extent) >= LEAST * BLOCK and terms >= TERMS


def _terms(members: Sequence[_Member], defs: Mapping[str, Def]) -> float:
    """The approximate terms of the largest of ``members`` and of what they read that their condition may admit."""
    read = (ld.buffer for m in members for ld in loads(m.d.value) if m.reduced.name in free_vars(ld))
    found = [m.d for m in members] + [defs[name] for name in read if name in defs]
    return max(points(d.axes) for d in found) * _possible_share(members[0])


def _certain_share(m: _Member, place: _Place) -> float:
    """The approximate share of elements that the condition admits whatever is in memory at the positions of elements.

    What is the same for a whole block holds: under ``j < len[b] or tree[i, j - len[b]]``, those before a length.
    """
    return _share(m, FALSE, lambda e: not _moving(e, m.reduced, place.rows) or _leaves_out_one(e, m.reduced.name))


def _leaves_out_one(c: Expr, over: str) -> bool:
    """Whether ``c`` leaves out the element at one position of the axis ``over``, ``j != best[i]``."""
    if not isinstance(c, Op) or c.op != "ne":
        return False
    moved = [_place_along(e, over) for e in c.args if over in free_vars(e)]
    return len(moved) == 1 and moved[0] == Var(over)


def _place_along(e: Expr, over: str) -> Expr:
    """The only term of the sum or difference ``e`` that depends on ``over``; ``e`` where there are several."""
    while isinstance(e, Op) and e.op in ("add", "sub"):
        found = [x for x in e.args if over in free_vars(x)]
        if len(found) != 1:
            break
        (e,) = found
    return e


def _possible_share(m: _Member) -> float:
    """The approximate share of elements that the condition may admit."""
    return _share(m, TRUE)


def _share(m: _Member, memory: Const, holds: Callable[[Expr], bool] = lambda e: False) -> float:
    """The share of elements that the condition admits where one on memory is ``memory``, or true where it ``holds``."""
    assert m.d.guard is not None
    guard = _with_memory(m.d.guard, memory, holds)
    if any(isinstance(e, Param | Load) for e in walk(guard)):
        return float(bool(memory.value))
    return admitted_share(guard, m.d.axes, _POINTS)


def _with_memory(e: Expr, memory: Const, holds: Callable[[Expr], bool]) -> Expr:
    """``e`` with ``memory`` in the place of conditions on memory, or with ``true`` where one ``holds``."""
    if not loads(e):
        return e
    if isinstance(e, Op) and e.op in ("and", "or"):
        return calc(e.op, *(_with_memory(x, memory, holds) for x in e.args))
    if isinstance(e, Op) and e.op == "select" and (e.dtype is DType.BOOL or not loads(e.args[0])):
        return calc("select", *(_with_memory(x, memory, holds) for x in e.args))
    return TRUE if holds(e) else memory


def _with_ranges(program: Program, members: Sequence[_Member], place: _Place, most: float) -> Program:
    """``program`` with the ranges before the first of ``members``, and in their conditions.

    ``most``: elements of which reductions may find them; 0: any number.
    """
    d, over = members[0].d, members[0].reduced
    search = _Search(program, d, over, place)
    judge = Judge(search.positions, search.over)
    verdicts = [judge.verdict(c) for c in conjuncts(d.guard)]
    possible = conjunction(simplify(v.possible) for v in verdicts) or TRUE
    live = search.live(possible)
    if possible == TRUE or 0 < most < search.evaluations():
        return program
    for m in members:
        j = {over.name: Var(m.reduced.name)}
        known = [c for c in conjuncts(m.d.guard) if _moving(c, m.reduced, place.rows)]
        rest = [c for c in conjuncts(m.d.guard) if c not in known]
        told = implied(conjunction(known) or TRUE, FALSE, substitute(live, j))
        program = put_defs(program, m.d.name, (replace(m.d, guard=conjunction((*rest, told))),))
    names = {m.d.name for m in members}
    before = next(n for n, k in enumerate(program.kernels) if k.name in names)
    made = search.needed()
    kernels = (*program.kernels[:before], *map(kernel_of, made), *program.kernels[before:])
    return replace(program, buffers=(*program.buffers, *(x.buffer for x in made)), kernels=kernels)


class _Search:
    """The definitions that find the ranges of the condition of ``d``; ``made``: in the order of their dependence."""

    def __init__(self, program: Program, d: Def, over: Axis, place: _Place) -> None:
        self.program, self.d, self.over_axis, self.place = program, d, over, place
        self.whole = {a.name: a for a in (place.rows, over) if a is not None}
        self.blocks = {name: replace(a, extent=_block_count(a)) for name, a in self.whole.items()}
        self.inner = {name: Axis(f"{name}_in", BLOCK, a.span) for name, a in self.whole.items()}
        self.known, _ = axis_assumptions(d.axes)
        shapes = {b.name: b.shape for b in program.buffers}
        self.readable = Readable(shapes, {a.name: extent_expr(a.extent) for a in d.axes})
        self.made: list[Def] = []
        self.found: dict[tuple[str, Expr, Extent | None], Def] = {}

    @property
    def positions(self) -> Mapping[str, tuple[Expr, Expr]]:
        """The first and the last position of a block along the rows and along the reduced axis."""
        return {name: (self.start(name), self.last_position(name)) for name in self.whole}

    def start(self, name: str) -> Expr:
        """The first position of a block; of one far beyond any size, a position that is an i32 too."""
        block = Var(name)
        return calc("mul", block if isinstance(self.blocks[name].extent, int) else calc("min", block, LAST), BLOCK)

    def last_position(self, name: str) -> Expr:
        """The last position of a block that has elements."""
        last = calc("add", self.start(name), BLOCK - 1)
        return calc("min", last, calc("sub", self.size(name), 1)) if self.is_ragged(name) else last

    def size(self, name: str) -> Expr:
        """The elements of an axis."""
        return extent_expr(self.whole[name].extent)

    def is_ragged(self, name: str) -> bool:
        """Whether blocks along the axis ``name`` may have positions outside of it."""
        extent = self.whole[name].extent
        return not isinstance(extent, int) or extent % BLOCK > 0

    def evaluations(self) -> int:
        """Elements of which reductions over blocks are made."""
        blocks = {name: -(-nominal(a.extent) // BLOCK) for name, a in self.whole.items()}
        return sum(prod(blocks.get(a.name) or nominal(a.extent) for a in d.axes) for d in self.needed())

    def needed(self) -> list[Def]:
        """The definitions that the ranges read."""
        read = {ld.buffer for d in self.made for ld in loads(d.guard or TRUE)}
        ends = {a.name for a in self.blocks.values()}
        return [d for d in self.made if d.name in read or {a.name for a in d.red} <= ends]

    def over(self, op: str, e: Expr) -> Expr:
        """The reduction ``op`` of ``e`` over the elements of a block."""
        e = reads_inside(e, self.known, self.readable)
        moving = [name for name in self.whole if name in free_vars(e)]
        places = {n: calc("add", self.start(n), Var(self.inner[n].name)) for n in moving}
        known = {a.name: (0, BLOCK - 1) for a in self.inner.values()}
        placed = simplify(substitute(e, places), known)
        inner = [self.inner[n] for n in moving if self.inner[n].name in free_vars(placed)]
        if not inner:
            return placed
        others = [a for a in self.place.others if a.name in free_vars(e)]
        at = tuple(Var(a.name) for a in (*others, *(self.blocks[n] for n in moving)))
        alone = moving[0] if len(moving) == 1 else None  # rows and columns share the bounds of one tensor
        same, extent = (e, None) if alone is None else (substitute(e, {alone: Var("%")}), self.whole[alone].extent)
        key = (op, same, extent)
        if key not in self.found:
            name = f"{loads(e)[0].buffer if loads(e) else self.d.name}_{op}"
            made = self.temp(name, e.dtype, [*others, *(self.blocks[n] for n in moving)])
            reached = {a.name for a in inner}
            ends = {n: places[n] if self.inner[n].name in reached else self.start(n) for n in moving}
            inside = conjunction(calc("lt", ends[n], self.size(n)) for n in moving if self.is_ragged(n))
            self.found[key] = replace(made, red=tuple(inner), op=op, value=placed, guard=inside)
            self.made.append(self.found[key])
        return Load(self.found[key].name, at, e.dtype, self.d.span)

    def inside(self) -> Expr | None:
        """The condition that a block has elements."""
        beyond = (n for n, a in self.whole.items() if not isinstance(a.extent, int))
        return conjunction(calc("lt", self.start(n), self.size(n)) for n in beyond)

    def live(self, possible: Expr) -> Expr:
        """The condition that an element is in the range of blocks for which ``possible`` holds."""
        start = self.start(self.over_axis.name)
        where = _within(self.inside(), possible)
        first = self.end("first", "min", start, where)
        last = self.end("last", "max", calc("add", start, BLOCK), where)
        return self.between(first, last)

    def end(self, name: str, op: str, value: Expr, where: Expr) -> Def:
        """The reduction ``op`` of ``value`` over blocks of the reduced axis, for each block of rows."""
        rows = [self.blocks[self.place.rows.name]] if self.place.rows else []
        made = self.temp(f"{self.d.name}_{name}", DType.I32, [*self.place.others, *rows])
        self.made.append(replace(made, red=(self.blocks[self.over_axis.name],), op=op, value=value, guard=where))
        return self.made[-1]

    def between(self, first: Def, last: Def) -> Expr:
        """The condition that an element is in the range from ``first`` to ``last``."""
        at: list[Expr] = [Var(a.name) for a in self.place.others]
        if self.place.rows:
            at.append(calc("floordiv", Var(self.place.rows.name), BLOCK))
        begin, end = (Load(x.name, tuple(at), DType.I32, self.d.span) for x in (first, last))
        j = Var(self.over_axis.name)
        return calc("and", calc("le", begin, j), calc("lt", j, end))

    def temp(self, name: str, dtype: DType, axes: Sequence[Axis]) -> Def:
        """A definition in memory, without its value."""
        name = fresh_name(self.program, name, [d.name for d in self.made])
        buffer = Buffer(name, dtype, tuple(a.extent for a in axes), Space.TEMP, self.d.span)
        return Def(name, buffer, tuple(axes), (), None, TRUE, None, self.d.span)


def _within(inside: Expr | None, e: Expr) -> Expr:
    return e if inside is None else short_circuit(inside, e)


def _block_count(a: Axis) -> Extent:
    """Blocks along ``a``: of its bound, or as many as it has elements where that is large."""
    if isinstance(a.extent, int) or at_most(a.extent) <= BOUND:
        return -(-at_most(a.extent) // BLOCK)
    return a.extent

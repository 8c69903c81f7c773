"""``extend-reductions``: a reduction that a part of a result reads gets the axes of the result.

A result that has rows from several places, as where one row stands before others, reads a reduction at positions of its
own, under a condition::

    E[t, c] sum= X[t, p] * W[p, c]                  ;    Y[t, c] = first[c] if t == 0 else E[t - 1, c]

Kernels have axes that their definitions share, so that these are two kernels, and all of ``E`` would be in memory.
Here ``E`` has an element for each one of ``Y``, of which those that ``Y`` does not read have no terms::

    E_at[t, c] sum= X[t - 1, p] * W[p, c] where 0 <= t - 1 < T
    Y[t, c] = first[c] if t == 0 else E_at[t, c]

One elementwise definition reads the reduction, at variables of its own, each a constant away.  It has at most
:data:`MORE` times the elements: terms outside cost nothing, but what loads and stores them has their tiles.  Running
results, whose terms a condition chooses by the position of the result, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.expr.build import within
from nautilus.core.expr.conditions import TRUE, conjunction, negated
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, children, free_vars, loads, rewrite, substitute
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def, points, rename_axes, size
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.rewriting import axis_assumptions, find_defs, fresh_name, put_defs

MORE = 4


@dataclass(frozen=True, slots=True)
class ExtendReductions:
    """Give reductions that a part of a result reads the axes of the result."""

    name = "extend-reductions"

    def apply(self, program: Program) -> Program:
        """The program with such reductions; the same object where there are none."""
        for name in find_defs(program):
            live = Dead().apply(program)
            defs = find_defs(live)
            found = _reader(defs[name], defs) if name in defs else None
            if found is not None:
                made, reader = _extended(live, defs[name], *found)
                program = Dead().apply(put_defs(put_defs(live, name, (made,)), reader.name, (reader,)))
        return program


def _reader(d: Def, defs: Mapping[str, Def]) -> tuple[Def, Load] | None:
    """The definition that reads the reduction ``d`` at shifted positions, and how; None where there is none."""
    plain = d.is_reduction and d.at is None and d.buffer.space is Space.TEMP and d.buffer.support is None
    readers = [r for r in defs.values() if any(ld.buffer == d.name for ld in r.reads())]
    if not plain or len(readers) != 1:
        return None
    (r,) = readers
    reads = {ld for ld in r.reads() if ld.buffer == d.name}
    if r.op is not None or r.guard is not None or r.at is not None or r.scatter is not None or len(reads) != 1:
        return None
    (ld,) = reads
    found = [_shifted(e) for e in ld.index]
    names = [p[0] for p in found if p is not None]
    extents = {a.name: a.extent for a in r.par}
    if len(names) < len(found) or len({*names}) < len(names) or not {*names} <= extents.keys():
        return None
    pairs = zip(d.par, (p for p in found if p is not None), strict=True)
    moved = [(a, x) for a, (x, by) in pairs if by or extents[x] != a.extent]
    sized = all(size(a) is not None and isinstance(extents[x], int) for a, x in moved)
    own = set[str]() if d.guard is None else free_vars(d.guard)
    if own & {a.name for a in d.red} and own & {a.name for a, _ in moved}:
        return None  # running results have kernels that find them one after another
    few = points(r.axis(x) or a for a, x in zip(d.par, names, strict=True)) <= MORE * points(d.par)
    return (r, ld) if moved and sized and few else None


def _shifted(e: Expr) -> tuple[str, int] | None:
    """The variable and the constant whose sum ``e`` is; None for another expression."""
    x = linear(e)
    match [*x.terms.items()]:
        case [(Var(name=name), 1)]:
            return name, x.const
    return None


def _extended(program: Program, d: Def, r: Def, ld: Load) -> tuple[Def, Def]:
    """The reduction ``d`` at the axes of ``r``, which reads it at ``ld``, and ``r`` with it."""
    taken = {a.name for a in (*d.axes, *r.axes)}
    names = {a.name: unused(a.name, taken) for a in d.red if r.axis(a.name) is not None}
    d = rename_axes(d, names)
    axes: list[Axis] = []
    for e in ld.index:
        shift = _shifted(e)
        own = None if shift is None else r.axis(shift[0])
        assert own is not None
        axes.append(own)
    env: dict[str, Expr] = {a.name: e for a, e in zip(d.par, ld.index, strict=True)}
    ranges, given = axis_assumptions(axes)
    inside: list[Expr] = [c for a, e in zip(d.par, ld.index, strict=True) for c in within(e, a.extent)]
    name = fresh_name(program, f"{d.name}_at")
    buffer = replace(d.buffer, name=name, shape=tuple(a.extent for a in axes))
    value = substitute(d.value, env)
    other = None if d.guard is None else substitute(d.guard, env)
    chosen = (simplify(c, ranges, given) for c in _choices(r.value, ld))
    read = [c for c in chosen if free_vars(c) <= {a.name for a in axes} and not loads(c)]
    if all(simplify(c, ranges, (*given, *read)) == TRUE for c in inside):
        inside = read  # as the reader has it, so that a kernel of both knows which elements nothing reads
    guard = conjunction((*inside, other))
    guard = None if guard is None else simplify(guard, ranges, given)
    made = replace(d, name=name, buffer=buffer, par=tuple(axes), value=value, guard=guard)

    def rule(e: Expr) -> Expr | None:
        return replace(ld, buffer=name, index=made.index) if e == ld else None

    return made, replace(r, value=rewrite(r.value, rule))


def _choices(e: Expr, ld: Load) -> tuple[Expr, ...]:
    """The conditions under which ``e`` chooses what reads ``ld``; none where that stands in several places."""
    found = list(_places(e, ld))
    return found[0] if len(found) == 1 else ()


def _places(e: Expr, ld: Load) -> Iterator[tuple[Expr, ...]]:
    """For each place of ``ld`` in ``e``, the conditions under which it is chosen, from the outermost one."""
    if e == ld:
        yield ()
        return
    for n, x in enumerate(children(e)):
        for inner in _places(x, ld):
            chosen = children(e)[0] if isinstance(e, Op) and e.op == "select" and n > 0 else None
            yield inner if chosen is None else (chosen if n == 1 else negated(chosen), *inner)

"""``join-recurrences``: what only follows or feeds the steps of a recurrence is computed in its steps.

* A definition *after* a recurrence becomes a nest of its steps, if it reads the tensors of the recurrence at its own
  step or earlier ones, and reads each element once: its axes are those of one such read.  So a state that the
  definition only rounds, or that it sums over, is not in memory.  An independent axis of the recurrence over which the
  definition sums is one of its nests then.  That takes blocks from the grid, so it is done only for a definition that
  reads the largest tensor of the recurrence: a softmax of what the steps have summed already saves little memory, and
  the state that it would bring into one block is too large to stay on chip.
* An elementwise definition of inputs *in front* of a recurrence, which nothing else reads, is computed where an
  elementwise nest reads it.  It stays in memory where several threads would compute each of its elements, as for a
  state with one more axis, and their instructions take :data:`HIDDEN` times as long as memory: other instructions of
  a step hide most of these (a scan of 4 x 2048 positions and a state of 16 takes 292 us on an H200 with a softplus in
  it, and 324 us with that in memory; one of 4 x 512 positions 243 and 187 us).

What the definition reads otherwise is known before the recurrence.  A definition in front has the type in which it is
computed, so that it is not rounded.  No value changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import Expr, Load, Var, free_vars, loads, rewrite, substitute
from nautilus.core.index.linear import linear
from nautilus.core.index.sizes import as_extent, nominal
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def, is_recurrence, read_def, reads_of, rename_axes, writes_of
from nautilus.scalar.analysis.states.recurrences import ISSUES, RATE, Form, form_of, issue_slots, nests
from nautilus.scalar.ir import Kernel, Program, Stmt, Store, Update, expressions, statements, with_expressions
from nautilus.scalar.rewriting import map_statements, nest, substituted
from nautilus.scalar.rewriting.recurrences import step_nest

HIDDEN = 3.0
THREADS = 1 << 15  # threads of a recurrence that has enough elements


@dataclass(frozen=True, slots=True)
class JoinRecurrences:
    """Join every recurrence with the definitions after it and in front of it."""

    name = "join-recurrences"
    sees_recurrences = True

    def apply(self, program: Program) -> Program:
        """The program whose recurrences have more nests."""
        for name in [k.name for k in program.kernels if is_recurrence(k)]:
            while (made := _after(program, name) or _in_front(program, name)) is not None:
                program = made
        return program


# -- after ---------------------------------------------------------------------------------------


def _after(program: Program, name: str) -> Program | None:
    """The program with one more definition in the steps of recurrence ``name``; None if there is none."""
    k = next(x for x in program.kernels if x.name == name)
    form = form_of(k)
    if form is None:
        return None
    for d in followers(program, k):
        names = names_in_steps(program, form, d)
        if names is not None:
            summed = {names[a.name] for a in d.red if a.name in names}
            if summed and not _reads_largest(program, d, writes_of(k)):
                continue
            joined = appended(_with_inner(k, form, summed), d, names, summed)
            kernels = [joined if x is k else x for x in program.kernels if writes_of(x) != {d.name}]
            return replace(program, kernels=tuple(kernels))
    return None


def followers(program: Program, k: Kernel) -> Iterator[Def]:
    """The definitions after recurrence ``k`` that read its tensors, and nothing that kernels after it make."""
    after = program.kernels[program.kernels.index(k) + 1 :]
    own, later = writes_of(k), frozenset[str]().union(*map(writes_of, after))
    for other in after:
        if not is_recurrence(other) and reads_of(other) & own and not reads_of(other) & later:
            d = read_def(program, other)
            if d.scatter is None:
                yield d


def _reads_largest(program: Program, d: Def, own: frozenset[str]) -> bool:
    """Whether ``d`` reads one of the tensors ``own`` of a recurrence that none of the others exceeds."""
    elements = {n: prod(map(nominal, program.buffer(n).shape)) for n in own}
    return max(elements[ld.buffer] for ld in d.reads() if ld.buffer in own) == max(elements.values())


def names_in_steps(program: Program, form: Form, d: Def, over: bool = False) -> dict[str, str] | None:
    """The names of the axes of ``d`` in the recurrence; None where it does not follow the steps.

    ``over``: ``d`` reduces over the steps; else it has an element in each of them.
    """
    reads = [ld for ld in d.reads() if ld.buffer in form.roles]
    names: dict[str, str] = {}
    for ld in reads:
        for role, e, extent in zip(form.roles[ld.buffer], ld.index, program.buffer(ld.buffer).shape, strict=True):
            if not role:
                continue
            axis = _axis_of(form, role, e)
            if axis is None or names.setdefault(axis, role) != role:
                return None
            found = next((a for a in d.axes if a.name == axis), None)
            if found is None or found.extent != extent:
                return None
            if role == form.step.var and (found in d.red) != over:
                return None
    roles = {loop.var for loop in (*form.shared, form.step)}
    whole = any({a.name for a in d.axes} <= _axes_of(form, ld) for ld in reads)
    if set(names.values()) != roles or len(names) != len(roles) or not whole or d.at is not None:
        return None
    return names


def _axes_of(form: Form, ld: Load) -> frozenset[str | None]:
    """The variables at which ``ld`` reads a tensor of the recurrence, one element for each of their values."""
    return frozenset(_axis_of(form, role, e) for role, e in zip(form.roles[ld.buffer], ld.index, strict=True))


def _axis_of(form: Form, role: str, e: Expr) -> str | None:
    """The variable that ``e`` is for a loop of the recurrence, or with steps that came before; None otherwise."""
    if isinstance(e, Var):
        return e.name
    variables = free_vars(e)
    if role != form.step.var or len(variables) != 1 or loads(e):
        return None
    (name,) = variables
    back = linear(e) - linear(Var(name))
    ahead = back.const if form.reverse else -back.const
    return name if not back.terms and ahead > 0 else None


def _with_inner(k: Kernel, form: Form, names: set[str]) -> Kernel:
    """``k`` with its independent loops ``names`` inside of the steps, around each nest."""
    inner = [loop for loop in form.shared if loop.var in names]
    if not inner:
        return k
    taken = {loop.var for loops, _ in statements(k.body) for loop in loops}
    body: list[Stmt] = []
    for part in nests(form.step.body):  # an axis of a nest has a name of its own
        own = {loop.var: unused(loop.var, taken) for loop in inner}
        taken |= set(own.values())
        renamed = substituted(part, {old: Var(new) for old, new in own.items()})
        body += nest([replace(loop, var=own[loop.var]) for loop in inner], renamed)
    outer = [loop for loop in form.shared if loop.var not in names]
    return replace(k, body=nest(outer, (replace(form.step, body=tuple(body)),)))


def appended(k: Kernel, d: Def, names: Mapping[str, str], summed: Collection[str] = ()) -> Kernel:
    """``k`` with the nest of ``d`` at the end of its steps; ``names``: its axes that are loops of ``k``.

    ``summed``: those of them that the nest has as axes of its own.
    """
    form = form_of(k)
    assert form is not None
    taken = {loop.var for loops, _ in statements(k.body) for loop in loops}
    own: dict[str, str] = {name: role for name, role in names.items() if role not in summed}
    for a in d.axes:
        if a.name not in own:
            own[a.name] = unused(a.name, taken)
            taken.add(own[a.name])
    roles = {loop.var for loop in (*form.shared, form.step)}
    added = step_nest(rename_axes(d, own), roles, form.step, form.reverse)
    return replace(k, body=nest(form.shared, (replace(form.step, body=(*form.step.body, *added)),)))


# -- in front -------------------------------------------------------------------------------------


def _in_front(program: Program, name: str) -> Program | None:
    """The program with one definition in front of recurrence ``name`` computed in it; None if there is none."""
    k = next(x for x in program.kernels if x.name == name)
    if form_of(k) is None:
        return None
    inputs = {b.name for b in program.buffers if b.space is Space.INPUT}
    reduced = {
        ld.buffer
        for loops, s in statements(k.body)
        if any(x.kind.is_reduction for x in loops)
        for e in expressions(s)
        for ld in loads(e)
    }
    for other in program.kernels:
        if is_recurrence(other) or len(writes_of(other)) != 1 or not reads_of(other) <= inputs:
            continue
        (target,) = writes_of(other)
        buffer = program.buffer(target)
        readers = [x for x in program.kernels if target in reads_of(x)]
        plain = buffer.space is Space.TEMP and buffer.dtype is buffer.dtype.compute
        if readers != [k] or not plain or target in reduced:
            continue
        d = read_def(program, other)
        if d.op is not None or d.scatter is not None or d.guard is not None or d.at is not None:
            continue
        if _stays(k, d, buffer.dtype.bytes):
            continue
        kernels = [_with_values(x, d) if x is k else x for x in program.kernels if x is not other]
        buffers = tuple(b for b in program.buffers if b.name != target)
        return replace(program, buffers=buffers, kernels=tuple(kernels))
    return None


def _stays(k: Kernel, d: Def, width: int) -> bool:
    """Whether ``d``, whose elements have ``width`` bytes, is read by recurrence ``k`` from memory in less time."""
    form = form_of(k)
    assert form is not None
    again = issue_slots(d.value) * (_threads(k, form, d) - 1.0) / ISSUES
    return again > HIDDEN * 2 * width / RATE  # written and read


def _threads(k: Kernel, form: Form, d: Def) -> float:
    """How many threads of ``k`` read each element of ``d``, at most.

    Where there are many rows of elements, a thread has several elements of the state that belong to one row.
    """
    sizes = [
        prod(nominal(as_extent(x.hi)) for x in loops)
        for loops, s in statements(k.body)
        if any(ld.buffer == d.name for e in expressions(s) for ld in loads(e))
    ]
    elements = max(1, prod(nominal(a.extent) for a in d.par))
    rows = elements / nominal(as_extent(form.step.hi))
    return min(max(sizes, default=0) / elements, max(1.0, THREADS / rows))


def _with_values(k: Kernel, d: Def) -> Kernel:
    return replace(k, body=map_statements(k.body, lambda _, s: _computed(s, d)))


def _computed(s: Store | Update, d: Def) -> Store | Update:
    """``s`` with the value of ``d`` in place of its reads."""

    def rule(e: Expr) -> Expr | None:
        if not (isinstance(e, Load) and e.buffer == d.name):
            return None
        at = {a.name: rewrite(i, rule) for a, i in zip(d.par, e.index, strict=True)}
        return substitute(d.value, at)

    return with_expressions(s, lambda e: rewrite(e, rule))

"""The parts of a program between its recurrences, and the kernels of recurrences.

No pass of this level but ``tile-recurrences`` looks into a recurrence
(:mod:`nautilus.scalar.analysis.states.recurrences`): the passes run on the :func:`parts` of a program between its
recurrences, each as a program of its own.  What the parts exchange with recurrences are inputs and outputs of such a
program, and keep their types and shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Axis, Expr, Var, substitute
from nautilus.core.index.sizes import extent_expr
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def, is_recurrence, reads_of, rename_axes, writes_of
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update

# -- the parts of a program -----------------------------------------------------------------------


def parts(program: Program) -> tuple[tuple[Kernel, ...], ...]:
    """The kernels of ``program`` in order, alternately those between recurrences and recurrences that may run together.

    A part of the first kind may be empty.  Without recurrences there is one part.  A kernel between recurrences is in
    the part of its first reader where it can be, so that the two may become one.
    """
    if not any(map(is_recurrence, program.kernels)):
        return (program.kernels,)
    level: dict[str, int] = {}
    found: dict[int, list[Kernel]] = {0: []}
    for k in program.kernels:
        at = max((level[b] for b in reads_of(k) if b in level), default=0)
        at += is_recurrence(k) != bool(at % 2)
        level |= dict.fromkeys(writes_of(k), at)
    readers: dict[str, int] = {}  # the part of the first reader of each tensor
    for k in reversed(program.kernels):
        at = min(level[b] for b in writes_of(k))
        if not is_recurrence(k):
            first = min((readers[b] for b in writes_of(k) if b in readers), default=at)
            at = first - first % 2
        for b in reads_of(k):
            readers[b] = min(readers.get(b, at), at)
        found.setdefault(at, []).insert(0, k)
    return tuple(tuple(found.get(n, ())) for n in range(max(found) + 1))


def between(apply: Callable[[Program], tuple[Program, Callable[[], None]]], program: Program) -> Program:
    """``program`` with ``apply`` run on each part without recurrences.

    The result of a part that has another form of a tensor that other parts access is dropped; the function that comes
    with a result that is taken is called.
    """
    whole = parts(program)
    kernels: list[Kernel] = []
    for n, part in enumerate(whole):
        if n % 2 or not part:
            kernels += part
            continue
        rest = replace(program, kernels=(*kernels, *(k for p in whole[n:] for k in p)))
        sub = part_of(rest, part)
        made, taken = apply(sub)
        merged = _merged(rest, sub, made)
        if merged is None:
            kernels += part
            continue
        taken()
        program = replace(program, buffers=merged)
        kernels += made.kernels
    order = sorted(program.buffers, key=lambda b: b.space is Space.TEMP)
    return replace(program, buffers=tuple(order), kernels=tuple(kernels))


def part_of(program: Program, part: Sequence[Kernel]) -> Program:
    """The kernels ``part`` as a program: tensors of other kernels are inputs, and those that others read outputs."""
    own = frozenset[str]().union(*map(writes_of, part))
    names = {k.name for k in part}
    others = frozenset[str]().union(*(reads_of(k) for k in program.kernels if k.name not in names))

    def seen(b: Buffer) -> Buffer:
        if b.name not in own:
            return _in_space(b, Space.INPUT)
        return _in_space(b, Space.OUTPUT) if b.name in others else b

    return replace(program, buffers=tuple(map(seen, program.buffers)), kernels=tuple(part))


def _merged(program: Program, sub: Program, made: Program) -> tuple[Buffer, ...] | None:
    """The buffers of ``program`` after its part ``sub`` became ``made``; None where the parts no longer fit."""
    before = {b.name: b for b in sub.buffers}
    after = {b.name: b for b in made.buffers}
    spaces = {b.name: b.space for b in program.buffers}
    fixed = {b.name for b in sub.buffers if b.space is not Space.TEMP}
    if not all(n in after and _alike(after[n], before[n]) for n in fixed):
        return None
    return tuple(_in_space(b, spaces.get(b.name, b.space)) for b in made.buffers)


def _in_space(b: Buffer, space: Space) -> Buffer:
    return b if b.space is space else replace(b, space=space)


def _alike(a: Buffer, b: Buffer) -> bool:
    """Whether the two are equal up to where they are declared."""
    return a is b or replace(a, span=b.span) == b


# -- making the kernel ----------------------------------------------------------------------------


def recurrence_kernel(
    name: str, nests: Sequence[tuple[Def, Mapping[str, str]]], shared: Sequence[Axis], step: Axis, reverse: bool
) -> Kernel:
    """The kernel of ``nests`` in the order of one step, each with the names of its axes among ``shared`` and ``step``.

    ``shared``: the independent axes.  ``reverse``: the steps run from the last index to the first.
    """
    taken = {a.name for a in (*shared, step)}
    body: list[Stmt] = []
    for d, names in nests:
        inner = {a.name: names[a.name] if a.name in names else unused(a.name, taken) for a in d.axes}
        taken |= set(inner.values())
        body += step_nest(rename_axes(d, inner), {a.name for a in (*shared, step)}, _loop(step, Kind.SEQ, ()), reverse)
    loops: tuple[Stmt, ...] = (_loop(step, Kind.SEQ, tuple(body)),)
    for a in reversed(shared):
        loops = (_loop(a, Kind.PAR, loops),)
    return Kernel(name, (), loops, nests[-1][0].span)


def step_nest(d: Def, outer: set[str], step: Loop, reverse: bool) -> tuple[Stmt, ...]:
    """The nest of ``d`` in a step of a recurrence with the loops ``outer``, of which ``step`` counts the steps."""
    env: dict[str, Expr] = {}
    if reverse:
        env[step.var] = calc("sub", calc("sub", step.hi, 1), Var(step.var))

    def put(e: Expr) -> Expr:
        return substitute(e, env) if env else e

    index, value = tuple(map(put, d.index)), put(d.value)
    guard = None if d.guard is None else put(d.guard)
    if d.op is None:
        body: tuple[Stmt, ...] = (Store(d.name, index, value, guard, d.span),)
    else:
        body = (Update(d.name, d.op, index, value, guard, d.span),)
        for a in reversed(d.red):
            body = (_loop(a, Kind.RED, body),)
        body = (Store(d.name, index, d.init(), None, d.span), *body)
    for a in reversed(d.par):
        body = body if a.name in outer else (_loop(a, Kind.PAR, body),)
    return body


def _loop(a: Axis, kind: Kind, body: tuple[Stmt, ...]) -> Loop:
    return Loop(a.name, integer(0), extent_expr(a.extent), kind, body, a.span)

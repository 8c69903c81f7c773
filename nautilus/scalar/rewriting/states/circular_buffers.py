"""Tensors of recurrences of which only the last steps are read are circular buffers (``tile-recurrences``).

A stencil of 1000 steps has a state in memory, of which each step reads the one before, and other kernels the last one::

    u[t, i] = u[t - 1, i - 1] + ...    ;    Y[i] = u[999, i]        u: f32[1000, 1048576]
    u[t % 3, i] = u[(t - 1) % 3, i - 1] + ...    ;    Y[i] = u[0, i]    u: f32[3, 1048576]

With steps that read up to ``d`` steps back, there are ``d + 2`` elements: those that a step writes are not read by the
step before it either, so that blocks of a team, which wait for each other once in each step, may be one step apart.
The first steps read elements in front of the first one under a condition; they are stored as 0 before, so that every
read finds a number.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import FALSE, conjunction, conjuncts
from nautilus.core.expr.nodes import Const, Expr, Load, Var, free_vars, loads, rewrite
from nautilus.core.index.linear import Linear, linear
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import nominal
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import writes_of
from nautilus.scalar.ir import (
    Kernel,
    Kind,
    Loop,
    Program,
    Stmt,
    Store,
    Update,
    common_loops,
    expressions,
    extent,
    statements,
    with_expressions,
)
from nautilus.scalar.rewriting import map_kernels, map_statements, with_body

MORE = 4  # times as many steps, at least, as the buffer then has
LEAST = 1 << 22  # bytes of a tensor: fewer stay in the L2 cache, and remainders take instructions


def with_circular_buffers(program: Program, name: str) -> Program:
    """``program`` with the temps of the tiled recurrence ``name`` as circular buffers where they may be."""
    own = writes_of(next(k for k in program.kernels if k.name == name))
    for b in [b for b in program.buffers if b.space is Space.TEMP and b.name in own]:
        k = next(k for k in program.kernels if k.name == name)
        step = _step(k, b.name)
        if step is None or prod(map(nominal, b.shape)) * b.dtype.bytes < LEAST:
            continue
        found = _found(program, k, step, b.name)
        if found is not None and found.slots * MORE <= int(str(b.shape[found.axis])):
            program = _circular(_begun(program, k, step, b, found), b.name, found)
    return program


def _step(k: Kernel, name: str) -> Loop | None:
    """The outermost ordered loop of ``k`` that is around everything that accesses ``name``."""
    around: tuple[Loop, ...] | None = None
    for loops, s in statements(k.body):
        if s.buffer == name or any(ld.buffer == name for e in expressions(s) for ld in loads(e)):
            around = loops if around is None else common_loops(around, loops)
    return next((loop for loop in around or () if loop.kind is Kind.SEQ), None)


@dataclass(frozen=True, slots=True)
class _Circle:
    """The ``axis`` of the steps, of which ``slots`` are kept: those in front of the first one are at ``before``."""

    axis: int
    slots: int
    before: tuple[int, ...]


def _found(program: Program, k: Kernel, step: Loop, name: str) -> _Circle | None:
    """How the temp ``name`` is a circular buffer; None where other steps are read."""
    count, t = extent(step), Var(step.var)
    indices = [s.index for _, s in statements(k.body) if s.buffer == name]
    axes = {n for index in indices for n, e in enumerate(index) if step.var in free_vars(e)}
    if count is None or count < 1 or step.lo != integer(0) or len(axes) != 1:
        return None
    axis = axes.pop()
    place, *others = {linear(index[axis]) for index in indices}
    slope = place.slope(step.var)
    if others or slope not in (1, -1) or place.without(t).terms:
        return None
    back = [_distance(place - linear(e), slope) for e in _places(k, name, axis)]
    last = place.without(t).shift(slope * (count - 1))
    after = [e for other in program.kernels if other is not k for e in _places(other, name, axis)]
    ends = [_distance(last - linear(e), slope) for e in after]
    known = [d for d in back if d is not None]
    slots = max(known, default=0) + 2
    whole = len(known) == len(back) and all(isinstance(e, Const) for e in after)
    if not whole or any(d is None or d >= slots for d in ends):
        return None
    first = place.without(t).const
    return _Circle(axis, slots, tuple((first - slope * n) % slots for n in range(1, slots - 1)))


def _places(k: Kernel, name: str, axis: int) -> list[Expr]:
    """The positions along ``axis`` at which ``k`` reads ``name``."""
    read = (ld for _, s in statements(k.body) for e in expressions(s) for ld in loads(e))
    return [ld.index[axis] for ld in read if ld.buffer == name]


def _distance(apart: Linear, slope: int) -> int | None:
    """How many steps earlier a position ``apart`` from that of a step is stored; None: not known, or later."""
    steps = apart.const * slope
    return None if apart.terms or steps < 0 else steps


def _begun(program: Program, k: Kernel, step: Loop, b: Buffer, found: _Circle) -> Program:
    """``program`` where zeros are stored in front of the first step of ``b``, as its elements are."""

    def zeros(body: tuple[Stmt, ...], at: int) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, Loop):
                inner = zeros(s.body, at)
                out += [replace(s, body=inner)] if inner else []
            elif isinstance(s, Store) and s.buffer == b.name:
                index = (*s.index[: found.axis], integer(at), *s.index[found.axis + 1 :])
                guard = conjunction([c for c in conjuncts(s.guard) if step.var not in free_vars(c)])
                out.append(Store(b.name, index, _zero(b.dtype), guard, s.span))
        return tuple(out)

    def begun(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in body:
            if s is step:
                out += [x for at in found.before for x in zeros(step.body, at)]
            out.append(replace(s, body=begun(s.body)) if isinstance(s, Loop) and s is not step else s)
        return tuple(out)

    return map_kernels(program, lambda x: with_body(x, begun(x.body)) if x is k else x)


def _zero(dtype: DType) -> Expr:
    """0 of the type that computes ``dtype``."""
    made = dtype.compute
    return FALSE if made is DType.BOOL else Const(0.0 if made.is_float else 0, made)


def _circular(program: Program, name: str, found: _Circle) -> Program:
    """``program`` where the position of ``name`` along the axis of the steps is the remainder of that."""
    axis, slots = found.axis, found.slots

    def at(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*index[:axis], simplify(calc("mod", index[axis], slots), {}), *index[axis + 1 :])

    def read(e: Expr) -> Expr | None:
        return replace(e, index=at(e.index)) if isinstance(e, Load) and e.buffer == name else None

    def rule(_: tuple[Loop, ...], s: Store | Update) -> Store | Update:
        s = with_expressions(s, lambda e: rewrite(e, read))
        return replace(s, index=at(s.index)) if s.buffer == name else s

    buffers = tuple(
        replace(b, shape=(*b.shape[:axis], slots, *b.shape[axis + 1 :])) if b.name == name else b
        for b in program.buffers
    )
    kernels = tuple(with_body(k, map_statements(k.body, rule)) for k in program.kernels)
    return replace(program, buffers=buffers, kernels=kernels)

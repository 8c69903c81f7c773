"""Scans that ``recur-scans`` makes recurrences, as definitions of a Spec.

A running sum of exponentials has the roundings of its steps.  The running maximum that it is relative to, which has
none, is a recurrence here as well: the maximum of shortened terms would be no bound of all elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import (
    Axis,
    Const,
    Expr,
    Load,
    Op,
    Reduce,
    Var,
    free_vars,
    identity,
    loads,
    rewrite,
    substitute,
)
from nautilus.core.index.sizes import extent_expr
from nautilus.frontend.spec import Definition, Recurrence
from nautilus.scalar.ir import Kernel, Kind, Program, Store, statements


def scan(program: Program, k: Kernel) -> Definition:
    """The recurrence ``k`` of one tensor."""
    ((loops, store),) = statements(k.body)
    assert isinstance(store, Store)
    (step,) = (loop.var for loop in loops if loop.kind is Kind.SEQ)
    shape = program.buffer(k.name).shape
    at = next(n for n, e in enumerate(store.index) if step in free_vars(e))
    axes = (Axis(e.name if isinstance(e, Var) else step, n) for e, n in zip(store.index, shape, strict=True))
    reverse = not isinstance(store.index[at], Var)
    last = calc("sub", extent_expr(shape[at]), 1)
    value = substitute(store.value, {step: calc("sub", last, Var(step))}) if reverse else store.value
    order = Recurrence((k.name,), at, reverse)
    return Definition(k.name, None, tuple(axes), rewrite(value, _falling), False, k.span, order)


def _falling(e: Expr) -> Expr | None:
    """An exponential of the difference of a reference from a later one, at most 0: 1 where both are the same.

    It is scaled after the subtraction, so that equal references cancel.
    """
    match e:
        case Op(op="exp", args=(Op(op="sub", args=(Op(op="max"), Op(op="max"))) as change,)):
            return replace(e, args=(Op("min", (change, Const(0.0, change.dtype)), change.dtype),))
    return None


def with_running_extremes(definitions: Sequence[Definition]) -> list[Definition]:
    """``definitions``, in which the references of scans are recurrences too."""
    known = {d.name for d in definitions}
    scans = (d for d in definitions if d.recurrence is not None and d.recurrence.members == (d.name,))
    read = {ld.buffer for d in scans for ld in loads(d.expr) if ld.buffer in known - {d.name}}
    return [_running(d) if d.name in read else d for d in definitions]


def _running(d: Definition) -> Definition:
    """``d`` as a recurrence, if it is the largest term up to an index, or from it on, with or without its own."""
    e = d.expr
    if not isinstance(e, Reduce) or e.op != "max" or len(e.axes) != 1:
        return d
    (u,) = e.axes
    for at, t in enumerate(d.axes):
        for reverse in (False, True):
            low, high = (Var(t.name), Var(u.name)) if reverse else (Var(u.name), Var(t.name))
            with_own = (calc("le", low, high), calc("ge", high, low))
            without = (calc("lt", low, high), calc("gt", high, low))
            if t.extent == u.extent and e.cond in (*with_own, *without) and t.name not in free_vars(e.body):
                return _of_steps(d, e, at, reverse, own=e.cond in with_own)
    return d


def _of_steps(d: Definition, e: Reduce, at: int, reverse: bool, own: bool) -> Definition:
    """``d``, the running maximum ``e`` along its axis ``at``, as a recurrence; ``own``: its own term is one of it."""
    t, (u,) = d.axes[at], e.axes
    earlier = calc("add" if reverse else "sub", Var(t.name), 1)
    here = substitute(e.body, {u.name: Var(t.name) if own else earlier})
    before = Load(d.name, tuple(earlier if n == at else Var(a.name) for n, a in enumerate(d.axes)), e.dtype, d.span)
    last = calc("sub", extent_expr(t.extent), 1)
    some = calc("lt", Var(t.name), last) if reverse else calc("lt", integer(0), Var(t.name))
    first = here if own else identity("max", e.dtype)
    value = Op("select", (some, Op("max", (before, here), e.dtype), first), e.dtype)
    return replace(d, expr=value, recurrence=Recurrence((d.name,), at, reverse))

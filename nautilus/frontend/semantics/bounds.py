"""Search for reads that are out of range, each reported with a counterexample.

A read is an error if some point of the index space satisfies every condition around the read and puts an index outside
the tensor.  The check tries all points of a small space, and corners, middles and random points of a large one.  Every
report is therefore a real error with the point as its proof.  A read under a condition on the values of a tensor, or
through a gather, is never reported.  A runtime size is represented by one moderate value.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nautilus.core.errors import Diagnostic
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Reduce, Var, children, walk
from nautilus.core.index.sizes import Extent
from nautilus.core.types import DType
from nautilus.frontend.spec import Definition, extent_at

if TYPE_CHECKING:
    pass

_EXHAUSTIVE = 100_000  # number of points up to which all are tried
_SAMPLES = 4_000
TYPICAL = 1009  # the value of a runtime size
_Guards = tuple[tuple[Expr, bool], ...]


class _Unknown(Exception):
    """Raised for an expression that depends on runtime values."""


def check_reads(
    d: Definition, shapes: Mapping[str, tuple[Extent, ...]], sizes: Mapping[str, int]
) -> Iterator[Diagnostic]:
    """A diagnostic for each read of ``d`` that is out of range at some point; ``sizes``: those of runtime dims."""
    extents = {a.name: extent_at(a.extent, sizes) for a in d.axes}
    for e in walk(d.expr):
        if isinstance(e, Reduce):
            extents.update({a.name: extent_at(a.extent, sizes) for a in e.axes})
    for load, guards in conditional_loads(d.expr):
        shape = [extent_at(s, sizes) for s in shapes.get(load.buffer, ())]
        for position, (index, size) in enumerate(zip(load.index, shape, strict=False)):
            if isinstance(index, Var) and extents.get(index.name, size + 1) <= size:
                continue
            point = _witness(index, size, guards, extents, sizes)
            if point is not None:
                name = getattr(shapes[load.buffer][position], "name", str(size))
                yield _diagnostic(load, position, index, size, point, name)
                break


def conditional_loads(e: Expr) -> Iterator[tuple[Load, _Guards]]:
    """Every load with the conditions of its evaluation, each with the value that it has there."""
    seen: set[tuple[int, tuple[tuple[int, bool], ...]]] = set()
    stack: list[tuple[Expr, _Guards]] = [(e, ())]
    while stack:
        node, guards = stack.pop()
        key = (id(node), tuple((id(g), p) for g, p in guards))
        if key in seen:
            continue
        seen.add(key)
        match node:
            case Op(op="select", args=(test, then, other)):
                stack += [(other, (*guards, (test, False))), (then, (*guards, (test, True))), (test, guards)]
                continue
            case Reduce(cond=cond, body=body) if cond is not None:
                stack += [(body, (*guards, (cond, True))), (cond, guards)]
                continue
            case Load():
                yield node, guards
        stack += [(k, guards) for k in reversed(children(node))]


def _variables(exprs: list[Expr]) -> list[str]:
    names: dict[str, None] = {}
    stack = list(exprs)
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Load | Reduce):
            raise _Unknown
        if isinstance(node, Var):
            names[node.name] = None
        stack += children(node)
    return list(names)


def _witness(
    index: Expr, size: int, guards: _Guards, extents: Mapping[str, int], sizes: Mapping[str, int]
) -> dict[str, int] | None:
    """A point at which all guards hold and ``index`` is outside ``0 <= index < size``."""
    import numpy as np

    try:
        names = _variables([index, *(g for g, _ in guards)])
        points = _points([extents[n] for n in names])
        columns = np.array(points, dtype=np.int64).reshape(len(points), len(names))
        env: dict[str, Any] = {n: columns[:, i] for i, n in enumerate(names)}
        env |= {f"${n}": np.int64(v) for n, v in sizes.items()}
        with np.errstate(all="ignore"):
            value = _eval(index, env)
            bad = (value < 0) | (value >= size)
            for guard, polarity in guards:
                bad = bad & (_eval(guard, env) == polarity)
    except _Unknown:
        return None
    hits = np.flatnonzero(np.broadcast_to(bad, (len(points),)))
    if not len(hits):
        return None
    row = columns[hits[0]]
    value = np.broadcast_to(value, (len(points),))
    return {n: int(v) for n, v in zip(names, row, strict=True)} | {"": int(value[hits[0]])}


def _points(extents: list[int]) -> list[tuple[int, ...]]:
    total = 1
    for e in extents:
        total *= e
    if total <= _EXHAUSTIVE:
        return list(itertools.product(*(range(e) for e in extents)))
    rng = random.Random(0)
    few = [sorted({0, 1, e // 2, e - 2, e - 1} & set(range(e))) if e < 5 else [0, 1, e // 2, e - 2, e - 1]
           for e in extents]  # fmt: skip
    corners = 1
    for f in few:
        corners *= len(f)
    chosen: Iterator[tuple[int, ...]] = itertools.product(*few)
    if corners > _EXHAUSTIVE:
        chosen = (tuple(rng.choice(f) for f in few) for _ in range(_EXHAUSTIVE // 4))
    return [*chosen, *(tuple(rng.randrange(e) for e in extents) for _ in range(_SAMPLES))]


def _eval(e: Expr, env: Mapping[str, Any]) -> Any:
    """The value of ``e`` at all points (an array, or a number that broadcasts)."""
    import numpy as np

    from nautilus.core.numerics import EVAL

    match e:
        case Const(value=value):
            return np.asarray(value)
        case Var(name=name):
            return np.asarray(env[name])
        case Param(name=name) if f"${name}" in env:
            return np.asarray(env[f"${name}"])
        case Op(op="select", args=(test, then, other)):
            return np.where(_eval(test, env), _eval(then, env), _eval(other, env))
        case Op(op="cast", args=(arg,), dtype=DType.I32 | DType.I64):
            return np.trunc(_eval(arg, env)).astype(np.int64)
        case Op(op="cast", args=(arg,), dtype=dtype) if dtype is DType.F32 or dtype is DType.F64:
            return _eval(arg, env).astype(np.float64)
        case Op(op=op, args=args) if op in EVAL:
            return np.asarray(EVAL[op](*(_eval(a, env) for a in args)))
    raise _Unknown


def _diagnostic(
    load: Load, position: int, index: Expr, size: int, point: dict[str, int], name: str
) -> Diagnostic:  # fmt: skip
    """The error; ``name``: of the size, as it is written."""
    value = point.pop("")
    where = " where " + ", ".join(f"{n} = {v}" for n, v in sorted(point.items())) if point else ""
    what = f"index {position + 1} is {value}{where}, but the size is {size}"
    message = f"'{load.buffer}' is read out of range: {what}"
    span = index.span if index.span.line else load.span
    text = span.source.text.split("\n")[span.line - 1][span.column - 1 : span.end_column - 1] if span.line else ""
    plain = span.line == span.end_line and 0 < len(text) <= 40 and any(f"{n}" in text for n in point)
    shown = (f"{text} >= 0" if value < 0 else f"{text} < {name}") if plain else "i + k < N"
    hint = f"exclude it by a condition, as in '... if {shown} else 0'"
    if isinstance(index, Const):
        hint = f"positions count from 0; the last one is {size - 1}"
    return Diagnostic("N0305", message, span, hint=hint)

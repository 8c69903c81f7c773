"""The interpreter of a Spec in float64 numpy, which defines its meaning and is the reference of every level below.

A value is an array together with the index variables of its dimensions (:class:`Value`).  An operation aligns its
arguments by name and broadcasts, so a sub-expression is computed once, over exactly the variables it depends on.
Variables are unique within a definition, so results are cached by node.  Arithmetic is that of
:mod:`nautilus.core.numerics`, mode ``real``: only the casts in the spec round.

* Grids above ``_GRID`` elements are split, first along the definition's own axes, then along the axes
  of the reduction.
* A sum of products becomes a matrix product where the factors allow it (:meth:`Evaluator.contract`).
* A structural value is absent from a reduction of which it is the identity (:mod:`nautilus.frontend.structural`).
* Indices are clipped to the tensor, so a load in a branch that is not selected gives some value and no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from math import prod
from typing import Any, TypeAlias

import numpy as np

from nautilus.core.errors import InputError
from nautilus.core.expr.conditions import equations
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Param, Reduce, Var, children, free_vars, substitute
from nautilus.core.expr.nodes import identity as identity_of
from nautilus.core.expr.products import product_factors
from nautilus.core.index.sizes import MAX_DIM, Extent
from nautilus.core.numerics import Array, combine_at, eval_quietly, integer_product, reduce_array, round_to, working
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.core.types import DType
from nautilus.frontend.spec import Definition, Spec, extent_at
from nautilus.frontend.structural import absent, element
from nautilus.frontend.values import Unchanged, Value, arrange, finite, line_up, unchanged, union

_GRID = 1 << 22  # elements of one temporary: 32 MiB of float64, a few of which live at a time
_BINARY = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


#: definition, buffers, parameters -> its values, and the values that its readers load
Evaluate: TypeAlias = Callable[[Definition, Mapping[str, Array], Mapping[str, Any]], tuple[Array, Array]]


def run_spec(
    spec: Spec,
    inputs: Mapping[str, Any],
    scalars: Mapping[str, float | int | bool] | None = None,
    sizes: Mapping[str, int] | None = None,
    evaluate: Evaluate | None = None,
    steps: int | None = None,
    shared: dict[int, Unchanged] | None = None,
) -> dict[str, Array]:
    """The outputs of ``spec`` by name, unrounded: float64, int64 or bool arrays of the output's shape.

    ``inputs`` are rounded to their declared types first.  ``sizes`` gives runtime dims; the inputs' shapes give the
    others.  ``evaluate`` replaces :func:`exactly`.  ``steps``: a recurrence runs this many steps, and its further
    steps repeat their values.  ``shared``: what evaluations of these definitions on equal arguments have in common.
    Raises InputError for a missing or unsuitable argument.
    """
    values = _run(spec, inputs, scalars, sizes, evaluate or exactly, steps, shared)
    return {t.name: value for t, value in zip(spec.outputs, values, strict=True)}


def exactly(
    d: Definition, buffers: Mapping[str, Array], params: Mapping[str, Any], evaluator: Evaluator | None = None
) -> tuple[Array, Array]:
    """The values of ``d``, and those that its readers load: an output is rounded to its type."""
    made = (evaluator or Evaluator(d, buffers, params)).run()
    return made, round_to(made, d.stored) if d.is_output else made


def resolve_sizes(spec: Spec, inputs: Mapping[str, Any], sizes: Mapping[str, int] | None = None) -> dict[str, int]:
    """The value of every runtime dim, from ``sizes`` or from the inputs' shapes. Raises InputError."""
    known = dict(sizes or {})
    for t in spec.inputs:
        shape = np.shape(inputs[t.name]) if t.name in inputs else ()
        for extent, size in zip(t.shape, shape, strict=False):
            if isinstance(extent, Param):
                known.setdefault(extent.name, int(size))
    for d in spec.runtime_dims:
        if d.name not in known:
            raise InputError(f"the size of '{d.name}' is not given and no input shows it")
        if not 0 <= known[d.name] <= (d.bound or MAX_DIM):
            raise InputError(f"the size of '{d.name}' is {known[d.name]}; allowed are 0 to {d.bound or MAX_DIM}")
    return known


def _run(
    spec: Spec,
    inputs: Mapping[str, Any],
    scalars: Mapping[str, float | int | bool] | None,
    sizes: Mapping[str, int] | None,
    evaluate: Evaluate,
    steps: int | None,
    shared: dict[int, Unchanged] | None,
) -> list[Array]:
    params: dict[str, Any] = dict(resolve_sizes(spec, inputs, sizes))
    for name in set(inputs) - {t.name for t in spec.inputs}:
        raise InputError(f"'{name}' is not an input")
    for name in set(scalars or {}) - {s.name for s in spec.scalars}:
        raise InputError(f"'{name}' is not a scalar")
    for s in spec.scalars:
        value = (scalars or {}).get(s.name, s.default)
        if value is None:
            raise InputError(f"scalar '{s.name}' is not given and has no default")
        # a float scalar of a compute type is not rounded, because the maths is over the reals
        params[s.name] = float(value) if s.dtype in (DType.F32, DType.F64) else round_to(np.asarray(value), s.dtype)
    buffers = Tensors({d.name: d for d in spec.definitions}, shared)
    for t in spec.inputs:
        if t.name not in inputs:
            raise InputError(f"input '{t.name}' is not given")
        array, shape = np.asarray(inputs[t.name]), _shape(t.shape, params)
        if array.shape != shape:
            raise InputError(f"input '{t.name}' has shape {list(array.shape)}, but {list(shape)} is declared")
        buffers[t.name] = round_to(array, t.dtype)
    results = evaluate_all(spec.definitions, buffers, params, evaluate, steps)
    return [results[t.name] for t in spec.outputs]


def evaluate_all(
    definitions: Sequence[Definition], buffers: dict[str, Array], params: Mapping[str, Any], evaluate: Evaluate,
    steps: int | None = None,
) -> dict[str, Array]:  # fmt: skip
    """The values of ``definitions`` by name; ``buffers`` gets what their readers load.  ``steps``: of a recurrence."""
    results: dict[str, Array] = {}
    for d in definitions:
        if d.recurrence is None:
            results[d.name], buffers[d.name] = evaluate(d, buffers, params)
        elif d.name == d.recurrence.members[0]:
            members = [m for m in definitions if m.name in d.recurrence.members]
            results |= _evaluate_steps(members, buffers, params, evaluate, steps)
    return results


STEP = "%step"  # the parameter that holds the index of a step


def _evaluate_steps(
    members: Sequence[Definition], buffers: dict[str, Array], params: Mapping[str, Any], evaluate: Evaluate,
    most: int | None,
) -> dict[str, Array]:  # fmt: skip
    """The values of the members of one recurrence, step after step; the other indices of a step are one grid."""
    results: dict[str, Array] = {}
    at: dict[str, int] = {}
    steps: list[Definition] = []
    for d in members:
        assert d.recurrence is not None
        at[d.name] = d.recurrence.axis
        results[d.name] = np.zeros(_shape(d.shape, params), working(d.expr.dtype))
        buffers[d.name] = round_to(results[d.name], d.stored) if d.is_output else results[d.name].copy()
        step = {d.axes[d.recurrence.axis].name: Param(STEP, DType.I32)}
        axes = tuple(a for p, a in enumerate(d.axes) if p != d.recurrence.axis)
        steps.append(replace(d, axes=axes, expr=substitute(d.expr, dict(step)), recurrence=None))
    if isinstance(buffers, Tensors):
        buffers.steps = {id(d): unchanged(d.expr, at.keys(), STEP) for d in steps}
    count = results[members[0].name].shape[at[members[0].name]]
    assert members[0].recurrence is not None
    order = range(count)[::-1] if members[0].recurrence.reverse else range(count)
    for n, t in enumerate(order):
        for d in steps:
            where, before = ((slice(None),) * at[d.name] + (x,) for x in (t, order[n % (most or count)]))
            if n < (most or count):
                results[d.name][where], buffers[d.name][where] = evaluate(d, buffers, {**params, STEP: t})
            else:
                results[d.name][where] = results[d.name][before]
                buffers[d.name][where] = buffers[d.name][before]
    return results


def _shape(shape: tuple[Extent, ...], params: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(extent_at(n, params)) for n in shape)


class Tensors(dict[str, Array]):
    """The inputs and the evaluated definitions of a Spec by name, and the structural values of the definitions."""

    def __init__(self, definitions: Mapping[str, Definition], shared: dict[int, Unchanged] | None = None) -> None:
        super().__init__()
        self.definitions, self.shared = definitions, shared
        self.found: dict[tuple[str, float], Array | None] = {}
        self.steps: Mapping[int, Unchanged] = {}  # of the definitions of a step, by identity

    def unchanged(self, d: Definition) -> Unchanged | None:
        """What the evaluations of ``d`` have in common; None where it is not known."""
        if self.shared is None or id(d) in self.steps:
            return self.steps.get(id(d))
        if id(d) not in self.shared:
            self.shared[id(d)] = unchanged(d.expr, self.definitions.keys(), STEP)
        return self.shared[id(d)]

    def structural(self, name: str, what: float, params: Mapping[str, Any]) -> Array | None:
        """See :meth:`Evaluator.structural`."""
        d = self.definitions.get(name)
        if d is None or d.recurrence is not None:
            return None
        key = (name, what)
        if key not in self.found:
            run = Evaluator(d, self, params)
            made = absent(run, d.expr, what)
            names = tuple(a.name for a in d.axes)
            self.found[key] = None if made is None else line_up(made, names)
        return self.found[key]


@dataclass(frozen=True, slots=True)
class _Structure:
    """The facts about a definition that do not depend on the contents of tensors.

    ``axes``: its own and those of its reductions.  ``free``: the free variables of its nodes, by identity.
    ``outside``: those of the nodes that are evaluated as grids, without repetitions.  ``largest``: the points of the
    largest of these grids; None where a size is known only at launch.
    """

    axes: tuple[Axis, ...]
    free: Mapping[int, frozenset[str]]
    outside: frozenset[frozenset[str]]
    largest: int | None


@by_identity(1 << 8)
def _structure(d: Definition) -> _Structure:
    axes, free = list(d.axes), dict[int, frozenset[str]]()

    def scan(e: Expr) -> frozenset[str]:
        if id(e) not in free:
            axes.extend(e.axes if isinstance(e, Reduce) else ())
            names = frozenset[str]().union(*map(scan, children(e)))
            if isinstance(e, Var):
                names = frozenset({e.name})
            elif isinstance(e, Reduce):
                names -= {a.name for a in e.axes}
            free[id(e)] = names
        return free[id(e)]

    scan(d.expr)
    outside = frozenset(free[id(e)] for e in _grids(d.expr))
    sizes = {a.name: a.extent for a in axes if isinstance(a.extent, int)}
    largest = max((prod(sizes.get(n, 1) for n in names) for names in outside), default=1)
    return _Structure(tuple(axes), free, outside, largest if len(sizes) == len({a.name for a in axes}) else None)


def _grids(e: Expr) -> Iterator[Expr]:
    """The nodes of ``e`` that are evaluated as grids: the factors of a product, not the product."""
    stack, seen = [e], set[int]()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            factors = product_factors(node) if isinstance(node, Reduce) else None
            if isinstance(node, Reduce) and (keyed := keys_of(node)) is not None:
                factors = [node.body, *keyed[0].values(), *keyed[1]]
            stack.extend(factors if factors is not None else children(node))


class Evaluator:
    """The evaluation of one definition. ``ranges`` contains the current part of each variable's range.

    ``kept``: what evaluations of the definition have in common, over whole ranges.
    """

    shares = True  # whether it may take values from another evaluation

    def __init__(self, d: Definition, buffers: Mapping[str, Array], params: Mapping[str, Any]) -> None:
        self.d, self.buffers, self.params = d, buffers, params
        self.ranges: dict[str, range] = {}
        self.order: dict[str, int] = {}
        self.memo: dict[int, Value] = {}
        self.kept: Unchanged | None = None
        structure = _structure(d)  # the same at each step of a recurrence
        for axis in structure.axes:
            self._declare(axis)
        self.free, self.outside, self.largest = dict(structure.free), structure.outside, structure.largest

    def _declare(self, axis: Axis) -> None:
        self.ranges[axis.name] = range(int(extent_at(axis.extent, self.params)))
        self.order.setdefault(axis.name, len(self.order))

    def _grid(self, names: Set[str]) -> int:
        return prod(len(self.ranges[n]) for n in names)

    def run(self) -> Array:
        """The definition at every index."""
        shape = tuple(len(self.ranges[a.name]) for a in self.d.axes)
        out = np.empty(shape, working(self.d.expr.dtype))
        names = tuple(a.name for a in self.d.axes)
        if self.shares and isinstance(self.buffers, Tensors):
            self.kept = self.buffers.unchanged(self.d)
            self.memo.update(self.kept.values if self.kept is not None else {})
        with np.errstate(all="ignore"):  # once: it takes as long as an operation on few elements
            self._cut(self.d.expr, names, out, ())
        if self.kept is not None:
            self.kept.add(self.memo)
        return out

    def _cut(self, e: Expr, names: tuple[str, ...], out: Array, where: tuple[slice, ...]) -> None:
        """Fill ``out[where]``; while the grid is too large, split the first axis that is not yet in ``where``."""
        known = None if where else self.largest
        outer = known or max((self._grid(n & self.order.keys()) for n in self.outside), default=1)
        if outer <= _GRID or len(where) == len(names):
            value = self.value(e)
            index: tuple[Any, ...] = (*where, ...)
            out[index] = line_up(value, names)
            return
        name = names[len(where)]
        whole = self.ranges[name]
        step = max(1, len(whole) * _GRID // outer)
        for start in range(0, len(whole), step):
            self.ranges[name] = whole[start : start + step]
            self._forget(name)
            self._cut(e, names, out, (*where, slice(start, start + step)))
        self.ranges[name] = whole
        self._forget(name)

    def _forget(self, name: str) -> None:
        self.memo = {k: v for k, v in self.memo.items() if name not in self.free[k]}

    def value(self, e: Expr) -> Value:
        """The value of ``e`` over the current ranges of its free variables."""
        if (found := self.memo.get(id(e))) is None:
            found = self.memo[id(e)] = self.compute(e)
        return found

    def compute(self, e: Expr) -> Value:
        """The value of ``e``, whose parts are computed once each."""
        if isinstance(e, Op):  # the most frequent first: the time of a step of a recurrence is that of these calls
            values = [self.value(a) for a in e.args]
            names = union(values, self.order)
            return Value(eval_quietly(e.op, [line_up(v, names) for v in values], e.dtype), names)
        if isinstance(e, Load):
            return self.gather(self.buffers[e.buffer], e)
        match e:
            case Const(value=value):
                return Value(np.asarray(value, working(e.dtype)), ())
            case Var(name=name):
                return Value(np.arange(self.ranges[name].start, self.ranges[name].stop, dtype=np.int64), (name,))
            case Param(name=name):
                return Value(np.asarray(self.params[name], working(e.dtype)), ())
            case Reduce():
                return self._reduce(e)
        raise TypeError(f"{type(e).__name__} does not occur in a Spec")

    def gather(self, array: Array, e: Load) -> Value:
        """The elements of ``array`` at the index of ``e``."""
        index = [self.value(i) for i in e.index]
        names = union(index, self.order)
        if not array.size:  # only under a false condition, so any value is right
            return Value(np.zeros([len(self.ranges[n]) for n in names], array.dtype), names)
        if sum(len(v.names) for v in index) == len(names):
            return self._separable(array, e, index, names)
        arrays = tuple(_clipped(line_up(v, names), size) for v, size in zip(index, array.shape, strict=True))
        picked = array[arrays] if arrays else array
        shape = tuple(len(self.ranges[n]) for n in names)
        return Value(np.broadcast_to(picked, shape), names)

    def _separable(self, array: Array, e: Load, index: list[Value], names: tuple[str, ...]) -> Value:
        """A load whose positions depend on different variables, taken one dimension at a time."""
        found: list[str] = []  # the variables of the dimensions before ``axis``, of which each position makes its own
        axis = 0
        for position, v in zip(e.index, index, strict=True):
            size, before = array.shape[axis], (slice(None),) * axis
            if isinstance(position, Var) and self.ranges[position.name].stop <= size:
                r = self.ranges[position.name]
                if len(r) != size:
                    array = array[(*before, slice(r.start, r.stop))]
            elif not v.names:
                array = array[(*before, min(max(int(v.array), 0), size - 1), ...)]
            else:
                array = np.take(array, _clipped(v.array, size), axis=axis)
            found += v.names
            axis += len(v.names)
        return Value(array.transpose([found.index(n) for n in names]) if names else array, names)

    def _reduce(self, e: Reduce) -> Value:
        factors = product_factors(e)
        if factors is not None:
            values = [self.value(f) for f in factors]
            are_finite = all(map(self.kept.finite if self.kept else finite, values))
            made = self.contract(e, values) if are_finite or absent(self, e.body) is None else None
            if made is not None:
                return made
        inner = self.free[id(e.body)] | (self.free[id(e.cond)] if e.cond is not None else frozenset())
        inner = inner if keys_of(e) is None else frozenset()
        grid = self._grid(inner | {a.name for a in e.axes})
        axis = max((a.name for a in e.axes), key=lambda n: len(self.ranges[n]))
        whole = self.ranges[axis]
        if grid <= 2 * _GRID or len(whole) == 1:
            return self.reduce_here(e)
        step = max(1, len(whole) * _GRID // grid)
        total: Value | None = None
        for start in range(0, len(whole), step):
            self.ranges[axis] = whole[start : start + step]
            self._forget(axis)
            part = self._reduce(e) if len(self.ranges[axis]) < len(whole) else self.reduce_here(e)
            joined = part.array if total is None else eval_quietly(_BINARY[e.op], [total.array, part.array], e.dtype)
            total = Value(joined, part.names)
        self.ranges[axis] = whole
        self._forget(axis)
        assert total is not None
        return total

    def structural(self, name: str, what: float) -> Array | None:
        """Where the definition ``name`` is structurally ``what``; an axis of size 1 stands for all; None: nowhere."""
        return self.buffers.structural(name, what, self.params) if isinstance(self.buffers, Tensors) else None

    def reduce_here(self, e: Reduce) -> Value:
        """The reduction ``e`` over the current ranges of its axes."""
        if (keyed := keys_of(e)) is not None:
            return self._combined_at(e, *keyed)
        body = self.value(e.body)
        if not finite(body):
            body = element(self, e.op, e.body)
        values = [body] if e.cond is None else [body, self.value(e.cond)]
        axes = {a.name for a in e.axes}
        names = tuple(sorted(axes.union(*(v.names for v in values)), key=self.order.__getitem__))
        array = line_up(body, names)
        if e.cond is not None:
            start = identity_of(e.op, e.dtype).value
            array = np.where(line_up(values[1], names), array, np.asarray(start, array.dtype))
        array = np.broadcast_to(array, tuple(len(self.ranges[n]) for n in names))
        positions = tuple(i for i, n in enumerate(names) if n in axes)
        kept = tuple(n for n in names if n not in axes)
        return Value(self.combined(e, array, positions), kept)

    def _combined_at(self, e: Reduce, keys: Mapping[str, Expr], conditions: Sequence[Expr]) -> Value:
        """The reduction ``e``, of which each term belongs to the element at ``keys``, if it meets ``conditions``."""
        over = tuple(sorted((a.name for a in e.axes), key=self.order.__getitem__))
        kept = tuple(sorted(keys, key=self.order.__getitem__))
        shape = tuple(len(self.ranges[n]) for n in over)
        body, *at = (np.broadcast_to(line_up(self.value(x), over), shape) for x in (e.body, *(keys[n] for n in kept)))
        admitted = np.ones(shape, bool)
        for c in conditions:
            admitted &= line_up(self.value(c), over)
        for n, index in zip(kept, at, strict=True):
            admitted &= (index >= self.ranges[n].start) & (index < self.ranges[n].stop)
        out = np.full([len(self.ranges[n]) for n in kept], identity_of(e.op, e.dtype).value, working(e.dtype))
        where = tuple(index[admitted] - self.ranges[n].start for n, index in zip(kept, at, strict=True))
        combine_at(e.op, out, where, body[admitted], e.dtype)
        return Value(out, kept)

    def combined(self, e: Reduce, terms: Array, axes: tuple[int, ...]) -> Array:
        """The reduction ``e`` of ``terms`` over ``axes``."""
        return reduce_array(e.op, terms, axes, e.dtype)

    def product(self, e: Reduce, left: Array, right: Array) -> Array:
        """The sum of products ``e``: ``left`` [batch, rows, inner] times ``right`` [batch, inner, columns]."""
        if e.dtype.is_int:
            return integer_product(left, right)
        with np.errstate(all="ignore"):
            return np.asarray(left @ right)

    def contract(self, e: Reduce, values: list[Value]) -> Value | None:
        """A sum of products as one batched matrix product; None where the factors do not permit it."""
        values = sorted(values, key=lambda v: -len(v.names))
        merged: list[Value] = []
        for v in values:
            for i, m in enumerate(merged):
                if set(v.names) <= set(m.names):
                    array = eval_quietly("mul", [m.array, line_up(v, m.names)], e.dtype)
                    merged[i] = Value(array, m.names)
                    break
            else:
                merged.append(v)
        if len(merged) != 2:
            return None
        a, b = merged
        axes = {x.name for x in e.axes}
        shared = set(a.names) & set(b.names)
        if not axes <= shared:
            return None
        batch = [n for n in a.names if n in shared - axes]
        inner = [n for n in a.names if n in axes]
        rows = [n for n in a.names if n not in shared]
        columns = [n for n in b.names if n not in shared]
        arranged = self.kept.arranged if self.kept else arrange
        left, right = arranged(a, batch, rows, inner), arranged(b, batch, inner, columns)
        made = self.product(e, left, right)
        names = (*batch, *rows, *columns)
        array = made.reshape([len(self.ranges[n]) for n in names])
        ordered = tuple(sorted(names, key=self.order.__getitem__))
        array = array.transpose([names.index(n) for n in ordered])
        return Value(eval_quietly("add", [array, np.zeros((), array.dtype)], e.dtype), ordered)


def _clipped(position: Array, size: int) -> Array:
    """``position``, clipped to an axis of ``size`` elements."""
    return np.asarray(np.minimum(np.maximum(position, 0), size - 1))  # a third of the time of np.clip on few elements


@by_identity(1 << 8)
def keys_of(e: Reduce) -> tuple[Mapping[str, Expr], Sequence[Expr]] | None:
    """The keys of a reduction of integers of which each term belongs to one element, and the other conditions."""
    over = {a.name for a in e.axes}
    if not (e.dtype.is_int and e.op in ("sum", "max", "min") and free_vars(e.body) <= over):
        return None
    return equations(e.cond, over)

"""Runs a Scalar program on the validator's numbers.

``seq`` loops run in Python.  All other loops are dimensions: their iterations are independent or only update, so a
statement runs over all of them before the next statement starts.  A promise that is broken shows as two iterations that
write one element.  A loop whose bounds depend on a dimension runs over the union of its ranges under a mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import prod

import numpy as np

from nautilus.check.validate import numbers
from nautilus.check.validate.expressions import Known, Space
from nautilus.check.validate.meanings import apply
from nautilus.check.validate.memory import Malformed, Memory, Unsupported, contracted, reduced
from nautilus.check.validate.numbers import Constants, Number, Value
from nautilus.core.buffers import Buffer, extents
from nautilus.core.buffers import Space as Where
from nautilus.core.expr.infer import stored_value
from nautilus.core.expr.nodes import COMBINERS, Expr, Op, free_vars, loads
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update

_MOST = 1 << 21  # elements of one array, of which an expression has many, each with two residues
_FACTOR = 1 << 21  # elements of a factor after its mask


@dataclass(frozen=True, slots=True)
class Given:
    """The inputs of a run: arrays by name (float64, int64 or bool) and parameters by name."""

    arrays: Mapping[str, Array]
    params: Mapping[str, int | float | bool]
    tracked: bool = True  # whether residues are tracked


def memories(module_buffers: Sequence[Buffer], given: Given) -> dict[str, Memory]:
    """The buffers of a module; inputs hold their values. Raises Unsupported."""
    out = {}
    for b in module_buffers:
        shape = extents(b.shape, given.params)
        if prod(shape) > _MOST:
            raise Unsupported(f"{b.name} is too large")
        out[b.name] = Memory(b.name, b.dtype, shape, given.tracked)
        if b.space is Where.INPUT:
            out[b.name].fill(given.arrays[b.name].reshape(shape))
        elif b.initial is not None:
            out[b.name].fill(np.full(shape, b.initial, np.float64 if b.dtype.is_float else np.int64))
    return out


def parameters(names: Mapping[str, bool], given: Given) -> dict[str, Value]:
    """The parameters by name; ``names`` says which ones are floats."""
    found: dict[str, Value] = {}
    for name, is_float in names.items():
        value = given.params[name]
        found[name] = numbers.exactly(np.asarray(float(value))) if is_float else np.asarray(value)
    return found


def run(program: Program, given: Given, constants: Constants) -> dict[str, Memory]:
    """The buffers after all kernels. Raises Malformed and Unsupported."""
    buffers = memories(program.buffers, given)
    params = parameters({p.name: p.dtype.is_float for p in program.params}, given)
    for k in program.kernels:
        _Run(k, buffers, params, constants, given.tracked).run()
    return buffers


@dataclass(frozen=True, slots=True)
class _Point:
    """The iterations that run together: variables (arrays, or integers of ``seq`` loops), and which of them run."""

    variables: Mapping[str, Array]
    depth: int
    mask: Array
    reduced: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()


class _Run:
    """One kernel."""

    def __init__(
        self, k: Kernel, buffers: dict[str, Memory], params: Mapping[str, Value], constants: Constants, tracked: bool
    ) -> None:
        self.kernel = k
        self.tracked = tracked
        self.rank = max(_depth(k.body), 1)
        self.outer = buffers
        self.params = params
        self.constants = constants
        self.prefix: tuple[Array, ...] = ()
        self.buffers = dict(buffers)
        self.known = Known()
        self.ranges: dict[tuple[int, int, int], Array] = {}

    def run(self) -> None:
        self.block(self.kernel.body, _Point({}, 0, np.ones((1,) * self.rank, bool)), allocated=False)

    def allocate(self, at: _Point) -> None:
        """Make the locals: one for each point of the grid. Raises Unsupported."""
        grid = at.sizes
        for b in self.kernel.locals:
            shape = extents(b.shape, self.params)
            if prod((*grid, *shape)) > _MOST:
                raise Unsupported(f"{b.name} is too large")
            self.buffers[b.name] = Memory(b.name, b.dtype, (*grid, *shape), self.tracked)
        self.prefix = tuple(_along(np.arange(n), d, self.rank) for d, n in enumerate(grid))

    def block(self, body: Sequence[Stmt], at: _Point, allocated: bool) -> None:
        if not allocated and not (len(body) == 1 and isinstance(body[0], Loop) and body[0].kind is Kind.GRID):
            self.allocate(at)
            allocated = True
        for s in body:
            if isinstance(s, Loop):
                self.loop(s, at, allocated)
            else:
                self.statement(s, at)

    def space(self, at: _Point) -> Space:
        local = frozenset(b.name for b in self.kernel.locals)
        return Space(self.constants, at.variables, self.params, self.buffers, self.prefix, local, None, self.known)

    def loop(self, s: Loop, at: _Point, allocated: bool) -> None:
        space = self.space(at)
        lo, hi = space.array(s.lo, at.mask), space.array(s.hi, at.mask)
        first, last = int(lo.min()), int(hi.max())
        steady = lo.size == 1 and hi.size == 1
        if s.kind.is_ordered:
            for n in s.kind.order(first, last):
                mask = at.mask if steady else at.mask & (lo <= n) & (hi > n)
                if mask.any():
                    variables = {**at.variables, s.var: self.known.number(n)}
                    self.block(s.body, replace(at, variables=variables, mask=mask), True)
            return
        key = (first, last, at.depth)
        if key not in self.ranges:
            self.ranges[key] = _along(np.arange(first, max(first, last)), at.depth, self.rank)
        values = self.ranges[key]
        if values.size == 0:
            return
        if not steady and prod(np.broadcast_shapes(at.mask.shape, lo.shape, hi.shape, values.shape)) > _MOST:
            raise Unsupported(f"the loop {s.var} has too many iterations")
        new = replace(
            at,
            variables={**at.variables, s.var: values},
            depth=at.depth + 1,
            mask=at.mask if steady else at.mask & (lo <= values) & (hi > values),
            reduced=(*at.reduced, at.depth) if s.kind.is_reduction else at.reduced,
            sizes=(*at.sizes, values.size),
        )
        self.block(s.body, new, allocated)

    def statement(self, s: Store | Update, at: _Point) -> None:
        parts = _factors(s.value) if isinstance(s, Update) and s.op == "sum" else [s.value]
        for e in (*_conjuncts(s.guard), *s.index, *parts):
            if prod(at.variables[n].size for n in free_vars(e) if n in at.variables) > _MOST:
                raise Unsupported(f"the iteration space of {s.buffer} is too large")
        space = self.space(at)
        masks = [at.mask, *(space.array(g, at.mask) for g in _conjuncts(s.guard))]
        mask = np.asarray(reduce(np.logical_and, masks))
        target = self.buffers[s.buffer]
        before = self.prefix if s.buffer in space.locals else ()
        full = (*at.sizes, *(1 for _ in range(self.rank - at.depth)))
        if isinstance(s, Store):
            if at.reduced:
                raise Malformed(f"{s.buffer} is stored inside a reduction")
            index = (*before, *(space.array(i, mask) for i in s.index))
            source = stored_value(s.value, target.dtype).dtype
            target.write(index, space.value(s.value, mask), np.broadcast_to(mask, full), source)
            return
        if s.atomic:
            at_ = [space.array(i, mask) for i in s.index]
            target.combine(s.op, at_, space.value(s.value, mask), np.broadcast_to(mask, full), self.constants)
            return
        combined = self.reduction(s, space, at, masks, full)
        runs = np.asarray(np.broadcast_to(mask, full).any(axis=at.reduced, keepdims=True))
        index = (*before, *(space.array(i, mask) for i in s.index))
        if any(i.ndim and any(i.shape[d] > 1 for d in at.reduced) for i in index):
            raise Unsupported(f"the index of {s.buffer} varies inside a reduction")
        old = target.read(index, runs)
        args = [old, combined]
        binary = COMBINERS[s.op].binary
        new = apply(binary, args, s.value.dtype, s.value.dtype, self.constants)
        target.write(index, new, runs, target.dtype)

    def reduction(self, s: Update, space: Space, at: _Point, masks: list[Array], full: tuple[int, ...]) -> Value:
        """The combined values of one update, over the reduced dimensions. Raises Unsupported."""
        mask = np.asarray(reduce(np.logical_and, masks))
        if s.op == "sum" and at.reduced and s.value.dtype.is_float and prod(full) > 4096:
            values = [space.value(f, mask) for f in _factors(s.value)]
            groups = _grouped([v for v in values if isinstance(v, Number)], masks, full)
            if len(groups) == 2:
                a, b = (_wide(g, full, at.reduced) for g in groups)
                assert isinstance(a, Number) and isinstance(b, Number)
                return contracted(a, b, at.reduced)
        if prod(full) > _MOST:
            raise Unsupported(f"the iteration space of {s.buffer} is too large")
        where = None if mask.all() else mask
        return reduced(s.op, _wide(space.value(s.value, mask), full, at.reduced), at.reduced, where, s.value.dtype)


def _grouped(values: list[Number], masks: list[Array], full: tuple[int, ...]) -> list[Number]:
    """Factors with different dimensions, whose product is that of ``values`` where ``masks`` hold, else 0.

    A factor of which a part is masked is 0 there; it is not inf or NaN elsewhere, because 0 would not hide that.  The
    list is empty where there are no such factors.
    """
    groups: list[Number] = []
    for v in sorted(values, key=lambda v: -v.real.size):
        dims = _dims(v.real)
        near = next((k for k, g in enumerate(groups) if dims <= _dims(g.real)), None)
        if near is None:
            groups.append(v)
        else:
            groups[near] = numbers.multiply(groups[near], v)
    zero = numbers.exactly(np.asarray(0.0))
    masked = False
    for mask in masks:
        if mask.all():
            continue
        masked = True
        more = [prod(full[d] for d in _dims(mask) - _dims(g.real)) for g in groups]
        fits = [k for k, g in enumerate(groups) if g.real.size * more[k] <= _FACTOR]
        inside = [k for k in fits if _dims(mask) <= _dims(groups[k].real)] or fits
        if not inside:
            return []
        chosen = numbers.choose(mask, groups[inside[0]], zero)
        assert isinstance(chosen, Number)
        groups[inside[0]] = chosen
    if masked and not all(np.isfinite(g.real).all() for g in groups):
        return []
    return groups


def _depth(body: Sequence[Stmt]) -> int:
    """The largest number of dimensions around a statement."""
    inner = [_depth(s.body) + (not s.kind.is_ordered) for s in body if isinstance(s, Loop)]
    return max(inner, default=0)


def _along(x: Array, dim: int, rank: int) -> Array:
    return x.reshape(tuple(-1 if d == dim else 1 for d in range(rank)))


def _ranked(x: Array, rank: int) -> Array:
    return x if x.ndim == rank else x.reshape((1,) * rank)


def _dims(x: Array) -> frozenset[int]:
    return frozenset(d for d, n in enumerate(x.shape) if n > 1)


def _conjuncts(e: Expr | None) -> list[Expr]:
    if isinstance(e, Op) and e.op == "and" and not loads(e):
        return _conjuncts(e.args[0]) + _conjuncts(e.args[1])
    return [] if e is None else [e]


def _wide(x: Value, full: tuple[int, ...], dims: tuple[int, ...]) -> Value:
    """``x`` with its whole size along ``dims``."""

    def grown(a: Array) -> Array:
        a = _ranked(a, len(full))
        return np.broadcast_to(a, tuple(full[d] if d in dims else n for d, n in enumerate(a.shape)))

    return x.each(grown) if isinstance(x, Number) else grown(x)


def _factors(e: Expr) -> list[Expr]:
    if isinstance(e, Op) and e.op == "mul":
        return _factors(e.args[0]) + _factors(e.args[1])
    return [e]

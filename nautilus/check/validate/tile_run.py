"""Runs a VR-tile module on the validator's numbers: all grid points and all tile axes at once.

An array has one dimension for each grid variable and for each tile axis of the kernel.  ``for`` loops run in Python,
over the union of the ranges of all grid points under a mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from nautilus.check.validate import numbers
from nautilus.check.validate.expressions import Known, Space, literal
from nautilus.check.validate.meanings import apply
from nautilus.check.validate.memory import Memory, Unsupported, contracted, reduced
from nautilus.check.validate.numbers import Constants, Number, Value
from nautilus.check.validate.scalar_run import Given, memories, parameters
from nautilus.core.expr.nodes import COMBINERS
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileType
from nautilus.vr_tile.ir import (
    ConstOp,
    DotOp,
    ForOp,
    IndexOp,
    LoadOp,
    MapOp,
    ParamOp,
    ReduceOp,
    ScanOp,
    StoreOp,
    TileKernel,
    TileModule,
    TileOp,
    ValueOp,
    results,
    walk_ops,
)

_MOST = 1 << 26  # elements of all tiles of a kernel at all points of its grid, which are kept together


def run(module: TileModule, given: Given, constants: Constants) -> dict[str, Memory]:
    """The buffers after all kernels. Raises Malformed and Unsupported."""
    buffers = memories(module.buffers, given)
    params = parameters({p.name: p.dtype.is_float for p in module.params}, given)
    for k in module.kernels:
        _Run(k, buffers, params, constants).run()
    return buffers


@dataclass
class _Values:
    """SSA values by name."""

    found: dict[str, Value]

    def __call__(self, name: str) -> Value:
        return self.found[name]


class _Run:
    """One kernel."""

    def __init__(
        self, k: TileKernel, buffers: dict[str, Memory], params: Mapping[str, Value], constants: Constants
    ) -> None:
        self.kernel = k
        self.params = params
        self.buffers = buffers
        self.constants = constants
        self.axes = [a.name for a in k.axes]
        self.rank = max(len(k.grid) + len(k.axes), 1)
        self.values = _Values({})
        self.known = Known()
        self.variables: dict[str, Array] = {}
        self.mask = np.ones((1,) * self.rank, bool)

    def dim(self, axis: str) -> int:
        return len(self.kernel.grid) + self.axes.index(axis)

    def along(self, n: int, dim: int) -> Array:
        return np.arange(n).reshape(tuple(-1 if d == dim else 1 for d in range(self.rank)))

    def run(self) -> None:
        space = self.space()
        for d, g in enumerate(self.kernel.grid):
            self.variables[g.var] = self.along(int(space.array(g.extent, self.mask)), d)
        for a in self.kernel.axes:
            self.variables[a.name] = self.along(a.size, self.dim(a.name))
        points = prod(self.variables[g.var].size for g in self.kernel.grid)
        elements = sum(prod(v.type.shape) for op in walk_ops(self.kernel.body) for v in results(op))
        if points * elements > _MOST:
            raise Unsupported(f"the tiles of {self.kernel.name} are too large together")
        self.block(self.kernel.body)

    def space(self) -> Space:
        return Space(self.constants, self.variables, self.params, self.buffers, values=self.values, known=self.known)

    def shape(self, t: TileType) -> tuple[int, ...]:
        """The shape of a tile whose elements all are present, without the dimensions of the grid."""
        sizes = {self.dim(a.name): a.size for a in t.axes}
        return tuple(sizes.get(d, 1) for d in range(self.rank))

    def block(self, body: Sequence[TileOp]) -> None:
        for op in body:
            match op:
                case StoreOp():
                    self.store(op)
                case ForOp():
                    self.loop(op)
                case _:
                    self.values.found[op.result.name] = self.compute(op)

    def compute(self, op: ValueOp) -> Value:
        t = op.result.type
        match op:
            case ConstOp(value=value):
                return literal(value, t.dtype, self.constants)
            case IndexOp(expr=expr):
                return self.space().array(expr, self.mask)
            case ParamOp(param=param):
                return self.params[param]
            case LoadOp(buffer=buffer, index=index, mask=mask):
                return self.load(buffer, index, mask)
            case MapOp(op=name, args=args):
                given = [self.values(a.name) for a in args]
                try:
                    return apply(name, given, t.dtype, args[0].type.dtype, self.constants)
                except KeyError as error:
                    raise Unsupported(f"function {name}") from error
            case ReduceOp(combiner=combiner, arg=arg, axes=axes):
                dims = tuple(self.dim(a) for a in axes)
                return reduced(combiner, self.grown(self.values(arg.name), dims, arg.type), dims, None, t.dtype)
            case ScanOp():
                return self.scan(op)
            case DotOp():
                return self.dot(op)

    def scan(self, op: ScanOp) -> Value:
        """Every result as a reduction of its own, or one step of a recurrence after another."""
        if op.by is not None:
            return self.stepped(op, self.values(op.by.name))
        if op.states is not None:
            return self.steps_of_states(op, op.states)
        if op.axis == op.into:
            one = literal(1, op.result.type.dtype, self.constants)
            return self.stepped(op, one) if op.combiner == "sum" else self.run_on(op)
        over, into = self.dim(op.axis), self.dim(op.into)
        x = self.grown(self.values(op.arg.name), (over,), op.arg.type)
        size = next(a.size for a in op.result.type.axes if a.name == op.into)
        read, at = self.along(size, over), self.along(size, into)
        first, second = (at, read) if op.reverse else (read, at)
        mask = first < second if op.exclusive else first <= second

        def spread(a: Array) -> Array:
            return np.broadcast_to(a, np.broadcast_shapes(a.shape, mask.shape))

        wide = x.each(spread) if isinstance(x, Number) else spread(x)
        return reduced(op.combiner, wide, (over,), mask, op.result.type.dtype)

    def stepped(self, op: ScanOp, by: Value) -> Value:
        """The states of a linear recurrence with the factors ``by``."""
        t, dim, size = op.result.type, self.dim(op.axis), next(a.size for a in op.result.type.axes if a.name == op.into)
        wide = [self.grown(x, (dim,), t) for x in (by, self.values(op.arg.name))]
        parts: list[Value] = []
        before = literal(0, t.dtype, self.constants)
        for n in reversed(range(size)) if op.reverse else range(size):
            at = (slice(None),) * dim + (slice(n, n + 1),)
            factor, rest = (_part(x, at) for x in wide)
            forgets = np.isinf(factor.real) if isinstance(factor, Number) else np.zeros((), bool)
            kept = numbers.choose(~forgets, factor, literal(0, t.dtype, self.constants))
            product = apply("mul", [kept, before], t.dtype, t.dtype, self.constants)
            after = apply("add", [product, rest], t.dtype, t.dtype, self.constants)
            before = numbers.choose(~forgets, after, rest)
            parts.append(before)
        return _joined(parts[::-1] if op.reverse else parts, dim)

    def run_on(self, op: ScanOp) -> Value:
        """Running results along one axis, one position after another."""
        t, dim = op.result.type, self.dim(op.axis)
        whole, size = self.grown(self.values(op.arg.name), (dim,), t), next(a.size for a in t.axes if a.name == op.into)
        parts: list[Value] = []
        for n in reversed(range(size)) if op.reverse else range(size):
            here = _part(whole, (slice(None),) * dim + (slice(n, n + 1),))
            binary = COMBINERS[op.combiner].binary
            parts.append(apply(binary, [parts[-1], here], t.dtype, t.dtype, self.constants) if parts else here)
        return _joined(parts[::-1] if op.reverse else parts, dim)

    def steps_of_states(self, op: ScanOp, states: str) -> Value:
        """The states of a linear recurrence that need each other, one step after another."""
        t, sizes = op.result.type, {a.name: a.size for a in op.result.type.axes}
        dims, size = (self.dim(op.axis), self.dim(states)), sizes[states]
        rest = self.grown(self.values(op.arg.name), dims, t)
        factors = [self.grown(self.values(f.name), dims[:1], t) for f in op.factors]
        steps: list[Value] = []
        before: list[Value] = []
        for n in reversed(range(sizes[op.axis])) if op.reverse else range(sizes[op.axis]):
            here = _part(rest, (slice(None),) * dims[0] + (slice(n, n + 1),))
            after = [_part(here, (slice(None),) * dims[1] + (slice(r, r + 1),)) for r in range(size)]
            for place, f in zip(op.places, factors, strict=True) if before else ():
                row, column = divmod(place, size)
                factor = _part(f, (slice(None),) * dims[0] + (slice(n, n + 1),))
                moved = apply("mul", [factor, before[column]], t.dtype, t.dtype, self.constants)
                after[row] = apply("add", [moved, after[row]], t.dtype, t.dtype, self.constants)
            before = after
            steps.append(_joined(after, dims[1]))
        return _joined(steps[::-1] if op.reverse else steps, dims[0])

    def grown(self, x: Value, dims: tuple[int, ...], t: TileType) -> Value:
        """``x`` with its whole size along ``dims``."""
        sizes = self.shape(t)

        def whole(a: Array) -> Array:
            a = a if a.ndim else a.reshape((1,) * self.rank)
            return np.broadcast_to(a, tuple(sizes[d] if d in dims else n for d, n in enumerate(a.shape)))

        return x.each(whole) if isinstance(x, Number) else whole(x)

    def load(self, buffer: str, index: Sequence[object], mask: object) -> Value:
        space = self.space()
        runs = self.mask if mask is None else self.mask & space.array(mask, self.mask)  # type: ignore[arg-type]
        got = self.buffers[buffer].read([space.array(i, runs) for i in index], runs)  # type: ignore[arg-type]
        if mask is None:
            return got
        zero: Value = numbers.exactly(np.asarray(0.0)) if isinstance(got, Number) else np.zeros((), got.dtype)
        found = numbers.choose(runs, got, zero)
        return replace(found, held=got.held) if isinstance(found, Number) and isinstance(got, Number) else found

    def dot(self, op: DotOp) -> Value:
        t = op.result.type
        dims = tuple(self.dim(a) for a in op.axes)
        a, b = (self.grown(self.values(v.name), dims, v.type) for v in (op.a, op.b))
        if op.mask is not None:
            zero: Value = numbers.exactly(np.asarray(0.0)) if isinstance(a, Number) else np.zeros((), a.dtype)
            present = self.values(op.mask.name)
            assert not isinstance(present, Number)
            a = numbers.choose(present, a, zero)
        if isinstance(a, Number) and isinstance(b, Number):
            out: Value = contracted(a, b, dims)
        else:
            wide = apply("mul", [a, b], t.dtype, t.dtype, self.constants)
            out = reduced("sum", wide, dims, None, t.dtype)
        if op.acc is None:
            return out
        return apply("add", [self.values(op.acc.name), out], t.dtype, t.dtype, self.constants)

    def store(self, op: StoreOp) -> None:
        space = self.space()
        mask = self.mask if op.mask is None else self.mask & space.array(op.mask, self.mask)
        grid = [self.variables[g.var].size for g in self.kernel.grid]
        tile = self.shape(op.value.type)
        full = tuple(grid[d] if d < len(grid) else tile[d] for d in range(self.rank))
        index = [space.array(i, mask) for i in op.index]
        value = self.values(op.value.name)
        if op.combiner is not None:
            self.buffers[op.buffer].combine(op.combiner, index, value, np.broadcast_to(mask, full), self.constants)
            return
        self.buffers[op.buffer].write(index, value, np.broadcast_to(mask, full), op.value.type.dtype)

    def loop(self, op: ForOp) -> None:
        space = self.space()
        lo, hi = space.array(op.lo, self.mask), space.array(op.hi, self.mask)
        current = [self.values(init.name) for _, init in op.carried]
        outer, mask = self.values.found, self.mask
        for n in range(int(lo.min()), int(hi.max())):
            runs = np.asarray((lo <= n) & (hi > n))
            self.mask = mask & runs
            if not self.mask.any():
                continue
            self.variables[op.var] = self.known.number(n)
            self.values.found = dict(outer)
            for (arg, _), data in zip(op.carried, current, strict=True):
                self.values.found[arg.name] = data
            self.block(op.body)
            new = [self.values(y.name) for y in op.yields]
            every = bool(runs.all())
            current = [y if every else numbers.choose(runs, y, x) for x, y in zip(current, new, strict=True)]
        self.variables.pop(op.var, None)
        self.values.found, self.mask = outer, mask
        for result, data in zip(op.results, current, strict=True):
            self.values.found[result.name] = data


def _part(x: Value, at: tuple[slice, ...]) -> Value:
    return x.each(lambda a: a[at]) if isinstance(x, Number) else x[at]


def _joined(parts: Sequence[Value], dim: int) -> Value:
    """``parts`` one after another along ``dim``."""
    found = [(p.real, p.u, p.v) if isinstance(p, Number) else (p, None, None) for p in parts]

    def joined(arrays: Sequence[Array | None]) -> Array | None:
        known = [a for a in arrays if a is not None]
        shape = np.broadcast_shapes(*(a.shape for a in known))
        return np.concatenate([np.broadcast_to(a, shape) for a in known], dim) if len(known) == len(arrays) else None

    real, u, v = (joined(list(arrays)) for arrays in zip(*found, strict=True))
    assert real is not None
    return Number(real, u, v) if isinstance(parts[0], Number) else real

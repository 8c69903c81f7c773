"""The interpreter of the VR-tile IR in numpy.

A tile is an array with one dimension per axis of its type, in the type's order.  Loop iterations run in Python; tiles,
and tiles of many points of the grid, run at once.  Points whose loop has fewer iterations than that of others wait:
they access no memory, and their carried values stay.  Modes:

* ``real``: floats are float64 and ``narrow`` is skipped (``core.expr.nodes``); ``cast`` and stores round;
* ``typed``: every operation rounds to its result type; ``dot`` accumulates in its result's type.

A load or store whose mask is false touches nothing; one outside its buffer whose mask is true (or
absent) raises :class:`TileRunError`, which names the op.  Outputs and temps start as NaN (floats), the
least value (integers) or false, so that an element without a store is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from nautilus.core.buffers import Buffer, Space, extents
from nautilus.core.expr.nodes import (
    COMBINERS,
    Const,
    Expr,
    Load,
    Op,
    Param,
    Ref,
    Var,
    free_vars,
    identity,
    loads,
    walk,
)
from nautilus.core.functions.parts import PARTS, product_of_parts
from nautilus.core.numerics import Array, Mode, combine_at, eval_quietly, integer_product, reduce_array, round_to
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType, integer_limits
from nautilus.vr_tile.ir import (
    VR,
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
    Value,
    operands,
    results,
    walk_ops,
)
from nautilus.vr_tile.text import format_op

_SCALAR = TileType(DType.I32)
_ELEMENTS = 1 << 17  # elements of a value, at most, for the grid points that run together


class TileRunError(RuntimeError):
    """An access outside a buffer, or a module that cannot run; the message names the op."""


def run_module(
    m: TileModule,
    inputs: Mapping[str, Array],
    scalars: Mapping[str, int | float | bool] | None = None,
    mode: Mode = "real",
) -> dict[str, Array]:
    """Outputs and temps of ``m`` by name.

    ``inputs`` by buffer name, of the declared shape; ``scalars`` by parameter name (a default need not
    be given; runtime sizes are parameters).  Raises TileRunError.
    """
    params = {p.name: p.default for p in m.params} | dict(scalars or {})
    missing = sorted(name for name, value in params.items() if value is None)
    if missing:
        raise TileRunError(f"no value for scalar {', '.join(missing)}")
    run = _Run(m, {k: v for k, v in params.items() if v is not None}, mode)
    for b in m.buffers:
        run.allocate(b, inputs)
    for k in m.kernels:
        run.kernel(k)
    found = (b for b in m.buffers if b.space is not Space.INPUT)
    return {b.name: run.memory[b.name].reshape(extents(b.array_shape, run.params)) for b in found}


class _Run:
    """State of one run: memory, and the loop variables and SSA values of the points that run together.

    Points of a grid run together, as many as have tiles of :data:`_ELEMENTS`.  Every value has a leading dimension for
    them, of size 1 where it is the same for all, and so has a variable that is not an int.
    """

    def __init__(self, m: TileModule, params: Mapping[str, int | float | bool], mode: Mode) -> None:
        self.module = m
        self.params = params
        self.mode = mode
        self.memory: dict[str, Array] = {}
        self.vars: dict[str, int | Array] = {}
        self.values: dict[str, tuple[TileType, Array]] = {}
        self.active: Array | None = None  # the points that run the loops around; None: all
        self.fixed: dict[tuple[int, int], Array] = {}
        self.moving: dict[int, bool] = {}
        self.loops: frozenset[str] = frozenset()
        self.orders: dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]] = {}

    # -- memory -------------------------------------------------------------------------------
    def allocate(self, b: Buffer, inputs: Mapping[str, Array]) -> None:
        shape, declared = extents(b.shape, self.params), extents(b.array_shape, self.params)
        if b.space is not Space.INPUT:
            self.memory[b.name] = _fresh(shape, b.dtype)
            return
        if b.name not in inputs:
            raise TileRunError(f"no value for input {b.name}")
        data = np.asarray(inputs[b.name])
        if data.shape != declared:
            raise TileRunError(f"input {b.name} has shape {data.shape}, declared {declared}")
        self.memory[b.name] = round_to(data.reshape(shape), b.dtype)

    def where(self, op: LoadOp | StoreOp, t: TileType) -> tuple[tuple[Array, ...], Array | None]:
        """Index arrays of the access and its mask (None: true), which broadcast; out of range is an error."""
        buf = self.memory[op.buffer]
        mask = None if op.mask is None else self.expr(op.mask, t).astype(bool)
        if self.active is not None:
            active = self.active.reshape(-1, *[1] * len(t.axes))
            mask = active if mask is None else mask & active
        index: list[Array] = []
        for dim, e in enumerate(op.index):
            at = self.expr(e, t)
            bad = (at < 0) | (at >= buf.shape[dim])
            if bad.any():
                if mask is None or (bad & mask).any():
                    self.outside(op, dim, at, bad if mask is None else bad & mask)
                at = np.where(bad, 0, at)
            index.append(at)
        return tuple(index), mask

    def outside(self, op: LoadOp | StoreOp, dim: int, at: Array, bad: Array) -> None:
        """Raise the error of an access whose index ``at`` in dimension ``dim`` is outside where ``bad``."""
        where = tuple(int(n[0]) for n in np.nonzero(bad))
        worst = np.broadcast_to(at, bad.shape)[where]
        vars_ = ", ".join(f"{k}={v if isinstance(v, int) else v.flat[where[0]]}" for k, v in self.vars.items())
        extent = self.memory[op.buffer].shape[dim]
        raise TileRunError(
            f"{op.buffer} has extent {extent} in dimension {dim}, accessed at {worst} ({vars_}): {format_op(op)}"
        )

    # -- expressions ---------------------------------------------------------------------------
    def expr(self, e: Expr, t: TileType) -> Array:
        """The value of an index or mask over the points and the axes of ``t``, of size 1 where it does not vary.

        A value without loop variables and SSA values is found once.
        """
        if self.moves(e):
            return self.eval(e, t)
        key = (id(e), id(t))
        if key not in self.fixed:
            self.fixed[key] = self.eval(e, t)
        return self.fixed[key]

    def moves(self, e: Expr) -> bool:
        """Whether ``e`` has loop variables, SSA values or elements of memory."""
        if id(e) not in self.moving:
            own = any(isinstance(n, Load | Ref) for n in walk(e))
            self.moving[id(e)] = own or bool(free_vars(e) & self.loops)
        return self.moving[id(e)]

    def eval(self, e: Expr, t: TileType) -> Array:
        match e:
            case Const(value=value, dtype=dtype):
                return self.spanned(self.constant(value, dtype), t)
            case Var(name=name):
                if name in t.names:
                    at = t.names.index(name)
                    shape = [1] * (1 + len(t.axes))
                    shape[1 + at] = t.shape[at]
                    return np.arange(t.shape[at]).reshape(shape)
                return self.spanned(np.asarray(self.vars[name], np.int64), t)
            case Param(name=name, dtype=dtype):
                return self.spanned(self.constant(self.params[name], dtype), t)
            case Ref(name=name):
                return self.spread(name, t)
            case Load(buffer=buffer, index=index):  # of a loop bound
                return self.element(buffer, [self.expr(i, t) for i in index])
            case Op(op="select", args=(c, a, b)) if loads(a) or loads(b):
                return self.chosen(self.expr(c, t), a, b, t)
            case Op(op=op, args=args, dtype=dtype):
                return eval_quietly(op, [self.expr(a, t) for a in args], dtype, self.mode)
            case _:
                raise TileRunError(f"not an index expression: {e!r}")

    def chosen(self, c: Array, a: Expr, b: Expr, t: TileType) -> Array:
        """``a`` where ``c`` holds, else ``b``; each is read only at the points that choose it."""
        around = self.active
        parts: list[Array] = []
        for e, holds in ((a, c.astype(bool)), (b, ~c.astype(bool))):
            points = np.asarray(holds.reshape(len(holds), -1).any(axis=1))
            self.active = points if around is None else np.asarray(points & around)
            parts.append(self.expr(e, t))
        self.active = around
        return np.where(c.astype(bool), *parts)

    def element(self, buffer: str, index: Sequence[Array]) -> Array:
        """An element that a loop bound reads; points outside of the loops around have any place.

        Raises TileRunError.
        """
        data = self.memory[buffer]
        for at, n in zip(index, data.shape, strict=True):
            bad = (at < 0) | (at >= n)
            if (bad if self.active is None else bad & self.active.reshape(-1, *[1] * (at.ndim - 1))).any():
                raise TileRunError(f"{buffer} is read outside of its {n} elements by a loop bound")
        if not data.size:
            return np.zeros(np.broadcast_shapes(*(at.shape for at in index)), data.dtype)
        return np.asarray(data[tuple(np.clip(at, 0, n - 1) for at, n in zip(index, data.shape, strict=True))])

    @staticmethod
    def spanned(x: Array, t: TileType) -> Array:
        """``x``, one value or one for each point, with a dimension for every axis of ``t``."""
        return x.reshape(-1, *[1] * len(t.axes))

    def spread(self, name: str, t: TileType) -> Array:
        """Value ``name`` with a dimension for every axis of ``t`` (1 where it lacks the axis). Raises TileRunError."""
        own, data = self.values[name]
        if own.axes == t.axes:
            return data
        key = (id(own), id(t))
        if key not in self.orders:
            order = [own.names.index(n) for n in t.names if n in own.names]
            if len(order) != len(own.names):
                raise TileRunError(f"%{name} has an axis that its user lacks")
            shape = [own.shape[own.names.index(n)] if n in own.names else 1 for n in t.names]
            self.orders[key] = (0, *(1 + p for p in order)), tuple(shape)
        order_, shape_ = self.orders[key]
        return data.transpose(order_).reshape(len(data), *shape_)

    def constant(self, value: int | float | bool, dtype: DType) -> Array:
        """A number of type ``dtype``: rounded to it, but for floats in mode ``real``."""
        exact = self.mode == "real" and dtype.is_float
        return round_to(np.asarray(value), DType.F64 if exact else dtype)

    # -- ops -----------------------------------------------------------------------------------
    def kernel(self, k: TileKernel) -> None:
        with np.errstate(all="ignore"):
            self.vars, self.values, self.fixed, self.moving = {}, {}, {}, {}
            self.loops = frozenset()
            counts = [int(self.eval(g.extent, _SCALAR).item()) for g in k.grid]
            ops = [*walk_ops(k.body)]
            self.loops = frozenset(op.var for op in ops if isinstance(op, ForOp))
            largest = max((prod(v.type.shape) for op in ops for v in (*results(op), *operands(op))), default=1)
            together = max(1, _ELEMENTS // largest // k.team) * k.team
            total = prod(counts)
            for first in range(0, total, together):
                at = np.unravel_index(np.arange(first, min(total, first + together)), counts) if counts else ()
                self.vars = {g.var: p for g, p in zip(k.grid, at, strict=True)}
                self.values, self.fixed, self.active = {}, {}, None
                self.block(k.body)

    def block(self, body: Sequence[TileOp]) -> None:
        for op in body:
            if isinstance(op, StoreOp):
                self.store(op)
            elif isinstance(op, ForOp):
                self.loop(op)
            else:
                self.define(op.result, _COMPUTE[type(op)](self, op))

    def define(self, v: Value, data: Array) -> None:
        shape = (len(data) if data.ndim else 1, *v.type.shape)
        self.values[v.name] = (v.type, data if data.shape == shape else np.broadcast_to(data, shape))

    def map(self, op: MapOp) -> Array:
        t = op.result.type
        return eval_quietly(op.op, [self.spread(a.name, t) for a in op.args], t.dtype, self.mode)

    def reduce(self, op: ReduceOp) -> Array:
        t, arg = op.result.type, op.arg
        dims = tuple(1 + arg.type.names.index(a) for a in op.axes)
        rest = TileType(t.dtype, tuple(a for a in arg.type.axes if a.name not in op.axes))
        return _reorder(reduce_array(op.combiner, self.values[arg.name][1], dims, t.dtype, self.mode), rest, t)

    def load(self, op: LoadOp) -> Array:
        t = op.result.type
        index, mask = self.where(op, t)
        data = self.memory[op.buffer]
        if not index:
            got = self.spanned(data, t)
        elif data.size:
            got = data[index]
        else:
            got = np.zeros(np.broadcast_shapes(*(i.shape for i in index)), data.dtype)
        return got if mask is None else np.where(mask, got, np.zeros((), got.dtype))

    def scan(self, op: ScanOp) -> Array:
        """Combine neighbours at distances 1, 2, 4 and so on, so that a sum has the error of a tree."""
        if op.by is not None:
            return self.stepped(op, op.by)
        t, dim = op.result.type, 1 + op.arg.type.names.index(op.axis)
        data = np.moveaxis(self.values[op.arg.name][1], dim, 0)
        data, binary, distance = data[::-1] if op.reverse else data, COMBINERS[op.combiner].binary, 1
        while distance < len(data):
            ahead = eval_quietly(binary, [data[:-distance], data[distance:]], t.dtype, self.mode)
            data, distance = np.concatenate([data[:distance], ahead]), 2 * distance
        if op.exclusive:
            first = np.broadcast_to(self.constant(identity(op.combiner, t.dtype).value, t.dtype), data[:1].shape)
            data = np.concatenate([first, data[:-1]])
        made = np.moveaxis(data[::-1] if op.reverse else data, 0, dim)
        renamed = tuple(TileAxis(op.into, a.size) if a.name == op.axis else a for a in op.arg.type.axes)
        return _reorder(made, TileType(t.dtype, renamed), t)

    def stepped(self, op: ScanOp, by: Value) -> Array:
        """One step of a linear recurrence after another."""
        t, dim = op.result.type, 1 + op.arg.type.names.index(op.axis)
        data = np.moveaxis(self.values[op.arg.name][1], dim, 0)
        spread = np.broadcast_to(self.spread(by.name, op.arg.type), self.values[op.arg.name][1].shape)
        factors, out = np.moveaxis(spread, dim, 0), np.empty_like(data)
        before, order = np.zeros_like(data[0]), range(len(data))
        for n in reversed(order) if op.reverse else order:
            moved = eval_quietly("mul", [factors[n], before], t.dtype, self.mode)
            after = eval_quietly("add", [moved, data[n]], t.dtype, self.mode)
            before = out[n] = np.where(np.isinf(factors[n]), data[n], after)
        return np.moveaxis(out, 0, dim)

    def dot(self, op: DotOp) -> Array:
        """Sums of products over named axes, operands widened to the accumulator's type first."""
        t = op.result.type
        wide = [eval_quietly("cast", [self.values[v.name][1]], t.dtype, self.mode) for v in (op.a, op.b)]
        if self.mode == "typed" and t.dtype is DType.F32:
            wide = [w.astype(np.float32) for w in wide]

        def counted(data: Array, v: Value) -> Array:
            before = (slice(None),) * (1 + v.type.names.index(op.axes[0]))
            return data if op.terms is None else data[(*before, slice(op.terms))]

        def product(a: Array, b: Array) -> Array:
            return contracted(counted(a, op.a), op.a.type.names, counted(b, op.b), op.b.type.names, t.names)

        if op.mask is not None and not all(np.isfinite(w).all() for w in wide):
            total = self.masked_sum(op, wide)
        elif op.parts == PARTS and self.mode == "typed":
            total = product_of_parts(product, *wide)
        else:
            total = product(*wide)
        out = round_to(total, t.dtype if self.mode == "typed" else _wide(t.dtype))
        if op.acc is not None:
            out = eval_quietly("add", [self.spread(op.acc.name, t), out], t.dtype, self.mode)
        return out

    def masked_sum(self, op: DotOp, sides: Sequence[Array]) -> Array:
        """The sum of the products whose mask holds; ``sides``: the operands in the type of the sum."""
        assert op.mask is not None
        axes = {a.name: a for v in (op.a, op.b) for a in v.type.axes}
        names = (*op.result.type.names, *op.axes)

        def aligned(data: Array, have: TileType) -> Array:
            order = [n for n in names if n in have.names]
            sizes = [axes[n].size if n in have.names else 1 for n in names]
            return data.transpose(0, *(1 + have.names.index(n) for n in order)).reshape(len(data), *sizes)

        every = [(w, v.type) for w, v in zip(sides, (op.a, op.b), strict=True)]
        every.append((self.values[op.mask.name][1], op.mask.type))
        a, b, mask = (aligned(*x) for x in every)
        gone = tuple(range(len(op.result.type.names), len(names)))

        def at(x: Array, p: int) -> Array:
            return np.asarray(x[p if len(x) > 1 else 0])

        points = max(len(a), len(b), len(mask))
        zero = np.zeros((), a.dtype)
        return np.stack([
            np.where(at(mask, p), at(a, p) * at(b, p), zero).sum(axis=gone) for p in range(points)
        ])  # fmt: skip

    def store(self, op: StoreOp) -> None:
        t = op.value.type
        index, mask = self.where(op, t)
        dtype = self.module.buffer(op.buffer).dtype
        data = self.values[op.value.name][1]
        if op.combiner is None and (t.dtype is not dtype or dtype is dtype.compute):
            data = eval_quietly("cast", [data], dtype, self.mode)  # else it is of this type, or was narrowed to it
        arrays = [*index, data, *([] if mask is None else [mask])]
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        data, at = np.broadcast_to(data, shape), tuple(np.broadcast_to(i, shape) for i in index)
        if mask is not None:
            live = np.broadcast_to(mask, shape)
            data, at = data[live], tuple(i[live] for i in at)
        if op.combiner is not None:
            combine_at(op.combiner, self.memory[op.buffer], at, data, dtype, self.mode)
        elif op.index:
            self.memory[op.buffer][at] = data
        elif data.size:
            self.memory[op.buffer][...] = data.flat[-1]

    def loop(self, op: ForOp) -> None:
        lo, hi = (self.expr(e, _SCALAR).reshape(-1) for e in (op.lo, op.hi))
        lo, count = np.broadcast_arrays(lo, hi - lo)
        current = [self.values[init.name][1] for _, init in op.carried]
        outer, around = self.values, self.active
        live = count if around is None else np.where(around, count, 0)
        same = bool((lo == lo[0]).all())
        for step in range(max(0, int(live.max(initial=0)))):
            self.values = dict(outer)
            self.vars[op.var] = int(lo[0]) + step if same else lo + step
            runs = step < live
            self.active = None if runs.all() else runs
            for (arg, _), data in zip(op.carried, current, strict=True):
                self.define(arg, data)
            self.block(op.body)
            made = [self.values[y.name][1] for y in op.yields]
            if self.active is not None:
                made = [
                    np.where(runs.reshape(-1, *[1] * (x.ndim - 1)), x, old)
                    for x, old in zip(made, current, strict=True)
                ]
            current = made
        self.vars.pop(op.var, None)
        self.values, self.active = outer, around
        for result, data in zip(op.results, current, strict=True):
            self.define(result, data)


#: op class -> the value of its result; :meth:`_Run.block` runs stores and loops
_COMPUTE: Mapping[type, Callable[[_Run, Any], Array]] = {
    ConstOp: lambda run, op: run.spanned(run.constant(op.value, op.result.type.dtype), op.result.type),
    IndexOp: lambda run, op: run.expr(op.expr, op.result.type),
    ParamOp: lambda run, op: run.spanned(run.constant(run.params[op.param], op.result.type.dtype), op.result.type),
    LoadOp: _Run.load,
    MapOp: _Run.map,
    ReduceOp: _Run.reduce,
    ScanOp: _Run.scan,
    DotOp: _Run.dot,
}
VR.complete({**_COMPUTE, **dict.fromkeys((StoreOp, ForOp))}, "interpreter")


def contracted(a: Array, a_names: Sequence[str], b: Array, b_names: Sequence[str], names: Sequence[str]) -> Array:
    """The sum of products over the named axes that are not in ``names``, in whose order the result is.

    Both operands have a leading dimension for the points that run together.  ``numpy.matmul`` computes a product of
    matrices for each of them.
    """
    both = [n for n in names if n in a_names and n in b_names]
    rows, columns = ([n for n in names if n in x and n not in both] for x in (a_names, b_names))
    shared = [n for n in a_names if n in b_names and n not in names]
    size = dict(zip(a_names, a.shape[1:], strict=True)) | dict(zip(b_names, b.shape[1:], strict=True))

    def matrices(x: Array, have: Sequence[str], left: Sequence[str], right: Sequence[str]) -> Array:
        order = (0, *(1 + have.index(n) for n in (*both, *left, *right)))
        shape = [len(x), *(size[n] for n in both), *(prod(size[n] for n in part) for part in (left, right))]
        return x.transpose(order).reshape(shape)

    left, right = matrices(a, a_names, rows, shared), matrices(b, b_names, shared, columns)
    made = np.matmul(left, right) if left.dtype.kind == "f" else integer_product(left, right)
    found = [*both, *rows, *columns]
    result = made.reshape(len(made), *(size[n] for n in found))
    return np.asarray(result.transpose(0, *(1 + found.index(n) for n in names)))


def _reorder(data: Array, have: TileType, want: TileType) -> Array:
    """``data`` over points and the axes of ``have``, transposed to the order of ``want``."""
    if have.names == want.names:
        return data
    return data.transpose(0, *(1 + have.names.index(n) for n in want.names))


def _wide(dtype: DType) -> DType:
    """The type that mode ``real`` accumulates in."""
    return DType.F64 if dtype.is_float else dtype


def _fresh(shape: tuple[int, ...], dtype: DType) -> Array:
    """A buffer without a store: NaN, the least integer, or false."""
    if dtype.is_float:
        return np.full(shape, np.nan)
    if dtype is DType.BOOL:
        return np.zeros(shape, bool)
    return np.full(shape, integer_limits(dtype)[0])

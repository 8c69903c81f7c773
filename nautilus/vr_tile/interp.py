"""The interpreter of the VR-tile IR in numpy.

A tile is an array with one dimension per axis of its type, in the type's order; grid points and loop
iterations run in Python, tiles at once.  Modes:

* ``real``: floats are float64 and ``narrow`` is skipped (``core.expr.nodes``); ``cast`` and stores round;
* ``typed``: every operation rounds to its result type; ``dot`` accumulates in its result's type.

A load or store whose mask is false touches nothing; one outside its buffer whose mask is true (or
absent) raises :class:`TileRunError`, which names the op.  Outputs and temps start as NaN (floats), the
least value (integers) or false, so that an element without a store is visible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from nautilus.core.buffers import Buffer, Space, extents
from nautilus.core.expr.nodes import COMBINERS, Const, Expr, Load, Op, Param, Ref, Var, identity
from nautilus.core.functions.parts import PARTS, product_of_parts
from nautilus.core.numerics import Array, Mode, combine_at, eval_op, reduce_array, round_to
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType, integer_limits
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
    Value,
    ValueOp,
)
from nautilus.vr_tile.text import format_op


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
    """State of one run: memory, loop variables and SSA values."""

    def __init__(self, m: TileModule, params: Mapping[str, int | float | bool], mode: Mode) -> None:
        self.module = m
        self.params = params
        self.mode = mode
        self.memory: dict[str, Array] = {}
        self.vars: dict[str, int] = {}
        self.values: dict[str, tuple[TileType, Array]] = {}

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

    def where(self, op: LoadOp | StoreOp, t: TileType) -> tuple[tuple[Array, ...], Array]:
        """Index arrays of the access and its mask, both of the tile's shape; out of range is an error."""
        buf = self.memory[op.buffer]
        mask = np.ones(t.shape, bool) if op.mask is None else self.expr(op.mask, t).astype(bool)
        index: list[Array] = []
        for dim, e in enumerate(op.index):
            at = self.expr(e, t)
            bad = mask & ((at < 0) | (at >= buf.shape[dim]))
            if bad.any():
                worst = at[bad].flat[0]
                vars_ = ", ".join(f"{k}={v}" for k, v in self.vars.items())
                raise TileRunError(
                    f"{op.buffer} has extent {buf.shape[dim]} in dimension {dim}, accessed at {worst}"
                    f" ({vars_}): {format_op(op)}"
                )
            index.append(np.where(mask, at, 0))
        return tuple(index), mask

    # -- expressions ---------------------------------------------------------------------------
    def expr(self, e: Expr, t: TileType) -> Array:
        """The value of an index or mask at every point of ``t``, broadcast to its shape."""
        with np.errstate(all="ignore"):
            return np.broadcast_to(self.eval(e, t), t.shape)

    def eval(self, e: Expr, t: TileType) -> Array:
        match e:
            case Const(value=value, dtype=dtype):
                return self.constant(value, dtype)
            case Var(name=name):
                if name in t.names:
                    at = t.names.index(name)
                    shape = [1] * len(t.axes)
                    shape[at] = t.shape[at]
                    return np.arange(t.shape[at]).reshape(shape)
                return np.asarray(self.vars[name], np.int64)
            case Param(name=name, dtype=dtype):
                return self.constant(self.params[name], dtype)
            case Ref(name=name):
                return self.spread(name, t)
            case Load(buffer=buffer, index=index):  # of a loop bound
                return np.asarray(self.memory[buffer][tuple(int(self.eval(i, t)) for i in index)])
            case Op(op=op, args=args, dtype=dtype):
                return eval_op(op, [self.eval(a, t) for a in args], dtype, self.mode)
            case _:
                raise TileRunError(f"not an index expression: {e!r}")

    def spread(self, name: str, t: TileType) -> Array:
        """Value ``name`` with a dimension for every axis of ``t`` (1 where it lacks the axis)."""
        own, data = self.values[name]
        order = [own.names.index(n) for n in t.names if n in own.names]
        if len(order) != len(own.names):
            raise TileRunError(f"%{name} has an axis that its user lacks")
        shape = [own.shape[own.names.index(n)] if n in own.names else 1 for n in t.names]
        return data.transpose(order).reshape(shape)

    def constant(self, value: int | float | bool, dtype: DType) -> Array:
        """A number of type ``dtype``: rounded to it, but for floats in mode ``real``."""
        exact = self.mode == "real" and dtype.is_float
        return round_to(np.asarray(value), DType.F64 if exact else dtype)

    # -- ops -----------------------------------------------------------------------------------
    def kernel(self, k: TileKernel) -> None:
        with np.errstate(all="ignore"):
            scalar = TileType(DType.I32)
            extents = [range(int(self.eval(g.extent, scalar))) for g in k.grid]
            for point in product(*extents):
                self.vars = {g.var: p for g, p in zip(k.grid, point, strict=True)}
                self.values = {}
                self.block(k.body)

    def block(self, body: Sequence[TileOp]) -> None:
        for op in body:
            match op:
                case StoreOp():
                    self.store(op)
                case ForOp():
                    self.loop(op)
                case _:
                    self.define(op.result, self.compute(op))

    def define(self, v: Value, data: Array) -> None:
        self.values[v.name] = (v.type, np.broadcast_to(data, v.type.shape))

    def compute(self, op: ValueOp) -> Array:
        t = op.result.type
        match op:
            case ConstOp(value=value):
                return self.constant(value, t.dtype)
            case IndexOp(expr=expr):
                return self.expr(expr, t)
            case ParamOp(param=param):
                return self.constant(self.params[param], t.dtype)
            case LoadOp():
                index, mask = self.where(op, t)
                got = self.memory[op.buffer][index] if self.memory[op.buffer].size else np.zeros(t.shape)
                return np.where(mask, got, np.zeros((), got.dtype))
            case MapOp(op=name, args=args):
                return eval_op(name, [self.spread(a.name, t) for a in args], t.dtype, self.mode)
            case ReduceOp(combiner=combiner, arg=arg, axes=axes):
                data = self.values[arg.name][1]
                dims = tuple(arg.type.names.index(a) for a in axes)
                rest = TileType(t.dtype, tuple(a for a in arg.type.axes if a.name not in axes))
                return _reorder(reduce_array(combiner, data, dims, t.dtype, self.mode), rest, t)
            case ScanOp():
                return self.scan(op)
            case DotOp():
                return self.dot(op)

    def scan(self, op: ScanOp) -> Array:
        """Combine neighbours at distances 1, 2, 4 and so on, so that a sum has the error of a tree."""
        t, dim = op.result.type, op.arg.type.names.index(op.axis)
        data = np.moveaxis(self.values[op.arg.name][1], dim, 0)
        data, binary, distance = data[::-1] if op.reverse else data, COMBINERS[op.combiner].binary, 1
        while distance < len(data):
            ahead = eval_op(binary, [data[:-distance], data[distance:]], t.dtype, self.mode)
            data, distance = np.concatenate([data[:distance], ahead]), 2 * distance
        if op.exclusive:
            first = np.broadcast_to(self.constant(identity(op.combiner, t.dtype).value, t.dtype), data[:1].shape)
            data = np.concatenate([first, data[:-1]])
        made = np.moveaxis(data[::-1] if op.reverse else data, 0, dim)
        renamed = tuple(TileAxis(op.into, a.size) if a.name == op.axis else a for a in op.arg.type.axes)
        return _reorder(made, TileType(t.dtype, renamed), t)

    def dot(self, op: DotOp) -> Array:
        """einsum over named axes, operands widened to the accumulator's type first."""
        letters: dict[str, str] = {}
        for v in (op.a, op.b):
            for n in v.type.names:
                letters.setdefault(n, chr(ord("a") + len(letters)))
        t = op.result.type
        terms = ["".join(letters[n] for n in v.type.names) for v in (op.a, op.b)]
        wide = [eval_op("cast", [self.values[v.name][1]], t.dtype, self.mode) for v in (op.a, op.b)]
        if self.mode == "typed" and t.dtype is DType.F32:
            wide = [w.astype(np.float32) for w in wide]
        subscripts = f"{terms[0]},{terms[1]}->{''.join(letters[n] for n in t.names)}"

        def product(a: Array, b: Array) -> Array:
            return np.asarray(np.einsum(subscripts, a, b, optimize=True))

        if op.mask is not None and not all(np.isfinite(w).all() for w in wide):
            total = self.masked_sum(op, wide)
        elif op.parts == PARTS and self.mode == "typed":
            total = product_of_parts(product, *wide)
        else:
            total = product(*wide)
        out = round_to(total, t.dtype if self.mode == "typed" else _wide(t.dtype))
        if op.acc is not None:
            out = eval_op("add", [self.spread(op.acc.name, t), out], t.dtype, self.mode)
        return out

    def masked_sum(self, op: DotOp, sides: Sequence[Array]) -> Array:
        """The sum of the products whose mask holds; ``sides``: the operands in the type of the sum."""
        assert op.mask is not None
        axes = {a.name: a for v in (op.a, op.b) for a in v.type.axes}
        names = (*op.result.type.names, *op.axes)

        def aligned(data: Array, have: TileType) -> Array:
            order = [n for n in names if n in have.names]
            sizes = [axes[n].size if n in have.names else 1 for n in names]
            return data.transpose([have.names.index(n) for n in order]).reshape(sizes)

        a, b = (aligned(w, v.type) for w, v in zip(sides, (op.a, op.b), strict=True))
        products = np.where(aligned(self.values[op.mask.name][1], op.mask.type), a * b, np.zeros((), a.dtype))
        return np.asarray(products.sum(axis=tuple(range(len(op.result.type.names), len(names)))))

    def store(self, op: StoreOp) -> None:
        t = op.value.type
        index, mask = self.where(op, t)
        dtype = self.module.buffer(op.buffer).dtype
        data = self.values[op.value.name][1]
        if op.combiner is not None:
            live = tuple(i[mask] for i in index)
            combine_at(op.combiner, self.memory[op.buffer], live, data[mask], dtype, self.mode)
            return
        if t.dtype is not dtype or dtype is dtype.compute:  # else the value is of this type, or was narrowed to it
            data = eval_op("cast", [data], dtype, self.mode)
        if op.index:
            self.memory[op.buffer][tuple(i[mask] for i in index)] = np.broadcast_to(data, t.shape)[mask]
        elif mask:
            self.memory[op.buffer][...] = data

    def loop(self, op: ForOp) -> None:
        scalar = TileType(DType.I32)
        lo, hi = int(self.eval(op.lo, scalar)), int(self.eval(op.hi, scalar))
        current = [self.values[init.name][1] for _, init in op.carried]
        outer = self.values
        for step in range(lo, hi):
            self.values = dict(outer)
            self.vars[op.var] = step
            for (arg, _), data in zip(op.carried, current, strict=True):
                self.define(arg, data)
            self.block(op.body)
            current = [self.values[y.name][1] for y in op.yields]
        self.vars.pop(op.var, None)
        self.values = outer
        for result, data in zip(op.results, current, strict=True):
            self.define(result, data)


def _reorder(data: Array, have: TileType, want: TileType) -> Array:
    """``data`` over the axes of ``have``, transposed to the order of ``want``."""
    return data.transpose([have.names.index(n) for n in want.names]) if have.names != want.names else data


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

"""Values of the physical interpreter: how numpy arrays represent the registers of a fragment, and arithmetic on them.

A fragment is an array [warps, 32, registers] of its type's *register* numpy type: float16 for f16,
float32 for f32 and for the types numpy lacks (bf16, tf32: the values are representable), native
integers and bool otherwise.  Arithmetic is typed: every operation rounds once to its type.

Raises :class:`Fault`, which the interpreter turns into an error that names the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Reduce, Ref, Var
from nautilus.core.functions import FUNCTIONS
from nautilus.core.numerics import EVAL, Array, eval_quietly, from_storage, round_to, storage_array
from nautilus.core.types import FORMATS, DType
from nautilus.ma_tile.ir.layout import FragLayout, Ints
from nautilus.ma_tile.ir.values import Smem


class Fault(Exception):
    """A violation of a rule of the machine; ``kind`` is a stable short name (``pending-copy``)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


_REGISTER: Mapping[DType, Any] = {d: np.dtype(f.numpy or "float32").type for d, f in FORMATS.items()}
_BITS: Mapping[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def register_type(dtype: DType) -> Any:
    """The numpy type of a register of ``dtype``."""
    return _REGISTER[dtype]


def bits_type(dtype: DType) -> Any:
    """The unsigned numpy type as wide as ``dtype`` in memory."""
    return _BITS[dtype.bytes]


def round_registers(x: Array, dtype: DType) -> Array:
    """``x`` rounded to ``dtype`` in its register type."""
    with np.errstate(all="ignore"):
        return round_quietly(x, dtype)


def round_quietly(x: Array, dtype: DType) -> Array:
    """:func:`round_registers` where the caller has turned off warnings of numpy."""
    if dtype.is_float8 or (FORMATS[dtype].numpy is None and x.dtype != np.float32):
        return np.asarray(round_to(x, dtype).astype(np.float32))
    if FORMATS[dtype].numpy is None:  # the upper bits of an f32
        return _round_bits(np.ascontiguousarray(x), DType.F32.mantissa - dtype.mantissa)
    if dtype is DType.BOOL:
        return np.asarray(x != 0)
    if dtype.is_int and x.dtype.kind == "f":
        return np.asarray(eval_quietly("cast", (x,), dtype, "typed").astype(register_type(dtype)))
    return np.asarray(x.astype(register_type(dtype)))


def _round_bits(x: NDArray[np.float32], drop: int) -> Array:
    """Round to nearest even by dropping ``drop`` low mantissa bits; NaN stays NaN."""
    bits = x.view(np.uint32)
    half = np.uint32((1 << (drop - 1)) - 1)
    rounded = (bits + half + ((bits >> np.uint32(drop)) & np.uint32(1))) & ~np.uint32((1 << drop) - 1)
    return np.where(np.isnan(x), np.float32(np.nan), rounded.view(np.float32))


def encode(x: Array, dtype: DType) -> Array:
    """Registers to memory bits (unsigned, as wide as the type); every NaN has the same bits."""
    x = np.ascontiguousarray(x, register_type(dtype))
    if dtype.is_float and not dtype.is_float8:
        x = np.where(np.isnan(x), np.array(np.nan, x.dtype), x)
    if dtype.is_float8:
        return storage_array(x, dtype)
    if dtype is DType.BF16:
        return (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.asarray(x.view(bits_type(dtype)))


def decode(bits: Array, dtype: DType) -> Array:
    """Memory bits to registers; the inverse of :func:`encode`."""
    if dtype.is_float8:
        return np.asarray(from_storage(bits, dtype).astype(np.float32))
    if dtype is DType.BF16:
        return np.asarray((bits.astype(np.uint32) << np.uint32(16)).view(np.float32))
    if dtype is DType.BOOL:
        return np.asarray(bits != 0)
    return np.ascontiguousarray(bits).view(register_type(dtype))


# -- arithmetic -------------------------------------------------------------------------------

#: operations whose native result in f32 and integers is the correctly rounded one
_NATIVE = {f.name: EVAL[f.name] for f in FUNCTIONS.values() if f.native == "any"}
_FLOAT_NATIVE = {f.name: EVAL[f.name] for f in FUNCTIONS.values() if f.native == "float"}
_EXACT = frozenset({DType.F64, DType.F32, DType.I32, DType.I64, DType.BOOL})


def apply(op: str, args: Sequence[Array], dtype: DType) -> Array:
    """``op`` of registers, rounded once to ``dtype``; the result is in its register type.

    The caller has turned off warnings of numpy.
    """
    if op in ("cast", "narrow"):
        return round_quietly(args[0], dtype)
    native = _NATIVE.get(op) or (_FLOAT_NATIVE.get(op) if dtype.is_float else None)
    if native is not None and (dtype in _EXACT or op == "select"):
        return np.asarray(native(*args))
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in args]
    wide = [a.astype(np.int64) if a.dtype.kind in "iu" else a for a in wide]
    return np.asarray(eval_quietly(op, wide, dtype, "typed").astype(register_type(dtype)))


# -- expressions ------------------------------------------------------------------------------


class Scope:
    """The names that an expression may mention: integers by name, positions on tile axes, params, fragments.

    Every value is a scalar or an array that broadcasts to [warps, 32, registers].  The caller of :meth:`eval` has
    turned off warnings of numpy.
    """

    __slots__ = ("axes", "memo", "params", "read", "refs", "variables")

    def __init__(
        self,
        variables: Mapping[str, int],
        params: Mapping[str, Any],
        axes: Mapping[str, Ints],
        refs: Callable[[str], Array],
        read: Callable[[str, tuple[Array, ...]], Array] | None = None,
    ) -> None:
        self.variables, self.params, self.axes, self.refs, self.read = variables, params, axes, refs, read
        self.memo: dict[int, Array] = {}

    def eval(self, e: Expr) -> Array:
        """The value of ``e``: int64, float64 or bool array (maybe 0-d)."""
        found = self.memo.get(id(e))
        if found is None:
            found = self.memo[id(e)] = self._eval(e)
        return found

    def _eval(self, e: Expr) -> Array:
        match e:
            case Const(value=value):
                return np.asarray(value)
            case Var(name=name):
                if name in self.axes:
                    return self.axes[name]
                if name not in self.variables:
                    raise Fault("undefined-variable", f"variable {name} has no value here")
                return np.asarray(self.variables[name], np.int64)
            case Param(name=name):
                if name not in self.params:
                    raise Fault("undefined-variable", f"no value for scalar {name}")
                return np.asarray(self.params[name])
            case Ref(name=name):
                x = self.refs(name)
                return x.astype(np.int64) if x.dtype.kind in "iu" else x
            case Op(op="select", args=(c, a, b)) if (holds := self.eval(c)).size == 1:  # the other one may read nothing
                return self.eval(a if holds.all() else b)
            case Op(op=op, args=args, dtype=dtype):
                return eval_quietly(op, [self.eval(a) for a in args], dtype, "typed")
            case Load(buffer=buffer, index=index) if self.read is not None:
                return self.read(buffer, tuple(map(self.eval, index)))
            case Load() | Reduce():
                raise Fault("unsupported", "an expression of an op contains a load or a reduction")


def uniform(x: Array, what: str) -> int:
    """The uniform value of ``x``. Raises Fault if threads have different values."""
    flat = np.asarray(x).reshape(-1)
    if flat.size != 1 and not np.all(flat == flat[0]):
        raise Fault("not-uniform", f"{what} differs between threads")
    return int(flat[0])


# -- fragment coordinates ---------------------------------------------------------------------


@lru_cache(maxsize=1024)
def coords(layout: FragLayout, axis: str) -> Ints:
    """``layout.coords`` once; read-only."""
    out = layout.coords(axis)
    out.setflags(write=False)
    return out


def addresses(buffer: Smem, swizzle: int, places: Iterable[Ints], shape: tuple[int, ...]) -> Ints:
    """Stage-relative byte addresses of elements at ``places``, one array for each axis; all together have ``shape``.

    Raises Fault outside of ``buffer``.
    """
    row: Ints = np.zeros(shape, np.int64)
    col = row
    for n, (a, at) in enumerate(zip(buffer.axes, places, strict=True)):
        if int(at.max(initial=0)) >= a.size:
            raise Fault("out-of-bounds", f"position {int(at.max())} on {a.name} is outside {buffer.name}")
        if n + 1 == len(buffer.axes):
            col = col + at
        else:
            row = row * a.size + at
    return buffer.layout(swizzle).address(*np.broadcast_arrays(row, col))


@lru_cache(maxsize=1024)
def register_map(layout: FragLayout, axes: tuple[str, ...]) -> Ints | None:
    """``layout.register_map`` as an index array; None where it is the identity."""
    entries = layout.register_map(axes)
    if entries == tuple(range(len(entries))):
        return None
    return np.asarray(entries, np.int64)


def spread(x: Array, layout: FragLayout, axes: tuple[str, ...]) -> Array:
    """Registers of a fragment over ``axes`` repeated for each register of ``layout``. Raises Fault."""
    entries = register_map(layout, axes)
    if entries is None:
        if x.shape[2] != layout.registers:
            raise Fault("layout", f"an operand has {x.shape[2]} registers where {layout.registers} are read")
        return x
    wanted = int(entries.max(initial=0)) + 1
    if wanted != x.shape[2]:
        raise Fault("layout", f"an operand has {x.shape[2]} registers where {wanted} are read")
    return x[:, :, entries]

"""The meaning of types, operations and reductions in numpy, which all interpreters share.

Values between operations are numpy arrays: float64 for floating types, int64 for integers, bool for
bool.  An array of type ``t`` holds only values of ``t``, with one exception: in mode ``real``
floats are float64 whatever their type says, because the maths is over the reals.

* mode ``real``: floats stay float64, ``narrow`` does nothing, ``cast`` rounds (the user wrote it) —
  except to ``f32`` and ``f64``, the compute types, where the contract says "or better";
* mode ``typed``: every float operation rounds its result once to its type, ``narrow`` rounds.

Integers wrap to their type's width in both modes.  ``max`` and ``min`` give NaN where either side is
NaN, and treat -0 as less than +0, so the result does not depend on the order of operands (IEEE 754-2019
maximum; PTX ``max.f32`` does the same).  numpy warnings are off: overflow is inf and ``0 / 0`` is NaN.  An
integer division by zero has no value, so no result may depend on it; it gives 0 here.

Rounding is to nearest with ties to even; denormals are kept.  ``f8e4m3`` is OCP E4M3FN, which has no infinity: a
number that rounds past 448 becomes NaN, as in PyTorch's cast.  ``f8e5m2`` has inf.  A float becomes an i32 or i64
by truncation; a number out of range becomes the nearest end of the range, and NaN becomes 0 (PTX ``cvt.rzi``).  A
conversion of a float to a narrower integer wraps that i32.  Every number except 0 becomes ``true``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from nautilus.core.expr.nodes import COMPARISONS
from nautilus.core.functions import FUNCTIONS, arrays
from nautilus.core.types import FORMATS, DType

Array: TypeAlias = arrays.Array
#: The factor from an exponent of e to one of 2.
LOG2E = math.log2(math.e)
#: Elements that are rounded together, so that the arrays between the steps of a rounding stay small.
ROUNDED_AT_ONCE = 1 << 20
Mode: TypeAlias = Literal["real", "typed"]

_NUMPY: Mapping[DType, Any] = {d: np.dtype(f.numpy).type for d, f in FORMATS.items() if f.numpy is not None}
_RAW: Mapping[DType, Any] = {d: np.dtype(f.raw).type for d, f in FORMATS.items()}
_FLOATS = frozenset(d for d in DType if d.is_float)


def working(dtype: DType) -> Any:
    """The numpy type in which values of ``dtype`` are computed: float64, int64 or bool."""
    if dtype in _FLOATS:
        return np.float64
    return np.bool_ if dtype is DType.BOOL else np.int64


def storage_numpy(dtype: DType) -> Any:
    """The numpy type of raw storage; bf16 is uint16 and 8-bit floats are uint8 (their bits)."""
    return _RAW[dtype]


def round_to(x: Array, dtype: DType) -> Array:
    """``x`` (any numeric array) rounded to ``dtype``, as an array of its working type (module docstring)."""
    with np.errstate(all="ignore"):
        return _rounded(np.asarray(x), dtype)


def _rounded(x: Array, dtype: DType) -> Array:
    """:func:`round_to` where warnings of numpy are off."""
    if dtype is DType.BOOL:
        return np.asarray(x != 0)
    if dtype not in _FLOATS:
        return _to_integer(x, dtype)
    if dtype is not DType.F64:
        x = _before_rounding(x)
    if dtype in _NUMPY and dtype is not DType.F64:
        return np.asarray(x, np.float64).astype(_NUMPY[dtype]).astype(np.float64)
    y = x.astype(np.float64)
    if dtype is DType.F64:
        return y
    return _round_float(y, dtype) if y.size <= ROUNDED_AT_ONCE else _round_in_pieces(y, dtype)


def _before_rounding(x: Array) -> Array:
    """``x``, where an integer that f64 lacks becomes the neighbour with an odd last bit.

    A rounding to fewer bits then has the same result.
    """
    if x.dtype.kind != "i" or not x.size or max(-int(x.min()), int(x.max())) <= 1 << 53:
        return x
    near = x.astype(np.longdouble).astype(np.float64)
    cut = np.where(np.abs(near.astype(np.longdouble)) > np.abs(x.astype(np.longdouble)), np.nextafter(near, 0.0), near)
    return np.asarray(np.where(cut.astype(np.longdouble) == x, cut, (cut.view(np.int64) | 1).view(np.float64)))


def _round_in_pieces(y: Array, dtype: DType) -> Array:
    """The same as :func:`_round_float` in place, without several more arrays of the size of ``y``."""
    out = np.ascontiguousarray(y)
    flat = out.reshape(-1)
    for start in range(0, flat.size, ROUNDED_AT_ONCE):
        flat[start : start + ROUNDED_AT_ONCE] = _round_float(flat[start : start + ROUNDED_AT_ONCE], dtype)
    return out


def _round_float(y: Array, dtype: DType) -> Array:
    """Round float64 to a format that numpy lacks: scale one unit in the last place to 1, and use rint."""
    f = FORMATS[dtype]
    mantissa, least, top = f.mantissa, f.least, f.largest
    _, exponent = np.frexp(y)  # |y| in [2^(e-1), 2^e)
    unit = np.maximum(exponent - 1, least) - mantissa
    rounded = np.ldexp(np.rint(np.ldexp(y, -unit)), unit)
    rounded = np.where(np.isfinite(y), rounded, y)
    beyond = np.abs(rounded) > top
    overflow = np.copysign(np.inf, y) if f.infinite else np.nan
    return np.where(beyond, overflow, rounded)


def _to_integer(x: Array, dtype: DType) -> Array:
    if x.dtype.kind == "f":
        info = np.iinfo(np.int64 if dtype is DType.I64 else np.int32)
        t = np.trunc(np.where(np.isnan(x), 0.0, x))
        inside = np.where((t > info.min) & (t < info.max), t, 0.0).astype(np.int64)
        x = np.where(t >= info.max, info.max, np.where(t <= info.min, info.min, inside))
    return x.astype(_NUMPY[dtype]).astype(np.int64)


def storage_array(x: Array, dtype: DType) -> Array:
    """``x`` rounded to ``dtype``, as raw storage (see :func:`storage_numpy`)."""
    with np.errstate(all="ignore"):
        y = round_to(x, dtype)
        if dtype is DType.BF16:
            bits = y.astype(np.float32).view(np.uint32) >> 16
            # truncation would turn a NaN with its payload in the lower half into inf
            return np.where(np.isnan(y), 0x7FC0, bits).astype(np.uint16)
        if dtype.is_float8:
            return _encode8(y, dtype)
        return y.astype(_RAW[dtype])


def from_storage(raw: Array, dtype: DType) -> Array:
    """Raw storage as values in the working type; the inverse of :func:`storage_array`."""
    with np.errstate(all="ignore"):
        if dtype is DType.BF16:
            return np.asarray((raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64))
        if dtype.is_float8:
            return np.asarray(_table8(dtype)[raw])
        return np.asarray(raw.astype(working(dtype)))


_TABLES: dict[DType, Array] = {}


def _table8(dtype: DType) -> Array:
    """The value of each of the 256 bit patterns."""
    if dtype not in _TABLES:
        f = FORMATS[dtype]
        mantissa, least = f.mantissa, f.least
        bits = np.arange(256)
        fraction = (bits & ((1 << mantissa) - 1)).astype(np.float64)
        exponent = (bits & 0x7F) >> mantissa
        value = np.where(
            exponent == 0,
            np.ldexp(fraction, least - mantissa),
            np.ldexp(fraction + (1 << mantissa), exponent - 1 + least - mantissa),
        )
        if not f.infinite:
            value = np.where((bits & 0x7F) == 0x7F, np.nan, value)
        else:
            value = np.where(exponent == 0x7F >> mantissa, np.where(fraction == 0, np.inf, np.nan), value)
        _TABLES[dtype] = np.where(bits < 128, value, -value)
    return _TABLES[dtype]


def _encode8(y: Array, dtype: DType) -> Array:
    table = _table8(dtype)[:128]
    count = int(np.sum(~np.isnan(table)))  # finite (and inf) patterns ascend
    code = np.searchsorted(table[:count], np.abs(y))
    code = np.where(np.isnan(y), 0x7F, code)
    return (code | np.where(np.signbit(y), 0x80, 0)).astype(np.uint8)


# -- operations -------------------------------------------------------------------------------


_MODULES = {"np": np, "arrays": arrays}


def _bound(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(".")
    found: Callable[..., Any] = getattr(_MODULES[module], attribute)
    return found


#: function -> its meaning on arrays in working types, before rounding; conversions are not included
EVAL: Mapping[str, Callable[..., Any]] = {f.name: _bound(f.numpy) for f in FUNCTIONS.values() if f.numpy}


def eval_op(op: str, args: Sequence[Array], dtype: DType, mode: Mode = "real") -> Array:
    """The result of ``op`` (a name of ``core.functions``) in its working type, broadcast as numpy does.

    ``dtype`` is the operation's type.  ``select`` evaluates both sides, so the caller must make a side safe to read
    that is not selected.  Raises KeyError for an unknown operation.
    """
    with np.errstate(all="ignore"):
        return eval_quietly(op, args, dtype, mode)


def eval_quietly(op: str, args: Sequence[Array], dtype: DType, mode: Mode = "real") -> Array:
    """:func:`eval_op` where the caller has turned off warnings of numpy, which takes as long as an operation."""
    if op == "cast":
        return _cast(np.asarray(args[0]), dtype, mode)
    if op == "narrow":
        x = np.asarray(args[0])
        return x if mode == "real" and x.dtype.kind == "f" else _rounded(x, dtype)
    value = np.asarray(EVAL[op](*args))
    if op in COMPARISONS or dtype is DType.BOOL:
        return value.astype(np.bool_, copy=False)
    return _in_type(value, dtype, mode)


def _cast(x: Array, dtype: DType, mode: Mode) -> Array:
    if mode == "real" and dtype in (DType.F32, DType.F64):
        return x.astype(np.float64)
    return _rounded(x, dtype)


def _in_type(value: Array, dtype: DType, mode: Mode) -> Array:
    """A float64 or int64 result, rounded or wrapped to ``dtype``."""
    if dtype in _FLOATS:
        y = value.astype(np.float64, copy=False)
        return y if mode == "real" or dtype is DType.F64 else _rounded(y, dtype)
    if dtype is DType.I64:
        return value.astype(np.int64, copy=False)
    return _to_integer(value, dtype)


_RANGE = 8  # positions for each number up to which :func:`ranked` counts instead of sorting
_REDUCE: Mapping[str, np.ufunc] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
    "any": np.logical_or, "all": np.logical_and,
}  # fmt: skip


def reduce_array(
    op: str, x: Array, axes: tuple[int, ...], dtype: DType, mode: Mode = "real", keepdims: bool = False
) -> Array:
    """Combiner ``op`` over ``axes`` of ``x``; an empty domain gives the identity of ``dtype``.

    Mode ``typed`` accumulates an f32 sum or product in f32 (numpy's pairwise order).
    """
    x = np.asarray(x)
    if op in ("max", "min") and x.dtype != np.bool_:
        start: Any = _least_or_greatest(op, dtype)
    elif op in ("max", "min"):
        return reduce_array("any" if op == "max" else "all", x, axes, DType.BOOL, mode, keepdims)
    else:
        start = _REDUCE[op].identity
    with np.errstate(all="ignore"):
        if mode == "typed" and dtype is DType.F32 and op in ("sum", "prod"):
            x, axes = _pairwise(x.astype(np.float32), axes, keepdims)
        value = np.asarray(_REDUCE[op].reduce(x, axis=axes, keepdims=keepdims, initial=start))
        if op in ("max", "min") and value.dtype.kind == "f" and not np.all(value):
            winner = (x == 0.0) & (np.signbit(x) == (op == "min"))  # a zero of the sign that wins
            wins = np.any(winner, axis=axes, keepdims=keepdims)
            value = np.where(value == 0.0, np.where(wins == (op == "max"), 0.0, -0.0), value)
        return value if dtype is DType.BOOL else _in_type(value, dtype, mode)


def _pairwise(x: Array, axes: tuple[int, ...], keepdims: bool) -> tuple[Array, tuple[int, ...]]:
    """``x`` and its reduced axes such that numpy adds in pairs, which it does along contiguous memory only."""
    if keepdims or not axes:
        return x, axes
    gone = {a % x.ndim for a in axes}
    kept = [d for d in range(x.ndim) if d not in gone]
    rows = x.transpose(*kept, *sorted(gone)).reshape(*(x.shape[d] for d in kept), math.prod(x.shape[d] for d in gone))
    return np.ascontiguousarray(rows), (len(kept),)


def integer_product(a: Array, b: Array) -> Array:
    """The exact product of integers, in float64 (which uses BLAS) if every sum stays below 2^53."""
    if a.size and b.size:
        peak = float(np.abs(a).max()) * float(np.abs(b).max()) * a.shape[-1]
        if peak < 2.0**53:
            return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    return a @ b


def distinct(numbers: Array) -> Array:
    """The different ``numbers`` in ascending order; ``numpy.unique`` would import the masked arrays of numpy."""
    ordered = np.sort(numbers, axis=None)
    return ordered[run_starts(ordered)]


def ranked(numbers: Array) -> tuple[Array, Array]:
    """The different integers of ``numbers`` (not empty) in ascending order, and the place of each number among them.

    Multiples of one step within a short range are counted; others are sorted, which takes many times as long.
    """
    above = numbers - numbers.min()
    step = int(above[np.argmax(above > 0)])
    if step == 0:
        return numbers[:1], np.zeros(len(numbers), np.int64)
    last = int(above.max()) // step
    if last <= _RANGE * len(numbers):
        multiples = above if step == 1 else above // step
        if step == 1 or np.array_equal(multiples * step, above):
            there = np.zeros(last + 1, np.bool_)
            there[multiples] = True
            return np.flatnonzero(there) * step + numbers.min(), (np.cumsum(there) - 1)[multiples]
    found, places = np.unique(numbers, return_inverse=True)
    return found, places


def run_starts(ordered: Array) -> Array:
    """The positions in ``ordered`` at which another number begins."""
    return np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)])


def combine_at(
    op: str, memory: Array, index: tuple[Array, ...], value: Array, dtype: DType, mode: Mode = "real"
) -> None:
    """Combine ``value`` into the elements ``index`` of ``memory``, in place; any number of terms may meet at one."""
    with np.errstate(all="ignore"):
        _REDUCE[op].at(memory, index, value)
        memory[index] = _in_type(memory[index], dtype, mode)


def _least_or_greatest(op: str, dtype: DType) -> float | int:
    if dtype in _FLOATS:
        return -np.inf if op == "max" else np.inf
    info = np.iinfo(_NUMPY[dtype])
    return int(info.min if op == "max" else info.max)

"""The precision of values: how many significant bits they have, the types of the tensors that they are made from, and
of the outputs that depend on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import Const, Expr, Load, Op, free_vars, loads
from nautilus.core.expr.products import strip_lossless_conversions
from nautilus.core.index.groups import over_groups
from nautilus.core.records.memo import by_identity
from nautilus.core.types import FORMATS, DType
from nautilus.scalar.analysis.definitions import Def, points

#: Types that every 16-bit float holds exactly.
SHORT = frozenset({DType.I8, DType.U8, *(d for d in DType if d.is_float8)})
#: Types of at most 16 bits that are operands of matrix units.
NARROW = SHORT | {d for d in DType if d.is_half}
FEW, MANY = 32, 1 << 20  # results that use an element which is loaded for them alone, and elements of such a factor
_SMALLEST, _LARGEST = -14, 15  # exponents of normal numbers that f16 and bf16 have
_DEPTH = 8


def sources(e: Expr, axes: frozenset[str], defs: Mapping[str, Def]) -> tuple[Load, ...]:
    """Elements of tensors of types in :data:`NARROW` that ``e`` is made from.

    That is, what it reads of them at all ``axes``, and what computed values that it reads there are made from.
    """
    return tuple(dict.fromkeys(_sources(e, axes, defs, _DEPTH)))


def _sources(e: Expr, axes: frozenset[str], defs: Mapping[str, Def], depth: int) -> Iterator[Load]:
    for ld in loads(e):
        if axes <= free_vars(ld) and ld.dtype in NARROW:
            yield ld
        elif axes <= free_vars(ld) and ld.buffer in defs and depth:
            yield from _sources(defs[ld.buffer].value, frozenset(), defs, depth - 1)


def in_bf16(*values: Expr) -> bool:
    """Whether bf16 holds all ``values`` exactly, such as 8-bit floats times powers of two: it has the range of f32."""
    return all(significant_bits(e) <= DType.BF16.mantissa + 1 for e in values)


@by_identity(1 << 10)
def significant_bits(e: Expr) -> int:
    """The bits of the significand that ``e`` needs at most."""
    most = e.dtype.mantissa + 1 if e.dtype.is_float else e.dtype.bits
    match e:
        case Op(op="cast" | "narrow" | "neg" | "abs", args=(x,)) if e.dtype.is_float:
            most = min(most, significant_bits(x))
        case Op(op="mul", args=(x, y)) if e.dtype.is_float:
            few, many = sorted((significant_bits(x), significant_bits(y)))
            most = min(most, many if few == 1 else few + many)
        case Op(op="div", args=(x, y)) if e.dtype.is_float and significant_bits(y) == 1:
            most = min(most, significant_bits(x))
        case Op(op="exp2", args=(x,)) if _is_whole(x):
            most = 1
        case Op(op="binade"):
            most = 1
    multiple = _multiple(e)
    return most if multiple is None else min(most, max(math.frexp(multiple[1])[1] - multiple[0], 1))


def is_held(e: Expr, dtype: DType) -> bool:
    """Whether ``dtype``, of 16-bit floats, holds the number ``e`` exactly, as it holds integers of few bits."""
    inner = strip_lossless_conversions(e)
    if isinstance(inner, Load):
        return inner.dtype in SHORT
    found = _multiple(e)
    if found is None:
        return False
    unit, most = found
    return unit >= _SMALLEST and most <= 2.0 ** min(unit + dtype.mantissa + 1, _LARGEST)


def _multiple(e: Expr) -> tuple[int, float] | None:
    """``(p, m)``: ``e`` is a multiple of 2 to the power ``p``, at most ``m`` in magnitude; None where none is known."""
    match e:
        case Const(value=value) if math.isfinite(value):
            numerator, denominator = abs(value).as_integer_ratio()
            return (numerator & -numerator).bit_length() - denominator.bit_length(), float(abs(value))
        case Op(op="bit_and", args=(_, Const(value=value))) if value >= 0:
            return 0, float(value)
        case Op(op="bit_or" | "bit_xor", args=(x, y)):
            found = _of_pair("select", _multiple(x), _multiple(y))  # of numbers of n bits and a sign, at most 2^n
            return None if found is None else (0, float(1 << int(found[1]).bit_length()))
        case Op(op="cast", args=(x,)) if (x.dtype.is_int and e.dtype.is_float) or x.dtype.bits < e.dtype.bits:
            return _multiple(x)
        case Op(op="neg" | "abs", args=(x,)):
            return _multiple(x)
        case Op(op="select", args=(_, x, y)) | Op(op="add" | "sub" | "mul", args=(x, y)):
            return _of_pair(e.op, _multiple(x), _multiple(y)) if isinstance(e, Op) else None
        case Load() if e.dtype.is_int:
            return 0, float(1 << (e.dtype.bits - (FORMATS[e.dtype].kind == "int")))
    return None


def _of_pair(op: str, x: tuple[int, float] | None, y: tuple[int, float] | None) -> tuple[int, float] | None:
    if x is None or y is None:
        return None
    if op == "mul":
        return x[0] + y[0], x[1] * y[1]
    return min(x[0], y[0]), max(x[1], y[1]) if op == "select" else x[1] + y[1]


def _is_whole(e: Expr) -> bool:
    match e:
        case Const(value=value):
            return float(value).is_integer()
        case Op(op="cast", args=(x,)):
            return x.dtype.is_int or _is_whole(x)
        case Op(op="add" | "sub", args=(x, y)):
            return _is_whole(x) and _is_whole(y)
    return e.dtype.is_int


def feeding_wide_outputs(defs: Mapping[str, Def]) -> frozenset[str]:
    """The definitions on which an output depends that is no float of at most 16 bits."""
    return feeding(defs, lambda dtype: not _is_short(dtype))


def feeding(defs: Mapping[str, Def], wanted: Callable[[DType], bool]) -> frozenset[str]:
    """The definitions on which an output of a ``wanted`` type depends."""
    todo = [d for d in defs.values() if d.buffer.space is Space.OUTPUT and wanted(d.buffer.dtype)]
    found = {d.name for d in todo}
    while todo:
        read = {ld.buffer for ld in todo.pop().reads()} & defs.keys() - found
        found |= read
        todo += [defs[name] for name in read]
    return frozenset(found)


def _is_short(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits <= 16


def is_streamed(d: Def, factor: Expr) -> bool:
    """Whether ``factor`` has many elements, each of which at most :data:`FEW` results use, as in decoding.

    Loads then take longer than MMAs of tf32, and a maximum of the factor would need the same loads once more.
    """
    _, groups, _ = over_groups(factor, [a for a in d.par if a.name in free_vars(factor)])
    results, rows, summed = (points(axes) for axes in (d.par, groups, d.red))
    return results <= FEW * rows and rows * summed >= MANY

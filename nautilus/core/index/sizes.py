"""Sizes that are known only at launch, and extents made from them.

A *runtime size* is a symbol of the index algebra: a Param of type i32 with a range ``[least, most]``.  ``most`` is the
bound that the spec writes, or the largest size that there is.  The extents of buffers, loops and grids are index
expressions over such symbols, and numbers where they are fixed (:data:`Extent`).

* Kernels take the sizes as i32 arguments.  Offsets into a buffer are 64-bit where its largest shape needs that.
* The launcher computes grids and scratch memory from the sizes.  It refuses a size outside of the range, and launches
  nothing where a grid is empty.
* Facts of the spec about one size are part of its Param: the least value, the bound and a divisor of all values.
* A size in device memory (``Param.device``) is an argument of the kernels that the host does not know.  Strides, grids
  and scratch memory are those of its bound (:func:`at_bound`).
* A tile along such an axis is ragged, and masks compare with the size, unless the tile divides its divisor.
* A reduction over an empty domain is the identity of its combiner.
* Rules that need a number take :func:`at_most` where they must hold at every size, and :func:`nominal` where they
  estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, overload

from nautilus.core.errors import InternalError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Const, Expr, Op, Param, rewrite, walk
from nautilus.core.tiles import ceil_pow2

MAX_DIM = (1 << 31) - (1 << 20)  # index variables are i32, and positions of the last tiles go beyond a size
NOMINAL = 4096  # the value of a runtime size, or its bound if that is less, where a cost is estimated
LARGE = 1 << 20  # the most that a runtime size counts where many elements must not be slow

Extent: TypeAlias = "int | Expr"


def extent_expr(extent: Extent) -> Expr:
    """``extent`` as an expression."""
    return integer(extent) if isinstance(extent, int) else extent


def as_extent(e: Expr) -> Extent:
    """Expression ``e`` as an extent."""
    return int(e.value) if isinstance(e, Const) else e


def volume(factors: Iterable[Extent]) -> Extent:
    """The product of extents, with their constant factors in one."""
    known, total = 1, None
    for f in factors:
        if isinstance(f, int):
            known *= f
        else:
            total = f if total is None else calc("mul", total, f)
    if total is None or known == 0:
        return known
    return total if known == 1 else calc("mul", total, known)


def total(a: Extent, b: Extent) -> Extent:
    """The sum of two extents."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return b if a == 0 else a if b == 0 else calc("add", extent_expr(a), extent_expr(b))


@overload
def blocks(extent: int, tile: int) -> int: ...
@overload
def blocks(extent: Extent, tile: int) -> Extent: ...
def blocks(extent: Extent, tile: int) -> Extent:
    """Blocks of ``tile`` elements that cover ``extent``; all tiles that cover a size whole give one expression."""
    if isinstance(extent, int):
        return -(-extent // tile)
    if isinstance(extent, Param):
        tile = min(tile, ceil_pow2(at_most(extent)))
    return extent if tile == 1 else calc("floordiv", calc("add", extent, tile - 1), tile)


def before_last(extent: Extent, tile: int) -> Extent:
    """The blocks before the last one.

    Of an extent that is known only at launch, all whole blocks, one more where all of them are: none of no elements.
    """
    return -(-extent // tile) - 1 if isinstance(extent, int) else calc("floordiv", extent, tile)


def rounded_up(extent: Extent, multiple: int) -> Extent:
    """``extent`` rounded up to a multiple."""
    return volume((blocks(extent, multiple), multiple))


def extent_value(extent: Extent, size: Callable[[Param], int]) -> int:
    """The exact value of ``extent``; ``size`` gives the value of a runtime size. Raises InternalError."""
    if isinstance(extent, int):
        return extent
    match extent:
        case Const(value=value):
            return int(value)
        case Param():
            return size(extent)
        case Op(op=op, args=(a, b)) if op in _ARITHMETIC:
            return _ARITHMETIC[op](extent_value(a, size), extent_value(b, size))
    raise InternalError(f"no extent: {extent!r}")


_ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def at_most(extent: Extent) -> int:
    """The largest value of ``extent``, which does not decrease where a size in it grows."""
    return extent_value(extent, lambda p: MAX_DIM if p.most is None else p.most)


def at_bound(extent: Extent) -> Extent:
    """``extent`` with its bound for each size in device memory: what the host knows."""
    found = [] if isinstance(extent, int) else [n for n in walk(extent) if isinstance(n, Param)]
    if isinstance(extent, int) or not any(p.device for p in found):
        return extent
    if all(p.device for p in found):
        return at_most(extent)
    return rewrite(extent, lambda n: integer(at_most(n)) if isinstance(n, Param) and n.device else None)


def large(extent: Extent) -> int:
    """``extent``, where a size that is known only at launch has its bound, or :data:`LARGE` if that is less.

    For rules under which few elements cost little more, and many elements may take any time otherwise.
    """
    return extent_value(extent, lambda p: LARGE if p.most is None else min(p.most, LARGE))


def nominal(extent: Extent) -> int:
    """The value of ``extent`` where each runtime size is :data:`NOMINAL`, or its bound if that is less."""
    return extent_value(extent, nominal_size)


def nominal_size(p: Param) -> int:
    """The nominal value of one size, or of an integer scalar."""
    if p.default is not None:
        return p.default
    return NOMINAL if p.most is None else min(p.most, NOMINAL)

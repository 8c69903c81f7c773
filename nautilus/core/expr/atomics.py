"""The combiners of atomic stores, which every level with memory shares.

Iterations that meet at one element combine into it in any order, so only combiners and types are permitted in which
every order gives the same bits: sums of integers, which wrap, and extremes, in which the sign of a zero counts and all
NaNs are equal.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.types import INDEX_TYPES, DType

#: combiner -> the types in which it is associative and commutative bit by bit
_EXTREMA = INDEX_TYPES | {DType.F32}
EXACT: Mapping[str, frozenset[DType]] = {"sum": INDEX_TYPES, "max": _EXTREMA, "min": _EXTREMA}


def is_exact(combiner: str, dtype: DType) -> bool:
    """Whether every order of ``combiner`` on ``dtype`` gives the same bits."""
    return dtype in EXACT.get(combiner, frozenset())

"""Arguments for tests of the functions of the language: ordinary, large, small and special ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nautilus.core.functions import FUNCTIONS, NAMED, Function, Types
from nautilus.core.types import DType

Floats = NDArray[np.float64]

#: The functions of floats that a spec calls by name.
ELEMENTARY = sorted(f.name for f in NAMED.values() if f.types is Types.FLOAT)
NUMERIC = sorted(f.name for f in FUNCTIONS.values() if f.types in (Types.NUMBER, Types.FLOAT, Types.ANY))

_SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
_POWERS = np.array(
    [s * 2.0**e for e in (-120, -60, -25, -12, -6, -2, -1, 1, 2, 4, 6, 10, 24, 60, 120) for s in (1, -1)]
)


def arguments(dtype: DType = DType.F64, count: int = 1024, seed: int = 0) -> Floats:
    """``count`` numbers of ``dtype``: special ones, powers of two of every size, and random ones of ordinary size."""
    rng = np.random.default_rng(seed)
    rest = count - len(_SPECIAL) - len(_POWERS)
    random = np.concatenate([rng.uniform(-1, 1, rest // 2), rng.uniform(-20, 20, rest - rest // 2)])
    x = np.concatenate([_SPECIAL, _POWERS, random])
    return x if dtype is DType.F64 else x.astype(np.float32).astype(np.float64)


def pairs(dtype: DType = DType.F64, count: int = 1024) -> tuple[Floats, Floats]:
    """Two columns of ``count`` numbers, with all pairs of special ones."""
    x = arguments(dtype, count, 1)
    y = np.random.default_rng(2).permutation(arguments(dtype, count, 3))
    n = len(_SPECIAL)
    x[: n * n], y[: n * n] = np.repeat(_SPECIAL, n), np.tile(_SPECIAL, n)
    return x, y


def given(f: Function, dtype: DType = DType.F64, count: int = 1024) -> list[Floats]:
    """Arguments for ``f``."""
    if f.arity == 1:
        return [arguments(dtype, count)]
    x, y = pairs(dtype, count)
    return [x, y, arguments(dtype, count, 5)][: f.arity]

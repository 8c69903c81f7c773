"""The records of element types agree with their names, with numpy and with each other."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nautilus.core.types import FORMATS, DType, integer_limits, value_limits


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_sizes_are_those_of_the_name_and_of_the_storage(dtype: DType) -> None:
    f = FORMATS[dtype]
    named = re.match(r"[a-z]+(\d+)", dtype.value)
    stored = 8 * np.dtype(f.raw).itemsize
    assert f.bits == stored == dtype.bits == 8 * dtype.bytes
    assert dtype in (DType.BOOL, DType.TF32) or (named is not None and int(named[1]) == f.bits)
    assert f.pack in (1, 4 // dtype.bytes if dtype.bytes < 4 else 1)


@pytest.mark.parametrize("dtype", [d for d in DType if FORMATS[d].numpy and d is not DType.BOOL], ids=str)
def test_limits_are_those_of_numpy(dtype: DType) -> None:
    name = FORMATS[dtype].numpy
    assert name is not None
    if dtype.is_float:
        known = np.finfo(name)
        assert value_limits(dtype) == (float(known.min), float(known.max))
        assert FORMATS[dtype].mantissa == known.nmant and FORMATS[dtype].least == known.minexp
    else:
        limits = np.iinfo(name)
        assert integer_limits(dtype) == (limits.min, limits.max)
        assert value_limits(dtype) == (float(limits.min), float(limits.max))

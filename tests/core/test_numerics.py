"""Rounding, storage and the meaning of operations, against independent computations."""

import math
import re
import struct
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nautilus.core.expr.nodes import OPS
from nautilus.core.functions import FUNCTIONS, Types
from nautilus.core.functions.arrays import erf
from nautilus.core.numerics import (
    eval_op,
    from_storage,
    ranked,
    reduce_array,
    round_to,
    storage_array,
    storage_numpy,
)
from nautilus.core.types import FORMATS, DType, integer_limits, value_limits

FLOATS = [DType.F32, DType.TF32, DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2]


def one(x: float, dtype: DType) -> float:
    return float(round_to(np.array(x), dtype))


@given(st.floats(width=32, allow_nan=False))
def test_bf16_against_bit_arithmetic(x: float) -> None:
    (bits,) = struct.unpack("<I", struct.pack("<f", x))
    if math.isinf(x):
        expected = bits >> 16
    else:
        expected = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    assert int(storage_array(np.array([x]), DType.BF16)[0]) == expected


@given(st.floats(allow_nan=False), st.sampled_from(FLOATS))
def test_rounding_is_idempotent_monotone_and_nearest(x: float, dtype: DType) -> None:
    y = one(x, dtype)
    assert one(y, dtype) == y or math.isnan(y)
    if not math.isnan(y) and not math.isinf(y):
        assert one(-x, dtype) == -y
        near = abs(x) * 2.0 ** -(dtype.mantissa + 1)
        assert abs(x - y) <= max(near, 2.0**-10 if dtype is DType.F8E4M3 else 2.0**-17)


@pytest.mark.parametrize("dtype", [DType.TF32, DType.BF16, DType.F8E4M3])
def test_pieces_of_large_arrays_are_rounded_apart(dtype: DType) -> None:
    """The result is the same, the argument stays, and memory holds less than three more arrays of its size."""
    x = np.random.default_rng(1).standard_normal((40, 1 << 18)) * 300
    given = x.copy()
    tracemalloc.start()
    y = round_to(x, dtype)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (x == given).all()
    assert peak < 2.5 * x.nbytes
    np.testing.assert_array_equal(y[20:22], round_to(x[20:22], dtype))


@pytest.mark.parametrize("dtype", [DType.F8E4M3, DType.F8E5M2])
def test_8_bit_patterns_survive(dtype: DType) -> None:
    raw = np.arange(256, dtype=np.uint8)
    values = from_storage(raw, dtype)
    back = storage_array(values, dtype)
    nan = np.isnan(values)
    assert (back[~nan] == raw[~nan]).all()
    assert np.isnan(from_storage(back, dtype)[nan]).all()


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_16_bit_patterns_survive(dtype: DType) -> None:
    raw = np.arange(65536, dtype=np.uint16).view(storage_numpy(dtype))
    values = from_storage(raw, dtype)
    ok = ~np.isnan(values)
    assert (storage_array(values, dtype)[ok] == raw[ok]).all()
    assert np.isnan(from_storage(storage_array(values, dtype), dtype)[~ok]).all()


def test_8_bit_edges() -> None:
    assert one(448.0, DType.F8E4M3) == 448.0
    assert one(464.0, DType.F8E4M3) == 448.0  # the tie goes to even
    assert math.isnan(one(465.0, DType.F8E4M3)) and math.isnan(one(math.inf, DType.F8E4M3))
    assert one(57344.0, DType.F8E5M2) == 57344.0 and one(61440.0, DType.F8E5M2) == math.inf
    assert one(2.0**-9, DType.F8E4M3) == 2.0**-9 and one(2.0**-10, DType.F8E4M3) == 0.0
    assert one(1.0 + 2.0**-11, DType.TF32) == 1.0 and one(1.0 + 3 * 2.0**-11, DType.TF32) == 1.0 + 2.0**-9


def test_integer_casts() -> None:
    x = np.array([1.9, -1.9, 300.0, -129.0, math.nan, math.inf, 2.0**40 + 5])
    assert round_to(x, DType.I8).tolist() == [1, -1, 44, 127, 0, -1, -1]
    assert round_to(x, DType.U8).tolist() == [1, 255, 44, 127, 0, 255, 255]
    assert round_to(x, DType.I32).tolist() == [1, -1, 300, -129, 0, 2**31 - 1, 2**31 - 1]
    assert round_to(x, DType.I64).tolist() == [1, -1, 300, -129, 0, 2**63 - 1, 2**40 + 5]
    assert round_to(np.array([0.0, 2.0, math.nan]), DType.BOOL).tolist() == [False, True, True]


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=20))
def test_erf(xs: list[float]) -> None:
    got = erf(np.array(xs))
    assert np.allclose(got, [math.erf(x) for x in xs], rtol=3e-15, atol=1e-300)


def test_erf_specials() -> None:
    assert erf(np.array([math.inf, -math.inf, 0.0])).tolist() == [1.0, -1.0, 0.0]
    assert np.isnan(erf(np.array(math.nan)))


def test_every_operation_has_a_meaning_and_no_warning_leaks() -> None:
    floats = np.array([0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan, 1e300])
    ints = np.array([0, 1, -7, 2**31 - 1])
    logic = {"and", "or", "not"}
    bitwise = {f.name for f in FUNCTIONS.values() if f.types is Types.INTEGER}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for op, arity in OPS.items():
            for mode in ("real", "typed"):
                if op in logic:
                    eval_op(op, [floats > 0] * arity, DType.BOOL, mode)
                elif op in bitwise:
                    eval_op(op, [ints] * arity, DType.I32, mode)
                elif op == "select":
                    eval_op(op, [floats > 0, floats, floats], DType.F32, mode)
                else:
                    eval_op(op, [floats] * arity, DType.F32, mode)
        for op in ("add", "mul", "floordiv", "mod", "pow", "min", "neg", "sign", "abs"):
            assert eval_op(op, [ints] * OPS[op], DType.I32).dtype == np.int64


def test_modes() -> None:
    third = np.array(1.0 / 3.0)
    assert eval_op("narrow", [third], DType.F16, "real") == third
    assert eval_op("narrow", [third], DType.F16, "typed") == np.float64(np.float16(third))
    assert eval_op("cast", [third], DType.F16, "real") == np.float64(np.float16(third))
    assert eval_op("cast", [third], DType.F32, "real") == third
    assert eval_op("mul", [third, np.array(1.0)], DType.F32, "typed") == np.float64(np.float32(third))


def test_max_and_min_order_zeros() -> None:
    a, b = np.array([-0.0, 0.0, -0.0, math.nan]), np.array([0.0, -0.0, -0.0, 1.0])
    for dtype in (DType.F32, DType.F64):
        for x, y in ((a, b), (b, a)):
            assert np.signbit(eval_op("max", [x, y], dtype))[:3].tolist() == [False, False, True]
            assert np.signbit(eval_op("min", [x, y], dtype))[:3].tolist() == [True, True, True]
            assert math.isnan(eval_op("max", [x, y], dtype)[3])
    rows = np.array([[-0.0, 0.0], [0.0, -0.0], [-0.0, -0.0], [0.0, 0.0]])
    assert np.signbit(reduce_array("max", rows, (1,), DType.F32)).tolist() == [False, False, True, False]
    assert np.signbit(reduce_array("min", rows, (1,), DType.F32)).tolist() == [True, True, True, False]


def test_python_division_and_wrap() -> None:
    a, b = np.array([7, -7, 7, -7, 3]), np.array([2, 2, -2, -2, 0])
    assert eval_op("floordiv", [a, b], DType.I32).tolist() == [3, -4, -4, 3, 0]
    assert eval_op("mod", [a, b], DType.I32).tolist() == [1, 1, -1, -1, 0]
    assert eval_op("add", [np.array(2**31 - 1), np.array(1)], DType.I32) == -(2**31)
    assert eval_op("pow", [np.array([2, 2, -1]), np.array([10, -1, -3])], DType.I32).tolist() == [1024, 0, -1]


def test_max_propagates_nan() -> None:
    x = np.array([1.0, math.nan, 3.0])
    assert np.isnan(eval_op("max", [x, np.array(2.0)], DType.F32)).tolist() == [False, True, False]
    assert np.isnan(reduce_array("max", x, (0,), DType.F32))


def test_reductions() -> None:
    x = np.arange(6).reshape(2, 3)
    assert reduce_array("sum", x, (1,), DType.I32).tolist() == [3, 12]
    assert reduce_array("max", x[:, :0], (1,), DType.I32).tolist() == [-(2**31)] * 2
    assert reduce_array("max", x[:, :0].astype(float), (1,), DType.F32).tolist() == [-math.inf] * 2
    assert reduce_array("any", x > 4, (1,), DType.BOOL).tolist() == [False, True]
    assert reduce_array("max", x > 4, (1,), DType.BOOL).tolist() == [False, True]
    assert reduce_array("prod", x, (0, 1), DType.I32, keepdims=True).shape == (1, 1)
    big = np.full(4096, 0.1)
    assert reduce_array("sum", big, (0,), DType.F32, "typed") == np.float64(np.sum(big.astype(np.float32)))


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


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_of_f32_are_pairwise_along_every_axis(axis: int) -> None:
    x = np.full((4096, 4096), 0.1, np.float32)[: 4096 if axis == 0 else 3, : 3 if axis == 0 else 4096]
    found = reduce_array("sum", x, (axis,), DType.F32, "typed")
    assert found.shape == (3,) and np.abs(found / (4096 * np.float64(np.float32(0.1))) - 1).max() < 3e-7


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_half_a_power_is_no_root(shape: tuple[int, ...]) -> None:
    """numpy takes the root for an exponent of 0.5 that is one number."""
    found = eval_op("pow", [np.array([-np.inf, -4.0, 4.0]), np.full(shape, 0.5)], DType.F32)
    np.testing.assert_array_equal(found, [np.inf, np.nan, 2.0])


@pytest.mark.parametrize("seed", range(20))
def test_ranked_is_what_sorting_gives(seed: int) -> None:
    """Also for multiples of a step, which are counted, and with a number between them, which are not."""
    rng = np.random.default_rng(seed)
    step, most = int(rng.integers(1, 300)), int(rng.integers(1, 3000))
    numbers = rng.integers(-50, most, int(rng.integers(1, 200))) * step - seed
    for some in (numbers, numbers[:1], numbers + (np.arange(len(numbers)) == 3), numbers * (1 << 40)):
        found, places = ranked(some)
        expected, where = np.unique(some, return_inverse=True)
        assert np.array_equal(found, expected) and np.array_equal(places, where)

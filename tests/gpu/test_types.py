"""Operand types of matrix products other than 16-bit floats, and conversions of 8-bit floats, on the GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.check import device
from nautilus.check.bound.stated import stated
from nautilus.check.inputs import InputSet, generate
from nautilus.check.reference import Compiled, reference
from nautilus.core.numerics import eval_op, from_storage
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_spec
from nautilus.runtime.device import default_arch

pytestmark = pytest.mark.gpu

#: K-major operands, a ragged edge in every direction but the contraction's rows of 16 bytes
PRODUCT = """
dim M = 300, N = 200, K = 656
input A: {0}[M, K]
input B: {0}[N, K]
output Y: {1}[M, N]
Y[i, j] = sum[k](A[i, k] * B[j, k])
"""
TYPES = [("bf16", "f32"), ("tf32", "f32"), ("f8e4m3", "f32"), ("f8e5m2", "f32"), ("i8", "i32"), ("u8", "i32")]


@pytest.mark.parametrize(("dtype", "out"), TYPES)
@pytest.mark.parametrize("kind", ["random", "equal", "ascending"])
def test_products(dtype: str, out: str, kind: str, tmp_path: Path) -> None:
    if dtype.startswith("f8") and not default_arch().startswith(("sm_89", "sm_9", "sm_1")):
        pytest.skip("no instructions for 8-bit floats")
    text = PRODUCT.format(dtype, out)
    spec = load_spec(text)
    given = generate(spec, kind)
    want = reference(Compiled(spec), given, stated(spec))
    with device.opened(compile_file(Request(tmp_path / "types.naut", default_arch(), text=text))) as runner:
        got, same = runner.run(given)
    assert same
    if out == "i32":
        assert np.array_equal(got["Y"], want.rounded["Y"])
    else:
        assert np.linalg.norm(got["Y"] - want.values["Y"]) <= want.allowed["Y"]


CONVERT = """
dim N = 4096
input X: f32[N]
input A: {0}[N]
output Y: {0}[N]
output Z: f32[N]
Y[i] = X[i]
Z[i] = A[i]
"""


@pytest.mark.parametrize("dtype", [DType.F8E4M3, DType.F8E5M2])
def test_every_8_bit_float_is_converted_and_overflow_is_not_saturated(dtype: DType, tmp_path: Path) -> None:
    if not default_arch().startswith(("sm_89", "sm_9", "sm_1")):
        pytest.skip("no instructions for 8-bit floats")
    text = CONVERT.format(dtype)
    values = from_storage(np.arange(256, dtype=np.uint8), dtype)
    numbers = np.sort(values[np.isfinite(values)])
    between = (numbers[1:] + numbers[:-1]) / 2  # ties
    edges = np.array([448, 464, 464.1, 480, 57344, 61439.9, 61440, 65536, 1e30, np.inf, np.nan, 1e-9, 0.0])
    x = np.concatenate([values, between, between * (1 + 2.0**-20), edges, -edges]).astype(np.float32)
    given = InputSet("all", 0, {"X": np.resize(x, 4096).astype(np.float64), "A": np.resize(values, 4096)})
    with device.opened(compile_file(Request(tmp_path / "convert.naut", default_arch(), text=text))) as runner:
        got, _ = runner.run(given)
    np.testing.assert_array_equal(got["Y"], eval_op("cast", [given.arrays["X"]], dtype))
    np.testing.assert_array_equal(got["Z"], given.arrays["A"])

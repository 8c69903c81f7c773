"""Tensors whose strides are known only at launch: every level, the launcher, and the memory around their elements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.check.inputs import generate, interface
from nautilus.core.buffers import extents
from nautilus.core.errors import InputError
from nautilus.core.index.strides import pad, places, row_major, span, spread
from nautilus.driver import Request, compile_file
from nautilus.export.frameworks.python_function import operator
from nautilus.frontend.printer import format_spec
from nautilus.frontend.semantics.check import load_text
from nautilus.ma_tile.interp.module import run_module
from nautilus.ma_tile.text import format, parse
from nautilus.passes.compilation import Result
from nautilus.runtime.execute import plan_of
from tests.endtoend.sizes.test_runtime_sizes import wrong
from tests.endtoend.support import travel

PRODUCT = """
dim M = runtime, N = 136, K = 203
input A: f16[M, K] strided, B: f16[K, N] strided
output C: f16[M, N] strided
C[i, j] = sum[k](A[i, k] * B[k, j])
"""
PACKED = """
dim B = 1, M = runtime, H = 2, D = 64
input X: f16[B, M, 3, H, D] strided
output O: f16[B, M, H, D] strided(M)
S[b, h, i, j] = sum[d](X[b, i, 0, h, d] * X[b, j, 1, h, d]) / sqrt(D)
P[b, h, i, j] = softmax[j | j <= i](S[b, h, i, j])
O[b, i, h, d] = sum[j](P[b, h, i, j] * X[b, j, 2, h, d])
"""
ROWS = """
dim B = 3, M = runtime, N = 40
input X: f32[B, M, N] strided(B), Y: f16[B, M, N] strided(all)
output O: f32[B, M, N] strided(all), S: f32[B, M] strided, T: f32[B, 2, M] strided(B)
O[b, i, j] = X[b, i, j] + Y[b, i, j]
S[b, i] = sum[j](O[b, i, j])
T[b, e, i] = S[b, i] + e
"""


def compiled(text: str, arch: str = "sm_90a") -> Result:
    return compile_file(Request(Path("given.naut"), arch, text=text))


@pytest.mark.parametrize("text", [PRODUCT, PACKED, ROWS], ids=["product", "packed", "rows"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_every_level_agrees_and_reads_no_gap(text: str, arch: str) -> None:
    made = travel(text, arch)
    assert not [line for size in (0, 1, 70) for line in wrong(made, (size,))]


def test_a_stride_that_is_a_size_is_no_argument_of_its_own() -> None:
    module = compile_file(Request(Path("given.naut"), until="ma-tile", text=ROWS)).modules["ma-tile"]
    assert [p.name for p in module.params].count("M") == 1
    names = operator(module, ())
    assert names.shown["M"] == "X.shape[1]" and names.shown["T_stride0"] == "stride(T, 0, 4)"


def test_aligned_rows_are_copied_by_tma() -> None:
    assert "wgmma" in compiled(PRODUCT).cuda_module.code  # rows of 203 elements would not be
    assert "wgmma" not in compiled(PRODUCT.replace(" strided", "")).cuda_module.code


def test_strides_follow_the_axes_that_are_named() -> None:
    tensors = load_text(ROWS).tensors
    assert [getattr(s, "name", s) for s in tensors["X"].strides or ()][::2] == ["X_stride0", 1]
    assert [s.name for s in load_text(ROWS).stride_params] == [
        "X_stride0", "Y_stride0", "Y_stride1", "Y_stride2", "O_stride0", "O_stride1", "O_stride2", "S_stride0",
        "T_stride0",
    ]  # fmt: skip


def test_strides_that_are_not_aligned_are_refused() -> None:
    module = compiled(PRODUCT).modules["ma-tile"]
    numbers = {"M": 5, "A_stride0": 208, "B_stride0": 136, "C_stride0": 256}
    elements = [4 * 208 + 203, 203 * 136, 4 * 256 + 136]
    assert [a.bytes for a in plan_of(module, numbers).arguments[:3]] == [2 * n for n in elements]
    with pytest.raises(InputError, match="A_stride0 % 8 == 0' does not hold: A_stride0 is 203"):
        plan_of(module, numbers | {"A_stride0": 203})
    text = compiled(PRODUCT).cuda_module.code
    assert "'assume A_stride0 %% 8 == 0' does not hold" in text
    assert "the address of %s is no multiple of 16 bytes" in text
    assert "const cuuint64_t strides[] = {(cuuint64_t)((long long)A_stride0 * 2)};" in text


def test_offsets_have_64_bits() -> None:
    text = compiled(ROWS, "sm_80").cuda_module.code
    assert "long long X_stride0" in text and "* (long long)X_stride0" in text


def test_what_stands_in_gaps_is_not_written() -> None:
    module = compiled(ROWS, "sm_80").modules["ma-tile"]
    given = generate(load_text(ROWS), sizes={"M": 7})
    out = run_module(module, given.arrays, dict(given.sizes))
    np.testing.assert_allclose(out["O"], given.arrays["X"] + given.arrays["Y"], rtol=1e-6)


def test_text_of_modules_and_of_specs() -> None:
    spec = load_text(ROWS, "rows.naut")
    again = load_text(format_spec(spec), "rows.naut")
    assert again.tensors == spec.tensors
    module = compiled(PACKED).modules["ma-tile"]
    assert parse(format(module)) == module
    known = dict[str, int](M=9)
    for t in interface(module).tensors.values():
        assert t.strides is None or len(t.strides) == len(t.shape)
        pad(t.shape, t.strides or row_major(t.shape), known)
    assert known["X_stride1"] % 8 == 0 and known["X_stride1"] > 3 * 2 * 64


def test_memory_with_gaps() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    known = dict[str, int]()
    strides = pad(x.shape, load_text(ROWS.replace("runtime", "3").replace("B = 3", "B = 2").replace("N = 40", "N = 4"))
                  .tensors["O"].strides or (), known)  # fmt: skip
    memory = spread(x, x.shape, strides)
    assert len(memory) == span(x.shape, strides) and np.isnan(memory).sum() == len(memory) - 24
    np.testing.assert_array_equal(places(memory, x.shape, strides), x)
    assert extents(row_major((2, 3, 4)), {}) == (12, 4, 1)
    assert span((2, 0, 4), (12, 4, 1)) == 0

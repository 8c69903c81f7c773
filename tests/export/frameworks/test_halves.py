"""The bits of 16-bit floats that hosts pass."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from nautilus.core.buffers import ScalarParam
from nautilus.core.numerics import storage_array
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.export.frameworks.halves import half_bits, half_helpers
from nautilus.export.frameworks.jax_module import jax_text
from nautilus.export.frameworks.tvm_ffi import tvm_ffi_text
from nautilus.export.library import Part

GXX = shutil.which("g++")
HALVES = (DType.F16, DType.BF16)


@pytest.mark.skipif(GXX is None, reason="g++ is not on PATH")
def test_numbers_are_rounded_to_nearest_even(tmp_path: Path) -> None:
    params = [ScalarParam(str(d), d) for d in HALVES]
    wrappers = [f'extern "C" int of_{d}(float x) {{ return {half_bits(d, "x", "k")}; }}' for d in HALVES]
    text = "\n".join(["#include <string.h>", "namespace k {", *half_helpers(params), "}", *wrappers])
    (tmp_path / "bits.cpp").write_text(text)
    made = tmp_path / "bits.so"
    subprocess.run([GXX or "", "-shared", "-fPIC", "-Wall", "-Wextra", tmp_path / "bits.cpp", "-o", made], check=True)
    library = ctypes.CDLL(str(made))
    rng = np.random.default_rng(0)
    near = np.array([0, 1, 65504, 65519.99, 65520, 3e38, np.inf, 2.0**-24, 2.0**-25, 2.0**-14, 6.1e-5, 1 + 2.0**-11])
    drawn = rng.standard_normal(400) * 2.0 ** rng.integers(-40, 40, 400)
    values = np.concatenate([near, -near, drawn]).astype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        for dtype in HALVES:
            call = getattr(library, f"of_{dtype}")
            call.argtypes = [ctypes.c_float]
            wanted = storage_array(values, dtype).view(np.uint16)
            assert [call(float(x)) for x in values] == wanted.tolist()
            assert call(float("nan")) & 0x7FFF > {DType.F16: 0x7C00, DType.BF16: 0x7F80}[dtype]


def test_functions_of_frameworks_take_them() -> None:
    text = "dim N = 8\ninput X: f32[N]\nscalar s: bf16, t: f16\noutput Y: f32[N]\nY[i] = X[i] * s + t\n"
    part = Part("sm_80", compile_file(Request(Path("x.naut"), "sm_80", text=text)).choice, b"\177ELF")
    for code in (tvm_ffi_text([part], ""), jax_text([part], "")):
        assert "::bf16_bits(s), " in code and "::f16_bits(t), " in code and "static unsigned short f16_bits(" in code
        assert "float s" in code and "float t" in code

"""Device functions that stand for those of the math library, on the host: errors, signs and special values."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from nautilus.core.functions import FUNCTIONS, Call
from nautilus.cuda.intrinsics import closure, helper
from nautilus.cuda.text.functions import ATAN2, HYPOT, LOG1P, LOG2, POW

TEXTS = {"atan2": ATAN2, "hypot": HYPOT, "pow": POW, "log2": LOG2, "log1p": LOG1P}
GXX = shutil.which("g++")
HOST = """
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>
#define __device__
#define __forceinline__ inline
#define __noinline__
static float __int_as_float(int i) { float f; memcpy(&f, &i, 4); return f; }
static int __float_as_int(float f) { int i; memcpy(&i, &f, 4); return i; }
static unsigned __float_as_uint(float f) { return __float_as_int(f); }
static float __uint_as_float(unsigned u) { return __int_as_float(u); }
static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
static float rcp_approx(float x) { return flushed((1.0f + ERROR * 0x1p-23f) * (1.0f / flushed(x))); }
static float lg2(float x) {
    const double y = log2((double)x);
    return std::isfinite(y) ? (float)(y + ERROR * 0x1p-22 * fmax(1.0, fabs(y))) : y;
}
static float lg2_normal(float x) { return lg2(flushed(x)); }
static float exp2_approx(float x) { return (float)(exp2((double)x) * (1.0 + ERROR * 1.42 * 0x1p-23)); }
static float power(float x, float y) { return powf(x, y); }
typedef unsigned int u32;
static float rsqrt_approx(float x) { return (1.0f + 1.08f * ERROR * 0x1p-23f) * (float)(1.0 / sqrt((double)x)); }
"""
MAIN = """
int main() {
    float v[2];
    while (fread(v, 4, 2, stdin) == 2) { const float y = CALL; fwrite(&y, 4, 1, stdout); }
}
"""
ENDS = [0.0, 1.0, np.inf, np.nan, 1e-45, 3e-39, 1e-30, 1e-20, 2.5, 1e20, 1e30, 3e38, 2.0**-60, 2.0**100]


@pytest.mark.skipif(GXX is None, reason="g++ is not on PATH")
@pytest.mark.parametrize("error", [-1, 1])
@pytest.mark.parametrize("name", TEXTS)
def test_functions(name: str, error: int, tmp_path: Path) -> None:
    (approximation,) = FUNCTIONS[name].approximations
    arguments = ("v[0]", "v[1]")[: FUNCTIONS[name].arity]
    call = f"{approximation.function}({', '.join(arguments)})"
    source = HOST.replace("ERROR", str(error)) + TEXTS[name] + MAIN.replace("CALL", call)
    (tmp_path / "f.cpp").write_text(source)
    subprocess.run([str(GXX), "-O2", "-ffp-contract=off", "-o", tmp_path / "f", tmp_path / "f.cpp"], check=True)
    rng = np.random.default_rng(0)
    signed = np.array([*ENDS, *(-x for x in ENDS)], np.float32)
    pairs = np.stack(np.meshgrid(signed, signed), -1).reshape(-1, 2)
    if name == "pow":  # the exponent is at most 1 in magnitude
        pairs = pairs[np.abs(pairs[:, 1]) <= 1]
    usual = rng.standard_normal((20000, 2)) * 2.0 ** rng.integers(-12, 12, (20000, 2))
    if name == "pow":
        usual = np.stack([np.exp(40 * rng.standard_normal(20000)).clip(1e-37, 1e37), rng.uniform(-1, 1, 20000)], -1)
    elif name.startswith("log"):  # near 1, and near 0
        usual[:10000, 0] = 1.0 + 0.3 * usual[:10000, 0]
    given = np.concatenate([pairs, usual]).astype(np.float32)
    done = subprocess.run([tmp_path / "f"], input=given.tobytes(), capture_output=True, check=True)
    found = np.frombuffer(done.stdout, np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        function = np.power if name == "pow" else getattr(np, name)
        expected = function(*given.astype(np.float64).T[: len(arguments)])
        rounded = expected.astype(np.float32).astype(np.float64)
        ulp = np.spacing(np.abs(rounded).astype(np.float32))
        near = np.abs(found - expected) <= approximation.ulps * ulp + 2.0**-126
    same = (found == rounded) | (np.isnan(found) & np.isnan(expected))
    assert np.all(same | near)
    assert np.all(np.isnan(expected) | (np.signbit(found) == np.signbit(expected)))


_ZEROS = (np.pi / 2 * np.arange(1, 67236, 3)).astype(np.float32)
#: angles: zeros of the functions up to where the library's functions begin, both sides of it, and special values
ANGLES = np.concatenate(
    [
        [0.0, 1e-45, 3e-39, 1e-30, 105614.99, 105615.0, 105615.01, 1e6, 3e38, np.inf, np.nan],
        (_ZEROS.view(np.int32)[:, None] + [-1, 0, 2]).view(np.float32).ravel(),
        2.0 ** np.random.default_rng(0).uniform(-20, 17, 20000),
    ]
)


@pytest.mark.skipif(GXX is None, reason="g++ is not on PATH")
@pytest.mark.parametrize("error", [-1, 1])
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_functions_of_angles(name: str, error: int, tmp_path: Path) -> None:
    call = FUNCTIONS[name].c
    assert isinstance(call, Call)
    texts = [helper(n).text for n in closure([call.f32]) if n != "rcp_approx"]
    main = MAIN.replace("CALL", f"{call.f32}(v[0])")
    (tmp_path / "f.cpp").write_text("\n".join([HOST.replace("ERROR", str(error)), *texts, main]))
    subprocess.run([str(GXX), "-O2", "-ffp-contract=off", "-o", tmp_path / "f", tmp_path / "f.cpp"], check=True)
    given = np.concatenate([ANGLES, -ANGLES]).astype(np.float32)
    pairs = np.stack([given, given], -1)
    done = subprocess.run([tmp_path / "f"], input=pairs.tobytes(), capture_output=True, check=True)
    found = np.frombuffer(done.stdout, np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(given.astype(np.float64))
        ulp = np.spacing(np.abs(expected).astype(np.float32))
    ends = np.isnan(found) & np.isnan(expected)
    assert np.all(ends | (np.abs(found - expected) <= FUNCTIONS[name].ulps[0] * ulp))
    assert np.all(ends | (np.signbit(found) == np.signbit(expected)))


@pytest.mark.skipif(GXX is None, reason="g++ is not on PATH")
@pytest.mark.parametrize("error", [-1, 1])
def test_roots_are_correctly_rounded(error: int, tmp_path: Path) -> None:
    """Or almost so, as the error of the reciprocal root is drawn here; small numbers and ends included."""
    texts = [helper(n).text for n in closure(["root"]) if n != "rsqrt_approx"]
    source = [HOST.replace("ERROR", str(error)), *texts, MAIN.replace("CALL", "root(v[0])")]
    (tmp_path / "f.cpp").write_text("\n".join(source))
    subprocess.run([str(GXX), "-O2", "-ffp-contract=off", "-o", tmp_path / "f", tmp_path / "f.cpp"], check=True)
    rng = np.random.default_rng(0)
    drawn = rng.uniform(1, 4, 20000) * 4.0 ** rng.integers(-74, 63, 20000)
    ends = [*ENDS, -1.0, 25.0, 9.0, 2.0**-101, np.nextafter(np.float32(2.0**-101), np.float32(0)), 3.4e38]
    given = np.array([*ends, *(-x for x in ENDS), *drawn], np.float32)
    pairs = np.stack([given, given], -1)
    done = subprocess.run([tmp_path / "f"], input=pairs.tobytes(), capture_output=True, check=True)
    found = np.frombuffer(done.stdout, np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        expected = np.sqrt(given.astype(np.float64))
        near = np.abs(found - expected) <= 0.5001 * np.spacing(expected.astype(np.float32))
    assert np.all(near | (found == expected) | (np.isnan(found) & np.isnan(expected)))
    assert np.all(np.isnan(expected) | (np.signbit(found) == np.signbit(expected)))

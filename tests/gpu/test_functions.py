"""Every function on the GPU, in f32 and in f64: each element within the error in ulp that its record states.

The arguments are special values, powers of two of every size and random ones of ordinary size; the reference is the
float64 meaning for f32, and Python's math for f64.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.check import device
from nautilus.check.inputs import InputSet
from nautilus.core.functions import NAMED
from nautilus.core.numerics import eval_op
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.frontend.error_bound import stated
from nautilus.frontend.semantics.check import load_spec
from nautilus.runtime.device import default_arch
from tests.check.elementary import ELEMENTARY, given

pytestmark = pytest.mark.gpu

COUNT = 4096
#: f32 results and arguments below this are 0 in approximate instructions (.ftz)
FLUSHED = {DType.F32: 2.0**-126, DType.F64: 0.0}


def spec(name: str, dtype: DType) -> str:
    names = "XY"[: NAMED[name].arity]
    inputs = "".join(f"input {v}: {dtype}[N]\n" for v in names)
    return f"dim N = {COUNT}\n{inputs}output O: {dtype}[N]\nO[i] = {name}({', '.join(f'{v}[i]' for v in names)})\n"


def on_device(text: str, arrays: dict[str, Any], precision: str, folder: Path) -> Any:
    request = Request(folder / "function.naut", default_arch(), text=text, precision=precision)
    with device.opened(compile_file(request)) as runner:
        got, same = runner.run(InputSet("given", 0, arrays))
    assert same, "two launches gave different bits"
    return got["O"]


def ulp(x: Any, dtype: DType) -> Any:
    """The distance of neighbouring numbers at ``x``."""
    _, exponent = np.frexp(np.where(np.isfinite(x), x, 1.0))
    least = -149 if dtype is DType.F32 else -1074
    return np.ldexp(1.0, np.maximum(exponent - 1 - dtype.mantissa, least))


def errors(got: Any, want: Any, dtype: DType) -> Any:
    """In ulp; 0 where both are the same special value, inf where only one is special."""
    limit = float(np.finfo(np.float32 if dtype is DType.F32 else np.float64).max)
    rounded = want.astype(np.float32).astype(np.float64) if dtype is DType.F32 else want
    special = ~np.isfinite(got) | ~np.isfinite(rounded)
    alike = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    near_overflow = np.isinf(got) & (np.abs(want) > limit * (1 - 1e-5)) & (np.sign(got) == np.sign(want))
    off = np.where(special, 0.0, np.abs(np.where(special, 0.0, got) - np.where(special, 0.0, want)))
    off = np.where((np.abs(want) < FLUSHED[dtype]) & (got == 0.0), 0.0, off)
    return np.where(special & ~alike & ~near_overflow, np.inf, off / ulp(want, dtype))


def reference(name: str, columns: list[Any], dtype: DType) -> Any:
    """The values in float64; f64 results of Python's math where it has the function and accepts the argument."""
    want = eval_op(name, columns, DType.F64)
    if name == "cbrt":  # a step of Newton's method: libraries are off by several ulp
        root, x = (np.asarray(a, np.longdouble) for a in (want, columns[0]))
        with np.errstate(all="ignore"):
            step = (root - x / (root * root)) / 3.0
        return np.asarray(np.where(np.isfinite(step), root - step, root), np.float64)
    exact = getattr(math, name, None)
    if dtype is DType.F32 or exact is None:
        return want
    for n, at in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        try:
            want[n] = exact(*at)
        except (ArithmeticError, ValueError):
            continue
    return want


@pytest.mark.parametrize("precision", ["fast", "strict"])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=str)
@pytest.mark.parametrize("name", ELEMENTARY)
def test_every_element_is_within_the_stated_ulps(name: str, dtype: DType, precision: str, tmp_path: Path) -> None:
    f = NAMED[name]
    columns = given(f, dtype, COUNT)
    text = spec(name, dtype)
    got = on_device(text, dict(zip("XY", columns, strict=False)), precision, tmp_path)
    want = reference(name, columns, dtype)
    off = errors(got, want, dtype)
    approximate = [a for a in f.approximations if precision == "fast" and dtype is DType.F32 and not a.narrow]
    # a composed form has its error relative to the result, which is up to twice as many ulp of it
    forms = [a.ulps * (1.0 if a.helper else 2.0) for a in approximate]
    allowed = max(f.ulps[dtype is DType.F64], *forms, 0.0) + 0.5  # half an ulp: the rounding
    allowed += 1.0 * (dtype is DType.F64)  # the reference's own
    if name in ("exp", "sigmoid") and approximate:  # the argument of exp2 is rounded
        allowed = allowed + np.abs(np.where(np.isfinite(columns[0]), columns[0], 0.0)) * math.log2(math.e)
    worst = int(np.argmax(off - allowed))
    at = [float(c[worst]) for c in columns]
    assert np.all(off <= allowed), f"{name}{at} is {got[worst]!r}, not {want[worst]!r}: {off[worst]:.3g} ulp"


@pytest.mark.parametrize("precision", ["fast", "strict"])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=str)
@pytest.mark.parametrize("name", ELEMENTARY)
def test_the_whole_is_within_the_stated_bound(name: str, dtype: DType, precision: str, tmp_path: Path) -> None:
    """The relative Frobenius norm on arguments of ordinary size, with no more allowed than the header states."""
    rng = np.random.default_rng(11)
    f = NAMED[name]
    low, high = {"acosh": (1.0, 9.0), "asin": (-1.0, 1.0), "acos": (-1.0, 1.0), "atanh": (-0.9, 0.9)}.get(
        name, (0.1, 9.0)
    )
    columns = [rng.uniform(low, high, COUNT).astype(np.float32).astype(np.float64) for _ in range(f.arity)]
    text = spec(name, dtype)
    got = on_device(text, dict(zip("XY", columns, strict=False)), precision, tmp_path)
    want = reference(name, columns, dtype)
    bound = stated(load_spec(text), precision)["O"].relative
    assert 0.0 < np.linalg.norm(want) < np.inf
    assert np.linalg.norm(got - want) <= bound * np.linalg.norm(want)


@pytest.mark.parametrize("precision", ["fast", "strict"])
@pytest.mark.parametrize("name", ELEMENTARY)
def test_f16_results_are_within_the_stated_bound(name: str, precision: str, tmp_path: Path) -> None:
    """With the approximations that outputs of 16 bits allow."""
    rng = np.random.default_rng(12)
    f = NAMED[name]
    low, high = {"acosh": (1.0, 9.0), "asin": (-1.0, 1.0), "acos": (-1.0, 1.0), "atanh": (-0.9, 0.9)}.get(
        name, (0.1, 4.0)
    )
    columns = [rng.uniform(low, high, COUNT).astype(np.float16).astype(np.float64) for _ in range(f.arity)]
    text = spec(name, DType.F16)
    got = on_device(text, dict(zip("XY", columns, strict=False)), precision, tmp_path)
    want = eval_op(name, columns, DType.F64)
    fits = np.abs(want) < 65504.0
    bound = stated(load_spec(text), precision)["O"].relative
    assert np.linalg.norm((got - want)[fits]) <= bound * np.linalg.norm(want[fits])

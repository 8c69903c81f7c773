"""Every function on the GPU, in f32 and in f64: each element within the error in ulp that its record states.

The arguments are special values, powers of two of every size, random ones of ordinary size, and random ones of every
exponent; the reference is the float64 meaning for f32, and Python's math for f64.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.check import device
from nautilus.check.bound.stated import stated
from nautilus.check.inputs import InputSet
from nautilus.core.functions import NAMED
from nautilus.core.numerics import eval_op
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_spec
from nautilus.runtime.device import default_arch
from tests.check.elementary import given

pytestmark = pytest.mark.gpu

NAMES = sorted(NAMED)
COUNT = 4096
WIDE = 16  # sets of arguments of every exponent
#: f32 results and arguments below this are 0 in approximate instructions (.ftz)
FLUSHED = {DType.F32: 2.0**-126, DType.F64: 0.0}


#: arguments of ordinary size within the domain
RANGES = {"acosh": (1.0, 9.0), "asin": (-1.0, 1.0), "acos": (-1.0, 1.0), "atanh": (-0.9, 0.9)}

Columns = dict[str, list[Any]]


def spec(dtype: DType, names: list[str]) -> str:
    """A spec with an output for each function, of inputs of its own."""
    lines = [f"dim N = {COUNT}"]
    for name in names:
        inputs = [f"{v}_{name}" for v in "XY"[: NAMED[name].arity]]
        lines += [*(f"input {v}: {dtype}[N]" for v in inputs), f"output O_{name}: {dtype}[N]"]
        lines += [f"O_{name}[i] = {name}({', '.join(f'{v}[i]' for v in inputs)})"]
    return "\n".join(lines) + "\n"


def ordinary(dtype: DType, high: float) -> Columns:
    rng = np.random.default_rng(11)
    narrow = np.float16 if dtype is DType.F16 else np.float32
    return {
        n: [rng.uniform(*RANGES.get(n, (0.1, high)), COUNT).astype(narrow).astype(np.float64) for _ in range(f.arity)]
        for n in NAMES
        for f in [NAMED[n]]
    }


@cache
def arguments(dtype: DType) -> tuple[Columns, ...]:
    """The sets of arguments: of ordinary size and, for f32 and f64, of all sizes: chosen ones, then random ones."""
    if dtype is DType.F16:
        return (ordinary(dtype, 4.0),)
    rng = np.random.default_rng(12)
    wide = [{n: [patterns(dtype, rng) for _ in range(NAMED[n].arity)] for n in NAMES} for _ in range(WIDE)]
    return ordinary(dtype, 9.0), {n: given(NAMED[n], dtype, COUNT) for n in NAMES}, *wide


def patterns(dtype: DType, rng: np.random.Generator) -> Any:
    """Numbers of random bits: every exponent of a normal number is equally likely, and both signs are."""
    low, high, bits, floats = (
        (0x00800000, 0x7F7FFFFF, np.uint32, np.float32)
        if dtype is DType.F32
        else (0x0010000000000000, 0x7FEFFFFFFFFFFFFF, np.uint64, np.float64)
    )
    size = rng.integers(low, high, COUNT, dtype=bits, endpoint=True).view(floats).astype(np.float64)
    return np.where(rng.random(COUNT) < 0.5, size, -size)


@cache
def on_device(dtype: DType, precision: str) -> tuple[dict[str, Any], ...]:
    """The results of every function on each set of arguments; one compilation for all."""
    request = Request(Path("functions.naut"), default_arch(), text=spec(dtype, NAMES), precision=precision)
    found = []
    with device.opened(compile_file(request)) as runner:
        for columns in arguments(dtype):
            arrays = {f"{v}_{n}": c for n, cs in columns.items() for v, c in zip("XY", cs, strict=False)}
            got, same = runner.run(InputSet("given", 0, arrays))
            assert same, "two launches gave different bits"
            found.append({n: got[f"O_{n}"] for n in NAMES})
    return tuple(found)


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
    if dtype is not DType.F64 or exact is None:
        return want
    for n, at in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        try:
            want[n] = exact(*at)
        except (ArithmeticError, ValueError):
            continue
    return want


precisions = pytest.mark.parametrize("precision", ["fast", "strict"])
functions = pytest.mark.parametrize("name", NAMES)


@precisions
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=str)
@functions
def test_every_element_is_within_the_stated_ulps(name: str, dtype: DType, precision: str) -> None:
    f = NAMED[name]
    columns = [np.concatenate(c) for c in zip(*(found[name] for found in arguments(dtype)[1:]), strict=True)]
    got = np.concatenate([found[name] for found in on_device(dtype, precision)[1:]])
    want = reference(name, columns, dtype)
    off = errors(got, want, dtype)
    approximate = [a for a in f.approximations if precision == "fast" and dtype is DType.F32 and not a.narrow]
    # a composed form has its error relative to the result, which is up to twice as many ulp of it
    forms = [a.ulps * (1.0 if a.function else 2.0) for a in approximate]
    allowed: Any = max(f.ulps[dtype is DType.F64], *forms, 0.0) + 0.5  # half an ulp: the rounding
    allowed += 1.0 * (dtype is DType.F64)  # the reference's own
    if name in ("exp", "sigmoid") and approximate:  # the argument of exp2 is rounded
        allowed = allowed + np.abs(np.where(np.isfinite(columns[0]), columns[0], 0.0)) * math.log2(math.e)
    worst = int(np.argmax(off - allowed))
    at = [float(c[worst]) for c in columns]
    assert np.all(off <= allowed), f"{name}{at} is {got[worst]!r}, not {want[worst]!r}: {off[worst]:.3g} ulp"


@precisions
@pytest.mark.parametrize("dtype", [DType.F16, DType.F32, DType.F64], ids=str)
@functions
def test_the_whole_is_within_the_stated_bound(name: str, dtype: DType, precision: str) -> None:
    """The relative Frobenius norm on arguments of ordinary size, with no more allowed than the header states."""
    columns = arguments(dtype)[0][name]
    got = on_device(dtype, precision)[0][name]
    want = reference(name, columns, dtype)
    bound = stated(load_spec(spec(dtype, [name])), precision)[f"O_{name}"].relative
    assert 0.0 < np.linalg.norm(want) < np.inf
    assert np.linalg.norm(got - want) <= bound * np.linalg.norm(want)

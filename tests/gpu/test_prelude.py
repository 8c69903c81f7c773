"""Every function of the prelude on the GPU: within the bound that the header states, on the inputs that it is for."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.check import device
from nautilus.check.bound.stated import stated
from nautilus.check.inputs import InputSet
from nautilus.core.numerics import round_to
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_text
from nautilus.runtime.device import default_arch
from tests.shipped import ROOT

ROWS, COLUMNS = 128, 1024

#: functions of one element, by name, as a spec calls them
ELEMENTWISE = {
    "relu": "relu(X[i, j])", "leaky_relu": "leaky_relu(X[i, j], 0.01)", "silu": "silu(X[i, j])",
    "gelu": "gelu(X[i, j])", "gelu_tanh": "gelu_tanh(X[i, j])", "softplus": "softplus(X[i, j])",
    "mish": "mish(X[i, j])", "elu": "elu(X[i, j], 1.5)", "selu": "selu(X[i, j])", "hardswish": "hardswish(X[i, j])",
    "clamp": "clamp(X[i, j], -0.5, 0.5)", "softcap": "softcap(X[i, j], 2.0)", "square": "square(X[i, j])",
    "round_even": "round_even(X[i, j])",
}  # fmt: skip
#: functions of a row
OF_ROWS = {
    "softmax": "softmax[j](X[i, j])", "log_softmax": "log_softmax[j](X[i, j])",
    "rms_norm": "rms_norm[j](X[i, j], 1e-6)",
    "layer_norm": "layer_norm[j](X[i, j], 1e-6)", "l2_norm": "l2_norm[j](X[i, j], 1e-6)",
}  # fmt: skip
#: functions that give a number for each row
OF_COUNTS = {
    "logsumexp": "logsumexp[j](X[i, j])", "variance": "variance[j](X[i, j])", "std": "std[j](X[i, j])",
    "count": "count[j](X[i, j] > 0)",
}  # fmt: skip


def text(dtype: DType, names: tuple[str, ...]) -> str:
    """A spec with an output for each function."""
    lines = [f"dim M = {ROWS}, N = {COLUMNS}", f"input X: {dtype}[M, N]"]
    for n in names:
        kind = "i32" if n == "count" else dtype
        lines.append(f"output O_{n}: {kind}{'[M]' if n in OF_COUNTS else '[M, N]'}")
    for n in names:
        index = "i" if n in OF_COUNTS else "i, j"
        lines.append(f"O_{n}[{index}] = {(ELEMENTWISE | OF_ROWS | OF_COUNTS)[n]}")
    return "\n".join(lines) + "\n"


def inputs(dtype: DType) -> dict[str, Any]:
    x = np.random.default_rng(3).standard_normal((ROWS, COLUMNS))
    return {"X": round_to(x, dtype)}


@cache
def results(dtype: DType, precision: str, names: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    """Results of the device, the reference in float64, and the stated bounds."""
    source = text(dtype, names)
    request = Request(Path("prelude.naut"), default_arch(), text=source, precision=precision)
    with device.opened(compile_file(request)) as runner:
        got, same = runner.run(InputSet("given", 0, inputs(dtype)))
    assert same, "two launches gave different bits"
    spec = load_text(source, "prelude.naut")
    bounds = {n: b.relative for n, b in stated(spec, precision).items()}
    return got, run_spec(spec, inputs(dtype)), bounds


def groups() -> dict[str, tuple[str, ...]]:
    """The functions that share a spec: all of one element; those of rows have one each."""
    return {n: tuple(ELEMENTWISE) for n in ELEMENTWISE} | {n: (n,) for n in OF_ROWS | OF_COUNTS}


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fast", "strict"])
@pytest.mark.parametrize("dtype", [DType.F16, DType.F32], ids=str)
@pytest.mark.parametrize("name", groups())
def test_within_the_stated_bound(name: str, dtype: DType, precision: str) -> None:
    got, want, bounds = results(dtype, precision, groups()[name])
    a, b = np.asarray(got[f"O_{name}"], np.float64), np.asarray(want[f"O_{name}"], np.float64)
    assert 0.0 < np.linalg.norm(b) < np.inf
    assert np.linalg.norm(a - b) <= bounds[f"O_{name}"] * np.linalg.norm(b)


def test_no_function_of_the_prelude_is_left_out() -> None:
    defined = re.findall(r"^def (\w+)", (ROOT / "grammar" / "prelude.naut").read_text(), re.MULTILINE)
    assert sorted(defined) == sorted(groups())


@pytest.mark.parametrize("names", sorted(set(groups().values())), ids=lambda names: names[0])
def test_the_spec_of_each_function_is_valid(names: tuple[str, ...]) -> None:
    assert load_text(text(DType.F16, names), "prelude.naut").warnings == ()

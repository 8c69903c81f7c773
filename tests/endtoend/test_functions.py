"""Every function at every level: Spec, Scalar, VR-tile and MA-tile interpreters agree within the stated bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.check.run import check_spec
from nautilus.core.functions import NAMED
from nautilus.driver import Request
from tests.check.elementary import ELEMENTARY

#: an expression that maps an input of ordinary size to the function's domain
INSIDE = {"acosh": "1.5 + abs({0})", "asin": "tanh({0})", "acos": "tanh({0})", "atanh": "sin({0}) / 2"}


def call(name: str) -> str:
    args = [INSIDE.get(name, "{0}").format(f"{v}[i]") for v in "XY"[: NAMED[name].arity]]
    if name in ("log", "log2", "log1p", "sqrt", "rsqrt"):
        args = [f"abs({a}) + 0.5" for a in args]
    return f"{name}({', '.join(args)})"


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize("part", range(12))
def test_every_level_agrees(dtype: str, part: int) -> None:
    names = ELEMENTARY[part::12]
    head = f"dim N = 96\ninput X: {dtype}[N]\ninput Y: {dtype}[N]\n"
    body = "".join(f"output O_{n}: {dtype}[N]\nO_{n}[i] = {call(n)}\n" for n in names)
    request = Request(Path("functions.naut"), "sm_80", text=head + body)
    report = check_spec(request, device="cpu", full_size=True, only=("random",))
    assert report.ok, report.text()


REDUCTIONS = ["std[j](X[i, j])", "variance[j](X[i, j])", "sum[j](log1p(exp(X[i, j])))", "max[j](mish(X[i, j]))"]


@pytest.mark.parametrize("body", REDUCTIONS)
def test_reductions_of_functions(body: str) -> None:
    text = f"dim M = 24, N = 80\ninput X: f32[M, N]\noutput O: f32[M]\nO[i] = {body}\n"
    request = Request(Path("functions.naut"), "sm_80", text=text)
    report = check_spec(request, device="cpu", full_size=True, only=("random",))
    assert report.ok, report.text()

"""Operations as torch text: complete, and of the interpreters' value where numpy stands for torch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nautilus.bench.peers.text import operation
from nautilus.core.functions import FUNCTIONS
from nautilus.core.numerics import eval_op
from nautilus.core.types import DType
from tests.check.elementary import NUMERIC

#: torch's name where it is not numpy's
RENAMED = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "pow": np.power, "round": np.rint,
    **{n: lambda x, n=n: eval_op(n, [x], DType.F64) for n in ("erf", "erfc", "sigmoid", "rsqrt")},
    "reciprocal": lambda x: 1.0 / x, "clamp": lambda x, min=-np.inf, max=np.inf: np.clip(x, min, max),
}  # fmt: skip


class Torch(SimpleNamespace):
    """numpy under torch's names."""

    def __getattr__(self, name: str) -> Any:
        return RENAMED[name] if name in RENAMED else getattr(np, name)


def value(name: str, texts: list[str], constant: list[bool], env: dict[str, Any]) -> Any:
    with np.errstate(all="ignore"):
        return eval(operation(name, texts, constant), {"torch": Torch(), **env})


@pytest.mark.parametrize("name", NUMERIC)
def test_tensors(name: str) -> None:
    rng = np.random.default_rng(0)
    columns = [rng.uniform(0.2, 3.0, 40) for _ in range(FUNCTIONS[name].arity)]
    texts = ["x", "y", "z"][: len(columns)]
    got = value(name, texts, [False] * len(columns), dict(zip(texts, columns, strict=True)))
    np.testing.assert_allclose(got, eval_op(name, columns, DType.F64), rtol=1e-13)


@pytest.mark.parametrize("name", [n for n in NUMERIC if FUNCTIONS[n].arity == 2])
@pytest.mark.parametrize("first", [True, False])
def test_a_tensor_and_a_number(name: str, first: bool) -> None:
    x = np.random.default_rng(1).uniform(0.2, 3.0, 40)
    got = value(name, ["1.5", "x"] if first else ["x", "1.5"], [first, not first], {"x": x})
    number = np.full_like(x, 1.5)
    want = eval_op(name, [number, x] if first else [x, number], DType.F64)
    np.testing.assert_allclose(got, want, rtol=1e-13)


def test_conversions_have_no_text_of_their_own() -> None:
    with pytest.raises(KeyError):
        operation("cast", ["x"], [False])

"""Gradients of operators: what is saved, with which tensors the backward is called, and names that do not fit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from nautilus.core.errors import UnsupportedError
from nautilus.driver import Request, compile_file
from nautilus.export.frameworks.torch_backward import gradients
from nautilus.export.frameworks.torch_module import torch_operator
from nautilus.export.library import Part

HEAD = "dim M = runtime, N = 8\n"
SCALE = f"""{HEAD}
input X: f32[M, N], w: f32[N], n: i32[M]
scalar s: f32, t: f32 = 2.0
output Y: f32[M, N], R: f32[M]
R[i] = sum[j](X[i, j]) * t + n[i]
Y[i, j] = X[i, j] * w[j] * s
"""
BACKWARD = f"""{HEAD}
input dY: f32[M, N], w: f32[N], dR: f32[M], X: f32[M, N]
scalar t: f32
output dw: f32[N], dX: f32[M, N]
dw[j] = sum[i](dY[i, j] * X[i, j])
dX[i, j] = dY[i, j] * w[j] + dR[i] * t
"""


def operators(folder: Path, **specs: str) -> list[str]:
    """The text of an operator for each spec."""
    texts = []
    for name, text in specs.items():
        (folder / f"{name}.naut").write_text(text)
        choice = compile_file(Request(folder / f"{name}.naut", "sm_80", variants=1)).choice
        texts.append(torch_operator([Part("sm_80", choice, b"")], []))
    return texts


class Context(SimpleNamespace):
    """What autograd hands from the forward to the backward."""

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors


def test_the_backward_gets_what_it_reads_and_gives_a_gradient_for_each_argument(tmp_path: Path) -> None:
    texts = operators(tmp_path, scale=SCALE, scale_backward=BACKWARD)
    torch, none = MagicMock(), MagicMock()
    names: dict[str, Any] = {"torch": torch, "LIBRARY": MagicMock(), "REGISTERED": "those of the file"}
    names |= {"operator": MagicMock(), "no_gradient": none}
    end = gradients(["scale", "scale_backward"], texts)
    exec("\n\n".join(["import ctypes", *texts]) + end, names)
    torch.library.register_autograd.assert_called_once_with(
        "nautilus::scale", names["_gradients"], setup_context=names["_save"], lib="those of the file"
    )
    none.assert_called_once_with("scale_backward")
    names["scale_backward"] = called = MagicMock(return_value=("dw", "dX"))
    ctx, d_y, d_r = Context(), MagicMock(), MagicMock()
    names["_save"](ctx, inputs=("X", "w", "n", 3.0, 5.0), output=("Y", "R"))
    assert ctx.saved_tensors == ("X", "w") and ctx.numbers == (5.0,)
    assert names["_gradients"](ctx, d_y, d_r) == ("dX", "dw", None, None, None)
    called.assert_called_once_with(d_y.contiguous(), "w", d_r.contiguous(), "X", 5.0)


def test_operators_without_a_backward_say_so() -> None:
    end = gradients(["scale", "other_backward"], [_function("scale", "x", "y"), _function("other_backward")])
    assert end.split() == ['no_gradient("scale")', 'no_gradient("other_backward")']


@pytest.mark.parametrize(
    ("given", "made", "message"),
    [
        ("dZ", "dx", "'dZ' of f_backward is neither a tensor or scalar of f nor the gradient of an output"),
        ("dy", "dz", "'dz' of f_backward is not the gradient of an input of f"),
        ("dy", "ds", "'ds' of f_backward is not the gradient of an input of f"),
    ],
)
def test_names_that_do_not_fit_are_refused(given: str, made: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        gradients(["f", "f_backward"], [_function("f", "x", "y"), _function("f_backward", given, made)])


def test_a_name_with_two_meanings_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="'dy' would have two meanings"):
        gradients(["f", "f_backward"], [_function("f", "dy", "y"), _function("f_backward", "dy", "ddy")])


def _function(name: str, given: str = "x", made: str = "y") -> str:
    return f"def {name}({given}: torch.Tensor, s: float) -> torch.Tensor:\n    return {made}\n"

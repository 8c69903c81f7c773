"""Values of small specs over one input, for tests of the language."""

from __future__ import annotations

from typing import Any

import numpy as np

from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_text

X = np.random.default_rng(1).standard_normal((5, 7)).astype(np.float32).astype(np.float64)
HEAD = "dim M = 5, N = 7\ninput X: f32[M, N]\n"


def value(expr: str, extra: str = "", dtype: str = "f32", **inputs: Any) -> Any:
    """``O[i: 3] = expr`` evaluated; returns the first element where it does not depend on i."""
    out = run_spec(load_text(f"{HEAD}{extra}\noutput O: {dtype}[3]\nO[i] = {expr}\n"), {"X": X, **inputs})["O"]
    return out[0].item() if (out == out[0]).all() or np.isnan(out).all() else out


def rows(expr: str, extra: str = "", dtype: str = "f32", **inputs: Any) -> Any:
    """``O[i] = expr`` for the rows of X."""
    text = f"{HEAD}{extra}\noutput O: {dtype}[M]\nO[i] = {expr}\n"
    return run_spec(load_text(text), {"X": X, **inputs})["O"]

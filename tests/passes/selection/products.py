"""A product at runtime sizes, whose variants several files test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nautilus.driver import Request, Result
from nautilus.passes.selection.with_variants import _Candidates

Compile = Callable[[Request], Result]

PRODUCT = """
dim M = runtime <= 16384, N = 4096, K = 4096
input A: f16[M, K]
input B: f16[K, N]
output C: f16[M, N]
C[i, j] = sum[k](A[i, k] * B[k, j])
"""


def request(text: str, **more: Any) -> Request:
    return Request(Path("given.naut"), "sm_90a", text=text.lstrip(), variants=4, **more)


def compiled_once(compile_one: Compile) -> Compile:
    """``compile_one`` with the result, or the refusal, that it had for an equal request before."""
    return _Candidates(compile_one).compile

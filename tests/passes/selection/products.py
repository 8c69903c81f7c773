"""A product at runtime sizes, whose variants several files test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nautilus.driver import Request

PRODUCT = """
dim M = runtime <= 16384, N = 4096, K = 4096
input A: f16[M, K]
input B: f16[K, N]
output C: f16[M, N]
C[i, j] = sum[k](A[i, k] * B[k, j])
"""


def request(text: str, **more: Any) -> Request:
    return Request(Path("given.naut"), "sm_90a", text=text.lstrip(), variants=4, **more)

"""Sizes near the limits: offsets beyond 32 bits, and more blocks than a launch may have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.driver import Request, compile_file

#: the factor of a stride, with a cast to 64 bits before it if it has one
FACTOR = r"(\(long long\))?(?:\((?:[^()]|\([^()]*\))*\)|\w+) \* {stride}\b"


def cuda(text: str) -> str:
    return compile_file(Request(Path("large.naut"), "sm_80", text=text)).cuda


@pytest.mark.parametrize(
    ("stride", "text"),
    [
        (400000000, "input X: f16[64, N]\noutput Y: f32[N]\nY[j] = sum[i](X[i, j])\n"),
        (100000000, "input A: f16[64, 64]\ninput B: f16[64, N]\noutput Y: f16[64, N]\n"
                    "Y[i, j] = sum[k](A[i, k] * B[k, j])\n"),
    ],
)  # fmt: skip
def test_what_a_register_adds_to_an_address_has_64_bits_where_it_needs_them(stride: int, text: str) -> None:
    body = cuda(f"dim N = {stride}\n{text}")
    casts = re.findall(FACTOR.format(stride=stride), body[body.index("__global__") :])
    assert casts and all(casts)


def test_small_offsets_have_32_bits() -> None:
    assert "long long)" not in cuda("dim N = 4096\ninput X: f16[64, N]\noutput Y: f32[N]\nY[j] = sum[i](X[i, j])\n")


def test_more_blocks_than_a_launch_has_are_refused_by_number() -> None:
    sizes = "dim Z = 1100000000, M = 300, N = 2, K = 2\n"
    tensors = "input A: f16[Z, M, K]\ninput B: f16[Z, K, N]\noutput C: f16[Z, M, N]\n"
    with pytest.raises(ScheduleError, match=r"\d+ blocks; a launch has at most 2147483647"):
        cuda(sizes + tensors + "C[z, i, j] = sum[k](A[z, i, k] * B[z, k, j])\n")

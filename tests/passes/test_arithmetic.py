"""The header says what the matrix units multiply and add."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.driver import Request, compile_file

PRODUCT = """
dim M = 256, N = 256, K = 256
input A: {0}[M, K], B: {1}[N, K]
output C: f32[M, N]
C[i, j] = sum[k]({2} * B[j, k])
"""
SHORT = ", of which each {} terms are a short sum"
CASES = [
    ("f8e4m3", "f8e5m2", "A[i, k]", "sm_90a", "fast", "MMAs of f8e4m3 and f8e5m2 with sums in f32" + SHORT.format(128)),
    ("f8e4m3", "f8e4m3", "A[i, k]", "sm_89", "fast", "MMAs of f8e4m3 with sums in f32" + SHORT.format(64)),
    ("f8e4m3", "f8e4m3", "A[i, k]", "sm_90a", "strict", "MMAs of f16 with sums in f32; computed values rounded to f16"),
    (
        "f16",
        "f16",
        "exp(A[i, k])",
        "sm_80",
        "fast",
        "MMAs of f16 with sums in f32; computed values rounded to f16 before",
    ),
    ("f32", "f32", "A[i, k]", "sm_80", "fast", "MMAs of f32 in 2 parts of tf32 with sums in f32"),
    ("i8", "u8", "A[i, k]", "sm_90a", "fast", "MMAs of i8 and u8 with sums in i32"),
]


@pytest.mark.parametrize(("a", "b", "factor", "arch", "precision", "said"), CASES)
def test_a_kernel_says_its_arithmetic(
    a: str, b: str, factor: str, arch: str, precision: str, said: str, tmp_path: Path
) -> None:
    text = PRODUCT.format(a, b, factor)
    cuda = compile_file(Request(tmp_path / "c.naut", arch, text=text, precision=precision)).cuda
    assert said in " ".join(cuda.replace("\n//", " ").split())


def test_a_kernel_without_mmas_says_nothing(tmp_path: Path) -> None:
    text = "dim N = 256\ninput A: f32[N]\noutput C: f32\nC = sum[k](A[k])\n"
    assert "MMAs" not in compile_file(Request(tmp_path / "c.naut", "sm_90a", text=text)).cuda

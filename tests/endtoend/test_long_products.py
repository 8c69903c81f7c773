"""A product of thousands of factors, from a few nested squares, compiles."""

from __future__ import annotations

from pathlib import Path

from nautilus.driver import Request, compile_file

SPEC = """
dim M = 4, N = 8
input X: f16[M, N]
output Y: f32[M]
def sq(x) = x * x
Y[i] = sum[j](sq(sq(sq(sq(sq(sq(sq(sq(sq(sq(sq(sq(sq(X[i, j]))))))))))))))
"""


def test_nested_squares(tmp_path: Path) -> None:
    path = tmp_path / "squares.naut"
    path.write_text(SPEC)
    assert "__global__" in compile_file(Request(path, "sm_80")).cuda

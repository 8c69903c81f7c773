"""Values of thousands of factors, from a few nested squares, compile, also as operands of matrix products."""

from __future__ import annotations

from pathlib import Path

from nautilus.core.expr.nodes import Reduce
from nautilus.core.expr.products import product_factors
from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_text
from nautilus.ma_tile.text import format as ma_format

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
    assert "__global__" in compile_file(Request(path, "sm_80")).cuda_module.code


def test_a_product_of_many_factors_is_no_sum_of_two_for_the_interpreter() -> None:
    """It computes shared factors once; the list of all of them has thousands, each evaluated and compared."""
    (squares,) = load_text(SPEC).definitions
    (two,) = load_text(f"{SPEC.partition('Y[i]')[0]}Y[i] = sum[j](X[i, j] * X[i, j])\n").definitions
    assert isinstance(squares.expr, Reduce) and product_factors(squares.expr) is None
    assert isinstance(two.expr, Reduce) and len(product_factors(two.expr) or ()) == 2


DEPTH = 26
OPERAND = """
dim M = 64, N = 4096, K = 4096
input A: f16[M, K]
input B: u8[N, K]
output C: f16[M, N]
T0[n, k] = f32(B[n, k]) * 0.01
{maps}
W[n, k] = f16(T{depth}[n, k])
C[m, n] = sum[k](A[m, k] * W[n, k])
"""


def test_nested_squares_of_a_computed_operand() -> None:
    """A plan for warpgroups is tried, which compute the operand in pieces; each of its values has two readers."""
    maps = "\n".join(f"T{n + 1}[n, k] = T{n}[n, k] * (1 - T{n}[n, k])" for n in range(DEPTH))
    text = OPERAND.format(maps=maps, depth=DEPTH)
    made = compile_file(Request(Path("operand.naut"), "sm_90a", text=text, until="ma-tile"))
    assert "= mma " in ma_format(made.modules["ma-tile"])

"""Comments and names from the spec in printed kernels, and lines that are not too long."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nautilus.cuda.text.wrapping import WIDTH, wrapped
from nautilus.driver import Request, compile_file
from tests.shipped import ROOT

SOFTMAX = """
dim M = 64, N = 512
input X: f16[M, N]
output Y: f16[M, N]
E[i, j] = exp(X[i, j] - max[k](X[i, k]))
Y[i, j] = (E[i, j]  # a comment \N{GREEK SMALL LETTER ALPHA}
    / sum[k](E[i, k]))
"""


def cuda(text: str, arch: str = "sm_80") -> str:
    return compile_file(Request(Path("x.naut"), arch, text=text)).cuda_module.code


def test_each_statement_is_a_comment_where_its_operations_begin() -> None:
    text = cuda(SOFTMAX)
    assert text.isascii()
    first = text.index("// E[i, j] = exp(X[i, j] - max[k](X[i, k]))")
    assert first < text.index("// Y[i, j] = (E[i, j] / sum[k](E[i, k]))")


LONG_SHORT = """
dim B = 2, T = 8, H = 32
input X: f32[B, T, H]
output Y: f32[B, T, H]
recur {
    kept[b, t, i] = sigmoid(X[b, t, i]) * c[b, t - 1, i] if t > 0 else 0
    c[b, t, i] = tanh(X[b, t, i]) + kept[b, t, i]
}
Y[b, t, i] = c[b, t, i]
"""
BYTES = """
dim M = 16, N = 128, K = 256, G = 64
input X: f16[M, K]
input Q: u4[N, K]
input s: f16[N, K // G]
output Y: f16[M, N]
Y[i, j] = sum[k](X[i, k] * ((f32(Q[j, k]) - 8) * s[j, k // G]))
"""


def test_statements_of_one_run_of_operations_have_comments_of_their_own() -> None:
    text = cuda(LONG_SHORT)
    first, second = text.index("// kept[b, t, i] = sigmoid"), text.index("// c[b, t, i] = tanh")
    assert first < text.index("const float kept_") < second < text.index("const float c_")


def test_unpacked_values_have_names() -> None:
    assert "Y_unpacked[r] = " in cuda(BYTES)


def test_values_are_named_after_statements_and_operations() -> None:
    kernel = cuda(SOFTMAX).partition("__global__")[2]
    assert re.search(r"\bY_exp2\w*\[r\] = exp2_approx\(", kernel)
    assert not re.search(r"\bv\d+\b", kernel)


def test_places_in_shared_memory_have_names() -> None:
    text = compile_file(Request(ROOT / "specs/matmul/f16.naut", "sm_90a")).cuda_module.code
    assert re.search(r"static constexpr int s_a_tile_at = \d+, s_a_tile_bytes = \d+;  // f16\[i: 64, k: 64\]", text)
    assert not re.search(r"(shared|smem) \+ \d", text)
    assert max(map(len, text.splitlines())) <= WIDTH


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_long_line_is_broken_where_few_parentheses_are_open(quote: str) -> None:
    inner = ", ".join(f"f({n}, {n + 1})" for n in range(40))
    line = f"    call({quote}{inner}{quote});"
    broken = wrapped(line)
    assert max(map(len, broken.splitlines())) <= WIDTH and len(broken.splitlines()) > 1
    joined = re.sub(r'"\n\s*"' if quote else r"\n\s*", "" if quote else " ", broken)
    assert joined == line
    assert not re.search(r"f\(\d+,\s*\"?\n", broken)


def test_macros_and_short_lines_stay() -> None:
    for line in ("// x", "    int x = 0;", "#define " + "x, " * 100):
        assert wrapped(line) == line

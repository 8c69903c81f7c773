"""``multiply-conditions``: which reads of tensors are inside at all points, and how many terms are counted exactly."""

from __future__ import annotations

import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.matrices.multiply_conditions import _is_inside, _is_large
from nautilus.scalar.rewriting import find_defs


@pytest.mark.parametrize(
    ("read", "inside"),
    [
        ("X[i]", True),
        ("X[i + 1]", False),
        ("X[i - 1]", False),
        ("X[at[i]]", False),
        ("X[15 - i]", True),
    ],
)
def test_reads_that_are_inside_of_their_tensor(read: str, inside: bool) -> None:
    text = "dim N = 16\ninput X: f32[N], at: i32[N]\noutput Y: f32[N]\n"
    guard = "" if inside else " if i > 0 and i < N - 1 else 0.0"
    spec = load_text(f"{text}Y[i] = {read}{guard}\n")
    program = lower(spec)
    d = find_defs(program)["Y"]
    (ld,) = (x for x in d.reads() if x.buffer == "X")
    assert _is_inside(ld, d, program) == inside


@pytest.mark.parametrize(
    ("result", "terms", "large"),
    [
        ("C: f32[M, M]\nC[i, j] = sum[k: 4096, l: 4095 | A[i, k] and B[l, j]](1.0)", "2^24 - 2^12", True),
        ("C: f32[M, M]\nC[i, j] = sum[k: 4096, l: 4096 | A[i, k] and B[l, j]](1.0)", "2^24", False),
        ("C: i32[M, M]\nC[i, j] = sum[k: 32767, l: 65536 | A[i, k] and B[l, j]](1)", "2^31 - 2^16", True),
        ("C: i32[M, M]\nC[i, j] = sum[k: 32768, l: 65536 | A[i, k] and B[l, j]](1)", "2^31", False),
        ("C: bool[M, M]\nC[i, j] = any[k: 32767, l: 65536](A[i, k] and B[l, j])", "2^31 - 2^16", True),
        ("C: bool[M, M]\nC[i, j] = any[k: 32768, l: 65536](A[i, k] and B[l, j])", "2^31", False),
    ],
)
def test_terms_that_are_counted_exactly(result: str, terms: str, large: bool) -> None:
    text = f"dim M = 32, K = 65536\ninput A: bool[M, K], B: bool[K, M]\noutput {result}\n"
    assert _is_large(find_defs(lower(load_text(text)))["C"]) is large, terms

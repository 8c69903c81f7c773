"""``multiply-conditions``: which reads of tensors are inside at all points."""

from __future__ import annotations

import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.matrices.multiply_conditions import _is_inside
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

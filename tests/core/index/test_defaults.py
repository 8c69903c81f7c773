"""The defaults of scalars, as estimates of costs see them."""

from __future__ import annotations

import pytest

from nautilus.core.expr.nodes import Param, walk
from nautilus.core.index.sizes import NOMINAL, nominal_size
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.ir import statements
from nautilus.scalar.lowering import lower
from nautilus.scalar.text import format_program, parse_program

WINDOW = """dim N = 64
input X: f32[N]
scalar w: i32{}
output Y: f32
Y = sum[j | j < w](X[j])
"""


@pytest.mark.parametrize(("default", "expected"), [("", NOMINAL), (" = 12", 12)])
def test_costs_are_estimated_with_the_default_of_a_scalar(default: str, expected: int) -> None:
    program = lower(load_text(WINDOW.format(default)))
    for p in (program, parse_program(format_program(program))):
        guards = [s.guard for _, s in statements(p.kernels[0].body) if s.guard is not None]
        found = {nominal_size(n) for e in guards for n in walk(e) if isinstance(n, Param)}
        assert found == {expected}

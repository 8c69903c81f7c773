"""A dimension of which all positions have two digits becomes one dimension for each of them."""

from __future__ import annotations

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Load, Var
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.lowering import lower
from nautilus.scalar.rewriting import find_defs
from nautilus.scalar.rewriting.digits import last_digit, viewed

SPLIT = "dim A = 3, B = 4\ninput X: f32[A * B], Z: f32[A]\noutput Y: f32[A, B]\nY[a, b] = X[a * B + b] + Z[a]\n"


def test_loads_of_one_tensor_have_both_digits() -> None:
    program = viewed(lower(load_text(SPLIT)), 4)
    shapes = {b.name: (b.shape, b.view_of) for b in program.buffers}
    assert shapes["X"] == ((3, 4), (12,)) and shapes["Z"] == ((3,), None)
    d = find_defs(program)["Y"]
    a, b = d.axes
    assert set(d.reads()) >= {
        Load("X", (Var(a.name), Var(b.name)), d.value.dtype),
        Load("Z", (Var(a.name),), d.value.dtype),
    }


def test_a_product_of_two_axes_has_no_digit() -> None:
    d = find_defs(lower(load_text(SPLIT)))["Y"]
    a, b = (Var(x.name) for x in d.axes)
    assert last_digit(d, calc("add", calc("mul", a, 4), b)) == 4
    assert last_digit(d, calc("mul", a, b)) is None

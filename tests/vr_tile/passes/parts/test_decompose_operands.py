"""``decompose-operands``: what a product in parts computes, and what it must not be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.core.errors import VerifyError
from nautilus.vr_tile import text
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.passes.parts.decompose_operands import DecomposeOperands
from nautilus.vr_tile.verify import verify
from tests.ir_files import cases_in, program_of

PRODUCT = program_of(cases_in(Path(__file__).parent / "decompose_operands.vr")["a product without a loop"])


def test_a_product_in_parts_is_as_accurate_as_one_in_f32_and_not_equal_to_it() -> None:
    given = text.parse(PRODUCT, "m")
    rng = np.random.default_rng(0)
    data = {
        n: rng.standard_normal(s).astype(np.float32).astype(np.float64) for n, s in (("A", (16, 64)), ("B", (64, 8)))
    }
    exact = data["A"] @ data["B"]
    plain, made = (run_module(m, data, mode="typed")["Y"] for m in (given, DecomposeOperands().apply(given)))
    assert not np.array_equal(plain, made)
    assert np.linalg.norm(made - exact) < 5e-7 * np.linalg.norm(exact)


def test_inf_and_nan_are_where_they_are_without_parts() -> None:
    given = text.parse(PRODUCT, "m")
    a, b = np.ones((16, 64)), np.ones((64, 8))
    a[2, 3], a[4, 5], b[6, 7], b[3, 0] = np.inf, np.nan, -np.inf, 0.0
    a[8, 9] = float(np.finfo(np.float32).max)
    b[9] = 2.0**-60
    data = {"A": a, "B": b}
    plain, made = (run_module(m, data, mode="typed")["Y"] for m in (given, DecomposeOperands().apply(given)))
    np.testing.assert_array_equal(plain, made)
    assert np.isnan(made[2, 0]) and made[2, 1] == np.inf and np.isfinite(made[8, 1])


@pytest.mark.parametrize(("edit", "to"), [("f32", "f16"), ("parts 2", "parts 4")])
def test_other_operands_and_numbers_of_parts_are_refused(edit: str, to: str) -> None:
    made = PRODUCT.replace("over k :", "over k parts 2 :")
    verify(text.parse(made, "m"))
    lines = [x.replace(edit, to) if edit != "f32" or ("Y" not in x and "%y" not in x) else x for x in made.splitlines()]
    with pytest.raises(VerifyError, match="an operand of f32 has two or three parts"):
        verify(text.parse("\n".join(lines), "m"))

"""``fold-scale``: what it makes of a small module, and that the module computes what it did."""

import numpy as np
import pytest

from nautilus.vr_tile import text
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.passes.dce import Dce
from nautilus.vr_tile.passes.fold_scale import FoldScale
from tests.vr_tile.support import body_of, check_pass, elementwise, ops, row

FOLDS = {
    "two factors": (
        """%a = const 0.25 : f32
           %b = const 8.0 : f32
           %t = mul %x, %a : f32[i: 4, j: 8]
           %y = mul %b, %t : f32[i: 4, j: 8]""",
        ["const 2.0 : f32", "mul %x"],
    ),
    "difference": (
        """%a = const 0.25 : f32
           %b = const 8.0 : f32
           %s = mul %x, %a : f32[i: 4, j: 8]
           %t = sub %s, %r : f32[i: 4, j: 8]
           %y = mul %t, %b : f32[i: 4, j: 8]""",
        ["const -8.0 : f32", "mul %r", "const 2.0 : f32", "fma %x"],
    ),
    "turned difference": (
        """%b = const 8.0 : f32
           %t = sub %r, %x : f32[i: 4, j: 8]
           %y = mul %t, %b : f32[i: 4, j: 8]""",
        ["mul %r", "const -8.0 : f32", "fma %x"],
    ),
    "sum": (
        """%b = const 8.0 : f32
           %t = add %r, %x : f32[i: 4, j: 8]
           %y = mul %t, %b : f32[i: 4, j: 8]""",
        ["const 8.0 : f32", "mul %r", "fma %x"],
    ),
    "negation": (
        """%b = const 8.0 : f32
           %t = neg %x : f32[i: 4, j: 8]
           %y = mul %t, %b : f32[i: 4, j: 8]""",
        ["const -8.0 : f32", "mul %x"],
    ),
    "scaled difference": (
        """%a = const 0.25 : f32
           %s = mul %x, %a : f32[i: 4, j: 8]
           %y = sub %r, %s : f32[i: 4, j: 8]""",
        ["const -0.25 : f32", "fma %x"],
    ),
}


@pytest.mark.parametrize("name", FOLDS)
def test_fold_scale(name, filecheck):
    body, want = FOLDS[name]
    new = check_pass(elementwise(body), FoldScale(), Dce())
    filecheck(body_of(new), "\n".join(f"// CHECK: {w}" for w in want))
    assert not {"sub", "add", "neg"} & set(ops(new))


@pytest.mark.parametrize(("combiner", "factor", "becomes"), [
    ("max", 0.25, "max"), ("min", 0.25, "min"), ("max", -2.0, "min"), ("min", -2.0, "max"), ("sum", -2.0, "sum"),
])  # fmt: skip
def test_a_factor_leaves_a_reduction(combiner, factor, becomes):
    m = row(f"""
      %a = const {factor} : f32
      %s = mul %x, %a : f32[i: 4, j: 8]
      %y = reduce {combiner} %s over j : f32[i: 4]""")
    new = check_pass(m, FoldScale(), Dce())
    assert f"reduce {becomes} %x over j" in text.format(new)


def test_a_factor_leaves_a_masked_maximum():
    m = row("""
      %a = const 0.25 : f32
      %z = const -inf : f32
      %c = index j <= i : bool[i: 4, j: 8]
      %s = mul %x, %a : f32[i: 4, j: 8]
      %t = select %c, %s, %z : f32[i: 4, j: 8]
      %y = reduce max %t over j : f32[i: 4]""")
    for precision in ("fast", "strict"):  # exact, so strict has it too
        new = check_pass(m, FoldScale(precision), Dce(), tolerance=0)
        assert "select %c, %x, %z" in text.format(new)
    bits = [run_module(n, {"X": np.random.default_rng(1).standard_normal((4, 8)), "R": np.zeros(4)}, mode="typed")["S"]
            for n in (m, new)]  # fmt: skip
    np.testing.assert_array_equal(*bits)


def test_a_negative_factor_stays_in_a_masked_maximum():
    m = row("""
      %a = const -0.25 : f32
      %z = const -inf : f32
      %c = index j <= i : bool[i: 4, j: 8]
      %s = mul %x, %a : f32[i: 4, j: 8]
      %t = select %c, %s, %z : f32[i: 4, j: 8]
      %y = reduce max %t over j : f32[i: 4]""")
    assert check_pass(m, FoldScale()) == m


def test_fold_scale_is_exact_under_strict():
    m = elementwise(FOLDS["difference"][0])
    assert FoldScale(precision="strict").apply(m) == m


def test_a_sum_with_another_reader_stays():
    m = elementwise("""
      %b = const 8.0 : f32
      %t = add %r, %x : f32[i: 4, j: 8]
      %u = mul %t, %b : f32[i: 4, j: 8]
      %y = mul %u, %t : f32[i: 4, j: 8]""")
    assert check_pass(m, FoldScale(), Dce()) == m

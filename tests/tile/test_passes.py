"""Every pass: what it makes of a small module, and that the module computes what it did."""

import numpy as np
import pytest

from nautilus.tile import text
from nautilus.tile.interp import run_module
from nautilus.tile.passes.cse import Cse
from nautilus.tile.passes.dce import Dce
from nautilus.tile.passes.div_to_rcp import DivToRcp
from nautilus.tile.passes.exp_to_exp2 import ExpToExp2
from nautilus.tile.passes.fold_scale import FoldScale
from nautilus.tile.passes.hoist import Hoist
from nautilus.tile.passes.simplify_masks import SimplifyMasks
from nautilus.tile.verify import verify

from . import programs, samples
from .support import check_pass, lowered, ops

ALL = (
    SimplifyMasks(), Cse(), Hoist(), Cse(), ExpToExp2(), DivToRcp(), FoldScale(), Cse(), Hoist(), Cse(), Dce(),
)  # fmt: skip
BUFFERS = "input X: f32[4, 8]\ninput R: f32[4]\noutput O: f32[4, 8]\noutput S: f32[4]\nparam p: f32 = 0.5"


def module(body, grid="", buffers=BUFFERS):
    m = text.parse(f"module t {{\n{buffers}\nkernel k grid({grid}) axes(i: 4, j: 8) {{\n{body}\n}} }}")
    verify(m)
    return m


LOAD = """
  %x = load X[i, j] : f32[i: 4, j: 8]
  %r = load R[i] : f32[i: 4]
"""


def elementwise(body):
    """A module that stores ``%y``, made of ``%x`` (i, j) and ``%r`` (i)."""
    return module(f"{LOAD}{body}\n  store O[i, j], %y\n  store S[i], %r")


def row(body):
    """A module that stores ``%y`` over ``i``."""
    return module(f"{LOAD}{body}\n  store O[i, j], %x\n  store S[i], %y")


def body_of(m):
    return "\n".join(line for line in text.format(m).splitlines() if " = " in line or "store" in line)


# -- cse ------------------------------------------------------------------------------------------


def test_cse(filecheck):
    m = elementwise("""
      %a = load X[i, j] : f32[i: 4, j: 8]
      %u = mul %x, %r : f32[i: 4, j: 8]
      %v = mul %r, %a : f32[i: 4, j: 8]
      %w = sub %u, %r : f32[i: 4, j: 8]
      %z = sub %r, %v : f32[i: 4, j: 8]
      %y = add %w, %z : f32[i: 4, j: 8]""")
    filecheck(
        body_of(check_pass(m, Cse())),
        """
        // CHECK: %x = load X
        // CHECK-NEXT: %r = load R
        // CHECK-NEXT: %u = mul %x, %r
        // CHECK-NEXT: %w = sub %u, %r
        // CHECK-NEXT: %z = sub %r, %u
        // CHECK-NEXT: %y = add %w, %z
        """,
    )


def test_cse_keeps_signed_zeros_and_masks_apart():
    m = elementwise("""
      %p = const 0.0 : f32
      %n = const -0.0 : f32
      %a = load X[i, j] where j < 3 : f32[i: 4, j: 8]
      %b = add %a, %p : f32[i: 4, j: 8]
      %c = add %x, %n : f32[i: 4, j: 8]
      %y = add %b, %c : f32[i: 4, j: 8]""")
    assert check_pass(m, Cse()) == m


def test_cse_respects_scopes():
    m = row("""
      %y = for a in 0..2 carry(%c = %r) {
        %t = mul %r, %r : f32[i: 4]
        %n = add %c, %t : f32[i: 4]
        yield %n
      }
      %z = for a in 0..2 carry(%d = %r) {
        %u = mul %r, %r : f32[i: 4]
        %o = add %d, %u : f32[i: 4]
        yield %o
      }""")
    assert check_pass(m, Cse()) == m  # neither loop's product is in scope of the other
    assert ops(check_pass(m, Hoist(), Cse())).count("mul") == 1


# -- dce ------------------------------------------------------------------------------------------


def test_dce(filecheck):
    m = row("""
      %dead = load X[i, j] : f32[i: 4, j: 8]
      %deader = exp %dead : f32[i: 4, j: 8]
      %y, %gone = for a in 0..2 carry(%c = %r, %d = %r) {
        %n = add %c, %r : f32[i: 4]
        %m = mul %d, %n : f32[i: 4]
        yield %n, %m
      }
      %lost = for a in 0..2 carry(%e = %r) {
        %o = mul %e, %r : f32[i: 4]
        yield %o
      }""")
    filecheck(
        text.format(check_pass(m, Dce())),
        """
        // CHECK-NOT: dead
        // CHECK: %y = for a in 0..2 carry(%c = %r) {
        // CHECK-NEXT: %n = add
        // CHECK-NEXT: yield %n
        // CHECK-NEXT: }
        // CHECK-NEXT: store O
        """,
    )


def test_dce_keeps_values_read_by_masks():
    m = text.parse(samples.GATHER)
    assert Dce().apply(m) == m


# -- hoist ----------------------------------------------------------------------------------------


def test_hoist(filecheck):
    m = row("""
      %y = for a in 0..2 carry(%c = %r) {
        %t = load R[i] : f32[i: 4]
        %u = mul %t, %t : f32[i: 4]
        %v = load X[i, a] : f32[i: 4]
        %w = index i < a : bool[i: 4]
        %z = select %w, %u, %v : f32[i: 4]
        %n = add %c, %z : f32[i: 4]
        yield %n
      }""")
    filecheck(
        text.format(check_pass(m, Hoist())),
        """
        // CHECK: %t = load R
        // CHECK-NEXT: %u = mul %t, %t
        // CHECK-NEXT: %y = for
        // CHECK-NEXT: %v = load X
        // CHECK-NEXT: %w = index
        """,
    )


def test_hoist_keeps_a_chain_together():
    m = check_pass(lowered(programs.ATTENTION), Cse(), Hoist(), Cse(), Dce())
    lines = [line.strip() for line in text.format(m).splitlines()]
    first = next(i for i, line in enumerate(lines) if "chain c0" in line)
    end = lines.index("}", first)
    assert "chain c0" in lines[end + 1]
    assert sum("load Q" in line for line in lines) == 1


# -- simplify-masks ---------------------------------------------------------------------------------


def test_simplify_masks(filecheck):
    m = module(
        """
      %x = load X[g * 2 + i, j] where g * 2 + i < 4 and j < 8 : f32[i: 4, j: 8]
      %y = load X[i, j] where i < 4 and 0 <= j : f32[i: 4, j: 8]
      %c = index i + j >= 0 : bool[i: 4, j: 8]
      %z = select %c, %x, %y : f32[i: 4, j: 8]
      store O[g * 2 + i, j], %z where g * 2 + i < 4 and i < 9""",
        grid="g: 2",
    )
    new = check_pass(m, SimplifyMasks(), Dce())
    filecheck(
        body_of(new),
        """
        // CHECK: %x = load X[g * 2 + i, j] where g * 2 + i < 4 : f32
        // CHECK-NEXT: store O[g * 2 + i, j], %x where g * 2 + i < 4{{$}}
        """,
    )


def test_simplify_masks_uses_loop_bounds():
    m = row("""
      %y = for a in 0..8 carry(%c = %r) {
        %n = for b in a..8 carry(%d = %c) {
          %t = load X[i, b - a] where b >= a and b - a < 8 : f32[i: 4]
          %o = add %d, %t : f32[i: 4]
          yield %o
        }
        yield %n
      }""")
    assert "where" not in text.format(check_pass(m, SimplifyMasks()))


# -- exp-to-exp2 ------------------------------------------------------------------------------------


def test_exp_to_exp2(filecheck):
    m = elementwise("""
      %e = exp %x : f32[i: 4, j: 8]
      %a = abs %x : f32[i: 4, j: 8]
      %l = log %a : f32[i: 4, j: 8]
      %y = add %e, %l : f32[i: 4, j: 8]""")
    new = check_pass(m, ExpToExp2(), Dce())
    filecheck(
        body_of(new),
        """
        // CHECK: [[K:%[0-9]+]] = const 1.4426950408889634 : f32
        // CHECK: [[T:%[0-9]+]] = mul %x, [[K]]
        // CHECK: exp2 [[T]]
        // CHECK: log2 %a
        """,
    )
    assert ExpToExp2(precision="strict").apply(m) == m


# -- fold-scale --------------------------------------------------------------------------------------

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


# -- div-to-rcp --------------------------------------------------------------------------------------


def test_div_to_rcp(filecheck):
    m = elementwise("""
      %a = const 3.0 : f32
      %b = const 4.0 : f32
      %t = div %x, %r : f32[i: 4, j: 8]
      %u = div %t, %x : f32[i: 4, j: 8]
      %v = div %u, %a : f32[i: 4, j: 8]
      %y = div %v, %b : f32[i: 4, j: 8]""")
    filecheck(
        body_of(check_pass(m, DivToRcp(), Dce())),
        """
        // CHECK: [[R:%[0-9]+]] = rcp %r : f32[i: 4]
        // CHECK-NEXT: [[T:%[0-9]+]] = mul %x, [[R]]
        // CHECK-NEXT: %u = div [[T]], %x
        // CHECK-NEXT: const 0.3333333333333333 : f32
        // CHECK: const 0.25 : f32
        """,
    )
    assert ops(check_pass(m, DivToRcp("strict"), Dce())).count("div") == 3  # only the power of two is exact


# -- all together --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ATTENTION", "ROWWISE"])
def test_pipeline(name):
    m = check_pass(lowered(getattr(programs, name)), *ALL)
    again = m
    for p in ALL:
        again = p.apply(again)
    assert ops(again) == ops(m)


def test_one_fma_and_one_exponential_an_element():
    """The loop that no mask touches: scores, their raw maximum, fma, exp2, sums, products."""
    shown = text.format(check_pass(lowered(programs.ATTENTION), *ALL))
    loop = shown[shown.index("for j0 in 0..") : shown.index("for j0 in i0 * 2")]
    full = [line.split()[2] for line in loop.splitlines() if line.endswith("f32[i: 16, j: 8]")]
    assert full == ["dot", "fma", "exp2"]

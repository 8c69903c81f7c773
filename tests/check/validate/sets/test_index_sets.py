"""Passes keep every iteration at the declared sizes, and one iteration more or less is found."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from nautilus.check.validate.sets.index_sets import implied, validate
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Const, Load, Op, Var
from nautilus.core.types import DType
from nautilus.scalar.ir import Kind, Loop, Program, Update
from nautilus.scalar.text import parse_program
from tests.check.planted import mutated
from tests.check.validate.specs import SPECS
from tests.check.validate.test_passes import levels

pytest.importorskip("islpy")

LARGE = SPECS["running maximum"].replace("M = 33, N = 77", "M = 3333, N = 7777").replace("i + 40", "i")

CHAIN = """
program t {
  input X: f32[4096, 4096]
  output S: f32[4096]
  kernel S {
    local acc: f32[64]
    grid i0 in 0..64 {
      tile i in 0..64 {
        acc[i] = 0.0
      }
      seq j0 in %s {
        tile i in 0..64 {
          tile.red j in 0..64 {
            acc[i] sum= X[i0 * 64 + i, j0 * 64 + j] where j0 * 64 + j <= i0 * 64 + i
          }
        }
      }
      %s
      tile i in 0..64 {
        S[i0 * 64 + i] = acc[i]
      }
    }
  }
}
"""
FULL = """seq j0 in %s {
        tile i in 0..64 {
          tile.red j in 0..64 {
            acc[i] sum= X[i0 * 64 + i, j0 * 64 + j]
          }
        }
      }"""


SHIFTED = """
program t {
  input X: f32[40]
  output S: f32[31]
  kernel S {
    par g in 0..31 {
      S[g] = 0.0
      red c in 0..1 {
        S[g] sum= X[%s]
      }
    }
  }
}
"""


def program(first: str, second: str = "") -> Program:
    return parse_program(CHAIN % (first, FULL % second if second else ""), "t")


def test_every_pass_keeps_its_iterations() -> None:
    made = [x for x in levels(LARGE) if x.stage == "scalar"]
    found = {b.step: validate(a.module, b.module) for a, b in pairwise(made)}
    assert {step: v.text for step, v in found.items() if v.status == "refuted"} == {}
    assert {step for step, v in found.items() if v.status != "proved"} <= {
        "inline",
        "factor",
        "narrow",
        "fuse",
        "rolling-update",
        "split-k-update",  # what combines the parts reads another buffer
    }
    assert found["split"].points >= 4
    assert found["partition"].points >= 2


@pytest.mark.parametrize(("first", "second", "status"), [
    ("i0..i0 + 1", "0..i0", "proved"),
    ("i0..64", "0..i0", "proved"),
    ("i0..i0 + 1", "0..i0 + 1", "refuted"),  # the diagonal twice
    ("i0..i0 + 1", "1..i0", "refuted"),  # the first block is left out
    ("i0 + 1..i0 + 2", "0..i0", "refuted"),  # the diagonal is left out
    ("i0..i0", "0..i0 - 1", "refuted"),
])  # fmt: skip
def test_a_partition_covers_every_iteration_once(first: str, second: str, status: str) -> None:
    assert validate(program("0..64"), program(first, second)).status == status


SELECTED = """
program t {
  input X: f32[64, 640]
  output S: f32[64]
  kernel S {
    local acc: f32[1]
    grid i in 0..64 {
      acc[0] = 0.0
      seq v in %s {
        tile.red j in 0..10 {
          acc[0] sum= X[i, %s * 10 + j] where %s * 10 + j <= i * 10 and (%s * 10 + j < 10 or %s * 10 + j >= i * 10 - 50)
        }
      }
      S[i] = acc[0]
    }
  }
}
"""


@pytest.mark.parametrize(("loop", "block", "status"), [
    ("max(i - 5, 1) - 1..i + 1", "select(v < max(i - 5, 1), v - (max(i - 5, 1) - 1), v)", "proved"),
    ("max(i - 5, 1) - 1..i + 1", "select(v < max(i - 5, 1), v - max(i - 5, 1) + 2, v)", "refuted"),  # a block twice
    ("max(i - 4, 1) - 1..i + 1", "select(v < max(i - 4, 1), v - (max(i - 4, 1) - 1), v)", "refuted"),  # one left out
])  # fmt: skip
def test_one_loop_over_two_ranges_visits_each_block_once(loop: str, block: str, status: str) -> None:
    before = parse_program(SELECTED % ("0..i + 1", *["v"] * 4), "t")
    assert validate(before, parse_program(SELECTED % (loop, *[block] * 4), "t")).status == status


EXCLUSIVE = """
program t {
  input X: i32[4096]
  output S: i32[4097]
  kernel S {
    par e in 0..4097 {
      S[e] = 0
      red u in %s {
        S[e] sum= X[%s] where %s
      }
    }
  }
}
"""


@pytest.mark.parametrize(("last", "status"), [("u <= e", "proved"), ("u <= e + 1", "refuted"), ("u < e", "refuted")])
def test_a_sum_of_earlier_terms_may_be_that_of_shifted_ones(last: str, status: str) -> None:
    """A number of the mask, 4096, has the place of ``e``; what is implied by the shift is likelier."""
    before = parse_program(EXCLUSIVE % ("0..4096", "u", "u < e"), "t")
    after = EXCLUSIVE % ("0..4097", "u + -1", f"0 <= u + -1 and u + -1 < 4096 and {last}")
    assert validate(before, parse_program(after, "t")).status == status


def test_work_that_is_done_twice_is_a_fault_of_sums_only() -> None:
    before, after = (program(*x) for x in (("0..64",), ("i0..i0 + 1", "0..i0 + 1")))
    assert validate(before, after).status == "refuted"
    larger = [mutated(p, lambda n: replace(n, op="max") if isinstance(n, Update) else None) for p in (before, after)]
    assert validate(*larger).status == "not decided"


def test_sets_that_are_not_exact_decide_nothing() -> None:
    """An iteration that a condition on a tensor, or a select, may exclude is not certainly left out."""

    def with_mask(n: Any) -> Any:
        if not isinstance(n, Update):
            return None
        mask = Op("gt", (n.value, Const(0.0, DType.F32)), DType.BOOL)
        return replace(n, guard=mask if n.guard is None else Op("and", (n.guard, mask), DType.BOOL))

    def with_select(n: Any) -> Any:
        if not isinstance(n, Update):
            return None
        chosen = Op("gt", (n.value, Const(0.0, DType.F32)), DType.BOOL)
        return replace(n, value=Op("select", (chosen, n.value, Const(0.0, DType.F32)), DType.F32))

    for rule in (with_mask, with_select):
        before, after = (mutated(program(*x), rule) for x in (("0..64",), ("i0..i0 + 1", "1..i0")))
        assert validate(before, after).status == "not decided"


def test_a_tensor_of_which_another_one_takes_a_part_is_not_compared() -> None:
    """Two products of half the columns, as ``separate-columns`` makes them, have all iterations together."""
    sums = "red k in 0..8 {\n        %s[f] sum= X[f%s, k]\n      }"
    loops = f"\n  kernel %s {{\n    par f in 0..%d {{\n      {sums}\n    }}\n  }}"
    temp = "  temp %s: f32[%d]\n"

    def of(*kernels: tuple[str, int, str]) -> Program:
        buffers = "".join(temp % (name, extent) for name, extent, _ in kernels)
        body = "".join(loops % (name, extent, name, offset) for name, extent, offset in kernels)
        return parse_program(f"program t {{\n  input X: f32[32, 8]\n{buffers}{body}\n}}\n", "t")

    assert validate(of(("Y", 32, "")), of(("Y", 16, ""), ("Z", 16, " + 16"))).status == "not decided"
    assert validate(of(("Y", 32, "")), of(("Y", 32, ""))).status == "proved"


def test_an_index_with_its_terms_in_another_order_is_the_same_index() -> None:
    def of(index: str) -> Program:
        return parse_program(SHIFTED % index, "t")

    assert validate(of("g + c"), of("c + g")).status == "proved"
    assert validate(of("g + c"), of("c + g + 1")).status != "proved"


def test_an_equation_with_its_sides_in_another_order_is_the_same_equation() -> None:
    """Read from left to right, each variable would have become the other one, and ``u < t`` would be another domain."""

    def program(equation: str) -> Program:
        return parse_program(
            "program p {\n  input e: i32[9]\n  output n: i32[9]\n  kernel n {\n    par t in 0..9 {\n"
            f"      n[t] = 0\n"
            f"      red u in 0..9 {{\n        n[t] sum= cast<i32>({equation}) where u < t\n      }}\n"
            "    }\n  }\n}\n",
            "t",
        )

    assert validate(program("e[u] == e[t]"), program("e[t] == e[u]")).status == "proved"


def test_a_bound_that_stays_is_that_of_the_same_variable() -> None:
    """``j < 17`` has the form of ``i0 * 8 + i < 17`` too, and locals of another shape say nothing about ``j``."""
    text = """
program p {
  input X: f32[17]
  output Y: f32[17]
  kernel Y {
    local S: f32[%s]
    local t: f32[%s]
    %s
  }
}
"""
    before = """grid i0 in 0..3, i in 0..8 {
      par j in 0..32 {
        S[j] = X[j] where i0 * 8 + i < 17 and j < 17
      }
      t[] = 0.0
      red j in 0..32 {
        t[] sum= exp(S[j]) where i0 * 8 + i < 17 and j < 17
      }
      Y[i0 * 8 + i] = t[] where i0 * 8 + i < 17
    }"""
    after = """grid i0 in 0..3 {
      tile i in 0..8, j in 0..32 {
        S[i, j] = X[j] where i0 * 8 + i < 17 and j < 17
      }
      tile i in 0..8 {
        t[i] = 0.0
      }
      tile i in 0..8 {
        tile.red j in 0..32 {
          t[i] sum= exp(S[i, j]) where i0 * 8 + i < 17 and j < 17
        }
      }
      tile i in 0..8 {
        Y[i0 * 8 + i] = t[i] where i0 * 8 + i < 17
      }
    }"""
    old, new = parse_program(text % ("32", "", before), "t"), parse_program(text % ("8, 32", "8", after), "t")
    assert validate(old, new).status == "proved"


def test_one_end_of_a_window_has_the_form_of_the_other_one() -> None:
    """Of ``u <= t`` and ``t <= u + 4``, the second one stands first."""

    def program(condition: str) -> Program:
        return parse_program(
            "program p {\n  output n: f32[20]\n  kernel n {\n    par t in 0..20 {\n      n[t] = 0.0\n"
            f"      red u in 0..20 {{\n        n[t] sum= 1.0 where {condition}\n      }}\n    }}\n  }}\n}}\n",
            "t",
        )

    before = program("t - 5 < u and u <= t")
    assert validate(before, program("t <= u + 4 and u <= t")).status == "proved"
    assert validate(before, program("t <= u + 5 and u <= t")).status == "refuted"


def test_a_value_of_another_buffer_is_another_statement() -> None:
    before = program("0..64")
    after = mutated(before, lambda n: replace(n, buffer="Y") if isinstance(n, Load) else None)
    assert validate(before, after).status == "not decided"


def shorter(n: Any) -> Any:
    """A reduction loop without its last iteration."""
    if isinstance(n, Loop) and n.kind.is_reduction and isinstance(n.hi, Const):
        return Loop(n.var, n.lo, Const(int(n.hi.value) - 1, n.hi.dtype), n.kind, n.body)
    return None


def strict(n: Any) -> Any:
    """A guard that leaves out the diagonal."""
    return Op("lt", n.args, n.dtype) if isinstance(n, Op) and n.op == "le" else None


def unguarded(n: Any) -> Any:
    return Update(n.buffer, n.op, n.index, n.value) if isinstance(n, Update) and n.guard is not None else None


COUNTED = """
program t {
  input X: f32[8]
  output S: f32[1]
  output N: f32[1]
  kernel S {
    S[0] = 0.0
    N[0] = 0.0
    seq v in %s {
      S[0] sum= X[%s]
      N[0] sum= 1.0
    }
  }
}
"""


@pytest.mark.parametrize(("loop", "index", "status"), [
    ("4..12", "v - 4", "proved"),
    ("-8..0", "v + 8", "proved"),
    ("4..12", "v - 3", "refuted"),  # beyond the last one
    ("4..12", "7 - (v - 4)", "proved"),
])  # fmt: skip
def test_what_one_update_of_a_loop_says_about_its_variable_holds_for_the_others(
    loop: str, index: str, status: str
) -> None:
    before = parse_program(COUNTED % ("0..8", "v"), "t")
    found = validate(before, parse_program(COUNTED % (loop, index), "t"))
    assert (found.status, found.points if status == "proved" else 2) == (status, 2), found


@pytest.mark.parametrize("rule", [shorter, strict, unguarded])
@pytest.mark.parametrize("step", ["split", "reorder", "simplify"])
def test_a_lost_or_a_new_iteration_is_not_proved(step: str, rule: Any) -> None:
    made = [x for x in levels(LARGE) if x.stage == "scalar"]
    before, after = next((a, b) for a, b in pairwise(made) if b.step == step)
    assert validate(before.module, mutated(after.module, rule)).status != "proved"


def test_what_isl_does_not_prove_is_not_implied() -> None:
    """A product of variables is no affine expression, and its condition may hold nowhere."""
    j, loops = Var("j"), (Loop("j", integer(0), integer(64), Kind.SEQ, ()),)
    assert implied(loops, (), calc("lt", j, 64)) and not implied(loops, (), calc("lt", j, 63))
    assert implied(loops, (calc("lt", j, 9),), calc("le", j, 8))
    assert not implied(loops, (), calc("ge", calc("mul", j, j), 0))

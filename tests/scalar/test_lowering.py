"""Lowering: the program computes the results of the spec, in the form that passes require."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_text
from nautilus.planner.kernels import default_schedule
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program, statements
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.fuse import Fuse
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.split import Split
from nautilus.scalar.text import format_program, parse_program
from nautilus.scalar.verify import verify
from tests.scalar.programs.specs import LANGUAGE, SHIPPED, agree, language, small


def sound(p: Program) -> None:
    verify(p)
    assert parse_program(format_program(p), p.name) == p
    read_defs(p)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_specs(path: Path) -> None:
    spec = small(path)
    p = lower(spec)
    sound(p)
    agree(spec, p)


@pytest.mark.parametrize("name", LANGUAGE)
def test_language(name: str) -> None:
    spec = language(name)
    p = lower(spec)
    sound(p)
    agree(spec, p)


def kernels(p: Program) -> list[str]:
    return [k.name for k in p.kernels]


def test_reductions_are_hoisted_innermost_first_and_shared() -> None:
    p = lower(small(next(s for s in SHIPPED if s.stem == "causal_prefill")))
    assert kernels(p) == ["S_sum", "S", "P_max", "P_sum", "P", "O_acc", "O"]
    text = format_program(p)
    assert "P_max[b, h, i] max= S[b, h, i, j_1] where j_1 - i <= 4" in text
    assert "P_sum[b, h, i] sum= exp(S[b, h, i, j_2] - P_max[b, h, i]) where j_2 - i <= 4" in text


def test_sharing_is_independent_of_names_and_order() -> None:
    assert kernels(lower(language("shared across definitions, other names"))) == ["Y_max", "Y_sum", "Y", "Z"]
    p = lower(language("transposed sharing"))
    assert kernels(p) == ["Y_sum", "Y", "Z"]
    assert "Z[b, a] = Y_sum[a, b] + 1.0" in format_program(p)


def test_a_reduction_keeps_its_own_name_where_the_types_allow() -> None:
    assert kernels(lower(small(next(s for s in SHIPPED if s.stem == "f32")))) == ["C"]
    assert kernels(lower(small(next(s for s in SHIPPED if s.stem == "i8_i32")))) == ["C"]
    assert kernels(lower(small(next(s for s in SHIPPED if s.stem == "f16")))) == ["C_acc", "C"]


def test_conditions_go_along_only_where_a_read_could_be_out_of_range() -> None:
    text = format_program(lower(language("inner reduction in a guarded branch")))
    assert "Y_max[i] max= X[i + 2, k] where i + 2 < 9" in text
    text = format_program(lower(language("convolution")))
    assert "Y[i] sum= W[k] * X[i + k - 1] where i + k - 1 >= 0 and i + k - 1 < 20" in text
    text = format_program(lower(language("guard over a variable that the inner reduction lacks")))
    assert "Y_sum[i] sum= X[lim[i], k] where lim[i] >= 0 and lim[i] < 6" in text
    text = format_program(lower(language("guard over an outer variable only")))
    assert "Y_sum[i, j] sum= X[i + 2, k] where j == i and j < 4" in text
    assert "where" not in format_program(lower(small(next(s for s in SHIPPED if s.stem == "softmax"))))


STRUCTURAL = """
dim M = 6, N = 8
input X: f32[M, N]
input Y: f32[N]
input keep: bool[N]
output L: f16[M, N]
output O: f32[M]
W[i, j] = X[i, j] if j <= i else 0
T: f16[i, j] = W[i, j] / 2
S[i, j] = X[i, j] if j <= i else -inf
L[i, j] = T[i, j]
C[i, j] = (0 if keep[j] else W[i, j]) if i > 3 else (X[i, j] if j < 2 else 0)
O[i] = sum[j](TERM)
"""
GUARDS = {
    "W[i, j] * Y[j]": "j <= i",
    "f32(f16(W[i, j])) * Y[j]": "j <= i",
    "Y[j] * -T[i, j]": "j <= i",
    "L[i, j] * Y[j] / 3": "j <= i",
    "(W[i, j] if keep[j] else 0) * Y[j]": "keep[j] and j <= i",
    "C[i, j] * Y[j]": "select(i > 3, not keep[j] and j <= i, j < 2)",
    "X[i, j] + (W[i, j] * Y[j] - T[i, j] * Y[j])": "",
    "f32(keep[j] and j <= i) * Y[j]": "keep[j] and j <= i",
    "exp2(S[i, j] - max[k](S[i, k])) * Y[j]": "j <= i",
    "exp(3 * (S[i, j] + Y[j]) - Y[j]) * Y[j]": "j <= i",
    "exp(S[i, j] * X[i, j]) * Y[j]": None,
    "W[i, j] + Y[j]": None,
    "W[i, j] * 0 + 0 * Y[j]": None,
}


def test_a_sum_that_a_condition_reads_is_computed_once() -> None:
    """Its reads may be out of range, so a branch alone would have a sum under the condition."""
    text = "dim N = 4, E = 6, D = 3\ninput X: f32[N, D], col: i32[E], ptr: i32[N + 1]\noutput Y: f32[N, D]\n"
    p = lower(load_text(text + "Y[n, d] = leaky_relu(sum[e: ptr[n] .. ptr[n + 1]](X[col[e], d]), 0.2)\n"))
    assert kernels(p) == ["Y_sum", "Y"]


@pytest.mark.parametrize("term", GUARDS)
def test_a_structural_zero_becomes_a_guard_of_the_sum_that_reads_it(term: str) -> None:
    spec = load_text(STRUCTURAL.replace("TERM", term))
    p = lower(spec)
    sound(p)
    update = next(line for line in format_program(p).splitlines() if "O[i] sum=" in line)
    assert update.partition(" where ")[2] == (GUARDS[term] or "")
    rng = np.random.default_rng(0)
    given = {"X": rng.standard_normal((6, 8)), "Y": rng.standard_normal(8), "keep": rng.random(8) < 0.5}
    given["Y"][6:] = np.nan, np.inf  # after every condition on j but the one on keep
    given["keep"][6:] = True
    for program in (p, Inline().apply(p)):
        got, want = run_program(program, given), run_spec(spec, given)
        for name, array in want.items():
            np.testing.assert_allclose(got[name], array, rtol=1e-3)
        assert np.isfinite(got["O"]).all() == (GUARDS[term] is not None)


def test_spans_survive() -> None:
    spec = small(next(s for s in SHIPPED if s.stem == "causal_prefill"))
    for k in lower(spec).kernels:
        for loops, s in statements(k.body):
            line = s.span.source.line(s.span.line)
            assert "=" in line and not line.startswith("#")
            assert all(loop.span.line > 0 for loop in loops)


def test_no_variable_has_the_name_of_an_argument_and_no_tile_counter_has_it() -> None:
    """``i`` and ``j`` are scalars, and so is ``b0``, which would count the tiles of ``b``."""
    spec = load_text(
        "dim M = 4096, N = 16\ninput X: f32[M, N]\nscalar i: f32 = 1.0, j: f32 = 2.0, b0: f32 = 3.0\n"
        "output O: f32[M], P: f32[N]\nO[i] = sum[j](X[i, j])\nP[b] = sum[c](X[c, b]) * i * j * b0\n"
    )
    program = lower(spec)
    verify(program)
    schedule = default_schedule(program)
    verify(Split(schedule).apply(Fuse(schedule).apply(program)))

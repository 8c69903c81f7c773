"""A part of a program as a program of its own: which of its tensors others give, need, or never see."""

from __future__ import annotations

from nautilus.core.buffers import Space
from nautilus.core.fallbacks import NO_FALLBACKS, Fallbacks
from nautilus.core.schedule import CopyPlan, KernelPlan, PackPlan, Schedule, SplitPlan
from nautilus.passes.recurrences import decide_between, derive_between
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.operands.rematerialise import Rematerialise
from nautilus.scalar.rewriting.recurrences import part_of, parts
from nautilus.scalar.text import parse_program

TEXT = """
program t {
  input X: f32[8]
  temp A: f32[8]
  temp B: f32[8]
  temp C: f32[8]
  output Y: f32[8]
  kernel A {
    grid i in 0..8 { A[i] = X[i] }
  }
  kernel B {
    grid i in 0..8 { B[i] = A[i] * 2.0 }
  }
  kernel C {
    grid i in 0..8 { C[i] = B[i] + 1.0 }
  }
  kernel Y {
    grid i in 0..8 { Y[i] = C[i] }
  }
}
"""


def test_tensors_of_others_are_inputs_and_what_they_read_is_an_output() -> None:
    whole = parse_program(TEXT)
    part = part_of(whole, whole.kernels[1:3])
    assert [k.name for k in part.kernels] == ["B", "C"]
    spaces = {b.name: b.space for b in part.buffers}
    assert spaces["X"] is spaces["A"] is spaces["Y"] is Space.INPUT
    assert spaces["B"] is Space.TEMP
    assert spaces["C"] is Space.OUTPUT


BETWEEN = """
program t {
  input X: f32[8]
  temp A: f32[8]
  temp h: f32[8]
  output Y: f32[8]
  kernel A {
    par i in 0..8 { A[i] = X[i] * 2.0 }
  }
  kernel h {
    seq i in 0..8 { h[i] = select(i > 0, h[i - 1], 0.0) + X[i] }
  }
  kernel Y {
    par i in 0..8 { Y[i] = A[i] + h[i] }
  }
}
"""


def test_a_kernel_is_in_the_part_of_its_first_reader() -> None:
    whole = parse_program(BETWEEN)
    assert [[k.name for k in p] for p in parts(whole)] == [[], ["h"], ["A", "Y"]]
    before = parse_program(BETWEEN.replace("0.0) + X[i]", "0.0) + A[i]"))
    assert [[k.name for k in p] for p in parts(before)] == [["A"], ["h"], ["Y"]]


def test_copies_whose_readers_are_in_another_part_are_not_made() -> None:
    """A trial of one part has found them; here ``D``, which nothing reads, keeps ``A`` in the part before."""
    kernel = "  kernel D {\n    par i in 0..8 { D[i] = A[i] }\n  }\n  kernel h {"
    text = BETWEEN.replace("  temp h", "  temp D: f32[8]\n  temp h").replace("  kernel h {", kernel)
    program, schedule = parse_program(text), Schedule(copies=(CopyPlan("A", ("Y",)),))
    assert [[k.name for k in part] for part in parts(program)] == [["A", "D"], ["h"], ["Y"]]
    made, _ = derive_between(lambda part, s: (Rematerialise(s).apply(part), ()), program, schedule)
    assert made.kernels == program.kernels


def test_each_part_has_its_scatters() -> None:
    """A part is told of its own scatters alone, and those that it chooses are in the schedule of the program."""
    program, given = parse_program(BETWEEN), Schedule(scatters=("A", "other"))
    told: list[Schedule | None] = []

    def decide(part: Program, schedule: Schedule | None, fallbacks: Fallbacks) -> tuple[Schedule, Fallbacks]:
        told.append(schedule)
        return Schedule(scatters=("Y",)), fallbacks

    made, _ = decide_between(decide, program, given, NO_FALLBACKS)
    assert [s.scatters for s in told if s is not None] == [("A",)] and made.scatters == ("Y",)


def test_a_decision_that_regroups_kernels_leaves_the_axes_of_a_part_open() -> None:
    packs, splits = (PackPlan("Y", "i_group", 4),), (SplitPlan("Y", "i", 2, 4),)

    def decide(part: Program, schedule: Schedule | None, known: Fallbacks) -> tuple[Schedule, Fallbacks]:
        return Schedule(inline=("A",), packs=packs, splits=splits), known

    whole = parse_program(BETWEEN)
    kept, _ = decide_between(decide, whole, None, NO_FALLBACKS)
    assert kept.packs == packs and kept.splits == splits
    left, _ = decide_between(decide, whole, None, NO_FALLBACKS, regroups=True)
    assert left == Schedule(inline=("A",))
    given, _ = decide_between(decide, whole, Schedule(packs=(), splits=splits), NO_FALLBACKS, regroups=True)
    assert given.packs == () and given.splits == splits


def test_given_plans_of_definitions_that_a_later_pass_makes_stay_in_their_place() -> None:
    given = Schedule(kernels=(KernelPlan("A_table", ("A_table",), ()), KernelPlan("A", ("A",), ())))
    found, _ = decide_between(lambda _, s, f: (s or Schedule(), f), parse_program(BETWEEN), given, NO_FALLBACKS)
    assert found.kernels == given.kernels

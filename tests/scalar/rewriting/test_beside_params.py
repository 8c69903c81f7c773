"""Loops with the names of params get other names, in certificates too."""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.certificate import Certificate
from nautilus.scalar.rewriting import find_defs
from nautilus.scalar.rewriting.beside_params import beside_params
from nautilus.scalar.text import parse_program

TEXT = """program p {
  input X: f32[4, 3]
  output Y: f32[4]
  param u: f32
  kernel Y {
    par i in 0..4 {
      Y[i] = 0.0
      red k in 0..3 {
        Y[i] sum= X[i, k] where k < i
      }
    }
  }
}
"""


def test_a_loop_and_all_that_reads_it_get_another_name() -> None:
    program = parse_program(TEXT, "p")
    (d,) = find_defs(program).values()
    assert d.guard is not None
    certificate = Certificate("factor", "Y", d.value, d.value, (("f", d.value),), (d.guard,))
    assert beside_params(program, [certificate]) == (program, (certificate,))
    assert beside_params(program, ())[0] is program
    made, (found,) = beside_params(replace(program, params=(replace(program.params[0], name="k"),)), [certificate])
    (new,) = find_defs(made).values()
    assert new.red[0].name == "k2" and new.guard == found.conditions[0] != d.guard
    assert new.value == found.before == found.after == found.bindings[0][1] != d.value

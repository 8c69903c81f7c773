"""``dead``: what nobody reads goes, transitively; outputs and shared kernels stay."""

from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.text import parse_program
from tests.scalar.expect import expect, sound
from tests.scalar.programs.specs import np

PROGRAM = """program p {
  input X: f32[4]
  output Y: f32[4]
  temp A: f32[4]
  temp B: f32[4]
  temp C: f32[4]
  kernel A { par i in 0..4 { A[i] = X[i] } }
  kernel B { par i in 0..4 { B[i] = A[i] } }
  kernel C { par i in 0..4 { C[i] = X[i] * 2.0 } }
  kernel Y { par i in 0..4 { Y[i] = C[i] } }
}
"""


def test_chains_of_dead_temps_go():
    p = Dead().apply(parse_program(PROGRAM))
    sound(p)
    expect(p, "temp C: f32[4]\nkernel C {\nkernel Y {\n!temp A\n!temp B\n!kernel A\n!kernel B")
    assert Dead().apply(p) is p


def test_a_kernel_with_a_live_result_stays():
    text = PROGRAM.replace("C[i] = X[i] * 2.0", "C[i] = X[i] * 2.0 B[i] = A[i]")
    text = text.replace("kernel B { par i in 0..4 { B[i] = A[i] } }\n", "")
    p = parse_program(text)
    assert Dead().apply(p) is p


def test_runs_the_same():
    from nautilus.scalar.interp.program import run_program

    x = {"X": np.arange(4.0)}
    p = parse_program(PROGRAM)
    np.testing.assert_array_equal(run_program(Dead().apply(p), x)["Y"], run_program(p, x)["Y"])

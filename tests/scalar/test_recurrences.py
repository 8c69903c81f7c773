"""The parts of a program between its recurrences."""

from __future__ import annotations

from nautilus.scalar.recurrences import parts
from nautilus.scalar.text import parse_program

#: ``b`` was inlined into ``y``, and is read by nothing
TEXT = """\
program p {
  input x: f32[8]
  output y: f32[8]
  output h: f32[8]
  temp a: f32[8]
  temp b: f32[8]
  kernel a {
    par t in 0..8 {
      a[t] = exp(x[t])
    }
  }
  kernel b {
    par t in 0..8 {
      b[t] = a[t] + 1.0
    }
  }
  kernel h {
    seq t in 0..8 {
      h[t] = select(t >= 1, 0.5 * h[t - 1], 0.0) + x[t]
    }
  }
  kernel y {
    par t in 0..8 {
      y[t] = (a[t] + 1.0) * h[t]
    }
  }
}
"""


def names(text: str) -> list[list[str]]:
    return [[k.name for k in part] for part in parts(parse_program(text))]


def test_a_kernel_is_in_the_part_of_its_first_reader() -> None:
    assert names(TEXT.replace("(a[t] + 1.0)", "b[t]")) == [[], ["h"], ["a", "b", "y"]]
    assert names(TEXT.replace("+ x[t]", "+ b[t]")) == [["a", "b"], ["h"], ["y"]]


def test_a_kernel_that_nothing_reads_is_no_reader() -> None:
    assert names(TEXT) == [[], ["h"], ["a", "b", "y"]]

"""Each rule of the verifier rejects a program that breaks it, and sound programs pass."""

from __future__ import annotations

import pytest

from nautilus.core.buffers import Buffer, Space
from nautilus.core.errors import VerifyError
from nautilus.core.expr.nodes import Axis, Const, Reduce, Ref
from nautilus.core.types import DType
from nautilus.scalar.ir import Kernel, Program, Store
from nautilus.scalar.text import format_program, parse_program
from nautilus.scalar.verify import RULES, verify, verify_tiled
from tests.scalar.programs import samples


def program(body: str, head: str = "") -> Program:
    return parse_program(
        "program p {\ninput X: f16[8, 6]\ninput T: i32[8]\noutput Y: f32[8, 6]\noutput m: f32[8]\n"
        f"{head}\nparam N: i32\nparam eps: f32 = 1e-05\n{body}\n}}"
    )


GOOD_M = "kernel m { par i in 0..8 { m[i] = 0.0 red j in 0..6 { m[i] sum= cast<f32>(X[i, j]) } } }"
GOOD_Y = "kernel Y { par i in 0..8, j in 0..6 { Y[i, j] = m[i] * eps where j < N } }"


@pytest.mark.parametrize("text", [samples.SOFTMAX, samples.TILED])
def test_samples_are_sound(text: str) -> None:
    verify(parse_program(text))


def test_the_frame_is_sound() -> None:
    verify(program(GOOD_M + GOOD_Y))


def y(body: str, local: str = "") -> str:
    return GOOD_M + "kernel Y { " + local + " " + body + " }"


@pytest.mark.parametrize(
    ("body", "head", "rule", "detail"),
    [
        (GOOD_M + GOOD_Y, "temp X: f32[8]", "names are unique", "declared twice"),
        (GOOD_M + GOOD_M + GOOD_Y, "", "names are unique", "declared twice"),
        (y("par i in 0..8, j in 0..6 { Y[i, j] = 0.0 }", "local m: f32[]"), "", "names are unique", "local m"),
        (GOOD_M + GOOD_Y, "temp A: f32[K]", "declarations are sound", "extent K is not made of integer params"),
        (GOOD_M + GOOD_Y, "temp A: f32[0]", "declarations are sound", "extent 0 is not positive"),
        (y("par i in 0..8, i in 0..6 { Y[i, i] = 0.0 }"), "", "loop bounds", "i hides an outer name"),
        (y("par i in 0..k, j in 0..6 { Y[i, j] = 0.0 }"), "", "loop bounds", "not an outer one"),
        (y("tile i in 0..8, j in 0..T[i] { Y[i, j] = 0.0 }"), "", "loop bounds", "is not the same in a block"),
        (y("par i in 0..8, j in 0..6 { Y[i, j] = cast<f32>(k) }"), "", "expressions", "not an index variable here"),
        (y("par i in 0..8, j in 0..6 { Y[i, j] = cast<f32>(X[i]) }"), "", "expressions", "2 dimensions, indexed by 1"),
        (y("par i in 0..8, j in 0..6 { Y[i, m[i]] = 0.0 }"), "", "writes fit", "the index m[i] is f32"),
        (y("par i in 0..8, j in 0..6 { Y[i] = 0.0 }"), "", "writes fit", "2 dimensions, indexed by 1"),
        (y("par i in 0..8, j in 0..6 { Y[i, j] = X[i, j] }"), "", "writes fit", "the value is f16, Y takes f32"),
        (y("par i in 0..8, j in 0..6 { Y[i, j] = 0.0 where i }"), "", "writes fit", "the guard is i32"),
        (y("par i in 0..8, j in 0..6 { Y[i, j] any= m[i] }"), "", "writes fit", "any takes bool"),
        (y("par i in 0..8, j in 0..6 { X[i, j] = 0.0 }"), "", "writes fit", "X is an input"),
        (y("par i in 0..8 { grid j in 0..6 { Y[i, j] = 0.0 } }"), "", "grid loops", "outermost"),
        (y("grid i in 0..8 { Y[i, 0] = 0.0 } par i in 0..8 { Y[i, 1] = 0.0 }"), "", "grid loops", "perfectly"),
        (y("tile i in 0..8 { par j in 0..6 { Y[i, j] = 0.0 } }"), "", "tile loops", "innermost"),
        (y("par i in 0..8 { tile j in 0..N { Y[i, j] = 0.0 } }"), "", "tile loops", "constant extent"),
        (GOOD_M, "", "one kernel writes", "not by none"),
        (GOOD_Y + GOOD_M, "", "one kernel writes", "m is written by a later kernel"),
        (y("par i in 0..8, j in 0..6 { Y[i, j] sum= 1.0 }"), "", "written before", "nothing is stored to Y"),
        (y("par i in 0..8, j in 0..6 { Y[i, j] = c[] }", "local c: f32[]"), "", "written before", "stored to c"),
        (y("par i in 0..8, j in 0..6 { Y[0, j] = 0.0 }"), "", "independent", "iterations of i may write"),
        (y("par i in 0..8, j in 0..6 { Y[i + j, j - j] = 0.0 }"), "", "independent", "iterations of i, j may"),
        (y("par i in 0..8, j in 0..6 { Y[T[i], j] = 0.0 }"), "", "independent", "iterations of i may write"),
        (y("par i0 in 0..4, i in 0..3, j in 0..6 { Y[i0 * 2 + i, j] = 0.0 }"), "", "independent", "i0, i"),
        (y("par i in 0..2, p in 0..4, j in 0..6 { Y[i * 4 + p * 2 % 4, j] = 0.0 }"), "", "independent", "of p"),
        (
            y("par i in 0..8 { seq j in 0..6 { Y[i, j] = 0.0 } seq j in 1..6 { Y[i, j] = Y[i - 1, j] } }"), "",
            "independent", "another iteration",
        ),
        (
            y("par i in 0..8, j in 0..6 { Y[i, j] = 0.0 } red j in 0..6 { Y[0, j] = 1.0 }"), "",
            "only update", "stores inside the red loop",
        ),
        (
            y("par i in 0..8, j in 0..6 { Y[i, j] = 0.0 red k in 0..3 { Y[i, j] sum= Y[i, j] } }"), "",
            "only update", "reads Y while the red loop k updates it",
        ),
        (
            y("par i in 0..8, j in 0..6 { Y[i, j] = 0.0 red k in 0..3 { Y[i, j] sum= 1.0 Y[i, j] max= 2.0 } }"), "",
            "only update", "updated by sum and max",
        ),
    ],
)  # fmt: skip
def test_offences(body: str, head: str, rule: str, detail: str) -> None:
    bad = program(body, head)
    for _ in range(2):  # what is kept of a program must not hide its offences later
        with pytest.raises(VerifyError) as e:
            verify(bad)
        assert rule in str(e.value) and detail in str(e.value)


def test_nodes_of_other_levels_are_rejected() -> None:
    out = Buffer("Y", DType.F32, (), Space.OUTPUT)
    one = Const(1.0, DType.F32)
    for bad in (
        Reduce("sum", (Axis("k", 3),), None, one, DType.F32),
        Ref("v", DType.F32),
        Const(1, DType.F32),
        Const(1.0, DType.F16),
    ):
        p = Program("p", (out,), (), (Kernel("Y", (), (Store("Y", (), bad),)),))
        with pytest.raises(VerifyError, match="expressions are typed"):
            verify(p)


@pytest.mark.parametrize(
    "body",
    [
        "grid i0 in 0..4 { tile i in 0..2, j in 0..6 { Y[i0 * 2 + i, j] = 0.0 } }",
        "par k in 0..48 { Y[k // 6, k % 6] = 0.0 }",
        "par i in 0..2, p in 0..4, j in 0..6 { Y[i * 4 + (p * 3 + 1) % 4, j] = 0.0 }",
        "par i in 0..8 { seq j in 0..6 { Y[i, j] = 0.0 } }",
        "par i in 0..8 { seq j0 in 0..3 { par j in 0..2 { Y[i, j0 * 2 + j] = 0.0 } } }",
        "local c: f32[] grid i in 0..8 { par j in 0..6 { Y[i, j] = 0.0 } c[] = 1.0 }",
        "par i in 0..N, j in 0..6 { Y[i, j] = 0.0 }",
    ],
)
def test_independent_writes_are_accepted(body: str) -> None:
    verify(program(GOOD_M + "kernel Y { " + body + " }"))


TILED = parse_program(samples.TILED)


def test_tiled_form() -> None:
    verify_tiled(TILED.kernels[0])


@pytest.mark.parametrize(
    ("old", "new", "detail"),
    [
        ("acc[i, j] + part[i]", "acc[j, i] + part[bi]", "plain, distinct tile variables"),
        ("part[i] = 0.0", "part[i + 0] = 0.0", "plain, distinct tile variables"),
        ("tile i in 0..16 {", "tile i in 0..8 {", "i has extent 16 elsewhere"),
        ("tile i in 0..16 {", "par i in 0..16 {", "a par loop is left"),
        ("part[i] = 0.0", "part[i] = 0.0\npart[i] = 0.0", "perfect nests around one statement"),
    ],
)
def test_tiled_offences(old: str, new: str, detail: str) -> None:
    p = parse_program(samples.TILED.replace(old, new, 1))
    with pytest.raises(VerifyError, match="tiled form") as e:
        verify_tiled(p.kernels[0])
    assert detail in str(e.value)


def test_errors_point_at_the_text() -> None:
    with pytest.raises(VerifyError) as e:
        verify(parse_program(samples.SOFTMAX.replace("Y_max[i] max=", "Y_max[j] max="), "dump.scalar"))
    assert "dump.scalar:12:" in str(e.value) and "Y_max[j] max=" in str(e.value)


def test_every_rule_has_an_offence() -> None:
    covered = {"names", "declarations", "loop bounds", "expressions", "writes fit", "grid loops", "tile loops"}
    covered |= {"one kernel writes", "written before", "independent", "only update", "scatters"}
    for rule in RULES:
        assert any(c in rule for c in covered), rule


SCATTER = """program p {
  input X: f32[9]
  input key: i32[9]
  output M: f32[4] = -inf
  kernel M { par t in 0..9 { M[key[t]] max= X[t] where key[t] >= 0 and key[t] < 4 atomic } }
}
"""


def test_a_scatter_is_sound_and_prints_as_it_reads() -> None:
    p = parse_program(SCATTER)
    verify(p)
    assert parse_program(format_program(p)) == p


@pytest.mark.parametrize(
    ("old", "new", "detail"),
    [
        ("max= X[t]", "sum= X[t]", "sum of f32 depends on the order"),
        ("= -inf", "= 0.0", "does not start from the identity of max"),
        ("max= X[t]", "max= M[key[t]]", "the kernel reads M"),
        ("par t in", "seq t in", "stands in parallel loops"),
        (" atomic } }", " atomic } par i in 0..4 { M[i] = 0.0 } }", "another statement writes M"),
        ("[9]\n  output", "[9] = 0\n  output", "only a scattered buffer has an initial value"),
        (" = -inf", "", "nothing is stored to M before"),
        (" atomic", "", "iterations of t may write the same element"),
    ],
)
def test_scatter_offences(old: str, new: str, detail: str) -> None:
    assert old in SCATTER
    with pytest.raises(VerifyError) as e:
        verify(parse_program(SCATTER.replace(old, new, 1)))
    assert detail in str(e.value)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("output Y: f32[4] zero unless i0 < 2", "only a temp has a support"),
        ("output Y: f32[4]\ntemp T: f32[4] zero unless i1 < 2", "uses a variable that is no place in it"),
        ("output Y: f32[4]\ntemp T: f32[4] zero unless Y[i0] < 1.0", "is no condition on indices, inputs and temps"),
        ("output Y: f32[4]\ntemp T: f32[4] zero unless i0 + 2", "is no condition on indices"),
    ],
)
def test_support_offences(text: str, detail: str) -> None:
    kernels = "kernel T { par i in 0..4 { T[i] = 0.0 } } " * ("temp" in text)
    with pytest.raises(VerifyError) as e:
        verify(parse_program(f"program p {{ {text} {kernels} kernel Y {{ par i in 0..4 {{ Y[i] = 0.0 }} }} }}"))
    assert detail in str(e.value)

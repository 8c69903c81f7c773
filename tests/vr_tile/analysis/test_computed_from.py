"""What values are computed from: each value once, however many readers it has."""

from __future__ import annotations

from nautilus.ma_tile.lowering.dots import definitions
from nautilus.ma_tile.lowering.operands.computed_operands import users
from nautilus.vr_tile.analysis.computed_from import computed_for, computed_from, sources_of
from nautilus.vr_tile.ir import LoadOp, ReduceOp, results
from nautilus.vr_tile.text import parse

SQUARES = 60
TEXT = """
module m {
  input X: f32[64]
  input Z: f32[64]
  output Y: f32[64]
  kernel k grid () axes (i: 64) {
    %x = load X[i] : f32[i: 64]
    %z = load Z[i] : f32[i: 64]
    %r = reduce max %z over i : f32
    %0 = mul %x, %r : f32[i: 64]
@
    store Y[i], %y
  }
}
""".replace(
    "@",
    "\n".join(
        [
            *(f"    %{n + 1} = mul %{n}, %{n} : f32[i: 64]" for n in range(SQUARES)),
            f"    %y = add %{SQUARES}, %z : f32[i: 64]",
        ]
    ),
)
KERNEL = parse(TEXT).kernels[0]
DEFS = definitions(KERNEL.body)
Y = results(DEFS["y"])[0]


def test_each_value_comes_once_and_before_its_operands() -> None:
    names = [v.name for v, _ in computed_from([Y], DEFS)]
    assert names == ["y", *(str(n) for n in range(SQUARES, -1, -1)), "x", "r", "z"]


def test_sources_are_the_ops_before_elementwise_work() -> None:
    x, r, z = sources_of(Y, DEFS)
    assert isinstance(x, LoadOp) and x.buffer == "X"
    assert isinstance(r, ReduceOp) and isinstance(z, LoadOp)


def test_other_ops_are_passed_where_that_is_asked_for() -> None:
    names = [v.name for v, _ in computed_from(results(DEFS["0"]), DEFS, lambda *_: True)]
    assert names == ["0", "x", "r", "z"]


def test_what_others_read_is_not_computed_for_one_value_alone() -> None:
    found = computed_for(["y"], DEFS, users(KERNEL))
    assert found == {"y", "x", "r", *map(str, range(SQUARES + 1))}  # a reduction reads z too
    assert "r" not in computed_for(["y"], DEFS, users(KERNEL), lambda v: v.type.axes != ())

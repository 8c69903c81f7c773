"""``store-windows``: which products stay as they are, and that the windows hold what the product reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nautilus.core.buffers import extents
from nautilus.core.expr.conditions import conjuncts
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.interp import program as interp
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.axes.split_residues import SplitResidues
from nautilus.scalar.passes.operands import store_windows
from nautilus.scalar.passes.operands.store_windows import StoreWindows, _is_read_once, convolution, group_of
from nautilus.scalar.rewriting import find_defs
from nautilus.scalar.verify import verify
from nautilus.targets import window_rates
from nautilus.targets.limits import limits

DIMS = "dim B = 2, C = 3, K = 16, L = 13, W = 12, R = 3, S = 2\n"
PLAIN = "input X: f32[B, C, L]\ninput F: f32[K, C, R]\noutput Y: f32[B, K, (L - R) // 2 + 1]\n"
SUM = "Y[b, k, x] = sum[c, r](X[b, c, 2 * x + r] * F[k, c, r])\n"


@pytest.fixture(autouse=True)
def _small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_rates, "ROWS", 1)
    monkeypatch.setattr(window_rates, "WINDOWS_SHARE", 1e30)
    monkeypatch.setattr(window_rates, "is_long", lambda *_: True)


def stored(text: str, arch: str = "sm_90a", precision: str = "fast") -> tuple[Program, Program]:
    before = lower(load_text(DIMS + text))
    return before, StoreWindows(arch, precision).apply(before)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[c, r](", "[c, r | 2 * x + r < 3]("),  # a condition of its own
        ("X[b, c, 2 * x + r] * F[k, c, r]", "tanh(X[b, c, 2 * x + r]) * F[k, c, r]"),
        ("X[b, c, 2 * x + r]", "X[b, c, 2 * (x * x % 3) + r]"),  # not affine
        ("X[b, c, 2 * x + r]", "X[b, c, L - 1 - 2 * x - r]"),  # backwards
        ("X[b, c, 2 * x + r]", "X[x % 2, c, b + r]"),
    ],
)
def test_what_stays(old: str, new: str) -> None:
    assert old in SUM
    before, after = stored(PLAIN + SUM.replace(old, new))
    assert after is before


def test_other_targets_and_strict_precision_stay() -> None:
    for arch, precision in (("sm_80", "fast"), ("sm_90a", "strict")):
        before, after = stored(PLAIN + SUM, arch, precision)
        assert after is before
    before, after = stored(PLAIN + SUM)
    assert after is not before


IMAGES = "input X: f32[B, C, L, W]\ninput F: f32[K, C, R, S]\n"
CASES = [
    PLAIN + SUM,
    # padding, a stride for each axis, a dilation that shares the stride
    IMAGES
    + "output Y: f32[B, K, 6, 5]\nY[b, k, y, x] = sum[c, r, s | 0 <= 2 * y + 2 * r - 1 < L and 0 <= 3 * x + s - 2 < W]("
    "X[b, c, 2 * y + 2 * r - 1, 3 * x + s - 2] * F[k, c, r, s])\n",
    # channels last, downwards
    "input X: f32[B, L, W, C]\ninput F: f32[C, K, R, S]\noutput Y: f32[B, L, W, K]\n"
    "Y[b, y, x, k] = sum[c, r, s | 0 <= y - r < L and 0 <= x - 2 * s < W](X[b, y - r, x - 2 * s, c] * F[c, k, r, s])\n",
    # groups, whose channels are side by side
    "input X: f32[B, 4 * C, L]\ninput F: f32[4, K, C, R]\noutput Y: f32[B, 4, K, 7]\n"
    "Y[b, g, k, x] = sum[c, r | 0 <= 2 * x + r - 1 < L](X[b, g * C + c, 2 * x + r - 1] * F[g, k, c, r])\n",
    # groups of a result's axis
    "input X: f32[B, 4 * C, L]\ninput F: f32[4 * K, C, R]\noutput Y: f32[B, 4 * K, 7]\n"
    "Y[b, k, x] = sum[c: C, r | 0 <= 2 * x + r - 1 < L](X[b, k // K * C + c, 2 * x + r - 1] * F[k, c, r])\n",
    # three axes with steps, so that digits and images share an axis
    "input X: f32[B, C, 8, 8, 8]\ninput F: f32[K, C, 2, 2, 2]\noutput Y: f32[B, K, 4, 4, 4]\n"
    "Y[b, k, z, y, x] = sum[c, q, r, s](X[b, c, 2 * z + q, 2 * y + r, 2 * x + s] * F[k, c, q, r, s])\n",
]


#: transposed convolutions: phases whose shift is no multiple of their number, and phases without terms
PHASES = [
    IMAGES + "output Y: f32[B, K, 3 * L, W]\nY[b, k, y, x] = sum[c, r, s | (y + 1 - 2 * r) % 3 == 0 and "
    "0 <= (y + 1 - 2 * r) // 3 < L and 0 <= x - s < W](X[b, c, (y + 1 - 2 * r) // 3, x - s] * F[c, k, r, s])\n",
    "input X: f32[B, C, L]\ninput F: f32[C, K, R]\noutput Y: f32[B, K, 2 * L]\nY[b, k, x] = "
    "sum[c, r | (x - 2 * r) % 2 == 0 and 0 <= (x - 2 * r) // 2 < L](X[b, c, (x - 2 * r) // 2] * F[c, k, r])\n",
]


@pytest.mark.parametrize("text", PHASES)
def test_phases(text: str) -> None:
    before = SplitResidues().apply(lower(load_text(DIMS + text.replace("F: f32[K, C", "F: f32[C, K"))))
    after = StoreWindows().apply(before)
    verify(after)
    assert len(after.kernels) == len(before.kernels) + 2
    same_results(before, after)


@pytest.mark.parametrize(("result", "stays"), [("b, k, x", True), ("b, x, k", False)])
def test_phases_between_neighbours_cost_stores(result: str, stays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles that write every other element of the last axis take longer than a product by warps saves."""
    monkeypatch.setattr(window_rates, "WINDOWS_SHARE", 0.95)
    sizes = {"b": "16", "k": "64", "x": "262145"}
    shape = ", ".join(sizes[x] for x in result.split(", "))
    text = (
        f"input X: f32[16, 32, 131072]\ninput F: f32[32, 64, 3]\noutput Y: f32[{shape}]\nY[{result}] = sum[c, r | "
        "(x + 1 - 2 * r) % 2 == 0 and 0 <= (x + 1 - 2 * r) // 2 < 131072](X[b, c, (x + 1 - 2 * r) // 2] * F[c, k, r])\n"
    )
    before = SplitResidues().apply(lower(load_text(text)))
    assert (StoreWindows().apply(before) is before) == stays


def test_the_share_of_terms_inside_of_an_image_is_counted_unless_it_has_many(monkeypatch: pytest.MonkeyPatch) -> None:
    text = PLAIN.replace("(L - R) // 2 + 1", "L") + SUM.replace("[c, r]", "[c, r | 0 <= x + r - 1 < L]")
    program = lower(load_text(DIMS + text.replace("2 * x + r]", "x + r - 1]")))
    d = find_defs(program)["Y"]
    c: Any = SimpleNamespace(d=d, kept=tuple(conjuncts(d.guard)))
    assert store_windows._live_share(c) == pytest.approx(1 - 2 / 39)
    monkeypatch.setattr(store_windows, "_MOST_POINTS", 38)
    assert store_windows._live_share(c) == 1.0


VIDEO = (
    "input X: f32[8, 3, 16, 128, 128]\ninput F: f32[64, 3, 3, 5, 7]\noutput Y: f32[8, 64, 14, 124, 122]\n"
    "Y[b, k, z, y, x] = sum[c, q, r, s](X[b, c, z + q, y + r, x + s] * F[k, c, q, r, s])\n"
)
STRIDED = (
    "input X: f32[256, 3, 227, 227]\ninput F: f32[96, 3, 11, 11]\noutput Y: f32[256, 96, 55, 55]\n"
    "Y[b, k, y, x] = sum[c, r, s](X[b, c, 4 * y + r, 4 * x + s] * F[k, c, r, s])\n"
)


@pytest.mark.parametrize(("text", "terms"), [(VIDEO, 3 * 7 * 16), (STRIDED, 11 * 64)])
def test_terms_that_are_zeros_take_time(text: str, terms: int) -> None:
    """Three windows of 15 terms in steps of 16 are faster than one of 45 in a step of 64; one of 33 stays in it."""
    _, after = stored(text)
    assert [a.extent for a in find_defs(after)["Y"].red] == [terms]


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("taps", ["few", "many"])
def test_the_result_is_the_same(text: str, taps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if taps == "many":
        monkeypatch.setattr(window_rates, "MEMORY", 1e3)
    before, after = stored(text)
    verify(after)
    assert len(after.kernels) == 3
    same_results(before, after)


#: channels first and last, whose images have any number and maybe any size
LATE = [
    IMAGES + "output Y: f32[B, K, L, W]\nY[b, k, y, x] = sum[c, r, s | 0 <= y + r - 1 < L and x + 2 * s < W]("
    "X[b, c, y + r - 1, x + 2 * s] * F[k, c, r, s])\n",
    CASES[2],
]


@pytest.mark.parametrize("text", LATE)
@pytest.mark.parametrize("late", [("B",), ("B", "L"), ("B", "L", "W")])
def test_sizes_that_are_known_only_at_launch(text: str, late: tuple[str, ...]) -> None:
    sizes = {"B": 2, "L": 13, "W": 12}
    dims = DIMS
    for name in late:
        dims = dims.replace(f"{name} = {sizes[name]},", f"{name} = runtime,")
    before = lower(load_text(dims + text))
    after = StoreWindows().apply(before)
    verify(after)
    assert len(after.kernels) == 3 or "W" in late  # lines of a size that is not known are no boxes
    for n in ((0, 13, 12), (1, 1, 1), (2, 13, 12), (3, 8, 5)):
        same_results(before, after, {k: size if k in late else sizes[k] for k, size in zip(sizes, n, strict=True)})


def same_results(before: Program, after: Program, sizes: dict[str, int] | None = None) -> None:
    rng = np.random.default_rng(0)
    given = {
        b.name: rng.integers(-4, 5, extents(b.shape, sizes or {})).astype(float)
        for b in before.buffers
        if b.space.value == "input"
    }
    want, got = interp.run_program(before, given)["Y"], interp.run_program(after, given)["Y"]
    np.testing.assert_array_equal(got, want)


def test_every_division_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choices of a convolution with all of its properties, one by one."""
    before = lower(load_text(DIMS + CASES[1]))
    multiprocessors = limits("sm_90a").multiprocessors
    (made,) = [c for d in find_defs(before).values() if (c := store_windows.convolution(before, d, True))]
    given = {
        "X": np.arange(2 * 3 * 13 * 12).reshape(2, 3, 13, 12) % 7.0,
        "F": np.arange(288).reshape(16, 3, 3, 2) % 5.0,
    }
    want = interp.run_program(before, given)["Y"]
    choices = list(store_windows.choices(made, multiprocessors))
    assert len({(c.inner, c.temp.transposed) for c in choices}) > 10
    for choice in choices:
        after = store_windows.with_windows(before, made, choice)
        np.testing.assert_array_equal(interp.run_program(after, given)["Y"], want)


@pytest.mark.parametrize(
    ("value", "side", "rows", "column"),
    [
        ("sum[r](A[2 * x + r] * G[2 * y + r])", 0, "x", "y"),
        ("sum[r](G[2 * y + r] * A[2 * x + r])", 0, "y", "x"),
        ("sum[r](A[2 * x + r] * W[y, r])", 0, "x", "y"),
        ("sum[r](W[y, r] * A[2 * x + r])", 1, "x", "y"),
    ],
)
def test_the_operand_that_is_read_in_windows(value: str, side: int, rows: str, column: str) -> None:
    text = "dim N = 9, M = 8, R = 3\ninput A: f32[21], G: f32[19], W: f32[M, R]\noutput Y: f32[N, M], U: f32\n"
    program = lower(load_text(f"{text}Y[x, y] = {value.replace('[r]', '[r: R]')}\nU = A[0] + G[0] + W[0, 0]\n"))
    found = convolution(program, find_defs(program)["Y"], True)
    assert found is not None
    assert (found.side, [a.name for a in found.rows], found.column.name) == (side, [rows], column)


def test_groups_are_those_of_factors() -> None:
    text = "dim B = 2, C = 4, K = 8\ninput X: f32[B, K // 4, C], F: f32[K, C]\noutput Y: f32[B, K]\n"
    for op, group in (("*", 4), ("-", None), ("/", None)):
        plan = group_of(lower(load_text(f"{text}Y[b, k] = sum[c](X[b, k // 4, c] {op} F[k, c])\n")), "Y")
        assert (None if plan is None else plan.size) == group


def test_what_one_definition_alone_reads_once() -> None:
    program = lower(
        load_text("""
dim N = 8
input X: f32[N]
output Y: f32[N], Z: f32[N], U: f32[N]
once[i: N] = X[i] * 2
both[i: N] = X[i] * 3
twice[i: N] = X[i] * 4
part[i: N] = sum[j: N | j <= i](X[j])
Y[i] = once[i] + both[i] + part[i]
Z[i] = both[i] + twice[i] * twice[N - 1 - i]
U[i] = X[i]
""")
    )
    found = find_defs(program)
    read = {n: _is_read_once(program, found[n]) for n in ("once", "both", "twice", "part", "U")}
    assert read == {"once": True, "both": False, "twice": False, "part": False, "U": False}

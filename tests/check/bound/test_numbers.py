"""How errors are drawn, compared and left out: small arrays, and the number that each has."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nautilus.check.bound import probes, stated
from nautilus.check.bound.bound import Bound
from nautilus.check.bound.cancelling.reach import Sites
from nautilus.check.bound.cancelling.ties import are_equal
from nautilus.check.bound.errors import Rounding
from nautilus.check.bound.probes import _distance, kinds
from nautilus.check.bound.program import _added_rounded
from nautilus.check.bound.recurrences.dominant import without_dominant
from nautilus.check.bound.recurrences.follows import Along
from nautilus.check.bound.recurrences.growth import _figure, _stays
from nautilus.check.bound.recurrences.profiles import Profile
from nautilus.check.bound.roundings.in_steps import of_single
from nautilus.check.bound.sums.admitted import without
from nautilus.core.expr.nodes import Load, Op, Reduce
from nautilus.core.numerics import Array
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.passes.recurrences.chunk_matrix_states import RoundedState

INF, NAN = np.inf, np.nan


def test_kinds_of_numbers() -> None:
    """A number that the type does not have is an infinity there."""
    x = np.array([0.0, -3.5, INF, -INF, NAN, 7e4, -7e4])
    assert kinds(x, DType.F32).tolist() == [[0, 0, 1, -1, 2, 0, 0]] * 2
    assert kinds(x, DType.F16).tolist() == [[0, 0, 1, -1, 2, 0, 0], [0, 0, 1, -1, 2, 1, -1]]


def test_distances_of_numbers_and_of_what_is_none() -> None:
    a = np.array([1.0, 2.0, INF, INF, NAN, NAN, -INF, 1.0, 7e4, 7e4])
    b = np.array([1.5, 2.0, INF, -INF, NAN, INF, -INF, NAN, 8e4, 6e4])
    with np.errstate(invalid="ignore"):
        assert _distance(a, b, DType.F16).tolist() == [0.5, 0.0, 0.0, INF, 0.0, INF, 0.0, INF, 0.0, INF]


def test_a_single_error_has_the_root_mean_square_of_many() -> None:
    several = np.array([0.25, -1.0, 0.5])
    assert of_single(several).tolist() == several.tolist()
    one = of_single(np.array([-0.1])), of_single(np.array([0.9]))
    assert -one[0] == one[1] == pytest.approx(3**-0.5)


def test_numbers_are_equal_up_to_an_error_of_f64() -> None:
    a = np.array([1.0, 1.0, 1.0, -4.0, 0.0, 0.0])
    b = np.array([1.0, 1.0 + 2.0**-41, 1.0 + 2.0**-39, -4.0 - 2.0**-39, 0.0, 1e-300])
    assert are_equal(a, b).tolist() == [True, True, False, True, True, False]
    assert are_equal(np.array([1.0]), np.array([1.0 + 1.5 * 2.0**-41])).all()  # between 2^-41 and 2^-40


@pytest.mark.parametrize(("large", "left_out"), [(1, 1), (2, 2), (4, 4), (5, 5), (6, 0)])
def test_as_many_slices_are_left_out_as_one_of_a_hundred_inputs_lacks(large: int, left_out: int) -> None:
    """Each of the ``large`` slices has no error; the last of them leaves the relative errors of the others."""
    squares = np.ones((40, 3))
    squares[:large] = 10.0 ** (12 - 2 * np.arange(large))[:, None]
    errors = np.where(np.arange(40) >= large, 1.0, 0.0)[:, None] * np.ones(3)
    counts = without_dominant(errors, squares, None)
    if left_out:
        assert counts is not None
        assert counts.reshape(-1).tolist() == [0.0] * left_out + [1.0] * (40 - left_out)
    elif counts is not None:
        assert (counts == 0.0).sum() == 5


def converted(x: Array, target: DType) -> Array:
    """``x`` narrowed, with errors of nothing."""
    probe = SimpleNamespace(reals=False, tie=None)
    run: Any = SimpleNamespace(probe=probe, alike=lambda x, t: 1.0, moved=lambda x, *_: np.array(x))
    return Rounding.converted(run, Op("narrow", (Load("X", (), DType.F32),), target), x)


def test_what_is_narrowed_to_nothing_is_zero_and_what_is_too_large_infinite() -> None:
    least = 2.0**-25  # half of the least number of f16
    x = np.array([least / 2, -least / 2, least, 2 * least, 1.0, 65504.0, 65505.0, -1e6])
    assert converted(x, DType.F16).tolist() == [0.0, 0.0, least, 2 * least, 1.0, 65504.0, INF, -INF]


def profile(values: list[float], largest: float, errors: list[float] | None = None) -> Profile:
    return Profile(np.array([errors or [0.0] * len(values)]), np.array(values), largest)


@pytest.mark.parametrize(("values", "largest", "total", "stays"), [
    ([1.0, 1.0, 4.0, 16.0], 4.0, 1000, True),  # grows less than sixteen times
    ([1.0, 1.0, 1e4, 1e8], 1e4, 1000, False),  # e^4.6 in each step: beyond f32 after a few
    ([1.0, 1.0, 1e4, 1e8], 1e4, 5, True),  # not in a single step more
    ([1e8, 1e8, 1e4, 1.0], 1e4, 1000, True),  # shrinks
    ([1.0, 1.0, 1e4, 1e8], 0.0, 1000, True),
    ([0.0, 0.0, 1e4, 1e8], 1e4, 1000, True),
])  # fmt: skip
def test_values_that_grow_leave_the_range_of_f32(values: list[float], largest: float, total: int, stays: bool) -> None:
    assert _stays(profile(values, largest), 4, Along(0, total, False, frozenset())) is stays
    assert _stays(profile(values, largest), 4, Along(None, total, False, frozenset()))
    assert _stays(profile(values, largest), total, Along(0, total, False, frozenset()))


def test_errors_that_the_first_steps_do_not_have_are_those_of_later_ones() -> None:
    """The ratio of two choices of errors is that of the first steps, where it is a number."""
    known: Any = SimpleNamespace(steps=8)
    along = Along(0, 8, False, frozenset())
    first = Profile(np.array([[0.0] * 4]), np.ones(4), 1.0)
    later = Profile(np.array([[0.0] * 4 + [1e-14] * 4]), np.ones(8), 1.0)
    with np.errstate(all="raise"):
        figure = _figure(first, later, known, along, 2.0**-24, 1.0)
    assert np.isfinite(figure.relative) and figure.relative >= 1e-7


def test_a_sum_over_the_equation_of_one_axis_keeps_the_others() -> None:
    text = "dim N = 8, K = 5, L = 6\ninput t: i32[N], E: f32[K], F: f32[L, K]\noutput Y: f32[N]\n"
    text += "Y[i] = sum[{0}, {1} | {0} == t[i]](E[{0}] * F[{1}, {0}])\n"
    for chosen, other in (("k", "l"), ("l", "k")):
        (d,) = without(load_text(text.format(chosen, other))).definitions
        assert isinstance(d.expr, Reduce) and [a.name for a in d.expr.axes] == [other] and d.expr.cond is None


@pytest.mark.parametrize(
    ("chunks", "grows", "relative"), [(False, False, 0.25), (True, False, 0.75), (True, True, 2.0)]
)
def test_roundings_of_chunks_are_added_unless_later_steps_amplify_them(
    chunks: bool, grows: bool, relative: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = load_text(f"dim N = {8 + chunks + 2 * grows}\ninput X: f32[N]\noutput Y: f32[N]\nY[i] = exp(X[i])\n")
    made = replace(spec, name="in chunks")
    monkeypatch.setattr(stated, "in_chunks", lambda program, *_: made if chunks else program)
    monkeypatch.setattr(stated, "grows_in_chunks", lambda _: grows)
    monkeypatch.setattr(stated, "_bounds", lambda program, *_: {"Y": Bound(2.0 if program is made else 0.25)})
    monkeypatch.setattr(stated, "_chunk_errors", lambda *_: {"Y": 0.5})
    assert stated.stated(spec)["Y"].relative == relative


def test_errors_of_small_numbers_have_a_least_size_and_zero_has_none() -> None:
    run: Any = SimpleNamespace(probe=SimpleNamespace(coherent=False))
    x, least = np.array([-1e-10, 0.0, 1e-10, -2e-4, 1e10]), 2.0**-30
    found = Rounding.moved(run, x, 2.0**-20, least, 1e9, np.ones(5))
    assert found.tolist() == [-1e-10 + least, 0.0, 1e-10 + least, -2e-4 + least, INF]


@pytest.mark.parametrize("computed", [True, False])
def test_what_is_computed_may_round_either_way(computed: bool) -> None:
    """An element of an input rounds one way."""
    run: Any = SimpleNamespace(
        probe=SimpleNamespace(reals=False, tie=None), computed=lambda _: computed, flipped=lambda x, *_: x + 1.0
    )
    cast = Op("cast", (Load("X", (), DType.F32),), DType.F16)
    assert Rounding.converted(run, cast, np.array([1.0, 2.0])).tolist() == [1.0 + computed, 2.0 + computed]


def test_a_tensor_core_cuts_one_unit_off_each_sum_so_far() -> None:
    """Beside two terms with the partial sums 1 and 2, of which four are cut."""
    u = 2.0**-10
    run: Any = SimpleNamespace(
        probe=SimpleNamespace(coherent=True, regular=False), unit=lambda _: u, floor=lambda _: 0.0, loss=lambda: 1.0
    )
    e: Any = SimpleNamespace(dtype=DType.F32)
    size, lost = u * np.sqrt((1.0 + 4.0) / 2), u * 4 * (1.0 + 2.0) / 2
    found = Rounding.summed(run, e, [np.ones(1), np.ones(1)], 2, 1.0, 4.0)
    assert found == pytest.approx(2.0 - np.hypot(size, lost), rel=1e-12)


def test_what_a_step_adds_is_rounded_whatever_its_name() -> None:
    """Only terms that have the state are left, and constants."""
    state, rounded = Load("h", (), DType.F32), RoundedState(DType.BF16, corrected=False)
    for name in ("A", "x"):
        term = Load(name, (), DType.F32)
        found = _added_rounded(Op("add", (state, term), DType.F32), "h", rounded)
        assert isinstance(found, Op) and found.args[0] == state and found.args[1] != term


def test_recorded_distances_of_no_site_are_none() -> None:
    assert Sites({}).recorded(7) == 0


def test_a_share_of_the_elements_is_the_least_that_is_even(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = {"Y": SimpleNamespace(each=None, norm=1.0), "Z": SimpleNamespace(each=None, norm=0.0)}
    for share, uneven in ((probes.EVEN, False), (probes.EVEN / 2, True)):
        monkeypatch.setattr(probes, "even", lambda _, share=share: share)
        assert probes.is_uneven(found) is uneven

"""Generated inputs: reproducible, of the declared types, and valid as indices."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.check.inputs import KINDS, _number, generate, kinds, with_specials, without_ties
from nautilus.check.sizes import _ALIGNED
from nautilus.core.errors import InputError
from nautilus.core.numerics import round_to
from nautilus.core.types import DType
from nautilus.frontend.interp import exactly
from nautilus.frontend.promises import integer_ranges, keep
from nautilus.frontend.semantics.check import load_spec, load_text
from nautilus.frontend.spec import Definition

PAGED = """dim B = 3, P = 4, T = 5, D = 8, N = 12
input K: f16[T, P, D]
input page: i32[B, N // P]
input len: i32[B]
input seen: bool[B, N]
input label: i64[B]
output O: f32[B, D]
output L: f32[B]
O[b, d] = sum[j: N | j < len[b] and seen[b, j]](K[page[b, j // P], j % P, d])
L[b] = sum[d](O[b, d] if d == label[b] else 0)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_reproducible_and_rounded(kind: str) -> None:
    spec = load_spec(PAGED)
    first, again = generate(spec, kind, 7), generate(spec, kind, 7)
    for t in spec.inputs:
        x = first.arrays[t.name]
        assert x.shape == t.shape
        assert np.array_equal(x, again.arrays[t.name], equal_nan=True)
        assert np.array_equal(x, round_to(x, t.dtype), equal_nan=True)
        assert kind == "garbage" or np.isfinite(x.astype(np.float64)).all()


def test_seeds_differ() -> None:
    spec = load_spec(PAGED)
    assert not np.array_equal(generate(spec, "random", 0).arrays["K"], generate(spec, "random", 1).arrays["K"])


def test_index_tensors_stay_in_range() -> None:
    spec = load_spec(PAGED)
    assert integer_ranges(spec) == {"page": (0, 4), "len": (0, 12), "label": (0, 8)}
    for kind in KINDS:
        given = generate(spec, kind, 3)
        for name, (low, high) in integer_ranges(spec).items():
            assert given.arrays[name].min() >= low
            assert given.arrays[name].max() <= high


def test_keys_have_the_range_of_what_they_are_compared_with() -> None:
    """That of the variable beside the load, not that of its index: most keys then equal an index, and one may not."""
    spec = load_spec(
        "dim T = 40, C = 6\ninput key: i32[T]\ninput start: i32[C + 1]\noutput Y: f32[C]\noutput Z: f32[C]\n"
        "Y[c] = sum[t | key[t] == c](1.0)\nZ[c: C] = sum[t: T | start[c + 0] <= t and t < start[c + 1]](1.0)\n"
    )
    assert integer_ranges(spec) == {"key": (0, 6), "start": (0, 40)}


def test_a_shifted_index_leaves_room_for_the_shift() -> None:
    spec = load_spec("dim N = 20, M = 6\ninput X: f32[N]\ninput t: i32[M]\noutput Y: f32[M]\nY[i] = X[t[i] * 2 + 3]\n")
    assert integer_ranges(spec) == {"t": (0, 8)}


def test_an_index_through_a_definition_counts() -> None:
    spec = load_spec(
        "dim N = 20, M = 6\ninput X: f32[N]\ninput t: i32[M]\noutput Y: f32[M]\nh[i] = t[i] // 2\nY[i] = X[h[i]]\n"
    )
    assert integer_ranges(spec) == {"t": (0, 39)} or integer_ranges(spec)["t"][1] >= 19


def test_kinds_of_a_spec() -> None:
    plain = load_spec("dim N = 4\ninput X: f32[N]\noutput Y: f32[N]\nY[i] = X[i]\n")
    assert "masked" not in kinds(plain)
    assert "masked" in kinds(load_spec(PAGED))


def test_masks_and_ramps() -> None:
    spec = load_spec(PAGED)
    assert not generate(spec, "masked").arrays["seen"].any()
    assert generate(spec, "unmasked").arrays["seen"].all()
    ramp = generate(spec, "ascending").arrays["K"]
    assert (np.diff(ramp, axis=-1) > 0).all()
    assert (np.diff(ramp, axis=-2) > 0).all()
    assert (np.diff(generate(spec, "descending").arrays["K"], axis=-1) < 0).all()


#: largest finite number and least normal number of a type
_ENDS = [
    ("f16", 65504.0, 2.0**-14), ("bf16", 3.38e38, 2.0**-126), ("f32", 3.4e38, 2.0**-126), ("f8e4m3", 448.0, 2.0**-6),
    ("f8e5m2", 57344.0, 2.0**-14), ("f64", 1.79e308, 2.0**-1022),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "largest", "least"), _ENDS)
def test_tiny_and_huge_reach_the_ends_of_the_type(dtype: str, largest: float, least: float) -> None:
    spec = load_spec(f"dim N = 4096\ninput X: {dtype}[N]\noutput Y: f32[N]\nY[i] = X[i]\n")
    assert np.abs(generate(spec, "huge").arrays["X"]).max() > 0.9 * largest
    assert np.isfinite(generate(spec, "huge").arrays["X"]).all()
    tiny = np.abs(generate(spec, "tiny").arrays["X"])
    assert tiny[tiny > 0].min() < least


def test_index_tensors_reach_all_of_a_runtime_size() -> None:
    spec = load_spec(
        "dim N = runtime, B = 4\ninput X: f32[N]\ninput at: i32[B], len: i32[B]\noutput Y: f32[B]\n"
        "Y[b] = X[at[b]] + sum[j | j < len[b]](X[j])\n",
        keep_runtime=True,
    )
    assert integer_ranges(spec, {"N": 50}) == {"at": (0, 49), "len": (0, 50)}
    assert integer_ranges(spec, {"N": 0}) == {"at": (0, 0), "len": (0, 1)}
    assert generate(spec, sizes={"N": 5000}).arrays["at"].max() > 100


def test_special_values_are_each_a_hundredth() -> None:
    spec = load_spec("dim N = 20000\ninput X: f32[N]\noutput Y: f32[N]\nY[i] = X[i]\n")
    x = with_specials(spec, generate(spec)).arrays["X"]
    zeros = x[x == 0.0]
    found = (zeros[~np.signbit(zeros)], zeros[np.signbit(zeros)], x[np.isposinf(x)], x[np.isneginf(x)], x[np.isnan(x)])
    assert all(100 < len(y) < 300 for y in found)


def test_a_recurrence_of_integers_bounds_no_input() -> None:
    spec = load_spec(
        "dim T = 3, N = 4\ninput W: i32[N]\noutput Y: i32[N]\n"
        "recur s[t: T, i: N] = (1 if s[t - 1, (i + 1) % N] == 2 else 0) if t > 0 else W[i]\nY[i] = s[T - 1, i]\n"
    )
    assert generate(spec).arrays["W"].shape == (4,)


def test_large_arguments_of_a_saturating_function_tie() -> None:
    text = "dim M = 4, N = 8\ninput X: f32[M, N]\noutput Y: i32[M]\nY[i] = argmax[j]({})\n"
    assert without_ties(load_spec(text.format("X[i, j] * 2"))) == {"random", "large-logits"}
    assert without_ties(load_spec(text.format("softcap(X[i, j], 30)"))) == {"random"}


def test_numbers_that_a_spec_promises_to_be_small_are_numbers_among_garbage_too() -> None:
    """No row reads a[0], so it is garbage; NaN has no nearest number of a magnitude up to 1."""
    spec = load_spec(
        "dim N = 9\ninput a: f32[N], x: f32[N]\noutput h: f32[N]\nassume abs(a[t]) <= 1\n"
        "recur h[t] = x[t] + (a[t + 1] * h[t + 1] if t + 1 < N else 0)\n"
    )
    for seed in range(4):
        assert np.all(np.abs(generate(spec, "garbage", seed).arrays["a"]) <= 1.0)


PROMISED = """dim N = 40
input x: f32[N], k: i32[N], w: i64[N], b: bool[N]
assume {fact}
output Y: f32[N]
Y[i] = x[i] + k[i] + w[i] + i32(b[i])
"""


@pytest.mark.parametrize(
    "fact",
    [
        "k[i] <= k[i + 1]", "2 * k[i] <= 7 and k[i] >= -3", "k[i] == 2 * k[i + 1] + 1", "k[i] % 8 == 0", "not b[i]",
        "b[i]",
        "abs(x[i]) < 2", "x[i] > 1.5", "x[i] <= x[i + 1]",
        # casts to narrower types, in which the values that were drawn wrap
        "i8(k[i]) >= 100", "i32(w[i]) == k[i]", "i32(w[i]) < 5", "i8(k[i]) <= i8(k[i + 1])", "u8(k[i]) == 200",
        "f16(x[i]) <= 1", "i32(w[i]) % 8 == 0",
    ],
)  # fmt: skip
def test_a_promise_holds_at_every_index_at_which_its_reads_are_inside(fact: str) -> None:
    spec, r = load_text(PROMISED.format(fact=fact)), np.random.default_rng(0)
    k, w = r.integers(-(2**31), 2**31, 40), r.integers(-(2**62), 2**62, 40)
    found = keep(spec, {"x": r.normal(size=40) * 5, "k": k, "w": w, "b": r.random(40) < 0.5}, {})
    (promise,) = spec.facts
    (axis,) = promise.axes
    last = 1 if "i + 1" in fact else 0
    padded = {n: np.append(x, x[:1]) for n, x in found.items()}
    held = exactly(Definition("", None, (axis,), promise.condition, False), padded, {})[0]
    assert held[: 40 - last].all()


@pytest.mark.parametrize("fact", ["i32(x[i]) == 3", "k[i] < k[i]"])
def test_a_promise_for_which_no_inputs_are_found_is_an_error(fact: str) -> None:
    spec = load_text(PROMISED.format(fact=fact))
    with pytest.raises(InputError, match="no inputs were found"):
        keep(spec, {"x": np.zeros(40), "k": np.zeros(40), "w": np.zeros(40), "b": np.zeros(40, bool)}, {})


@pytest.mark.parametrize("kind", ["random", "zeros", "equal"])
def test_inputs_differ_from_what_a_spec_excludes(kind: str) -> None:
    spec = load_text(
        "dim N = 99\ninput b: i32[N], d: i8[N], x: f32[N], e: i32[N]\noutput y: f32[N]\n"
        "y[t] = b[t] + d[t] + x[t] + e[t]\n"
        "assume b[t] != 0 and d[t] != b[t] and x[t] != 1 and e[t] % 2 != 0\n"
    )
    b, d, x, e = (generate(spec, kind, 0).arrays[n] for n in "bdxe")
    assert np.all((b != 0) & (d != b) & (x != 1) & (e % 2 != 0))


def test_scalars_without_a_default() -> None:
    assert [_number(t) for t in (DType.BOOL, DType.F32, DType.I32)] == [True, 0.5, 1]


def test_integers_rise_and_fall() -> None:
    spec = load_text("dim N = 16, V = 100\ninput X: f32[V], at: i32[N]\noutput Y: f32[N]\nY[i] = X[at[i]]\n")
    for kind, rises in (("ascending", True), ("descending", False)):
        at = generate(spec, kind=kind).arrays["at"]
        assert (at[0], at[-1]) == ((0, 99) if rises else (99, 0)) and np.all(np.diff(at) > 0) == rises


def test_aligned_sizes_are_multiples_of_16() -> None:
    assert all(n % 16 == 0 for sizes in _ALIGNED for n in sizes)

"""The verdict on every pass of compilations, and on faulty passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.check.inputs import generate, validation_inputs
from nautilus.check.levels import Level, Trace
from nautilus.check.validate import scalar_run, tile_run
from nautilus.check.validate.meanings import KNOWN, _pow, _power
from nautilus.check.validate.numbers import Constants, number
from nautilus.check.validate.refinement import Validator
from nautilus.check.validate.residues import P, of_integers
from nautilus.check.validate.scalar_run import Given
from nautilus.check.validate.verdict import Verdict
from nautilus.check.validation import verdicts
from nautilus.core.expr.nodes import OPS, Op
from nautilus.core.numerics import Array
from nautilus.driver import Request, compile_checked
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.ir import Update
from nautilus.vr_tile.ir import MapOp, ScanOp, walk_ops
from tests.check.planted import drop_repair, invert_repair, mutated, shift_mask, swap_tile
from tests.check.validate.specs import SPECS


@cache
def levels(text: str) -> tuple[Level, ...]:
    trace = Trace()
    compile_checked(Request(Path("t.naut"), text=text, until="vr-tile"), [trace])
    return tuple(x for x in trace.levels if x.stage in ("scalar", "vr-tile"))


def found(text: str, given: Sequence[Level]) -> dict[str, Verdict]:
    return {level.subject: v for level, v in verdicts(given, *points(text), 0)}


def points(text: str) -> tuple[list[Mapping[str, Array]], dict[str, Any]]:
    """Sets of inputs and the parameters."""
    spec = load_text(text)
    given = generate(spec)
    return validation_inputs(spec), {**given.scalars, **given.sizes}


#: phases of a Fourier transform: where both parts are 0 but for roundings, the quotient shows the order of the terms
PHASES = """
dim B = 2, T = 200, N = 16, HOP = 4
const F = T // HOP, K = N // 2 + 1
input x: f32[B, T], win: f32[N]
output ph: f32[B, F, K]
def refl(p) = -p if p < 0 else (2 * T - 2 - p if p >= T else p)
fr[b: B, f: F, n: N] = x[b, refl(f * HOP + n - N // 2)] * win[n]
re[b, f, k: K] = sum[n](fr[b, f, n] * cos(6.283185307179586 * ((k * n) % N) / N))
im[b, f, k: K] = -sum[n](fr[b, f, n] * sin(6.283185307179586 * ((k * n) % N) / N))
ph[b, f, k] = atan2(im[b, f, k], re[b, f, k] + 1e-8)
"""


@pytest.mark.parametrize("name", SPECS)
def test_every_pass_is_proved(name: str) -> None:
    made = levels(SPECS[name])
    got = found(SPECS[name], made)
    assert len(got) == len(made) - 1
    assert {k: v.text for k, v in got.items() if v.status != "proved"} == {}


def test_roundings_alone_refute_no_pass() -> None:
    assert [v.text for v in found(PHASES, levels(PHASES)).values() if v.status == "refuted"] == []


def test_what_a_tile_holds_behind_a_mask_is_refuted_unless_it_is_computed_again() -> None:
    text = SPECS["running maximum"].replace("M = 33, N = 77, D = 16", "M = 40, N = 40, D = 8").replace("i + 40", "i")
    made = levels(text)
    again = next(n for n, x in enumerate(made) if x.step == "recompute-masked")
    verdict = found(text, made[: again + 1])["scalar -> vr-tile"]
    assert (verdict.status, verdict.detail) == ("proved", "it moves inf and NaN")
    assert found(text, made[:again])["scalar -> vr-tile"].status == "refuted"


RULES: dict[str, list[Callable[[Any], Any]]] = {
    "rolling-update": [drop_repair, invert_repair],
    "split": [shift_mask],
    "fold-scale": [swap_tile("mul", "add"), swap_tile("max", "min")],
    "hoist": [swap_tile("exp2", "exp")],
}


@pytest.mark.parametrize("name", RULES)
def test_a_faulty_pass_is_refuted(name: str) -> None:
    text = SPECS["running maximum"]
    made = levels(text)
    at = next(k for k, x in enumerate(made) if x.step == name)
    for rule in RULES[name]:
        wrong = mutated(made[at].module, rule)
        assert wrong != made[at].module
        changed = [*made[:at], replace(made[at], module=wrong)]
        assert found(text, changed)[made[at].subject].status == "refuted"


def test_an_iteration_that_runs_twice_is_refuted() -> None:
    text = SPECS["rows"]
    made = levels(text)
    at = next(k for k, x in enumerate(made) if x.step == "split")

    def rule(n: Any) -> Any:
        if isinstance(n, tuple) and any(isinstance(x, Update) for x in n):
            return tuple(y for x in n for y in ((x, x) if isinstance(x, Update) else (x,)))
        return None

    wrong = mutated(made[at].module, rule)
    assert found(text, [*made[:at], replace(made[at], module=wrong)])[made[at].subject].status == "refuted"


def test_every_function_has_a_meaning() -> None:
    assert OPS.keys() <= KNOWN


@pytest.mark.parametrize("base", [0.5, 2.0, 3.0])
def test_powers_of_a_constant_have_its_value(base: float) -> None:
    k, exponents = Constants(), np.array([-1.5, 0.0, 2.5])
    found = _power(k, k.number(base), number(exponents, exponents.astype(np.int64), None))
    assert np.allclose(found.real, base**exponents)


def test_powers_of_integers_with_negative_exponents_are_rounded_to_zero() -> None:
    assert _pow(np.array([1, -1, -1, 2, 3]), np.array([-3, -3, -2, -1, 2])).tolist() == [1, -1, 1, 0, 9]


def test_a_root_of_a_negative_number_is_no_number() -> None:
    text = "input X: f32[8]\noutput Y: f32[8]\nY[i] = sqrt(X[i]) * sqrt(X[i])\n"
    made = levels(text)

    def rule(n: Any) -> Any:
        match n:
            case Op(op="mul", args=(Op(op="sqrt", args=(x,)), Op(op="sqrt"))):
                return x
        return None

    wrong = replace(made[1], module=mutated(made[0].module, rule))
    assert found(text, [made[0], wrong])[made[1].subject].status == "refuted"


def test_spaces_that_do_not_fit_in_memory_are_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "dim M = 40, N = 60\ninput X: f32[M, N]\noutput Y: f32[M, N]\nY[i, j] = exp(X[i, j]) if i + j < 70 else 0\n"
    given = levels(text)
    assert {v.status for v in found(text, given).values()} == {"proved"}
    for module in (scalar_run, tile_run):
        monkeypatch.setattr(module, "_MOST", 1000)
    refused = found(text, given).values()
    assert {v.status for v in refused} == {"not decided"}
    assert all("too large" in v.detail for v in refused)


TIES = """
    dim T = 7, H = 2, D = 16
    const R = D // 2
    input k: bf16[T, H, D], w: bf16[D], c: bf16[T, D]
    output o: i8[T, H, D], s: f16[T, H]
    n: bf16[t, h, d] = rms_norm[d](k[t, h, d], 1e-6) * w[d]
    r[t, h, d] = n[t, h, d] * c[t, d] - n[t, h, d + R] * c[t, d + R] if d < R else n[t, h, d] * c[t, d - R]
    s[t, h] = max(max[d](abs(r[t, h, d])) / 127, 1e-4)
    o[t, h, d] = i8(round(r[t, h, d] / s[t, h]))
"""


def test_integers_of_floats_at_a_tie_are_not_decided_by_their_roundings() -> None:
    """Elements of half the largest one are 63.5 steps; ``x / s`` and ``x * (1 / s)`` may be on either side."""
    made = levels(TIES)
    assert {k: v.text for k, v in found(TIES, made).items() if v.status == "refuted"} == {}
    last = made[-1].module
    wrong = mutated(last, lambda n: replace(n, op="floor") if isinstance(n, MapOp) and n.op == "round" else None)
    assert wrong != last and Validator(*points(TIES)).validate(last, wrong).status == "refuted"


def states(x: Array) -> Array:
    """``Y[j] = X[j] + Y[j - 1] - Y[j - 2]``, along the last axis."""
    out = np.zeros(x.shape)
    for j in range(x.shape[1]):
        out[:, j] = x[:, j] + (out[:, j - 1] if j > 0 else 0) - (out[:, j - 2] if j > 1 else 0)
    return out


#: a running result along the columns of X, and its value in numpy
SCANS: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "sums": ("Y[i, j] = sum[k | k <= j](X[i, k])", lambda x: np.cumsum(x, axis=1)),
    "sums of what follows": (
        "Y[i, j] = sum[k | k > j](X[i, k])", lambda x: np.cumsum(x[:, ::-1], axis=1)[:, ::-1] - x,
    ),
    "maxima from the end": (
        "Y[i, j] = max[k | k >= j](X[i, k])", lambda x: np.maximum.accumulate(x[:, ::-1], axis=1)[:, ::-1],
    ),
    "a recurrence": (
        "recur Y[i, j] = X[i, j] + ((0 if X[i, j] > 3 else 0 - Y[i, j - 1]) if j > 0 else 0)",
        lambda x: np.stack([*accumulate(x.T, lambda y, here: here + np.where(here > 3, 0.0, -y))], axis=1),
    ),
    "a filter": (
        "recur Y[i, j] = X[i, j] + (Y[i, j - 1] if j > 0 else 0) - (Y[i, j - 2] if j > 1 else 0)", states,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCANS)
def test_running_results_of_tiles_are_those_of_numpy(name: str) -> None:
    body, wanted = SCANS[name]
    text = f"dim M = 6, N = 77\ninput X: f32[M, N]\noutput Y: f32[M, N]\n{body}\n"
    request = Request(Path("t.naut"), "sm_90a", text=text, until="vr-tile", unpriced=frozenset({"scan-tiles"}))
    module = compile_checked(request).modules["vr-tile"]
    assert any(isinstance(op, ScanOp) for k in module.kernels for op in walk_ops(k.body))
    x = np.random.default_rng(0).integers(-5, 6, (6, 77)).astype(np.float64)
    made = tile_run.run(module, Given({"X": x}, {}, True), Constants())["Y"]
    assert np.array_equal(made.real, wanted(x)) and made.u is not None
    assert np.array_equal(made.u, of_integers(wanted(x).astype(np.int64), P))

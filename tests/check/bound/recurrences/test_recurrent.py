"""The bounds of recurrences: what they say of contracting, expanding and chaotic ones, and that results keep them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.bench.inputs import random_inputs
from nautilus.bench.verify import judge, references
from nautilus.check.bound import errors
from nautilus.check.bound import stated as stated_module
from nautilus.check.bound.bound import Bound, Steps
from nautilus.check.bound.program import in_chunks, passes, rounded
from nautilus.check.bound.recurrences import excerpt, profiles, recurrent
from nautilus.check.bound.recurrences.follows import Along, following
from nautilus.check.bound.recurrences.growth import _continued, _growth
from nautilus.check.bound.recurrences.stepwise import stepwise
from nautilus.check.bound.stated import _stated, stated
from nautilus.check.compare import relative
from nautilus.check.inputs import InputSet, generate
from nautilus.check.reference import Compiled, reference
from nautilus.check.run import check_spec
from nautilus.core.numerics import Array, from_storage, round_to, storage_array
from nautilus.driver import Request
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec, load_text
from nautilus.frontend.spec import Spec
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.recurrences import chunk_matrix_states
from nautilus.scalar.passes.recurrences.members.join_recurrences import JoinRecurrences
from nautilus.scalar.rewriting.recurrences import between

GALLERY = Path(__file__).parents[4] / "specs" / "gallery" / "scan" / "recurrence"
F = np.float32

LOGISTIC = """dim B = 16, T = {t}
input x: f32[B]
output h: f32[B, T]
recur h[b, t] = 4 * h[b, t - 1] * (1 - h[b, t - 1]) if t > 0 else sigmoid(x[b])
"""
ROTATION = """dim B = 16, T = {t}
input w: f32[B], x: f32[B]
output p: f32[B, T]
recur {{
  p[b, t: T] = cos(w[b]) * p[b, t - 1] - sin(w[b]) * q[b, t - 1] if t > 0 else x[b]
  q[b, t: T] = sin(w[b]) * p[b, t - 1] + cos(w[b]) * q[b, t - 1] if t > 0 else 0
}}
"""
EXPANDING = """dim B = 16, T = {t}
input x: f32[B, T]
output h: f32[B, T]
recur h[b, t] = {a} * h[b, t - 1] + x[b, t] if t > 0 else x[b, 0]
"""

PATHS = """dim B = 2, T = 120, S = 9
input x: f32[B, T, S]
output y: f32[B]
def top(a, b) = max(a, b) + log(exp(a - max(a, b)) + exp(b - max(a, b)))
recur h[b, t, s: S] = x[b, t, s] + top(h[b, t - 1, s], h[b, t - 1, s - 1] if s > 0 else -1e30) if t > 0 else (
    x[b, t, s] if s < 1 else -1e30)
y[b] = h[b, T - 1, S - 1]
"""
ROUTED = """dim T = 64, E = 4, C = 8, D = 16
input x: f32[T, D], e: i32[T]
output y: f32[E, C, D]
recur n[t: T, k: E] = n[t - 1, k] + i32(e[t] == k) if t > 0 else i32(e[t] == k)
y[k: E, c: C, d] = sum[t | e[t] == k and n[t, e[t]] - 1 == c](x[t, d])
"""


def logistic(x: dict[str, Array], steps: int) -> Array:
    h = [F(1) / (F(1) + np.exp(-x["x"].astype(F)))]
    for _ in range(steps - 1):
        h.append(F(4) * h[-1] * (F(1) - h[-1]))
    return np.stack(h, axis=1)


def rotation(x: dict[str, Array], steps: int) -> Array:
    c, s = np.cos(x["w"].astype(F)), np.sin(x["w"].astype(F))
    real: Array = x["x"].astype(F)
    imaginary: Array = np.zeros(16, F)
    out = [real]
    for _ in range(steps - 1):
        before = real
        real = c * before - s * imaginary
        imaginary = s * before + c * imaginary
        out.append(real)
    return np.stack(out, axis=1)


def doubling(x: dict[str, Array], steps: int) -> Array:
    return expanding(x, steps, 1.5)


def expanding(x: dict[str, Array], steps: int, factor: float = 1.1) -> Array:
    h = [x["x"][:, 0].astype(F)]
    with np.errstate(all="ignore"):
        for t in range(1, steps):
            h.append(F(factor) * h[-1] + x["x"][:, t].astype(F))
    return np.stack(h, axis=1)


def lstm(x: dict[str, Array], steps: int) -> Array:
    given = {n: a.astype(F) for n, a in x.items()}
    z = np.einsum("btd,gdi->btgi", given["X"], given["W"]) + given["bias"]
    h = c = np.zeros((z.shape[0], z.shape[3]), F)
    out = []
    for t in range(steps):
        i, g, f, o = np.moveaxis(z[:, t] + np.einsum("bj,gji->bgi", h, given["U"]), 1, 0)
        c = np.tanh(g) * sigmoid(i) + sigmoid(f) * c
        h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.stack(out, axis=1)


def delta_rule(x: dict[str, Array], steps: int) -> Array:
    q, k, v, gate, beta = (x[n].astype(F) for n in ("q", "k", "v", "gate", "beta"))
    state = np.zeros((*q.shape[:2], q.shape[3], q.shape[3]), F)
    out = []
    with np.errstate(all="ignore"):
        for t in range(steps):
            g = gate[:, :, t, None]
            error = beta[:, :, t, None] * (v[:, :, t] - g * np.einsum("bhde,bhd->bhe", state, k[:, :, t]))
            state = k[:, :, t, :, None] * error[:, :, None] + g[..., None] * state
            out.append(np.einsum("bhd,bhde->bhe", q[:, :, t], state))
    return np.stack(out, axis=2)


def sigmoid(x: Array) -> Array:
    return F(1) / (F(1) + np.exp(-x))


def gallery(name: str, **dims: int) -> Spec:
    return load_spec(GALLERY / f"{name}.naut", dims=dims)


CASES = {
    "logistic": (load_text(LOGISTIC.format(t=96)), logistic, 96),
    "rotation": (load_text(ROTATION.format(t=200)), rotation, 200),
    "expanding": (load_text(EXPANDING.format(t=200, a=1.1)), expanding, 200),
    "out of range": (load_text(EXPANDING.format(t=300, a=1.5)), doubling, 300),
    "lstm": (gallery("lstm", B=2, T=64, D=32, H=64), lstm, 64),
    "delta rule": (gallery("delta_rule", B=1, H=2, T=96, D=16), delta_rule, 96),
}


@pytest.mark.parametrize("name", CASES)
def test_a_result_in_f32_is_within_the_bound(name: str) -> None:
    (spec, kernel, steps), seed = CASES[name], 1
    (output,) = spec.outputs
    bounds = stated(spec)
    raw = random_inputs(spec, seed, {})
    arrays = {t.name: from_storage(raw[t.name], t.dtype) for t in spec.inputs}
    got = round_to(kernel(arrays, steps), output.dtype)
    known = references(spec, raw, {}, bounds, seed)
    verdict = judge(known, {output.name: storage_array(got, output.dtype)}, is_peer=False)
    assert verdict.ok, verdict.detail
    ref = reference(Compiled(spec), InputSet("random", seed, arrays), bounds)
    target = ref.against(output.name, {output.name: got})
    error = relative(bounds[output.name].cut(got), bounds[output.name].cut(target.rounded))
    assert error <= bounds[output.name].relative


def test_errors_that_do_not_grow_have_a_bound_of_the_whole() -> None:
    for name, most in (("rotation", 1e-4), ("expanding", 1e-3)):
        (bound,) = stated(CASES[name][0]).values()
        assert bound.relative < most and not bound.stepwise and bound.steps is None


def test_a_chaotic_recurrence_has_the_bound_of_a_step_from_the_state_that_its_result_shows() -> None:
    for name, most in (("logistic", 1e-5), ("lstm", 1e-2)):
        (bound,) = stated(CASES[name][0]).values()
        assert bound.stepwise and bound.relative < most
        assert "in a step from the result of the step before" in bound.text


def test_values_that_leave_the_range_have_a_bound_for_the_first_steps() -> None:
    (bound,) = stated(CASES["out of range"][0]).values()
    assert bound.steps is not None and 1 <= bound.steps.count < bound.steps.total
    assert f"in the first {bound.steps.count} of {bound.steps.total} steps" in bound.text


def test_a_long_recurrence_that_grows_slowly_is_not_taken_for_one_that_does_not() -> None:
    text = LOGISTIC.format(t=4096).replace("4 * h[b, t - 1]", "3.6 * h[b, t - 1]")
    assert stated(load_text(text))["h"].stepwise


def test_the_last_value_of_a_chaotic_recurrence_has_no_bound() -> None:
    hidden = LOGISTIC.format(t=96).replace("output h: f32[B, T]", "output y: f32[B]").replace("h[b, t]", "h[b, t: T]")
    spec = load_text(hidden + "y[b] = h[b, T - 1]\n")
    bound = stated(spec)["y"]
    assert bound == Bound(float("inf"))
    assert "not bounded" in bound.text
    assert stated(load_text(hidden.replace("T = 96", "T = 5") + "y[b] = h[b, T - 1]\n"))["y"].relative < 1e-4


def test_axes_of_a_result_that_no_state_has_are_evaluated_at_few_positions() -> None:
    assert following(load_text(ROUTED))["y"] == Along(None, 64, False, frozenset((0, 1, 2)))


@pytest.mark.filterwarnings("error")
def test_an_error_that_has_no_bound_at_the_first_steps_gives_no_warning() -> None:
    assert stated(load_text(PATHS.replace("-1e30", "-3e38")))["y"] == Bound(float("inf"))


def test_a_large_number_that_stands_for_no_path_is_one_number() -> None:
    assert stated(load_text(PATHS))["y"].relative < 1e-5


def test_a_step_that_is_wrong_is_found_in_a_chaotic_recurrence() -> None:
    spec, kernel, steps = CASES["logistic"]
    raw = random_inputs(spec, 1, {})
    got = kernel(raw, steps)
    known = references(spec, raw, {}, stated(spec), 1)
    assert judge(known, {"h": got}, is_peer=False).ok
    for row in got[:, 60:]:
        row *= F(1.001)  # close to an orbit of the map everywhere, and none itself
    assert not judge(known, {"h": got}, is_peer=False).ok


def test_single_steps_over_the_reals_are_the_recurrence() -> None:
    spec = gallery("gru", B=2, T=6, D=5, H=7)
    raw = random_inputs(spec, 3, {})
    arrays = {t.name: from_storage(raw[t.name], t.dtype) for t in spec.inputs}
    exact = run_spec(spec, arrays)
    single = stepwise(spec)
    assert single is not None and all(d.recurrence is None for d in single.spec.definitions)
    assert single.errors == {"%Y": 2.0**-11}
    found = run_spec(single.spec, {**arrays, **single.inputs(exact)})
    np.testing.assert_allclose(found["Y"], exact["Y"], rtol=1e-12)


def test_a_state_that_no_output_shows_remains_a_recurrence() -> None:
    single = stepwise(gallery("lstm", B=2, T=6, D=5, H=7))
    assert single is not None and single.outputs == {"%Y": "Y"}
    assert all(single.spec.definition(n).recurrence is not None for n in ("c", "h", "G"))
    assert stepwise(gallery("delta_rule", B=1, H=1, T=4, D=4)) is None


def test_the_first_steps_of_a_reversed_recurrence_are_at_the_end() -> None:
    x = np.arange(8).reshape(2, 4)
    assert Steps(1, 3, 4, reverse=True).cut(x).tolist() == [[1, 2, 3], [5, 6, 7]]
    assert Steps(1, 3, 4).cut(x).tolist() == [[0, 1, 2], [4, 5, 6]]


def test_check_compares_the_steps_of_a_chaotic_recurrence() -> None:
    request = Request(Path("logistic.naut"), "sm_90a", text=LOGISTIC.format(t=64).replace("B = 16", "B = 2"))
    report = check_spec(request, device="cpu", full_size=True, only=["random"])
    assert [o.text for o in report.outcomes if o.status == "fail"] == []
    results = [o for o in report.outcomes if o.check == "result"]
    assert results and all(o.allowed is not None and o.allowed < 1e-5 for o in results)


POWERS = """dim N = {n}, T = 20
input A: f32[N, N]
output r: f32[N]
recur p[t: T, i: N] = 0.1 / N + 0.5 * sum[j](A[i, j] * p[t - 1, j]) if t > 0 else 1 / N
r[i: N] = p[T - 1, i]
"""


def test_a_step_of_many_points_has_no_bound() -> None:
    small, large = (stated(load_text(POWERS.format(n=n)))["r"] for n in (64, 16384))
    assert small.relative < 1e-3 and not small.too_large
    assert large.too_large and large.grows and "too large" in large.text


FEW = """dim B = 2, T = 40, W = 3
input x: f32[B, T, W], w: f32[W, W]
output y: f32[B], h: f32[B, T, W]
recur h[b, t, i: W] = tanh(sum[j](w[i, j] * h[b, t - 1, j]) + x[b, t, i]) if t > 0 else x[b, 0, i]
y[b] = max[i](h[b, T - 1, i])
"""


def test_inputs_of_few_elements_are_evaluated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, runs = load_text(FEW, "few"), list[int]()

    def counted(*given: Any, **more: Any) -> dict[str, Array]:
        runs.append(1)
        return run_spec(*given, **more)

    monkeypatch.setattr(errors, "run_spec", counted)
    together = stated(spec)
    assert len(runs) < 10
    monkeypatch.setattr(excerpt, "_FEW_POINTS", 0)
    stated_module._stated.cache_clear()
    stated_module._bounds.cache_clear()
    alone = stated(spec)
    assert len(runs) > 30
    for name in ("y", "h"):
        assert 0.6 < together[name].relative / alone[name].relative < 1.6


def test_single_steps_of_few_elements_are_evaluated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_text(LOGISTIC.format(t=96).replace("B = 16", "B = 2"), "few")
    monkeypatch.setattr(excerpt, "FEW", 1 << 20)
    together = stated(spec)["h"]
    monkeypatch.setattr(excerpt, "_FEW_POINTS", 0)
    stated_module._stated.cache_clear()
    stated_module._bounds.cache_clear()
    alone = stated(spec)["h"]
    assert together.stepwise and alone.stepwise and 0.6 < together.relative / alone.relative < 1.6


GATED = """
dim B = 2, T = 64, H = 64
input x: f32[B, T, H], u: f32[H, H]
output y: f32[B, T, H]
recur {
  c[b, t, h] = x[b, t, h] + (sigmoid(x[b, t, h]) * c[b, t - 1, h] if t > 0 else 0)
  y[b, t, h] = tanh(c[b, t, h]) * tanh(x[b, t, h] + (sum[k](9 * u[h, k] * y[b, t - 1, k]) if t > 0 else 0))
}
"""


def test_single_steps_have_the_positions_of_the_recurrence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of single steps are as long as those of the recurrence, whose inputs and states they take."""
    monkeypatch.setattr(recurrent, "BUDGET", 1 << 12)
    assert stated(load_text(GATED, "gated"))["y"].stepwise


MATRIX = """
dim H = 4, T = 70, D = 32, E = 24
input q: {t}[H, T, D], k: {t}[H, T, D], v: {t}[H, T, E], g: f32[H, T]
output Y: f32[H, T, E]
recur {{
  S[h, t, d, e] = sigmoid(g[h, t]) * (S[h, t - 1, d, e] if t > 0 else 0) + k[h, t, d] * v[h, t, e]
  Y[h, t, e] = sum[d](q[h, t, d] * S[h, t, d, e])
}}
"""


def in_matrix_chunks(spec: Spec, length: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Program, float]:
    """``spec`` with its matrix state in chunks of ``length`` steps, and the bound that is stated for ``Y`` then."""
    monkeypatch.setattr(chunk_matrix_states, "chosen_length", lambda *_: length)
    _stated.cache_clear()
    in_chunks.cache_clear()
    figure = stated(spec)["Y"].relative
    _stated.cache_clear()
    in_chunks.cache_clear()
    program = JoinRecurrences().apply(lower(spec))
    program, _ = chunk_matrix_states.ChunkMatrixStates(spec).derive(program)
    for p in passes(spec=spec):
        program = between(lambda part, p=p: (p.apply(part), lambda: None), program)  # type: ignore[misc]
    return program, figure


@pytest.mark.parametrize(("dtype", "unit"), [("bf16", 2.0**-8), ("f16", 2.0**-11), ("f32", 2.0**-22)])
def test_the_bound_of_a_matrix_state_includes_the_roundings_of_its_chunks(
    dtype: str, unit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = load_text(MATRIX.format(t=dtype))
    steps = stated(spec)["Y"].relative
    program, figure = in_matrix_chunks(spec, 16, monkeypatch)
    for kind in ("random", "large-logits", "equal", "constant-columns"):
        inputs = generate(spec, kind).arrays
        want, got = run_spec(spec, inputs)["Y"], run_program(program, inputs, {}, "typed")["Y"]
        assert relative(got, want) < figure
    assert figure == steps if dtype == "f32" else unit < figure < 4 * unit


DELTA = """
dim H = 4, T = 70, D = 32, E = 24
input q: {t}[H, T, D], k: {t}[H, T, D], v: {t}[H, T, E], g: f32[H, T], b: f32[H, T]
output Y: f32[H, T, E]
assume abs(k[h, t, d]) < inf
recur {{
  w[h, t, e] = sigmoid(b[h, t]) * (v[h, t, e] - (A * {s} * sum[d](k[h, t, d] * S[h, t - 1, d, e]) if t > 0 else 0))
  S[h, t, d, e] = A * (S[h, t - 1, d, e] if t > 0 else 0) + {s} * k[h, t, d] * w[h, t, e]
  Y[h, t, e] = sum[d](q[h, t, d] * S[h, t, d, e])
}}
"""


@pytest.mark.parametrize("scale", ["0.1", "0.25"])
@pytest.mark.parametrize(("dtype", "unit"), [("bf16", 2.0**-8), ("f16", 2.0**-11), ("f32", 2.0**-22)])
def test_the_bound_of_a_delta_rule_includes_the_roundings_of_its_chunks(
    dtype: str, unit: float, scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = load_text(DELTA.format(t=dtype, s=scale).replace("A *", "sigmoid(2 + g[h, t]) *"))
    steps = stated(spec)["Y"].relative
    program, figure = in_matrix_chunks(spec, 32, monkeypatch)
    inputs = generate(spec, "random").arrays
    error = relative(run_program(program, inputs, {}, "typed")["Y"], run_spec(spec, inputs)["Y"])
    assert figure / 16 < error < figure or dtype == "f32"
    assert error < figure == steps if dtype == "f32" else unit < figure < 8 * unit


def test_outputs_of_several_shapes_are_taken_at_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """At rows of their own, each of them would need all rows of the state."""
    sizes: list[int] = []

    def generated(spec: Spec, *given: Any, **more: Any) -> InputSet:
        made = generate(spec, *given, **more)
        sizes.append(sum(x.size for x in made.arrays.values()))
        return made

    monkeypatch.setattr(profiles, "generate", generated)
    text = "dim R = 4096, S = 48\ninput D: f32[R, S]\ninput C: f32[R, S, 3]\n"
    text += "output color: f32[R, 3]\noutput acc: f32[R]\n"
    text += "recur T[r: R, s: S] = T[r, s - 1] + abs(D[r, s]) if s > 0 else 0\n"
    text += "color[r, c] = sum[s](exp(-T[r, s]) * C[r, s, c])\nacc[r] = sum[s](exp(-T[r, s]))\n"
    bounds = stated(load_text(text))
    assert all(0.0 < bounds[name].relative < 1e-3 for name in ("color", "acc"))
    assert 0 < max(sizes) < 4096 * 48


@pytest.mark.parametrize("order", ["u <= t", "u >= t"])
def test_scans_that_become_recurrences_have_the_roundings_of_their_steps(order: str) -> None:
    """Plain f32 arithmetic, step by step, is within the figure."""
    text = "dim M = 16, N = 256\ninput X: f32[M, N]\noutput Y: f32[M, N]\n"
    text += f"m[i, t: N] = max[u: N | {order}](X[i, u])\nY[i, t] = sum[u: N | {order}](exp(X[i, u] - m[i, t]))\n"
    spec = load_text(text)
    program, given = rounded(spec), generate(spec, "random", 3)
    assert [d.name for d in program.definitions if d.recurrence is not None] == ["m", "Y_relative"]
    want = run_spec(spec, given.arrays)["Y"]
    assert np.allclose(run_spec(program, given.arrays)["Y"], want, rtol=1e-9)
    x, got = given.arrays["X"].astype(F), np.zeros((16, 256), F)
    before, total = np.full(16, -np.inf, F), np.zeros(16, F)
    for t in range(256) if order == "u <= t" else reversed(range(256)):
        now = np.maximum(before, x[:, t])
        total = total * np.exp(before - now) + np.exp(x[:, t] - now)
        before, got[:, t] = now, total
    error = relative(got, want)
    assert error <= stated(spec)["Y"].relative < 20.0 * error


def test_the_largest_element_before_each_one_is_a_recurrence() -> None:
    """As that of few terms it would be no bound of all elements."""
    spec = load_text(
        "dim M = 16, N = 256\ninput X: f32[M, N]\noutput Y: f32[M, N]\nY[i, t] = logsumexp[u: N | u < t](X[i, u])\n"
    )
    program, given = rounded(spec), generate(spec, "random", 3).arrays
    assert [d.name for d in program.definitions if d.recurrence is not None] == ["Y_max", "Y_sum_relative"]
    assert np.allclose(run_spec(program, given)["Y"], run_spec(spec, given)["Y"], rtol=1e-9)


def test_outputs_without_elements_have_no_error() -> None:
    """A launch without rows: the other outputs keep their bounds."""
    text = """dim B = runtime, T = 60
input x: f32[B, T], y: f32[T]
output h: f32[B, T], g: f32[T]
recur h[b, t] = 0.5 * h[b, t - 1] + x[b, t] if t > 0 else x[b, 0]
recur g[t] = 0.5 * g[t - 1] + y[t] if t > 0 else y[0]
"""
    found = stated(load_text(text, dims={"B": 0}, keep_runtime=True))
    assert found["h"].relative == 0 < found["g"].relative < 1e-6


def test_errors_go_on_as_powers_or_exponentials_of_the_steps() -> None:
    assert _growth([(0, 1e-7), (0, 1e-7), (1, 1e-6)]) == (0.0, 0.0, False)  # one step
    assert _continued([(32, 5e-7), (64, 1e-6), (128, 2e-6)], 1024) == pytest.approx(1.6e-5)  # linear
    assert _continued([(32, 1e-6), (64, 1e-6), (128, 1e-6)], 512) == pytest.approx(2e-6)  # at least the square root
    assert _continued([(5, 1e-7), (10, 1e-6), (20, 1e-3)], 30) == pytest.approx(1.0)  # a thousandfold every ten steps


@pytest.mark.parametrize("weight", [0.1, 0.3])
def test_roundings_that_do_not_average_out_are_in_the_bound(weight: float) -> None:
    """A fused multiply-add rounds ``u + 0.1 * x`` in one direction where ``x`` is five units in the last place."""
    text = f"""dim B = 4, N = 200, T = 200
    input x: f32[B, N]
    output y: f32[B, N]
    recur u[b: B, t: T, i: N] = x[b, i] if t == 0 else (
        u[b, t - 1, i] + {weight} * ((u[b, t - 1, i - 1] if i > 0 else 0) - 2 * u[b, t - 1, i]
                                     + (u[b, t - 1, i + 1] if i < N - 1 else 0)))
    y[b, i] = u[b, T - 1, i]
    """
    spec = load_text(text)
    x = np.random.default_rng(0).standard_normal((4, 200)).astype(F)

    def steps(u: Array, c: float, nearest: bool) -> Array:
        for _ in range(199):
            left, right = np.zeros_like(u), np.zeros_like(u)
            left[:, 1:], right[:, :-1] = u[:, :-1], u[:, 1:]
            made = np.float64(c) * ((left - 2 * u) + right) + np.float64(1.0) * u
            u = made.astype(F) if nearest else made
        return u

    fused, exact = steps(x, float(F(weight)), True), steps(x.astype(np.float64), weight, False)
    error = float(relative(fused.astype(np.float64), exact, float(np.linalg.norm(exact))))
    (bound,) = stated(spec, "fast").values()
    assert error < bound.relative < 8 * error

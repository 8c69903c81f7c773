"""The parts of a check, each on its own: steps, agreement, the GPU, references, the worst outcome, and inputs."""

from __future__ import annotations

from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nautilus.check import device, validation
from nautilus.check.bound.bound import Bound
from nautilus.check.check import Check
from nautilus.check.input_sets import Clock, input_sets
from nautilus.check.inputs import InputSet, _beyond_reals, _tensor, generate, kinds, validation_inputs
from nautilus.check.levels import Level
from nautilus.check.reference import Target, _overflows
from nautilus.check.report import Outcome, Report
from nautilus.check.sizes import _ALIGNED, _LARGER, _ODD
from nautilus.core.errors import ToolchainError
from nautilus.core.types import DType
from nautilus.driver import Request
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Tensor
from nautilus.scalar.lowering import lower

ROWS = "dim M = 6, N = 50\ninput X: f32[M, N], v: f32[N]\noutput Y: f32[M]\nY[i] = sum[j](X[i, j] * v[j])\n"


def check(on: str = "cpu") -> Check:
    report = Report("given", "sm_80")
    return Check(report, Request(Path("given.naut"), "sm_80", text=ROWS), None, 0, on, None)


def level(step: str, text: str = ROWS) -> Level:
    return Level("scalar", step, lower(load_text(text)), False, f"scalar/{step}")


@pytest.mark.parametrize(("seconds", "wanted"), [
    (inf, [("a", "b", "b"), ("b", "c", "c"), ("c", "d", "d")]),
    (-1.0, [("a", "d", "")]),
])  # fmt: skip
def test_steps_are_compared_one_by_one_or_together(seconds: float, wanted: list[tuple[str, str, str]]) -> None:
    levels, seen, mine = [level(s) for s in "abcd"], list[tuple[str, str, str]](), check()

    def pair(a: Level, b: Level, subject: Level | None) -> bool:
        seen.append((a.step, b.step, subject.step if subject else ""))
        return True

    mine.every_step(levels, pair, seconds)
    assert seen == wanted
    together = [o.subject for o in mine.report.outcomes if o.message == "compared together with the steps after it"]
    assert together == ([] if seconds > 0 else ["scalar/b", "scalar/c", "scalar/d"])


def test_the_last_step_is_compared_on_its_own_and_a_wrong_one_is_found_in_between() -> None:
    levels, seen = [level(s) for s in "abc"], list[tuple[str, str, str]]()

    def pair(a: Level, b: Level, subject: Level | None) -> bool:
        seen.append((a.step, b.step, subject.step if subject else ""))
        return subject is not None

    check().every_step(levels, pair, -1.0)
    assert seen == [("a", "c", ""), ("a", "b", "b"), ("b", "c", "c")]
    seen.clear()
    check().every_step(levels[:2], pair, -1.0)
    assert seen == [("a", "b", "b")]


@pytest.mark.parametrize(("by", "fine"), [(0.0, True), (1e-8, True), (1e-4, False), (0.5, False)])
def test_steps_without_a_reference_agree_to_a_millionth(by: float, fine: bool) -> None:
    mine, a = check(), level("a")
    left = {"Y": np.linspace(1.0, 2.0, 6)}
    right = {"Y": left["Y"] * (1.0 + by)}
    given = InputSet("random", 0, {})
    assert mine.agree(a, left, right, given, None, level("b")) is fine
    assert [o.status for o in mine.report.outcomes] == ["ok" if fine else "fail"]


def test_a_run_on_a_gpu_that_is_not_there_fails_where_it_is_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "gpu_missing", lambda arch: f"no GPU for {arch}")
    result: Any = SimpleNamespace(modules={"cuda": None})
    none: Any = SimpleNamespace(modules={"ma-tile": None})
    for on, wanted in (("cpu", []), ("auto", ["skip"]), ("cuda", ["fail"])):
        mine = check(on)
        mine.variant = SimpleNamespace(text="", spec=None)  # type: ignore[assignment]
        mine.gpu(None, [])
        mine.gpu(none, [])
        assert mine.report.outcomes == []
        mine.gpu(result, [])
        assert [(o.check, o.status, o.message) for o in mine.report.outcomes] == [
            ("gpu", s, "no GPU for sm_80") for s in wanted
        ]
        mine.variant = None
        mine.gpu(result, [])
        assert len(mine.report.outcomes) == len(wanted)


def test_the_reason_for_which_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_device() -> Any:
        raise ToolchainError("libcuda", "no driver\nmore about it")

    from nautilus.runtime import device as runtime

    monkeypatch.setattr(runtime, "open_device", no_device)
    assert device.gpu_missing("sm_80") == "libcuda: no driver"
    monkeypatch.setattr(runtime, "open_device", lambda: SimpleNamespace(arch="sm_90a"))
    monkeypatch.setattr(runtime, "runs_on", lambda arch, device: arch == device.arch)
    assert device.gpu_missing("sm_80") == "the GPU is sm_90a, the kernel is for sm_80"
    assert device.gpu_missing("sm_90a") == ""


def test_the_iterations_of_each_pass_have_a_verdict() -> None:
    mine = check()
    mine.trace.levels += [level("lower"), level("simplify")]
    mine.index_sets()
    assert [(o.check, o.subject, o.status) for o in mine.report.outcomes] == [("iterations", "scalar/simplify", "ok")]


def test_the_share_of_an_allowed_error() -> None:
    """It is relative to the norm of the result, or to that of its terms where these cancel."""
    target = Target(np.array([0.3, 0.4]), np.array([0.3, 0.4]), 0.05)
    for relative, allowed in ((0.0, 0.1), (0.1, 0.1), (0.05, 0.05)):
        measured, found = target.relative(np.array([0.3, 0.41]), Bound(relative))
        assert found == pytest.approx(allowed) and measured == pytest.approx(0.01 * found / 0.05)
    nothing = Target(np.zeros(2), np.zeros(2), 0.05)
    assert nothing.relative(np.zeros(2), Bound(0.0))[1] == 0.05


@pytest.mark.parametrize(("dtype", "value", "overflows"), [
    ("f32", 1e38, False), ("f32", 1e39, True), ("f32", -1e39, True), ("f64", 1e300, False), ("f32", inf, False),
    ("f16", 1e6, False), ("bf16", 1e39, False),
])  # fmt: skip
def test_numbers_that_an_output_of_32_bits_does_not_have(dtype: str, value: float, overflows: bool) -> None:
    (t,) = load_text(f"dim N = 2\ninput X: f32[N]\noutput Y: {dtype}[N]\nY[i] = X[i]\n").outputs
    assert _overflows(t, {"Y": np.array([0.0, value])}) is overflows


def test_the_worst_outcome_is_one_of_a_result_that_was_measured() -> None:
    report = Report("given", "sm_80")

    def add(check: str, status: Any, measured: float | None, output: str = "Y") -> None:
        report.add(Outcome(check, "cuda", status, output=output, measured=measured, allowed=1.0))

    add("result", "ok", 0.2)
    add("result", "ok", 0.4)
    add("result", "ok", 0.3)
    add("result", "skip", 0.9)
    add("result", "ok", None, "Z")
    add("gpu", "fail", 2.0)
    add("lowering", "ok", 0.7)
    add("certificate", "ok", None)
    assert {k: o.measured for k, o in report.worst().items()} == {"result Y": 0.4, "gpu Y": 2.0}


def test_odd_sizes_fill_no_vectors_and_aligned_ones_do() -> None:
    """Sizes of one set differ; the second set of odd sizes is that of the first one where it is too much work."""
    for pools, multiple in ((_ODD, False), (_ALIGNED, True), (_LARGER, True)):
        assert all(len({*pool}) == len(pool) == 6 for pool in pools)
        assert all((n % 16 == 0) is multiple and (multiple or n % 4 != 0) for pool in pools for n in pool)
    assert all(small < large for large, small in zip(*_ODD, strict=True))


def test_a_second_random_set_follows_the_first_one() -> None:
    spec = load_text(ROWS)
    found = [(x.kind, x.seed) for x, _ in input_sets(spec, None, {}, 7)]
    rest = [(k, 7) for k in kinds(spec) if k not in ("random", "huge")]
    assert found == [("random", 7), ("random", 8), *rest]
    assert [(x.kind, x.seed) for x, _ in input_sets(spec, None, {}, 7, ["equal"])] == [("equal", 7)]


def test_few_rows_of_a_matrix_have_elements_beyond_the_reals() -> None:
    spec = load_text(ROWS)
    arrays = _beyond_reals(spec, generate(spec, "random", 0))
    lowest = -np.finfo(np.float32).max

    def special(x: Any) -> int:
        return int(np.count_nonzero(~np.isfinite(x) | (x == 0.0) | (x == lowest)))

    assert {n: special(x) for n, x in arrays.items()} == {"X": 3, "v": 50 // 6}


def test_integers_of_which_none_is_a_position_have_the_whole_range_of_their_type() -> None:
    text = "dim N = 4000\ninput a: i8[N], b: i16[N], c: i32[N], d: i64[N]\noutput Y: i64[N]\n"
    text += "Y[i] = i64(a[i]) + b[i] + c[i] + d[i]\n"
    arrays = validation_inputs(load_text(text))[-1]
    for name, bits in (("b", 16), ("c", 32), ("d", 64)):
        x = arrays[name].astype(np.float64)
        assert x.min() < -0.95 * 2.0 ** (bits - 1) and 0.95 * 2.0 ** (bits - 1) < x.max() <= 2.0 ** (bits - 1)


@pytest.mark.parametrize("kind", ["huge", "tiny"])
def test_extreme_numbers_have_both_signs(kind: str) -> None:
    t = Tensor("X", DType.F16, (400,))
    x = _tensor(t, (400,), kind, np.random.default_rng(0), {}, 0.5)
    low, high = (65504.0 / 4, 65504.0 / 2) if kind == "huge" else (2.0**-24, 2.0**-7)
    assert np.all((low <= np.abs(x)) & (np.abs(x) <= high))
    assert 150 < np.count_nonzero(x > 0) < 250


def test_one_hot_rows_have_one_at_any_place() -> None:
    x = _tensor(Tensor("X", DType.F16, (300, 5)), (300, 5), "one-hot", np.random.default_rng(0), {}, 1.0)
    assert np.all(x.sum(axis=1) == 1.0) and np.all((x == 0.0) | (x == 1.0))
    places = np.bincount(x.argmax(axis=1), minlength=5)
    assert places.min() > 35 and places.max() < 85


def test_what_the_gpu_refuses_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise ToolchainError("ptxas", "no registers")

    monkeypatch.setattr(device, "gpu_missing", lambda arch: "")
    monkeypatch.setattr(device, "opened", refused)
    mine, result = check("cuda"), SimpleNamespace(modules={"cuda": None})
    mine.variant = SimpleNamespace(text="", spec=None)  # type: ignore[assignment]
    mine.gpu(result, [])  # type: ignore[arg-type]
    assert [(o.status, o.message) for o in mine.report.outcomes] == [("fail", "ptxas: no registers")]


def test_time_that_is_over_is_no_time() -> None:
    assert Clock(-1.0).left == 0.0 and Clock(-1.0).part(0.5).seconds == 0.0
    assert 0.0 < Clock(100.0).part(0.5, 7.0).left <= 7.0


def test_outputs_that_grow_or_are_approximated_are_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    mine = check()
    mine.bounds = {"grows": Bound(inf), "near": Bound(0.1), "plain": Bound(0.1)}
    monkeypatch.setattr(Check, "approximated", lambda self, name, step: name == "near")

    def verdicts(levels: object, *args: Any) -> list[object]:
        seen.append(args[3](level("a")))
        return []

    monkeypatch.setattr(validation, "verdicts", verdicts)
    mine.validation(load_text(ROWS))
    assert seen == [["grows", "near"]]


def test_a_report_names_what_was_not_checked() -> None:
    report = Report("given", "sm_80")
    report.add(Outcome("gpu", "kernel", "skip", "no driver"))
    report.add(Outcome("gpu", "kernel", "skip", "no driver"))
    report.add(Outcome("result", "Y", "ok"))
    report.add(Outcome("iterations", "scalar/a", "skip", "not affine"))
    assert [line for line in report.text().splitlines() if "not checked" in line] == [
        "  not checked: gpu kernel: no driver (2 times)"
    ]

"""The checker as a whole: clean compilations pass, planted faults fail and are named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nautilus.check import check as check_module
from nautilus.check import levels
from nautilus.check.inputs import InputSet
from nautilus.check.report import Outcome, Report
from nautilus.check.run import check_spec
from nautilus.cli.main import main
from nautilus.core.errors import DiagnosticError
from nautilus.core.types import DType
from nautilus.driver import Request, Result, compile_checked, compile_file
from nautilus.passes import loading
from nautilus.passes.manager import Instrument
from tests.check import planted

ATTENTION = """dim M = 40, N = 150, D = 16
input  Q: f16[M, D]
input  K: f16[N, D]
input  V: f16[N, D]
output O: f16[M, D]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(D)
P[i, j] = softmax[j | j - i <= N - M](S[i, j])
O[i, d] = sum[j](P[i, j] * V[j, d])
"""
SHORT_ATTENTION = ATTENTION.replace("M = 40, N = 150", "M = 20, N = 70")  # two blocks of keys
ROWS = """dim M = 30, N = 77
input  X: f32[M, N]
input  keep: bool[M, N]
output Y: f32[M, N]
output top: i32[M]
Y[i, j] = softmax[j | keep[i, j]](X[i, j])
top[i] = argmax[j](X[i, j])
"""
GATHER = """dim M = 19, T = 40, D = 24
input  E: bf16[T, D]
input  token: i32[M]
scalar s: f32 = 0.5
output Y: f16[M, D]
Y[i, d] = E[token[i], d] * s + 1
"""


def checked(text: str, *only: str, **options: Any) -> Report:
    request = Request(Path("given.naut"), "sm_80", text=text)
    return check_spec(request, device="cpu", full_size=True, only=only or None, **options)


@pytest.mark.parametrize("text", [ATTENTION, ROWS, GATHER], ids=["attention", "rows", "gather"])
def test_a_clean_compilation_passes(text: str) -> None:
    report = checked(text)
    assert report.ok, report.text()
    assert report.exit_code == 0
    done = {o.check for o in report.outcomes if o.status == "ok"}
    assert {"pass", "lowering", "result"} <= done
    assert not [o for o in report.outcomes if o.status == "skip" and o.check == "compile"], report.text()


def test_the_small_sizes_pass_too() -> None:
    request = Request(Path("given.naut"), "sm_80", text=ROWS.replace("= 77", "= 4096"))
    report = check_spec(request, device="cpu", only=["random"])
    assert report.ok, report.text()
    assert {o.sizes.split(" ")[0] for o in report.outcomes if o.check not in ("certificate", "iterations")} == {
        "odd",
        "aligned",
    }


def test_a_certificate_whose_conditions_hold_at_few_points_does_not_fail() -> None:
    """Random points of so small a domain satisfy none of the mask's conditions, which is no counterexample."""
    report = checked(ATTENTION.replace("M = 40, N = 150", "M = 400, N = 7"), "zeros")
    certificates = [o for o in report.outcomes if o.check == "certificate"]
    assert certificates
    assert "fail" not in {o.status for o in certificates}, report.text()


@pytest.mark.parametrize(
    ("name", "rule", "culprit"),
    [
        ("rolling-update", planted.drop_repair, "scalar/rolling-update"),
        ("split", planted.shift_mask, "scalar/split"),
        ("reorder", planted.shift_mask, "scalar/reorder"),
        ("div-to-rcp", planted.swap_tile("sub", "add"), "vr-tile/div-to-rcp"),
        ("dead-fragments", planted.swap_tile("sub", "add"), "ma-tile/dead-fragments"),
    ],
)
def test_a_planted_fault_is_named(monkeypatch: pytest.MonkeyPatch, name: str, rule: planted.Rule, culprit: str) -> None:
    _plant(monkeypatch, name, planted.planted(name, rule))
    report = checked(SHORT_ATTENTION, "random", "ascending")
    assert report.exit_code == 1
    assert report.faulty_steps == (culprit,), report.text()
    assert f"faulty: {culprit}" in report.text()
    first = next(o for o in report.failures if o.subject == culprit and o.check in ("pass", "lowering"))
    assert first.kind
    assert first.seed is not None
    assert first.output == "O"
    assert first.index is not None


def test_a_wrong_certificate_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Any = loading.load(planted.REAL["rolling-update"])

    class Boastful(real):  # type: ignore[misc]
        __slots__ = ()

        def derive(self, program: Any) -> Any:
            new, certificates = real.derive(self, program)
            return new, tuple(planted.Doubled(c).wrong() for c in certificates)

    _plant(monkeypatch, "rolling-update", Boastful)
    report = checked(SHORT_ATTENTION, "random")
    assert report.faulty_steps == ("scalar/rolling-update",)
    assert {o.check for o in report.failures} == {"certificate"}
    assert report.exit_code == 1


def test_a_pass_that_raises_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Any = loading.load(planted.REAL["cse"])

    class Broken(real):  # type: ignore[misc]
        __slots__ = ()

        def apply(self, module: Any) -> Any:
            raise ValueError("out of luck")

    _plant(monkeypatch, "cse", Broken)
    report = checked(ROWS, "random")
    assert report.faulty_steps == ("vr-tile/cse",)
    assert "out of luck" in report.text()


def _plant(monkeypatch: pytest.MonkeyPatch, name: str, made: type) -> None:
    monkeypatch.setattr(planted.REAL[name].replace(":", "."), made)
    loading.load.cache_clear()
    loading.load_pass.cache_clear()


@pytest.fixture(autouse=True)
def _fresh_classes() -> Any:
    yield
    loading.load.cache_clear()
    loading.load_pass.cache_clear()


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.naut"
    path.write_text(ROWS)
    assert main(["check", str(path), "--arch", "sm_80", "--device", "cpu", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is True
    assert data["counts"]["fail"] == 0
    assert {"check", "subject", "status", "sizes", "kind", "seed"} <= data["outcomes"][-1].keys()
    _plant(monkeypatch, "exp-to-exp2", planted.planted("exp-to-exp2", planted.swap_tile("sub", "add")))
    assert main(["check", str(path), "--arch", "sm_80", "--device", "cpu", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False
    assert data["faulty_steps"] == ["vr-tile/exp-to-exp2"]


def test_a_bad_spec_is_a_diagnostic() -> None:
    with pytest.raises(DiagnosticError):
        checked("output Y: f32[N]\nY[i] = 1\n")


def test_a_factor_that_may_be_infinite_is_named() -> None:
    text = "dim M = 4, K = 8\ninput X: f32[M, K]\ninput s: f32[M]\noutput Y: f32[M]\nY[i] = sum[k](X[i, k] * {})\n"
    said = "an infinite factor may give inf in place of NaN: factor in Y"
    assert said in checked(text.format("s[i]")).text()
    assert said not in checked(text.format("2")).text()


def test_json_has_no_nan() -> None:
    report = Report("a.naut", "sm_80")
    report.add(Outcome("pass", "scalar/fuse", "fail", measured=float("inf"), index=(1, 2)))
    text = json.dumps(report.as_dict(), allow_nan=False)
    assert json.loads(text)["outcomes"][0]["measured"] == "inf"
    assert report.faulty_steps == ("scalar/fuse",)


def test_what_was_skipped_has_not_passed() -> None:
    report = Report("a.naut", "sm_80")
    for status in ("ok", "ok", "skip"):
        report.add(Outcome("pass", "scalar/fuse", status))
    assert "passed: 2 pass\n" in report.text() + "\n"


def test_a_dump_is_checked_from_where_it_starts(tmp_path: Path) -> None:
    from nautilus.passes.instruments import DumpDir

    compile_file(Request(Path("given.naut"), "sm_80", text=ATTENTION), [DumpDir(tmp_path)])
    dump = next(tmp_path.glob("*-scalar-narrow.scalar"))
    if "unchanged" in dump.read_text():
        dump = next(tmp_path.glob("*-scalar-fuse.scalar"))
    report = check_spec(Request(dump, "sm_80"), device="cpu", only=["random", "one-hot"])
    assert report.ok, report.text()
    assert any(o.subject == "vr-tile -> ma-tile" and o.status == "ok" for o in report.outcomes)


def test_a_missing_gpu_is_said_or_is_a_failure() -> None:
    from nautilus.check.device import gpu_missing

    if not gpu_missing("sm_80"):
        pytest.skip("there is a GPU")
    request = Request(Path("given.naut"), "sm_80", text=ROWS)
    for wanted, status in (("auto", "skip"), ("cuda", "fail")):
        report = check_spec(request, device=wanted, full_size=True, only=["random"], steps=False)
        (found,) = [o for o in report.outcomes if o.check == "gpu"]
        assert found.status == status
        assert report.exit_code == (status == "fail")


@pytest.mark.parametrize(
    "value",
    ["Y: bool[i, j] = f32(X[i, j]) / 7 * 7 >= f32(X[i, j])", "Y[i, j] = i8(round(f32(X[i, j]) / 3 * 1.5))"],
    ids=["comparison", "rounding"],
)
def test_integers_at_ties_of_computed_numbers_may_differ(value: str) -> None:
    kind = "bool" if "bool" in value else "i8"
    report = checked(f"dim M = 30, N = 77\ninput X: i32[M, N]\noutput Y: {kind}[M, N]\n{value}\n", "random")
    assert report.ok, report.text()


def test_an_argmin_among_equal_numbers_may_have_any_of_their_places() -> None:
    text = "dim M = 30, N = 77\ninput X: i32[M, N]\noutput Z: i32[M]\nZ[i] = argmin[j](abs(f32(X[i, j]) / 49 - 1))\n"
    report = checked(text, "random")
    assert report.ok, report.text()


def test_the_time_of_a_check_ends_after_random_inputs() -> None:
    report = checked(ROWS, seconds=0.0)
    assert report.ok, report.text()
    assert {o.kind for o in report.outcomes if o.check == "result" and o.kind} == {"random"}
    assert any(o.status == "skip" and "time of the check is over" in o.message for o in report.outcomes)


def test_a_quotient_of_sums_that_cancel_may_be_nan_on_one_side() -> None:
    """The variance of equal numbers is 0, or a rounding error, and a correlation is NaN or a number."""
    text = """
dim N = 12, F = 9
input x: f32[N, F], ok: bool[N, F]
output corr: f32[F, F], mu: f32[F]
n1[f] = count[n](ok[n, f])
mu[f] = sum[n | ok[n, f]](x[n, f]) / n1[f]
z[n, f] = x[n, f] - mu[f] if ok[n, f] else 0
cov[f, g] = sum[n](z[n, f] * z[n, g]) / max(sum[n](f32(ok[n, f]) * f32(ok[n, g])) - 1, 1)
corr[f, g] = cov[f, g] * rsqrt(cov[f, f] * cov[g, g])
"""
    report = check_spec(Request(Path("given.naut"), "sm_90a", text=text.lstrip()), only=("equal",))
    assert report.ok, report.text()
    assert "corr is not bounded" in report.text()


def test_a_sum_that_cancels_to_0_is_judged_by_its_residues() -> None:
    text = "dim M = 7, N = 100\ninput X: f32[M, N]\noutput Z: f32[M]\n"
    report = checked(text + "Z[i] = sum[j](exp(X[i, j]) - exp(X[i, N - 1 - j]))\n", "random")
    assert report.ok, report.text()


def test_the_declared_sizes_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the check is at the declared sizes, it goes on with the compilation whose certificates it has checked."""
    made = []

    def counted(request: Request, instruments: Sequence[Instrument] = ()) -> Result:
        made.append(request)
        return compile_checked(request, instruments)

    monkeypatch.setattr(check_module, "compile_checked", counted)
    assert checked(ROWS, "random").ok
    assert len(made) == 1


@pytest.mark.parametrize("dtype", [DType.I32, DType.F32])
@pytest.mark.parametrize("grows", [False, True])
def test_an_output_behind_one_that_is_not_compared_is_compared(
    dtype: DType, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ties, or errors that grow beyond any bound, decide about the first one."""
    monkeypatch.setattr(levels, "output_types", lambda _: [("Y", dtype), ("Z", dtype)])
    told: list[str] = []

    def agreed(found: object, name: str, *_: object) -> bool:
        told.append(name)
        return found is None

    check: Any = SimpleNamespace(
        tied=lambda name, _: name == "Y" and not grows,
        bounds={"Y": SimpleNamespace(grows=grows)},
        differs_exactly=lambda name, got, want, _: None if np.array_equal(got, want) else name,
        agreed=agreed,
    )
    level: Any = SimpleNamespace(module=None)
    found = []
    for z in (0, 1):
        left, right = ({"Y": np.zeros(2), "Z": np.full(2, x)} for x in (0, z))
        found.append(check_module.Check.agree(check, level, left, right, InputSet("normal", 0, {}), None, None))
    assert found == [True, False] and told == ["Z", "Z"]

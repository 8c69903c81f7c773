"""The run as a whole: without a GPU, with a fake clock, and (where there is one) on a GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nautilus.bench import bench
from nautilus.bench.bench import Settings, examine, time_all
from nautilus.bench.ceilings import COPY
from nautilus.bench.contenders import OURS, Contender
from nautilus.bench.inputs import random_inputs
from nautilus.bench.protocol import Burst, Run, Sample
from nautilus.bench.table import Report
from nautilus.bench.verify import References, references
from nautilus.check.bound.stated import stated
from nautilus.cli.main import main
from nautilus.core.numerics import Array
from nautilus.frontend.semantics.check import load_text
from nautilus.runtime.device import default_arch
from tests.conftest import gpu_problem
from tests.shipped import ROOT

SPEC = "dim M = 64, N = 128\ninput X: f16[M, N]\noutput Y: f16[M, N]\nY[i, j] = X[i, j] * 2\n"


class Ticks:
    """A clock that measures one millisecond for every call."""

    def one(self, run: Run, spin: float) -> Sample:
        run()
        return Sample(1e-3, 1e-5)

    def bursts(self, plan: Sequence[Burst]) -> list[float]:
        return [1e-3 for _ in plan]


def known() -> tuple[References, dict[str, Array]]:
    spec = load_text(SPEC)
    raw = random_inputs(spec, 0, {})
    return references(spec, raw, {}, stated(spec), 0), {"Y": raw["X"] * np.float16(2)}


def test_contenders_are_checked_then_timed_and_one_that_fails_drops_out() -> None:
    reference, right = known()
    ran: list[str] = []

    def breaks() -> dict[str, Array]:
        raise RuntimeError("no kernel found")

    present = [
        Contender(OURS, lambda: ran.append("ours"), lambda: right),
        Contender("cudnn", lambda: ran.append("cudnn"), lambda: {"Y": right["Y"] * 0}),
        Contender("fa2", lambda: ran.append("fa2"), breaks),
        Contender("ceiling", lambda: ran.append("ceiling"), flops=5.0, bytes=7.0),
    ]
    rows = [examine(c, reference, Ticks(), (1.0, 2.0)) for c in present]
    done = {r.name: r for r in time_all(rows, present, Ticks(), Settings(repeats=3, rounds=2))}
    ours = done[OURS].verdict
    assert ours is not None and ours.ok
    assert done["cudnn"].verdict is not None and not done["cudnn"].verdict.ok and done["cudnn"].cool is not None
    assert done["fa2"].cool is None and done["fa2"].failure == "failed: RuntimeError: no kernel found"
    assert "fa2" not in ran
    assert (done["ceiling"].flops, done["ceiling"].bytes, done["ceiling"].verdict) == (5.0, 7.0, None)
    assert (done[OURS].flops, done[OURS].bytes) == (1.0, 2.0)


def test_without_a_reference_nothing_is_compared() -> None:
    right = {"Y": np.zeros((64, 128), np.float16)}
    row = examine(Contender(OURS, lambda: None, lambda: right), None, Ticks(), (1.0, 2.0))
    assert row.verdict is None and not row.failure
    assert Report("twice", [row], [], (0.1, 0.3)).ok


def test_our_own_failure_is_not_hidden() -> None:
    reference, _ = known()

    def breaks() -> dict[str, Array]:
        raise RuntimeError("illegal address")

    with pytest.raises(RuntimeError, match="illegal address"):
        examine(Contender(OURS, lambda: None, breaks), reference, Ticks(), (1.0, 2.0))


class FakeSession:
    """A kernel with right results; with ``wrong``, it does not write the last row."""

    def __init__(self, raw: dict[str, Array], wrong: bool) -> None:
        self.raw, self.wrong, self.launches = raw, wrong, 0
        self.device = SimpleNamespace(name="Fake GPU", arch="sm_90a")
        self.driver = None

    def poison(self) -> None:
        self.out = np.full(self.raw["X"].shape, np.nan, np.float16)

    def launch(self) -> None:
        self.launches += 1
        rows = -1 if self.wrong else None
        if hasattr(self, "out"):
            self.out[:rows] = self.raw["X"][:rows] * np.float16(2)

    def download(self) -> dict[str, Array]:
        return {"Y": self.out}


class FakeCopy:
    def __init__(self, driver: object) -> None:
        self.closed = False

    def contender(self) -> Contender:
        return Contender(COPY, lambda: None, bytes=1e9)

    def close(self) -> None:
        self.closed = True


class FakeClock(Ticks):
    def __init__(self, arch: str) -> None:
        assert arch == "sm_90a"

    def close(self) -> None: ...


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_from_end_to_end(
    wrong: bool, as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def opened(
        result: object, raw: dict[str, Array], scalars: object, cubin: object
    ) -> Iterator[tuple[object, object]]:
        yield FakeSession(raw, wrong), SimpleNamespace(resources=())

    monkeypatch.setattr(bench, "_opened", opened)
    monkeypatch.setattr(bench, "require_gpu", lambda: None)
    monkeypatch.setattr("nautilus.bench.gpu_clock.GpuClock", FakeClock)
    monkeypatch.setattr("nautilus.bench.ceilings.Copy", FakeCopy)
    monkeypatch.setattr("nautilus.bench.peers.torch_env.load_torch", lambda: "not installed: no torch here")
    path = tmp_path / "twice.naut"
    path.write_text(SPEC)
    code = main(["bench", str(path), str(path), "--arch", "sm_90", *(["--json"] if as_json else [])])
    out = capsys.readouterr().out
    assert code == (1 if wrong else 0)
    if not as_json:
        assert out.count("twice: Fake GPU, sm_90, M=64, N=128") == 2
        assert "cudnn: not installed: no torch here" in out
        assert ("ours is wrong: Y" in out) == wrong
        return
    reports = json.loads(out)
    assert [r["ok"] for r in reports] == [not wrong] * 2
    first = reports[0]
    assert [a["name"] for a in first["absent"]] == list(bench.LIBRARIES)
    assert first["compared_with"] == "sampled rows in float64" and first["stated_bounds"].keys() == {"Y"}
    ours = first["contenders"][0]
    assert ours["cool"]["us"] == pytest.approx(1000) and ours["bytes"] == 2 * 2 * 64 * 128
    assert ours["copy_share"] == pytest.approx(2 * 2 * 64 * 128 / 1e9)


def test_the_kernel_of_fixed_sizes_is_a_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built: list[dict[str, int]] = []

    @contextmanager
    def opened(result: object, raw: dict[str, Array], *_: object) -> Iterator[tuple[object, object]]:
        yield FakeSession(raw, False), SimpleNamespace(resources=())

    @contextmanager
    def beside(session: FakeSession, spec: object, scalars: object, build: bench.Build | None) -> Iterator[object]:
        if build is None:
            yield []
            return
        result, _ = build()
        built.append({d.name: d.value for d in result.modules["spec"].dims})
        yield [bench._contender(bench.FIXED, FakeSession(session.raw, False))]

    monkeypatch.setattr(bench, "_opened", opened)
    monkeypatch.setattr(bench, "_beside", beside)
    monkeypatch.setattr(bench, "require_gpu", lambda: None)
    monkeypatch.setattr("nautilus.bench.gpu_clock.GpuClock", FakeClock)
    monkeypatch.setattr("nautilus.bench.ceilings.Copy", FakeCopy)
    path, command = tmp_path / "twice.naut", ["bench", "--arch", "sm_90", "--against", "fixed", "--json"]
    path.write_text(SPEC.replace("M = 64", "M = runtime"))
    assert main([*command, str(path), "--dim", "M=64"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert built == [{"M": 64, "N": 128}]
    assert [c["name"] for c in report["contenders"]] == ["ours", "fixed", COPY] and report["contenders"][1][
        "ratio_cool"
    ]
    path.write_text(SPEC)
    assert main([*command, str(path)]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["absent"] == [{"name": "fixed", "reason": "not applicable: the spec gives all sizes"}]


@pytest.mark.skipif(not gpu_problem(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "twice.naut"
    path.write_text(SPEC)
    assert main(["bench", str(path)]) == 3
    assert "needs an NVIDIA GPU" in capsys.readouterr().err


@pytest.mark.gpu
def test_on_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "twice.naut"
    path.write_text(SPEC)
    assert main(["bench", str(path), "--against", "torch,cudnn", "--repeats", "3", "--rounds", "1", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    ours = report["contenders"][0]
    assert ours["name"] == "ours" and ours["check"]["ok"] and ours["cool"]["us"] > 0
    said = [*report["contenders"], *report["absent"]]
    assert {"torch", "cudnn", "copy 512 MiB"} <= {x["name"] for x in said}


@pytest.mark.gpu
@pytest.mark.skipif(default_arch() != "sm_90a", reason="the GPU has no warpgroup MMAs of 8-bit floats")
def test_factors_of_8_bits_are_in_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    spec = str(ROOT / "specs/models/global_f8.naut")
    sizes = ["--dim", "H=16", "--dim", "M=1024", "--dim", "N=1024"]
    assert main(["bench", spec, *sizes, "--against", "", "--repeats", "3", "--rounds", "0", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    found = report["contenders"][0]["check"]
    assert found["ok"] and 5e-3 < found["error"] < report["stated_bounds"]["O"]

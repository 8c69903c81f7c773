"""The run as a whole: without a GPU, with a fake clock, and (where there is one) on a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nautilus.bench.bench import Settings, examined, timed
from nautilus.bench.contenders import OURS, Contender
from nautilus.bench.inputs import random_inputs
from nautilus.bench.protocol import Run, Sample
from nautilus.bench.verify import References, references
from nautilus.check.bound import stated
from nautilus.cli import main
from nautilus.core.numerics import Array
from nautilus.frontend.check import load_text
from tests.conftest import gpu_problem

SPEC = "dim M = 64, N = 128\ninput X: f16[M, N]\noutput Y: f16[M, N]\nY[i, j] = X[i, j] * 2\n"


class Ticks:
    """A clock on which everything takes a millisecond."""

    def one(self, run: Run, spin: float) -> Sample:
        run()
        return Sample(1e-3, 1e-5)

    def burst(self, run: Run, count: int, lead: float) -> float:
        run()
        return 1e-3


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
    rows = [examined(c, reference, Ticks(), (1.0, 2.0)) for c in present]
    done = {r.name: r for r in timed(rows, present, Ticks(), Settings(repeats=3, rounds=2))}
    assert done[OURS].verdict is not None and done[OURS].verdict.ok
    assert done["cudnn"].verdict is not None and not done["cudnn"].verdict.ok and done["cudnn"].cool is not None
    assert done["fa2"].cool is None and done["fa2"].trouble == "failed: RuntimeError: no kernel found"
    assert "fa2" not in ran
    assert (done["ceiling"].flops, done["ceiling"].bytes, done["ceiling"].verdict) == (5.0, 7.0, None)
    assert (done[OURS].flops, done[OURS].bytes) == (1.0, 2.0)


def test_our_own_failure_is_not_hidden() -> None:
    reference, _ = known()

    def breaks() -> dict[str, Array]:
        raise RuntimeError("illegal address")

    with pytest.raises(RuntimeError, match="illegal address"):
        examined(Contender(OURS, lambda: None, breaks), reference, Ticks(), (1.0, 2.0))


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

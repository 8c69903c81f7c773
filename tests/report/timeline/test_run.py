"""Timelines: they hold the work that the cost model counts, a unit does one thing at a time, waits end at an event."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from nautilus.cli.main import main
from nautilus.core.source import NO_SPAN
from nautilus.cost.model import estimate
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.interp.state.machine import Machine
from nautilus.ma_tile.ir.ops import MbarWait, MemKernel, MemModule, walk_ops
from nautilus.report.report import timelines
from nautilus.report.timeline.run import NoMemory, TimedRun, timeline
from nautilus.report.timeline.slices import KINDS, Timeline
from nautilus.report.timeline.trace import trace
from nautilus.targets.rates import machine
from tests.shipped import MORE, ROOT

CHAIN = (ROOT / "specs" / "attention" / "causal_prefill.naut").read_text()
PRODUCT = (ROOT / "specs" / "matmul" / "f16.naut").read_text()
LARGE = {"B": 1, "H": 32, "M": 2048, "N": 2048, "D": 128}
SMALL = {"B": 1, "H": 3, "M": 256, "N": 256, "D": 128}


@cache
def module(text: str, arch: str, dims: tuple[tuple[str, int], ...] = ()) -> MemModule:
    made = compile_file(Request(Path("x.naut"), arch, dict(dims), text=text, until="ma-tile")).modules["ma-tile"]
    assert isinstance(made, MemModule)
    return made


def run(m: MemModule, arch: str, most: int = 10_000) -> tuple[MemKernel, Timeline]:
    """The first kernel and its timeline."""
    return m.kernels[0], timeline(m, m.kernels[0], estimate(m, arch).kernels[0], arch, most)


def chain() -> tuple[MemKernel, Timeline]:
    """Four roles of a persistent kernel."""
    return run(module(CHAIN, "sm_90a", tuple(LARGE.items())), "sm_90a")


def test_roles_and_units_have_tracks() -> None:
    kernel, found = chain()
    assert found.whole and found.kernel == kernel.name and found.block == 0
    assert found.tracks == ("producer", "consumers[0]", "consumers[1]", "copies", "matrix units")
    assert {s.kind for s in found.slices} == set(KINDS)
    assert any(s.span is not NO_SPAN and s.span.source.text == CHAIN for s in found.slices)


def test_the_matrix_units_do_the_work_of_all_blocks() -> None:
    m = module(PRODUCT, "sm_90a", (("M", 512), ("N", 512), ("K", 256)))
    kernel, busy = m.kernels[0], 0.0
    for block in range(0, Machine(m, kernel, NoMemory(), {}).blocks, kernel.cluster):
        timed = TimedRun(Machine(m, kernel, NoMemory(), {}), block, machine("sm_90a"), 0.0, 10_000)
        timed.run()
        busy += sum(s.end - s.start for s in timed.slices if s.track.startswith("matrix units"))
    assert busy == pytest.approx(2 * 512 * 512 * 256 / machine("sm_90a").tensor_half)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("text", [CHAIN, PRODUCT], ids=["chain", "product"])
def test_a_track_does_one_thing_at_a_time(text: str, arch: str) -> None:
    dims = tuple(SMALL.items()) if text is CHAIN else (("M", 1024), ("N", 1024), ("K", 512))
    _, found = run(module(text, arch, dims), arch)
    assert found.slices and found.cycles > 0
    for track in found.tracks:
        if track.startswith("copies"):
            continue  # several copies are under way at once
        own = sorted((s for s in found.slices if s.track == track), key=lambda s: s.start)
        assert own and all(a.end <= b.start + 1e-6 for a, b in pairwise(own)), track


def test_a_consumer_waits_for_its_first_copy() -> None:
    kernel, found = chain()
    assert any(isinstance(op, MbarWait) for op in walk_ops(kernel.body))
    first_copy = sorted(s.end for s in found.slices if s.track == "copies")[1]  # the second half of the tile
    first_mma = min(s.start for s in found.slices if s.track == "matrix units")
    waits = [s for s in found.slices if s.track == "consumers[0]" and s.kind == "wait"]
    assert first_copy > machine("sm_90a").load_latency and first_mma >= first_copy
    assert any(s.name.startswith("mbar.wait full_s_q") and abs(s.end - first_copy) < 1e-6 for s in waits)


def test_a_timeline_is_the_same_again_and_may_be_cut() -> None:
    m = module(PRODUCT, "sm_90a", (("M", 1024), ("N", 1024), ("K", 512)))
    found = run(m, "sm_90a")[1]
    again = run(m, "sm_90a")[1]
    assert again == found
    short = run(m, "sm_90a", most=40)[1]
    assert not short.whole and len(short.slices) == 40 and short.slices[:10] == found.slices[:10]


def test_kernels_of_every_kind_have_a_timeline() -> None:
    for path in (p for p in MORE if p.parent.name + "/" + p.stem in ("decode/paged", "scatter/histogram")):
        made = compile_file(Request(path, "sm_90a"))
        for found in timelines(made):
            assert isinstance(found, Timeline) and found.slices, (path, found)


def test_the_trace() -> None:
    _, found = chain()
    made = json.loads(trace([found, found], {"arch": "sm_90a"}))
    events = made["traceEvents"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    names = [name for (pid, _), name in threads.items() if pid == 1]
    assert [n for n in names if not n[-1].isdigit()] == list(found.tracks) and "copies 2" in names
    drawn = [e for e in events if e["ph"] == "X"]
    for thread in threads:
        ends = list[int]()  # of what is not over, in steps of 10 ps: events of a thread are apart or nested
        own = ((round(1e5 * e["ts"]), round(1e5 * e["dur"])) for e in drawn if (e["pid"], e["tid"]) == thread)
        for first, steps in sorted(own, key=lambda x: (x[0], -x[1])):
            ends = [end for end in ends if end > first]
            assert all(first + steps <= end for end in ends)
            ends.append(first + steps)
    assert len(drawn) == 2 * len(found.slices) and all(e["dur"] > 0 and (e["pid"], e["tid"]) in threads for e in drawn)
    whole = 1e6 * found.cycles / found.clock
    assert max(e["ts"] + e["dur"] for e in drawn) == pytest.approx(2 * whole, rel=1e-4)
    assert min(e["ts"] for e in drawn if e["pid"] == 1) >= whole * 0.999
    assert {e["args"]["line"] for e in drawn if "line" in e["args"]} <= set(range(1, CHAIN.count("\n") + 1))


def test_the_command_writes_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "x.naut"
    spec.write_text("dim N = 4096\ninput X: f32[N]\noutput Y: f32[N]\nY[i] = X[i] * 2\n")
    made = tmp_path / "x.json"
    assert main([str(spec), "-o", str(tmp_path / "x.cu"), "--arch", "sm_80", "--trace", str(made)]) == 0
    assert json.loads(made.read_text())["otherData"]["times"] == "predicted"
    assert main([str(spec), "-o", str(tmp_path / "x.scalar"), "--arch", "sm_80", "--trace", str(made)]) == 2
    assert "a trace needs a compilation to kernels" in capsys.readouterr().err

"""``nautilusc explain``: chosen schedule, refused alternatives and estimate, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from nautilus.cli.main import main
from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import Schedule
from nautilus.driver import Request, build_cubin, compile_file
from nautilus.tune.database.lookup import tuned_schedule
from nautilus.tune.explain import explain, text
from nautilus.tune.search.trial_lowering import trials_of
from nautilus.tune.space.schedules import Space, neighbours
from tests.cases import some
from tests.cost.measured import SPECS, candidate
from tests.endtoend.collection.warpgroups import ATTENTION
from tests.passes.selection.test_copy_choice import BOTH_SIDES


def explained(name: str, **options: Any) -> dict[str, Any]:
    return explain(Request(SPECS / f"{name}.naut", **options))


@pytest.fixture(autouse=True)
def no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nautilus.tune.explain.measured", lambda request: [])


def only(monkeypatch: pytest.MonkeyPatch, *choices: str) -> None:
    """The alternatives are those of ``choices``: each one is a compilation."""

    def found(space: Space, values: Mapping[str, object]) -> list[tuple[str, object]]:
        return [(n, v) for n, v in neighbours(space, values) if any(c in n for c in choices)]

    monkeypatch.setattr("nautilus.tune.explain.neighbours", found)


def test_the_kernels_of_the_compilation_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("lowered again")

    monkeypatch.setattr("nautilus.tune.search.trial_lowering._lower", broken)
    found = explain(Request(SPECS / "rowwise/softmax.naut"), every=False)
    assert found["predicted"]["kernels"] and found["fault"] is None


DELTA = """
dim P = 4, T = 16384, D = 64
input q: bf16[P, T, D], k: bf16[P, T, D], v: bf16[P, T, D], g: f32[P, T]
output y: bf16[P, T, D]
assume abs(k[p, t, d]) < inf
assume abs(q[p, t, d]) < inf
recur {
  r[p, t, e] = sigmoid(g[p, t]) * sum[d](k[p, t, d] * S[p, t - 1, d, e]) if t > 0 else 0
  S[p, t, d, e] = (sigmoid(g[p, t]) * S[p, t - 1, d, e] if t > 0 else 0) + k[p, t, d] * (v[p, t, e] - r[p, t, e])
  y[p, t, e] = sum[d](q[p, t, d] * S[p, t, d, e])
}
"""


def test_steps_of_a_delta_rule_use_matrix_units_and_a_block_has_rows_of_one_chunk() -> None:
    words = text(explain(Request(Path("delta.naut"), text=DELTA), every=False))
    assert "kernel S_end: computes S_end" in words
    assert "engine     warpgroup (other)" in words
    assert "t_group grid, t_member grid 64, t_from loop 32" in words


def test_text_of_a_back_to_back_gemm(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "cluster")
    found = explained("attention/causal_prefill", dims={"M": 2048, "N": 2048})
    words = text(found)
    assert "kernel O: computes S_sum P_max P_sum O_acc O" in words
    assert "i grid 128, j loop 128" in words
    assert "producer: one thread issues copies" in words and "consumers: 2 x 4 warps" in words
    assert "one reduction loop: repair terms correct the running results (rolling update)" in words
    assert "persistent blocks, dynamic tiles" in words
    assert "% of the mma bound" in words
    assert "clusters of 2 blocks need static tile scheduling, not dynamic" in words
    (k,) = found["kernels"]
    assert k["threads"] == 384 and 200_000 < k["shared_bytes"] <= 232448 and 150 < k["live_registers"] < 232
    assert found["from"] == "the default rules" and found["inlined"] == ["S", "P"]


@pytest.mark.parametrize(
    ("rows", "row", "rule"),
    [
        (4096, 32768, "64 elements a thread, 32768 a block in registers (a row that is read again is one tile"),
        (16384, 4096, "32 elements a thread, 4096 a block (H200"),
        (128, 262144, "32 elements a thread, 16384 a block of a step (the rows of all resident blocks stay in L2"),
        (65536, 64, "32 elements a thread, 4096 a block (H200"),
    ],
)
def test_rows_say_how_many_elements_a_thread_has(
    rows: int, row: int, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch)
    spec = f"input X: f32[{rows}, {row}]\noutput Y: f32[{rows}, {row}]\nY[i, j] = softmax[j](X[i, j])\n"
    (k,) = explain(Request(Path("given.naut"), text=spec))["kernels"]
    assert k["source"].startswith(rule)


def test_fused_split_k_warps_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "interleave", "groups")
    words = text(explained("attention/gqa_decode"))
    assert "kernel O: computes S_sum P_max_part P_sum_part O_acc_part P_max P_sum O_acc O" in words
    assert "partial: 4 x 1 warp" in words and "interleave = 8x16 (" in words and "groups = 2 (" in words


def test_a_fused_cluster_combine_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    words = text(explained("attention/gqa_decode", dims={"N": 16384}))
    made = "S_sum P_max_part P_sum_part O_acc_part P_max_part_2 P_sum_part_2 O_acc_part_2"
    assert f"kernel O: computes {made} P_max P_sum O_acc O" in words
    assert "clusters of 2 combine partial results" in words


def test_definitions_that_readers_compute_again_have_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    monkeypatch.setattr("nautilus.tune.explain._carried_out", lambda *_: None)
    found = explain(Request(Path("given.naut"), text=BOTH_SIDES))
    assert len(found["copied"]) == 1 and found["copied"][0].startswith("S_sum for ")
    again, stored = found["copy_alternatives"]
    assert again["copied"] == found["copied"] and stored["copied"] == []
    assert again["microseconds"] == found["predicted"]["microseconds"] < stored["microseconds"]
    assert "computed again by readers: nothing: " in text(found)


def test_a_kernel_that_ptxas_accepts_is_not_refused() -> None:
    """The rules count 256 registers for this kernel on the last rung of its ladder, and ptxas finds them."""
    spec = """
        dim B = 2, H = 16, M = 4096, D = 64
        scalar lam: f32 = 0.35
        input Q: bf16[B, M, H, 2, D], K: bf16[B, M, H, 2, D], V: bf16[B, M, H, 2 * D], w: bf16[2 * D]
        output O: bf16[B, M, H, 2 * D]
        S[b, h, c, i, j] = sum[d](Q[b, i, h, c, d] * K[b, j, h, c, d]) / sqrt(D)
        P[b, h, c, i, j] = softmax[j | j <= i](S[b, h, c, i, j])
        A[b, h, i, d] = sum[j](P[b, h, 0, i, j] * V[b, j, h, d]) - lam * sum[j](P[b, h, 1, i, j] * V[b, j, h, d])
        O[b, i, h, d] = rms_norm[d](A[b, h, i, d], 1e-5) * w[d]
        """
    found = explain(Request(Path("given.naut"), "sm_90a", text=dedent(spec).lstrip()), every=False)
    assert found["fault"] is None and "refused" not in text(found)
    assert found["kernels"][0]["live_registers"] > 232


def test_refused_points_have_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all choices; of those of a block's tile, which are three quarters of all, one of some."""

    def fewer(space: Space, values: Mapping[str, object]) -> list[tuple[str, object]]:
        found = enumerate(neighbours(space, values))
        return [x for n, x in found if "block_tile" not in x[0] or x[1] == "192x320/3" or n % some(4, 1) == 0]

    monkeypatch.setattr("nautilus.tune.explain.neighbours", fewer)
    found = explained("matmul/f16")
    refused = {(a["choice"], a["value"]): a for a in found["refused"]}
    wide = refused["C.warpgroup.block_tile", "192x320/3"]
    assert "registers" in wide["reason"] and wide["time_ratio"] > 1.0
    ratios = [a["time_ratio"] for a in found["alternatives"]]
    assert ratios == sorted(ratios) and len(ratios) > some(8, 20)
    assert all("reason" not in a for a in found["alternatives"])
    assert found["space"]["points"] > 1000


def test_roofline(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    gemm, rows = explained("matmul/f16"), explained("rowwise/softmax")
    assert gemm["roofline"]["bound"] == "mma" and 0.5 < gemm["roofline"]["share"] < 1
    assert rows["roofline"]["bound"] == "memory" and 0.6 < rows["roofline"]["share"] < 1
    floor = rows["roofline"]["floors_microseconds"]["memory"]
    assert floor == pytest.approx(2 * 2 * 16384 * 4096 / 4.25e12 * 1e6, rel=1e-3)


def test_a_given_schedule_has_no_alternatives() -> None:
    base = Schedule.from_json(_json("rowwise/softmax"))
    found = explained("rowwise/softmax", schedule=base)
    assert found["from"] == "the schedule file" and found["space"] is None and not found["alternatives"]
    assert "search space:" not in text(found)


def test_an_inapplicable_schedule_is_an_error() -> None:
    wrong = _json("rowwise/softmax").replace('"name": "j"', '"name": "k"')
    with pytest.raises(ScheduleError, match="no axis 'k'"):
        explained("rowwise/softmax", schedule=Schedule.from_json(wrong))


def test_measured_rows_are_listed_best_first(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    found = explained("rowwise/softmax")
    assert found["measured"] == []
    rows = [
        {"schedule": "a", "microseconds": 50.0, "device": "GPU", "rules": False},
        {"schedule": "b", "microseconds": 60.0, "device": "GPU", "rules": True},
    ]
    words = text({**found, "measured": rows})
    assert "2 schedules, the best 50 us on GPU" in words
    assert "default schedule 60 us; speedup of the best 1.200" in words and "slower: b 60 us" in words


@dataclass
class Row:
    """A row of the database."""

    schedule: Schedule
    values: dict[str, object]
    seconds: float = 5e-5
    schedule_hash: str = "abc"
    device: str = "GPU"
    rules: bool = False
    estimate: float | None = None

    def read_schedule(self) -> Schedule:
        return self.schedule


def test_the_schedule_of_the_database_is_the_one_to_explain(monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request(SPECS / "rowwise/softmax.naut", lookup=tuned_schedule)
    trials, given = trials_of(request)
    values: dict[str, object] = {"Y.warps": 8}
    schedule = candidate(trials.program, "sm_90a", values)
    assert isinstance(schedule, Schedule)
    row = Row(replace(schedule, inline=given.inline), values)
    monkeypatch.setattr("nautilus.tune.explain.measured", lambda request: [row])
    found = explain(request)
    assert found["from"] == "the tuning database" and found["kernels"][0]["threads"] == 256
    assert {"choice": "Y.warps", "value": 4} in [{k: a[k] for k in ("choice", "value")} for a in found["alternatives"]]
    assert explain(replace(request, lookup=None))["from"] == "the default rules"


def test_a_kernel_that_ptxas_refuses_is_explained_as_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    request = Request(Path("masked.naut"), text=dedent(ATTENTION["sinks"]).lstrip().replace("H = 2", "H = 132"))
    found = explain(request)
    assert found["from"] == "the default rules, after the first plan of O was rejected" and found["fault"] is None
    schedule = build_cubin(request)[0].context.schedule
    assert schedule is not None
    tiles = {a.name: a.tile for a in schedule.kernels[0].axes}
    assert {a["name"]: a["tile"] for a in found["kernels"][0]["axes"]} == tiles
    first = compile_file(request).context.schedule
    assert first is not None and {a.name: a.tile for a in first.kernels[0].axes} != tiles


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    spec = str(SPECS / "rowwise/softmax.naut")
    assert main(["explain", spec, "--arch", "sm_90a", "--dim", "M=1024"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"{spec} for sm_90a") and "roofline:" in said.out and said.err == ""
    assert main(["explain", spec, "--arch", "sm_80", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["arch"] == "sm_80" and found["predicted"]["microseconds"] > 0 and found["kernels"][0]["name"] == "Y"
    assert main(["explain", "kernel.vr"]) == 2
    assert "explain needs a spec" in capsys.readouterr().err


def _json(name: str) -> str:
    trials, _ = trials_of(Request(SPECS / f"{name}.naut"))
    return trials.base_schedule().to_json()

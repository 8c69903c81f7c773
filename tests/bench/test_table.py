"""Ratios, refusals, and what is printed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nautilus.bench.ceilings import COPY, GEMM
from nautilus.bench.contenders import OURS, Absent, NotApplicable, Row, Verdict, ratio, reason_of
from nautilus.bench.protocol import Timing
from nautilus.bench.table import Report, as_dict, shares, text

FINE = Verdict(True, 2e-4, 1e-3)


def row(name: str, us: float, spread: float = 0.01, verdict: Verdict | None = FINE) -> Row:
    s = us * 1e-6
    timing = Timing((s, s * (1 + spread), s))
    return Row(name, verdict=verdict, cool=timing, sustained=timing, flops=1e9, bytes=1e6)


def test_a_ratio_says_how_many_times_as_fast_ours_is() -> None:
    assert ratio(row(OURS, 100), row("peer", 150), "cool", 0.1) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("ours", "peer", "why"),
    [
        (row(OURS, 100), row("peer", 150, verdict=Verdict(False, 0.3, 1e-3, "O: off")), "peer is wrong: O: off"),
        (row(OURS, 100, verdict=Verdict(False, 0.3, 1e-3, "O: off")), row("peer", 150), "ours is wrong: O: off"),
        (
            row(OURS, 100),
            row("peer", 150, spread=0.2),
            "the times of peer have a spread of 20%, above the limit of 10%",
        ),
        (
            row(OURS, 100, spread=0.12),
            row("peer", 150),
            "the times of ours have a spread of 12%, above the limit of 10%",
        ),
        (row(OURS, 100), row("peer", 150, verdict=None), "peer was not checked"),
        (row(OURS, 100), replace(row("peer", 150), cool=None, failure="failed: x"), "peer was not timed: failed: x"),
    ],
)
def test_a_ratio_is_refused_with_the_reason(ours: Row, peer: Row, why: str) -> None:
    assert ratio(ours, peer, "cool", 0.1) == why


def report(*rows: Row) -> Report:
    return Report("spec", rows, [Absent("flex", "not applicable: no")], (0.1, 0.3), {"device": "GPU", "arch": "sm_90a"})


CEILINGS = (
    Row(GEMM, cool=Timing((1e-3,) * 3), flops=1e12, is_ceiling=True),
    Row(COPY, cool=Timing((1e-3,) * 3), bytes=4e9, is_ceiling=True),
)


def test_the_table_has_rates_shares_ratios_and_reasons() -> None:
    wrong = replace(row("torch", 80), verdict=Verdict(False, 0.5, 1e-3, "O: relative error 5.0e-01"))
    shown = text(report(row(OURS, 100), row("cudnn", 120), wrong, *CEILINGS))
    lines = {line.split()[0]: line.split() for line in shown.splitlines() if line}
    assert lines["ours"][1:7] == ["100.0", "1.0%", "10.0", "10", "1.0", "0.2"]
    assert lines["cudnn"][-4:] == ["1.200", "1.200", "2.0e-04", "ok"]
    assert "refused" in lines["torch"] and "WRONG" in lines["torch"]
    assert "no ratio to torch: torch is wrong: O: relative error 5.0e-01" in shown
    assert "flex: not applicable: no" in shown


def test_a_wide_spread_is_marked_and_refused_in_one_column_only() -> None:
    peer = replace(row("cudnn", 120), cool=row("cudnn", 120, spread=0.2).cool)
    shown = text(report(row(OURS, 100), peer))
    assert "20.0%!" in shown
    assert "no cool ratio to cudnn: the times of cudnn have a spread of 20%, above the limit of 10%" in shown
    assert "no sustained" not in shown


def test_without_sustained_rounds_nothing_is_said_of_them() -> None:
    rows = [replace(r, sustained=None) for r in (row(OURS, 100), row("cudnn", 120))]
    shown = text(report(*rows))
    lines = {line.split()[0]: line.split() for line in shown.splitlines() if line}
    assert "sus" not in shown and "refused" not in shown and "no " not in shown.replace("applicable: no", "")
    assert lines["cudnn"][-3:] == ["1.200", "2.0e-04", "ok"]
    assert as_dict(report(*rows))["contenders"][1]["refused_sustained"] is None


def test_a_ceiling_that_spreads_is_no_measure() -> None:
    good = report(row(OURS, 100), *CEILINGS)
    assert shares(good, good.ours) == pytest.approx((0.01, 0.0025))
    wild = replace(CEILINGS[0], cool=Timing((1e-3, 2e-3, 1e-3)))
    bad = report(row(OURS, 100), wild, CEILINGS[1])
    assert shares(bad, bad.ours)[0] is None


def test_json_has_everything_and_no_infinity() -> None:
    wrong = Verdict(False, float("inf"), 1e-3, "O: 3 elements are inf or NaN")
    made = as_dict(report(row(OURS, 100, verdict=wrong), row("cudnn", 120), *CEILINGS))
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert made["ok"] is False and made["device"] == "GPU"
    ours, cudnn = made["contenders"][:2]
    assert ours["check"]["error"] is None
    assert cudnn["ratio_cool"] is None and cudnn["refused_cool"].startswith("ours is wrong")
    assert len(cudnn["cool"]["samples_us"]) == 3
    assert made["absent"] == [{"name": "flex", "reason": "not applicable: no"}]


def test_reasons_are_one_line() -> None:
    assert reason_of(NotApplicable("why\nmore")) == "why"
    assert reason_of(RuntimeError("CUDA out of memory.\nTried")) == "RuntimeError: CUDA out of memory."
    assert reason_of(ValueError()) == "ValueError"

"""Rows: what they are looked up by, and their lines."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from nautilus.core.schedule import Schedule
from nautilus.core.schedule.options import options_of
from nautilus.frontend.semantics.check import load_text
from nautilus.tune.database.rows import Key, key_of, parse, schedule_hash
from tests.tune import toy
from tests.tune.made import KEY, row


def test_a_line_reads_back_and_starts_with_its_key() -> None:
    r = row(values={"stages": 3}, estimate=1e-3, reason="why\nnot", final=True)
    assert r.line().startswith(f'{{"key":"{KEY.hash}"')
    assert r.line().count("\n") == 1
    again = parse(r.line())
    assert again is not None and again.line() == r.line()
    assert again.read_schedule() == Schedule(inline=())
    assert again.seconds == 2e-3


@pytest.mark.parametrize(
    "line",
    ["", "{", '{"key":"ab"}', "[1]", "null", row().line()[:-20], row().line().replace('"sizes":{', '"sizes":[{', 1)],
)
def test_what_is_no_row(line: str) -> None:
    assert parse(line) is None


def test_fields_of_a_later_version_are_ignored() -> None:
    raw = json.loads(row().line()) | {"weather": "fine"}
    assert parse(json.dumps(raw)) == parse(row().line())


def test_samples_must_be_times() -> None:
    assert parse(row().line().replace("0.001", "-0.001")) is None


def test_the_key_depends_on_sizes_target_and_mathematics() -> None:
    spec = load_text(toy.MATMUL)
    key = key_of(spec, "sm_80", "fast")
    assert key.sizes == {"M": 128, "N": 128, "K": 64}
    others = [
        key_of(load_text(toy.MATMUL, dims={"M": 64}), "sm_80", "fast"),
        key_of(spec, "sm_90", "fast"),
        key_of(spec, "sm_80", "strict"),
        key_of(load_text(toy.MATMUL.replace("A[i, k] *", "2.0 * A[i, k] *")), "sm_80", "fast"),
    ]
    assert len({key.hash, *(k.hash for k in others)}) == 5
    assert Key(key.family, dict(reversed(list(key.sizes.items()))), "sm_80", "fast").hash == key.hash


def test_equal_schedules_have_equal_hashes() -> None:
    a = Schedule(inline=("P",))
    assert schedule_hash(a) == schedule_hash(Schedule.from_json(a.to_json()))
    assert schedule_hash(a) != schedule_hash(replace(a, factor=False))


def test_a_newer_option_leaves_the_hashes_of_stored_schedules() -> None:
    """The default of such an option is no part of a hash; another value is."""
    newer = [o for o in options_of(Schedule) if o.newer]
    assert {"copies", "decompose_operands"} <= {o.name for o in newer}
    a = Schedule(inline=())
    known = {o.name: getattr(a, o.name) for o in options_of(Schedule) if not o.newer} | {"inline": [], "kernels": []}
    text = json.dumps(known, sort_keys=True, separators=(",", ":"))
    assert schedule_hash(a) == hashlib.sha256(text.encode()).hexdigest()[:12]
    assert schedule_hash(replace(a, decompose_operands=False)) != schedule_hash(a)


@pytest.mark.parametrize(
    "change", [{"state": "wrong"}, {"checked": False}, {"measure": "model"}, {"samples": ()}, {"schedule": None}]
)
def test_usable_takes_everything(change: dict[str, Any]) -> None:
    assert row().usable
    assert not replace(row(), **change).usable

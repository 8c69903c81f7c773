"""The database in the package: each row is complete, names a shipped spec, and has a schedule that is accepted."""

from __future__ import annotations

from functools import cache

import pytest

from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_spec
from nautilus.tune.database.lookup import tuned_schedule
from nautilus.tune.database.rows import Row, key_of, schedule_hash
from nautilus.tune.database.store import SHIPPED, rows
from tests.shipped import ROOT, SPECS
from tests.tune.made import damaged

ROWS = rows(SHIPPED)
IDS = [f"{r.name}-{r.key[:6]}" for r in ROWS]


@cache
def request(name: str, sizes: tuple[tuple[str, int], ...], arch: str, precision: str) -> Request:
    """The request that finds the row."""
    (path,) = [p for p in SPECS if p.stem == name]
    return Request(path, arch, dict(sizes), precision=precision, lookup=tuned_schedule, until="ma-tile")


def asked(row: Row) -> Request:
    return request(row.name, tuple((n, v) for n, v in row.sizes.items() if v is not None), row.arch, row.precision)


def test_one_row_a_key_and_no_line_is_damaged() -> None:
    assert damaged(SHIPPED) == 0
    assert len({(r.key, r.device) for r in ROWS}) == len(ROWS)
    assert SHIPPED.stat().st_size < 1 << 20  # it is read at every compilation


def test_the_page_counts_the_rows_and_names_the_specs_without_one() -> None:
    page = " ".join((ROOT / "nautilus/tune/README.md").read_text().split())
    assert f"It holds {len(ROWS)} specs and sizes" in page
    assert {p.stem for p in SPECS} - {r.name for r in ROWS} == {"f32", "i8_i32"}
    assert "of every shipped spec but the products of f32 and of 8-bit integers" in page


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_row_is_usable_and_of_a_shipped_spec(row: Row) -> None:
    assert row.usable and row.final and row.chosen
    assert row.rules_seconds is not None and row.seconds is not None
    assert row.seconds <= row.rules_seconds
    assert schedule_hash(row.read_schedule()) == row.schedule_hash
    made = asked(row)
    assert key_of(load_spec(made.path, dims=made.dims), row.arch, row.precision).hash == row.key


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_row_is_what_the_compiler_takes(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nautilus.tune.database.lookup.device_here", lambda: row.device)
    result = compile_file(asked(row))
    assert result.tuned and not result.lookup_failure
    assert result.context.schedule is not None and schedule_hash(result.context.schedule) == row.schedule_hash

"""The database in the package: each row is complete and names a shipped spec."""

from __future__ import annotations

import pytest

from nautilus.frontend.semantics.check import load_spec
from nautilus.tune.database.rows import Row, key_of, schedule_hash
from nautilus.tune.database.store import SHIPPED, rows
from tests.shipped import ROOT, SPECS
from tests.tune.made import damaged

ROWS = rows(SHIPPED)
IDS = [f"{r.name}-{r.key[:6]}" for r in ROWS]


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
    (path,) = [p for p in SPECS if p.stem == row.name]
    sizes = {n: v for n, v in row.sizes.items() if v is not None}
    assert key_of(load_spec(path, dims=sizes), row.arch, row.precision).hash == row.key

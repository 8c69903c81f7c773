"""Each shipped row is found, and gives the kernel that was measured: its CUDA text is as recorded, but for names
and comments.

``kernels.json`` holds a digest a row, recorded when the rows were measured.  ``python -m
tests.tune.database.test_shipped_kernels`` records them again, for a change that means to change kernels.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.driver import Request, compile_file
from nautilus.tune.database.lookup import tuned_schedule
from nautilus.tune.database.rows import Row, schedule_hash
from nautilus.tune.database.store import SHIPPED, rows
from tests.shipped import SPECS

RECORDED = Path(__file__).parent / "kernels.json"
ROWS = rows(SHIPPED)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|0x[0-9a-fA-F]+\w*|\d[\w.]*(?:[eE][+-]?\d+\w*)?|\S')


def digest(cuda: str) -> str:
    """Equal for texts that are equal up to comments, spaces and a one-to-one renaming of identifiers."""
    names: dict[str, int] = {}
    found = _TOKEN.findall(_COMMENT.sub(" ", cuda))
    text = " ".join(f"${names.setdefault(t, len(names))}" if t[0].isalpha() or t[0] == "_" else t for t in found)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def request(row: Row) -> Request:
    """The request for which the database has the row."""
    (path,) = [p for p in SPECS if p.stem == row.name]
    sizes = {n: v for n, v in row.sizes.items() if v is not None}
    return Request(path, row.arch, sizes, precision=row.precision)


def test_a_digest_looks_at_the_text_alone() -> None:
    assert digest("int a = b + b; // sum") == digest("int x /* of */ = y\n + y;")
    assert digest("int a = b + b;") != digest("int a = b + c;")
    assert digest("int a = 1;") != digest("int a = 2;")
    assert digest('f("a");') != digest('f("b");')


def test_every_row_is_recorded() -> None:
    assert list(json.loads(RECORDED.read_text())) == [r.key for r in ROWS]


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=[f"{r.name}-{r.key[:6]}" for r in ROWS])
def test_a_row_is_found_and_gives_the_kernel_that_was_measured(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nautilus.tune.database.lookup.device_here", lambda: row.device)
    result = compile_file(replace(request(row), lookup=tuned_schedule))
    assert result.tuned and not result.lookup_failure
    assert result.context.schedule is not None and schedule_hash(result.context.schedule) == row.schedule_hash
    assert digest(result.cuda_module.code) == json.loads(RECORDED.read_text())[row.key]


def kernel(row: Row) -> str:
    """The digest of the CUDA text that the row's schedule gives."""
    return digest(compile_file(replace(request(row), schedule=row.read_schedule())).cuda_module.code)


if __name__ == "__main__":
    RECORDED.write_text(json.dumps({row.key: kernel(row) for row in ROWS}, indent=1) + "\n")

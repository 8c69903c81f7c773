"""Each shipped row gives the kernel that was measured: its CUDA text is as recorded, but for names and comments.

``kernels.json`` holds a digest a row, recorded when the rows were measured.  ``python -m
tests.tune.database.test_shipped_kernels`` records them again, for a change that means to change kernels.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from nautilus.driver import Request, compile_file
from nautilus.tune.database.rows import Row
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


def kernel(row: Row) -> str:
    """The digest of the CUDA text that the row's schedule gives."""
    (path,) = [p for p in SPECS if p.stem == row.name]
    sizes = {n: v for n, v in row.sizes.items() if v is not None}
    return digest(compile_file(Request(path, row.arch, sizes, row.read_schedule(), row.precision)).cuda)


def test_a_digest_looks_at_the_text_alone() -> None:
    assert digest("int a = b + b; // sum") == digest("int x /* of */ = y\n + y;")
    assert digest("int a = b + b;") != digest("int a = b + c;")
    assert digest("int a = 1;") != digest("int a = 2;")
    assert digest('f("a");') != digest('f("b");')


def test_every_row_is_recorded() -> None:
    assert list(json.loads(RECORDED.read_text())) == [r.key for r in ROWS]


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=[f"{r.name}-{r.key[:6]}" for r in ROWS])
def test_a_row_gives_the_kernel_that_was_measured(row: Row) -> None:
    assert kernel(row) == json.loads(RECORDED.read_text())[row.key]


if __name__ == "__main__":
    RECORDED.write_text(json.dumps({row.key: kernel(row) for row in ROWS}, indent=1) + "\n")

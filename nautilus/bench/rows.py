"""Tables of measurements in files: one row of JSON in each line, appended at once, so that a run may be interrupted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read_rows(file: Path) -> Iterator[Row]:
    """The rows of ``file``, none if there is no file; a line that was cut off by an interruption is left out."""
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict):
            yield row


def append(file: Path, row: Row) -> None:
    """Write ``row`` after the rows of ``file``; a line that was cut off before stays alone."""
    text = file.read_bytes() if file.exists() else b""
    with file.open("a") as out:
        out.write(("\n" if text and not text.endswith(b"\n") else "") + json.dumps(row) + "\n")

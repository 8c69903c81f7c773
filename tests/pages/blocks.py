"""Reads the language reference: its fenced blocks, and the tables whose rows hold an expression and its value.

A block is fenced by three backticks and an info string.  The first word of the info string is the kind of the block
(``naut``, ``inputs``, ``result``, ``error``); the others are options.  An example is a ``naut`` block together with the
``result`` or ``error`` block that follows it without a blank line.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "grammar" / "README.md"
_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\|(?P<cells>.*)\|$")
_VALUE = re.compile(r"^(?P<name>\w+) = (?P<value>.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. ``line``: of its opening fence, from 1. ``start``, ``end``: offsets of its text in the page."""

    kind: str
    options: tuple[str, ...]
    text: str
    line: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Example:
    """A spec of the page and what it shall give; ``expected`` None: it shall only load and run."""

    spec: Block
    expected: Block | None

    @property
    def is_fragment(self) -> bool:
        return "fragment" in self.spec.options

    def given(self, option: str) -> dict[str, float]:
        """The numbers of ``--dim K=4`` or ``--set a=2.5`` in the options."""
        words = self.spec.options
        pairs = [w.split("=") for before, w in pairwise(words) if before == option]
        return {name: json.loads(value) for name, value in pairs}


@dataclass(frozen=True, slots=True)
class Row:
    """A table row whose last two cells are an expression and its value."""

    entry: str
    meaning: str
    expression: str
    value: float
    line: int


def blocks(page: str) -> list[Block]:
    """Every fenced block of ``page``, in order."""
    found = []
    for match in _FENCE.finditer(page):
        kind, *options = match["info"].split() or [""]
        line = page.count("\n", 0, match.start()) + 1
        found.append(Block(kind, tuple(options), match["text"], line, match.start("text"), match.end("text")))
    return found


def examples(page: str) -> list[Example]:
    """Every spec of the page that is neither the prefix nor an included file."""
    found, after = [], [*blocks(page)[1:], None]
    for block, behind in zip(blocks(page), after, strict=True):
        if block.kind != "naut" or "prefix" in block.options or files([block]):
            continue
        follows = behind is not None and behind.kind in ("result", "error") and behind.start - block.end < 16
        found.append(Example(block, behind if follows else None))
    return found


def files(found: list[Block]) -> dict[str, str]:
    """The texts of the blocks with an option ``file=NAME``."""
    return {o.removeprefix("file="): b.text for b in found for o in b.options if o.startswith("file=")}


def rows(page: str) -> list[Row]:
    """The rows ``| entry | meaning | `expression` | `value` |`` of all tables."""
    found = []
    for number, line in enumerate(page.split("\n"), 1):
        match = _ROW.match(line)
        cells = [_unescaped(c.strip()) for c in re.split(r"(?<!\\)\|", match["cells"])] if match else []
        if len(cells) == 4 and all(c.startswith("`") and c.endswith("`") for c in cells[2:]):
            entry, meaning, expression, value = (c.strip("`") for c in cells)
            found.append(Row(entry, meaning, expression, number_of(value), number))
    return found


def _unescaped(cell: str) -> str:
    """The text that a cell shows."""
    return re.sub(r"\\([|\[\]])", r"\1", cell)


def table_entries(page: str, heading: str) -> list[list[str]]:
    """The cells of the rows of the first table below ``heading``, without the header row."""
    lines = f"\n{page}".split(f"\n{heading}\n", 1)[1].split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("| ---")) + 1
    body = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        body.append([c.strip().strip("`") for c in re.split(r"(?<!\\)\|", line.strip("|"))])
    return body


def values(text: str) -> dict[str, Any]:
    """The values of lines ``NAME = number or nested list``."""
    return {m["name"]: number_of(m["value"]) for m in _VALUE.finditer(text)}


def number_of(text: str) -> Any:
    """A number or a nested list of numbers; ``inf`` and ``nan`` as the language writes them."""
    return json.loads(re.sub(r"\binf\b", "Infinity", text).replace("nan", "NaN"))

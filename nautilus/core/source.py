"""Source text and positions in it. The span of every IR node refers to a source.

Columns count code points from 1.  :func:`excerpt` renders a span as the source line with carets
under it.  Tabs become spaces, control characters become ``?``, and a long line is cut around the span.
"""

from __future__ import annotations

from collections.abc import Iterable

from nautilus.core.records import dataclass

_WIDTH = 100  # columns of source shown; longer lines are cut around the span


@dataclass(frozen=True, slots=True)
class Source:
    """A named text: a ``.naut`` file, the prelude, or a dumped IR file."""

    name: str
    text: str

    def line(self, number: int) -> str:
        """Line ``number`` (from 1), without its newline; empty past the end."""
        lines = self.text.split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def __repr__(self) -> str:
        return f"Source({self.name!r})"


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open range of a source, as line and column (both from 1, columns in code points)."""

    source: Source
    line: int
    column: int
    end_line: int
    end_column: int

    def __repr__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"


NO_SPAN = Span(Source("<none>", ""), 0, 0, 0, 0)


def fused(spans: Iterable[Span]) -> Span:
    """The smallest span around those of ``spans`` in the first one's source; NO_SPAN of none."""
    known = [s for s in spans if s.line > 0]
    same = [s for s in known if s.source is known[0].source]
    if not same:
        return NO_SPAN
    first = min(same, key=lambda s: (s.line, s.column))
    last = max(same, key=lambda s: (s.end_line, s.end_column))
    return Span(first.source, first.line, first.column, last.end_line, last.end_column)


def excerpt(span: Span) -> list[str]:
    """The lines ``  12 | source`` and ``     | ^^^^`` for ``span``; none for NO_SPAN."""
    if span.line <= 0:
        return []
    raw = span.source.line(span.line)
    text = "".join(c if c.isprintable() else " " if c == "\t" else "?" for c in raw).rstrip()
    start = span.column - 1
    end = span.end_column - 1 if span.end_line == span.line else len(text)
    end = max(start + 1, min(end, max(len(text), start + 1)))
    if len(text) > _WIDTH:
        left = min(max(0, start - _WIDTH // 3), max(0, len(text) - _WIDTH))
        head, tail = "..." if left else "", "..." if left + _WIDTH < len(text) else ""
        text = head + text[left : left + _WIDTH] + tail
        shift = len(head) - left
        start, end = start + shift, min(end + shift, len(text))
        end = max(end, start + 1)
    number = str(span.line)
    gutter = " " * len(number)
    return [f" {number} | {text}".rstrip(), f" {gutter} | {' ' * start}{'^' * (end - start)}"]

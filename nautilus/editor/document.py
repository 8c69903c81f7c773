"""A spec in an editor: its text, what the front end knows of it, and places in it.

The text is parsed and checked at every change, valid or not.  Lines and columns count from 1, and columns count code
points, as in :mod:`nautilus.core.source`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from nautilus.core.records import dataclass
from nautilus.core.source import Source, Span
from nautilus.editor.names import Occurrence, occurrences
from nautilus.frontend.semantics.check import Analysis, analyse_text
from nautilus.frontend.syntax.load import prelude


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its name in messages, the folder of its includes, and sizes as ``--dim`` gives them."""

    text: str
    name: str = "spec.naut"
    folder: Path = Path()
    dims: tuple[tuple[str, int], ...] = ()

    @property
    def source(self) -> Source:
        """The text with its name, for spans."""
        return Source(self.name, self.text)

    @property
    def analysis(self) -> Analysis:
        """What the front end finds; computed once for each document."""
        return _analysed(self)

    @property
    def occurrences(self) -> tuple[Occurrence, ...]:
        """All names in the text and in the files that it includes, in the order of their places."""
        return _occurrences(self)

    def at(self, line: int, column: int) -> Occurrence | None:
        """The name at a place of the text, or just before it."""
        found = [o for o in self.occurrences if self.owns(o.span) and _touches(o.span, line, column)]
        return min(found, key=lambda o: o.span.end_column == column, default=None)

    def owns(self, span: Span) -> bool:
        """Whether ``span`` lies in the text, not in an included file."""
        return span.source.name == self.name


def _touches(span: Span, line: int, column: int) -> bool:
    return span.line == line and span.column <= column <= span.end_column


@lru_cache(maxsize=16)
def _analysed(document: Document) -> Analysis:
    return analyse_text(document.text, document.name, document.folder, dict(document.dims))


@lru_cache(maxsize=16)
def _occurrences(document: Document) -> tuple[Occurrence, ...]:
    found = occurrences(document.analysis.program.statements, prelude())
    return tuple(sorted(found, key=lambda o: (o.span.source.name, o.span.line, o.span.column)))

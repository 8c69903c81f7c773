"""Where a name comes from, where it is used, and another name for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from nautilus.core.errors import InputError, Severity
from nautilus.core.source import Source, Span
from nautilus.editor.document import Document
from nautilus.editor.names import Entity, Occurrence
from nautilus.editor.words import keywords
from nautilus.frontend.syntax.load import prelude

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def definitions(document: Document, line: int, column: int) -> list[Span]:
    """Where the name at a place is defined: an output where it is computed, and from there where it is declared."""
    found = document.at(line, column)
    if found is None:
        return []
    own = [o for o in document.occurrences if o.entity == found.entity and o.role != "uses"]
    if found.entity.kind == "function" and not own:
        return [f.name.span for f in prelude() if f.name.id == found.entity.name]
    computed = [o for o in own if o.role == "defines"]
    if computed and found.role != "defines":
        return [o.span for o in computed]
    return [o.span for o in own if o.span != found.span] or [o.span for o in own]


def references(document: Document, line: int, column: int, declarations: bool = True) -> list[Span]:
    """All places of the name at a place; without ``declarations`` only those that use it."""
    found = document.at(line, column)
    if found is None:
        return []
    return [o.span for o in document.occurrences if o.entity == found.entity and (declarations or o.role == "uses")]


def renameable(document: Document, line: int, column: int) -> Occurrence:
    """The name at a place, if it may have another one.  Raises InputError with the reason why not."""
    found = document.at(line, column)
    if found is None or found.entity.kind in ("built-in", "type", "unknown"):
        raise InputError("only names that the spec declares can be renamed")
    if any(d.severity is Severity.ERROR for d in document.analysis.diagnostics):
        raise InputError("no name of a spec with errors can be changed, because the meaning of its names is not known")
    own = [o for o in document.occurrences if o.entity == found.entity]
    if not any(o.role != "uses" for o in own):
        raise InputError(f"'{found.entity.name}' is a function of the prelude")
    if other := next((o for o in own if not document.owns(o.span)), None):
        raise InputError(f"'{found.entity.name}' stands in {other.span.source.name} too, which is included")
    return found


def rename(document: Document, line: int, column: int, name: str) -> list[Span]:
    """The places at which ``name`` replaces the name at a place.

    Raises InputError where it is no name, or where a name would mean something else afterwards: the renamed text is
    read, and each of its names must mean what it means now.
    """
    found = renameable(document, line, column)
    if not _NAME.fullmatch(name) or name in keywords():
        raise InputError(f"'{name}' is no name")
    spans = [o.span for o in document.occurrences if o.entity == found.entity]
    dims = tuple((name if n == found.entity.name and found.entity.kind == "dim" else n, v) for n, v in document.dims)
    after = replace(document, text=replaced(document.source, spans, name), dims=dims)
    if any(d.severity is Severity.ERROR for d in after.analysis.diagnostics):
        first = next(d for d in after.analysis.diagnostics if d.severity is Severity.ERROR)
        raise InputError(f"'{name}' cannot be the name: {first.message}")
    if _meanings(document, found.entity, name) != _meanings(after, None, ""):
        raise InputError(f"'{name}' cannot be the name: it means something else in this spec")
    return spans


def replaced(source: Source, spans: Sequence[Span], name: str) -> str:
    """The text of ``source`` with ``name`` at each of ``spans``, which lie in one line each."""
    lines = source.text.split("\n")
    for number, group in groupby(sorted(spans, key=lambda s: (s.line, s.column)), key=lambda s: s.line):
        line = lines[number - 1]
        for s in reversed(list(group)):
            line = line[: s.column - 1] + name + line[s.end_column - 1 :]
        lines[number - 1] = line
    return "\n".join(lines)


def _meanings(document: Document, renamed: Entity | None, name: str) -> list[tuple[str, str, str, int]]:
    """Role, kind and name of every name, and the number of the first place with its entity.

    ``renamed`` counts as one called ``name``.
    """
    first: dict[Entity, int] = {}
    out = []
    for n, o in enumerate(document.occurrences):
        called = name if o.entity == renamed else o.entity.name
        out.append((o.role, o.entity.kind, called, first.setdefault(o.entity, n)))
    return out

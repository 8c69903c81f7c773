"""Reads a spec and the files that it includes into syntax trees.

Errors of the file system and of the encoding are diagnostics.  A file that is included twice
is read once.  A cycle of includes is an error at the statement that closes it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from pathlib import Path

from nautilus.core.errors import Diagnostic
from nautilus.core.records import dataclass
from nautilus.core.source import NO_SPAN, Source, Span
from nautilus.frontend.codes import MAX_BYTES
from nautilus.frontend.syntax import ast
from nautilus.frontend.syntax.device_dims import device_dims
from nautilus.frontend.syntax.grammar import prelude_text
from nautilus.frontend.syntax.parse import parse

PRELUDE = "prelude.naut"
SUFFIX = ".naut"


@dataclass
class Program:
    """All statements of a spec with its includes, the files read, and the errors met while reading.

    ``whole``: the file, as the place of errors that belong to no line of it.
    """

    name: str
    whole: Span = NO_SPAN
    statements: list[ast.Statement] = field(default_factory=list)
    errors: list[Diagnostic] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


@lru_cache(maxsize=1)
def prelude() -> tuple[ast.Function, ...]:
    """The functions of the prelude."""
    tree, errors = parse(Source(PRELUDE, prelude_text()))
    assert not errors, errors[0].text()
    return tuple(s for s in tree.statements if isinstance(s, ast.Function))


def facts_of(assumed: Sequence[str]) -> list[ast.Statement]:
    """A statement for each text of a condition."""
    tree, errors = parse(Source("<assumed>", "".join(f"assume {text}\n" for text in assumed)))
    assert not errors, errors[0].text()
    return list(tree.statements)


def read_path(path: Path) -> Program:
    """The program of the file at ``path``."""
    name = os.fsencode(path.stem or path).decode("utf-8", "replace").replace("\ufffd", "_")  # it stands in texts
    program = Program(name, Span(Source(str(path), ""), 0, 0, 0, 0))
    text = _read(path, str(path), "N0101", NO_SPAN, program.errors)
    if text is not None:
        program.files.append(str(path))
        _add(program, Source(str(path), text), path.parent, (_key(path),), {_key(path)})
    program.statements = device_dims(program.statements)
    return program


def read_text(text: str, name: str = "<text>", folder: Path | None = None) -> Program:
    """The program of ``text``; includes are looked up in ``folder`` (default: the current one)."""
    start = Span(Source(name, ""), 0, 0, 0, 0)
    program = Program(Path(name).stem.strip("<>") if name != "<text>" else "spec", start)
    clean = _decode(text.encode("utf-8", "surrogatepass"), name, start, program.errors)
    if clean is not None:
        _add(program, Source(name, clean), folder or Path(), (), set())
    program.statements = device_dims(program.statements)
    return program


def read_source(data: bytes, name: str) -> tuple[Source | None, list[Diagnostic]]:
    """The text in ``data``, the bytes of the file ``name``, without its includes; None and the error for no text."""
    errors: list[Diagnostic] = []
    text = _decode(data, name, Span(Source(name, ""), 0, 0, 0, 0), errors)
    return (None if text is None else Source(name, text)), errors


def _key(path: Path) -> str:
    try:
        return str(path.resolve())
    except (OSError, RuntimeError, ValueError):
        return str(path)


def _read(path: Path, name: str, code: str, span: Span, errors: list[Diagnostic]) -> str | None:
    where = span if span.line else Span(Source(name, ""), 0, 0, 0, 0)
    try:
        if path.is_dir():
            errors.append(Diagnostic(code, f"cannot read '{name}': it is a directory", where))
            return None
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        errors.append(Diagnostic(code, f"cannot read '{name}': {reason}", where))
        return None
    return _decode(data, name, where, errors)


def _decode(data: bytes, name: str, where: Span, errors: list[Diagnostic]) -> str | None:
    """Text with newlines as LF and no byte-order mark, or an error."""
    if len(data) > MAX_BYTES:
        message = f"'{name}' is larger than {MAX_BYTES // 1024} KiB"
        errors.append(Diagnostic("N0106", message, where, hint="a spec is a short text; is this the right file?"))
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        message = f"'{name}' is not UTF-8 text: byte 0x{data[error.start]:02X} in line {line}, byte {column}"
        errors.append(Diagnostic("N0102", message, where))
        return None
    if "\0" in text:
        errors.append(Diagnostic("N0102", f"'{name}' is not text: it holds NUL bytes", where))
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _not_included(written: str, path: Path) -> str | None:
    """Why the file at ``path`` must not be read, or None.

    A spec may come from anyone: its messages must not show other files, and reading it must not wait for a pipe.
    """
    if not written.endswith(SUFFIX):
        return f"the name of an included file ends in {SUFFIX}"
    if Path(written).is_absolute():
        return "the path is absolute; an included file is found beside the file that includes it"
    return "it is no regular file" if path.exists() and not path.is_file() and not path.is_dir() else None


def _add(program: Program, source: Source, folder: Path, stack: tuple[str, ...], seen: set[str]) -> None:
    tree, errors = parse(source)
    program.errors.extend(errors)
    for statement in tree.statements:
        if not isinstance(statement, ast.Include):
            program.statements.append(statement)
            continue
        try:
            path = folder / statement.path
            key = _key(path)
        except ValueError:
            path, key = Path(statement.path), statement.path
        if key in stack:
            message = f"'{statement.path}' is included while it is being read"
            program.errors.append(Diagnostic("N0108", message, statement.span))
        elif len(stack) > 50:
            message = "includes are nested more than 50 deep"
            program.errors.append(Diagnostic("N0108", message, statement.span))
        elif (fault := _not_included(statement.path, path)) is not None:
            program.errors.append(Diagnostic("N0107", f"cannot include '{statement.path}': {fault}", statement.span))
        elif key not in seen:
            seen.add(key)
            text = _read(path, statement.path, "N0107", statement.span, program.errors)
            if text is not None:
                program.files.append(str(path))
                _add(program, Source(str(path), text), path.parent, (*stack, key), seen)

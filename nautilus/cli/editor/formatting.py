"""``nautilusc fmt``: the standard layout of specs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from io import BytesIO
from pathlib import Path

import click

from nautilus.cli.files import write_output
from nautilus.cli.several import for_each
from nautilus.core.errors import DiagnosticError, InputError
from nautilus.core.source import Source
from nautilus.editor.layout import formatted
from nautilus.frontend.syntax.load import SUFFIX, read_source

_STDIN = Path("-")


def format_files(paths: Sequence[Path], check: bool, diff: bool, quiet: bool) -> None:
    """Format the files of ``paths``; a file with syntax errors stays as it is, and its errors are printed.

    Raises InputError for a folder without specs; Exit with code 1 where ``check`` finds a file in another layout.
    """
    files = [file for path in paths for file in _files(path)]
    changed: list[Path] = []

    def run(file: Path) -> None:
        data, source = _read(file)
        made = formatted(source)
        same = made.encode() == data
        if not same:
            changed.append(file)
        if diff:
            before, after = source.text.splitlines(True), made.splitlines(True)
            click.echo("".join(unified_diff(before, after, source.name, source.name)), nl=False)
        elif check and not same and not quiet:
            click.echo(f"nautilusc: {source.name} has another layout", err=True)
        elif not check and (file == _STDIN or not same):
            write_output(str(file), made.encode())

    for_each(files, run)
    if check and changed:
        raise click.exceptions.Exit(1)


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        if path != _STDIN and path.suffix != SUFFIX:
            raise click.UsageError(f"fmt formats specs ({SUFFIX}), not {path}")
        yield path
        return
    found = sorted(path.rglob(f"*{SUFFIX}"))
    if not found:
        raise InputError(f"{path} holds no {SUFFIX} files")
    yield from found


def _read(file: Path) -> tuple[bytes, Source]:
    """The bytes of ``file``, of which a byte-order mark and carriage returns are no part of the text."""
    try:
        stream = sys.stdin.buffer if sys.stdin is not None else BytesIO()
        data = stream.read() if file == _STDIN else file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    source, errors = read_source(data, "<stdin>" if file == _STDIN else str(file))
    if source is None:
        raise DiagnosticError(errors)
    return data, source

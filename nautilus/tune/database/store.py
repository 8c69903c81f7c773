"""The tuning database: an append-only text file with one row a line (:mod:`nautilus.tune.database.rows`).

The database is a plain file because it has to survive ``kill -9`` at any moment, several writers, and a home directory
on a network file system, where SQLite's WAL mode must not be used.  Users may also read, diff and concatenate it.

* A writer holds an exclusive ``flock``, appends whole lines with one ``write`` and syncs.  A killed writer leaves at
  most an incomplete last line; the next writer ends it with a newline, and readers skip it.
* :func:`rewrite` writes a new file beside the old one and renames it under the same lock.  A writer that waited for the
  lock finds that its file is no longer the one at the path and opens the new one.
* A line begins with its key, so a lookup searches for bytes and parses only matching lines.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nautilus.core.errors import InputError
from nautilus.tune.database.paths import data_folder as data_folder
from nautilus.tune.database.paths import user_path as user_path
from nautilus.tune.database.rows import Row, parse

SHIPPED = Path(__file__).parent / "shipped.jsonl"


def append(path: Path, rows: Iterable[Row]) -> None:
    """Append ``rows`` to the file at ``path``, creating it if needed.  Raises InputError where writing fails."""
    data = "".join(r.line() for r in rows).encode()
    if not data:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path) as handle:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                data = b"\n" + data  # a writer was killed in the middle of a line
            _write(handle, data)
            os.fsync(handle)
    except OSError as error:
        raise InputError(f"cannot write the tuning database {path}: {error.strerror}") from error


def rows(path: Path) -> tuple[Row, ...]:
    """All rows in order; none without a file.  Raises InputError where the file cannot be read."""
    return tuple(row for line in _read(path).splitlines() if (row := parse(line)) is not None)


def select(path: Path, key: str) -> tuple[Row, ...]:
    """The rows with key ``key`` in order; none without a readable file."""
    try:
        data = path.read_bytes()
    except OSError:
        return ()
    return tuple(row for line in _starting(data, b'{"key":"%s"' % key.encode()) if (row := parse(line)) is not None)


def rewrite(path: Path, keep: Callable[[Sequence[Row]], Sequence[Row]]) -> tuple[int, int]:
    """Replace the rows by ``keep(rows)``.  Returns the numbers of lines before and after.

    The old file stays unchanged until the new one is complete.  Raises InputError where the rewrite fails.
    """
    try:
        with _locked(path) as handle:
            before = _read(path)
            kept = [row for line in before.splitlines() if (row := parse(line)) is not None]
            chosen = keep(kept)
            text = "".join(r.line() for r in chosen).encode()
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(file.name, os.fstat(handle).st_mode & 0o777)
            os.replace(file.name, path)
        return len(before.splitlines()), len(chosen)
    except OSError as error:
        raise InputError(f"cannot rewrite the tuning database {path}: {error.strerror}") from error


def _starting(data: bytes, prefix: bytes) -> Iterator[bytes]:
    """Lines of ``data`` that start with ``prefix``."""
    at = 0 if data.startswith(prefix) else data.find(b"\n" + prefix) + 1
    if not data.startswith(prefix, at):
        return
    while True:
        end = data.find(b"\n", at)
        if end < 0:
            yield data[at:]
            return
        yield data[at:end]
        at = data.find(b"\n" + prefix, end) + 1
        if not at:
            return


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InputError(f"cannot read the tuning database {path}: {error.strerror}") from error


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """An exclusive handle on the file at ``path``."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if _is_at(handle, path):
                yield handle
                return
        finally:
            os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _write(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]

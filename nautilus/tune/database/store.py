"""The tuning database: a file to which lines are appended, one row each (:mod:`nautilus.tune.database.rows`).

A plain file and not a database engine because of what it has to survive: ``kill -9`` at any moment,
several writers, a home directory on a network file system (where SQLite's WAL mode must not be used),
and a person who wants to read, diff, concatenate or mail it.

* A writer holds an exclusive ``flock``, appends whole lines with one ``write`` and syncs. Killed in between, it
  leaves at most a torn last line; the next writer closes it with a newline, readers skip it.
* :func:`rewrite` makes a new file beside the old one and renames it, under the same lock; a writer that
  waited for the lock sees that its file is no longer the one at the path, and opens the new one.
* A line begins with its key, so that a look-up is a search for bytes and parses only what it needs.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nautilus.core.errors import InputError
from nautilus.tune.database.rows import Row, parse

SHIPPED = Path(__file__).parent / "shipped.jsonl"


def user_path() -> Path:
    """``$NAUTILUS_DB``, else ``tuning.jsonl`` in nautilusc's folder of XDG data."""
    return Path(os.environ["NAUTILUS_DB"]) if os.environ.get("NAUTILUS_DB") else data_folder() / "tuning.jsonl"


def data_folder() -> Path:
    """Where nautilusc keeps what it found out (XDG Base Directory Specification, ``XDG_DATA_HOME``)."""
    root = os.environ.get("XDG_DATA_HOME", "")
    base = Path(root) if os.path.isabs(root) else Path(os.path.expanduser("~")) / ".local" / "share"
    return base / "nautilusc"


def append(path: Path, rows: Iterable[Row]) -> None:
    """Add ``rows`` to the file at ``path``, which is made if need be. Raises InputError."""
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
    """All rows in order; no file: none. Raises InputError for one that cannot be read."""
    return tuple(row for line in _read(path).splitlines() if (row := parse(line)) is not None)


def damaged(path: Path) -> int:
    """Lines of the file that are no rows."""
    return sum(1 for line in _read(path).splitlines() if line.strip() and parse(line) is None)


def select(path: Path, key: str) -> tuple[Row, ...]:
    """The rows whose key is ``key``, in order; no file, or one that cannot be read: none."""
    try:
        data = path.read_bytes()
    except OSError:
        return ()
    return tuple(row for line in _starting(data, b'{"key":"%s"' % key.encode()) if (row := parse(line)) is not None)


def rewrite(path: Path, keep: Callable[[Sequence[Row]], Sequence[Row]]) -> tuple[int, int]:
    """Replace the rows by ``keep(rows)``; gives how many lines there were and are.

    The old file stays as it is until the new one is whole. Raises InputError.
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
    """A handle on the file at ``path``, which nobody else writes meanwhile."""
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

"""Files that commands write: completely or not at all."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from pathlib import Path

from nautilus.core.errors import InputError


def write_output(name: str, data: bytes) -> None:
    """Write ``data`` completely or not at all, by a temporary file beside the target and a rename.

    The target of a link is replaced, not the link.  Devices and pipes are written directly.  Raises InputError.
    """
    if name == "-":
        if sys.stdout is None:
            raise InputError("cannot write to standard output: it is closed")
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    target = Path(name)
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(target)), data)
    except OSError as error:
        raise InputError(f"cannot write {name}: {error.strerror}") from error


def _replace(target: Path, data: bytes) -> None:
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name[:100]}.", delete=False) as file:
            temporary = file.name
            file.write(data)
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


def _mode(target: Path) -> int:
    """The permissions of the existing ``target``, else those of a new file."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask

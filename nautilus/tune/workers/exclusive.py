"""One process at a time on a GPU: times taken while another one runs kernels mean nothing.

Several searches may share a device: while one starts up, plans, compiles or compares results, another measures.
The lock is a ``flock`` on a file named after the device, so it is free again however its holder ended.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from nautilus.core.errors import InputError


def lock_path(device: str) -> Path:
    """Where the lock of ``device`` (a number or a UUID) is; one a user, for others may not open it."""
    safe = "".join(c if c.isalnum() else "-" for c in device)
    return Path(tempfile.gettempdir()) / f"nautilusc-{os.getuid()}-gpu-{safe}.lock"


@contextmanager
def exclusive(path: Path, waiting: Callable[[], AbstractContextManager[None]] = nullcontext) -> Iterator[None]:
    """Hold the lock at ``path``. Where somebody else has it, wait for it inside of ``waiting()``. Raises InputError."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"cannot lock the GPU by {path}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with waiting():
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

"""A lock that admits one process at a time to a GPU, because concurrent kernels distort measured times.

Several searches and benchmarks may share a device: one measures while others start up, plan, compile or compare
results.  The lock is a ``flock`` on a file named after the device; the operating system releases it when its holder
ends for any reason.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from nautilus.core.errors import InputError, ToolchainError


def lock_path(device: str) -> Path:
    """The path of the lock file of ``device`` (a number or a UUID); other users cannot open it."""
    safe = "".join(c if c.isalnum() else "-" for c in device)
    return Path(tempfile.gettempdir()) / f"nautilusc-{os.getuid()}-gpu-{safe}.lock"


def visible(setting: str | None, ordinal: int) -> str:
    """``CUDA_VISIBLE_DEVICES`` of a process that sees one GPU: device ``ordinal`` of those that its parent sees.

    ``setting``: the variable's value in the parent.  Raises ToolchainError where ``setting`` has no such device.
    """
    known = [part.strip() for part in setting.split(",") if part.strip()] if setting else []
    if not known:
        return str(ordinal)
    if ordinal >= len(known):
        raise ToolchainError("CUDA driver", f"no device {ordinal} among CUDA_VISIBLE_DEVICES={setting}")
    return known[ordinal]


@contextmanager
def exclusive(path: Path, waiting: Callable[[], AbstractContextManager[None]] = nullcontext) -> Iterator[None]:
    """Hold the lock at ``path``; wait for it inside ``waiting()`` while another process holds it.

    Raises InputError where the file cannot be opened.
    """
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

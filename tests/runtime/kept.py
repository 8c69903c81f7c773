"""Results of external compilers, kept by the content of what they compile, in the folder for temporary files.

NVRTC, nvcc and the host's C++ compiler take a fifth of the time of all tests, and few texts change from one run of the
tests to the next.  A result depends on what its key names and on nothing else: the text, the options, and the compiler.
What a compiler refuses is not kept.  ``NAUTILUS_KEPT=0`` keeps nothing.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

DAYS = 7  # after which a result that no run has used is deleted


@lru_cache(maxsize=1)
def folder() -> Path | None:
    """Where the results of this user are; None where nothing is kept."""
    if os.environ.get("NAUTILUS_KEPT") == "0":
        return None
    found = Path(tempfile.gettempdir()) / f"nautilus-kept-{os.getuid()}"
    found.mkdir(mode=0o700, exist_ok=True)
    return found


def kept(key: tuple[object, ...], make: Callable[[], bytes]) -> bytes:
    """``make()``, or its result in an earlier run with an equal ``key``, a tuple of texts and numbers."""
    where = folder()
    if where is None:
        return make()
    path = where / hashlib.sha256(repr(key).encode()).hexdigest()
    with suppress(OSError, zlib.error):
        found = zlib.decompress(path.read_bytes())
        os.utime(path)
        return found
    made = make()
    with tempfile.NamedTemporaryFile(dir=where, delete=False) as file:
        file.write(zlib.compress(made, 1))
    os.replace(file.name, path)
    return made


def delete_unused() -> None:
    """Delete the results that no run has used for :data:`DAYS`."""
    where, oldest = folder(), time.time() - DAYS * 86400
    for path in where.iterdir() if where is not None else ():
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()


def identity(program: str) -> tuple[str, int]:
    """What tells one version of a compiler from another one, on every machine."""
    path = Path(program).resolve()
    return path.name, path.stat().st_size

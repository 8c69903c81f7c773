"""The key of a compilation in the cache: a hash of everything that decides the bytes of its output.

These are the contents of the spec and of the files that it includes, its path (messages quote it), the options, the
schedule file, the sources of the compiler with its grammar and its shipped schedules (their sizes and times), the
user's tuning database, the GPUs of the machine, NVRTC, and for libraries the host compiler.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from nautilus.runtime.toolkits import wheels
from nautilus.tune.database.paths import user_path

_PACKAGE = Path(__file__).parents[1]
_INCLUDE = re.compile(r'\binclude\s*"([^"\n]*)"')
_MOST_FILES = 10_000


def key_of(spec: Path, schedule: Path | None, options: Mapping[str, Any], tools: Iterable[str] = ()) -> str:
    """The key. ``options``: all that JSON can say of the request; ``tools``: programs whose output is in the result.

    Raises OSError where the spec or the schedule cannot be read, or is no regular file.
    """
    whole = hashlib.sha256()
    about = {"options": options, "spec": str(spec), "cwd": os.getcwd() if not spec.is_absolute() else ""}
    stats = [*_stat(str(user_path())), *nvrtc(), *gpus(), *(x for t in tools for x in _tool(t))]
    for part in (sources(), json.dumps([about, stats], sort_keys=True), *_texts(spec)):
        whole.update(hashlib.sha256(part.encode("utf-8", "surrogateescape")).digest())
    if schedule is not None:
        whole.update(hashlib.sha256(_regular(schedule)).digest())  # an empty file is not no file
    return whole.hexdigest()


def _texts(spec: Path) -> Iterator[str]:
    """The contents of ``spec``, and of all files that it may include, with their paths."""
    todo, seen = [spec], set[Path]()
    while todo and len(seen) < _MOST_FILES:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        text = _regular(path).decode("utf-8", "surrogateescape") if path is spec or path.is_file() else ""
        yield f"{path}\n{text}"
        todo += [path.parent / name for name in _INCLUDE.findall(text)]


@cache
def sources() -> str:
    """A hash of the names, sizes and times of the files of the compiler, and the version of Python.

    Their contents would take longer to read than an output of the cache.  What replaces a file gives it another time of
    change (``st_ctime``), even if it keeps the time of the last write.
    """
    whole = hashlib.sha256(sys.version.encode())
    grammar = [p for p in (_PACKAGE / "grammar", _PACKAGE.parent / "grammar") if p.is_dir()]
    todo = [str(root) for root in (_PACKAGE, *grammar[:1])]
    while todo:
        with os.scandir(todo.pop()) as entries:
            found = sorted(entries, key=lambda e: e.name)
        todo += [e.path for e in found if e.name != "__pycache__" and e.is_dir()]
        for e in found:
            if e.name.endswith((".py", ".lark", ".naut", ".jsonl")):
                at = e.stat()
                whole.update(f"{e.path}\0{at.st_size} {at.st_mtime_ns} {at.st_ctime_ns} {at.st_ino}\n".encode())
    return whole.hexdigest()


def nvrtc() -> list[str]:
    """The libraries of NVRTC that may be used, with their sizes and times."""
    found = [str(p) for root in wheels() for p in sorted(root.glob("*/lib/libnvrtc*"))]
    searched = os.environ.get("LD_LIBRARY_PATH", ""), os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", "")
    return [*searched, *(x for path in found for x in _stat(path))]


def gpus() -> list[str]:
    """The GPUs of the machine, which decide the default architecture and which rows of the database are used."""
    if not any(os.path.exists(p) for p in ("/dev/nvidiactl", "/dev/dxg")):
        return []
    found = list[str]()
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        try:
            found.append(path.read_text(errors="replace").split("\n", 1)[0])
        except OSError:
            continue
    if not found:
        from nautilus.runtime.device import default_arch
        from nautilus.tune.database.lookup import device_here

        found = [default_arch(), device_here()]
    return [*found, os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.environ.get("CUDA_DEVICE_ORDER", "")]


def _regular(path: Path) -> bytes:
    """The contents of a file.  Raises OSError for a pipe, which can be read once only, and for an unreadable file."""
    if path.exists() and not path.is_file():
        raise OSError(errno.ESPIPE, "not a regular file", str(path))
    return path.read_bytes()


def _tool(name: str) -> list[str]:
    return _stat(shutil.which(name) or name)


def _stat(path: str) -> list[str]:
    """The path of a file, its size, its time and its number; the path alone where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return [path]
    return [os.path.realpath(path), str(found.st_size), str(found.st_mtime_ns), str(found.st_ino)]

"""Outputs of earlier compilations on disk, which the command line and the Python interface share.

An entry is one file whose name is the hash of everything that decides its contents (:mod:`nautilus.export.cache_key`).
It is written beside its place and renamed, so that processes never see a part of one.  It begins with the hash of its
contents; a damaged entry is removed with a warning, and the compilation runs.  Nothing in an entry is evaluated: it
holds JSON and the bytes of files.

``NAUTILUS_CACHE`` names the folder (default: ``nautilusc`` in the user's cache folder); ``0`` turns the cache off.
``NAUTILUS_CACHE_BYTES`` limits its size (default: 1 GiB): entries that were not used for the longest time are removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nautilus.core.records import dataclass

_MAGIC = b"nautilusc cache 1\n"
_LIMIT = 1 << 30
_SUFFIX = ".entry"


@dataclass(frozen=True, slots=True)
class Entry:
    """``files``: the outputs by name; ``about``: what is JSON."""

    files: Mapping[str, bytes]
    about: Mapping[str, Any]


def folder() -> Path | None:
    """The folder of the entries; None where the cache is turned off."""
    named = os.environ.get("NAUTILUS_CACHE", "")
    if named in ("0", "off"):
        return None
    if named:
        return Path(named)
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "nautilusc"


def find(key: str) -> Entry | None:
    """The entry of ``key``; None where there is none, or where it is damaged, which is said."""
    place = folder()
    if place is None:
        return None
    path = place / f"{key}{_SUFFIX}"
    try:
        data = path.read_bytes()
    except OSError:
        return None
    try:
        entry = _read(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        print(f"nautilusc: warning: {path} is damaged and is removed", file=sys.stderr)
        with suppress(OSError):
            path.unlink()
        return None
    with suppress(OSError):
        os.utime(path)
    return entry


def store(key: str, entry: Entry) -> None:
    """Keep ``entry``; a folder that cannot be written keeps nothing."""
    place = folder()
    if place is None:
        return
    temporary = None
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place, prefix=".", delete=False) as file:
            temporary = file.name
            file.write(_written(entry))
        os.replace(temporary, place / f"{key}{_SUFFIX}")
        _shrink(place, keep=f"{key}{_SUFFIX}")
    except OSError:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)


def _written(entry: Entry) -> bytes:
    sizes = {name: len(data) for name, data in entry.files.items()}
    head = json.dumps({"files": sizes, "about": entry.about}).encode() + b"\n"
    rest = head + b"".join(entry.files.values())
    return _MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def _read(data: bytes) -> Entry:
    """Raises ValueError for what :func:`_written` did not make."""
    digest, _, rest = data.removeprefix(_MAGIC).partition(b"\n")
    if not data.startswith(_MAGIC) or hashlib.sha256(rest).hexdigest().encode() != digest:
        raise ValueError("the hash differs")
    head, _, body = rest.partition(b"\n")
    found = json.loads(head)
    files, at = dict[str, bytes](), 0
    for name, size in found["files"].items():
        files[name] = body[at : at + size]
        at += size
    return Entry(files, found["about"])


def _shrink(place: Path, keep: str) -> None:
    """Remove the entries that were not used for the longest time, until the others are small enough."""
    try:
        limit = int(os.environ.get("NAUTILUS_CACHE_BYTES", "") or _LIMIT)
    except ValueError:
        limit = _LIMIT
    found = list[tuple[float, int, str]]()
    with os.scandir(place) as entries:
        for e in entries:
            with suppress(OSError):
                if e.name.endswith(_SUFFIX):
                    found.append((e.stat().st_mtime, e.stat().st_size, e.path))
    size = sum(s for _, s, _ in found)
    for _, own, path in sorted(found):
        if size <= limit:
            return
        if os.path.basename(path) != keep:
            size -= own
            with suppress(OSError):
                os.unlink(path)

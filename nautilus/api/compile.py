"""``nautilus.compile``: a spec as a function on arrays of the device, compiled once and kept in the cache."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import click

from nautilus.api.kernel import Kernel
from nautilus.cli.compiling import Asked, compiled_entry, entry_key
from nautilus.core.errors import InputError
from nautilus.export.cache import find, store
from nautilus.export.forms import MANIFEST


def compile_kernel(
    spec: str | PathLike[str],
    dims: Mapping[str, int] | None = None,
    *,
    arch: str | None = None,
    precision: str | None = None,
    schedule: str | PathLike[str] | None = None,
    level: int = 2,
    name: str = "",
    variants: int = 6,
    batch_invariant: bool = False,
    cache: bool = True,
) -> Kernel:
    """The kernel of the file ``spec``.

    The options are those of the command line, which shares its cache; ``level``: that of ``-O``.  ``variants``: the
    most schedules among which a launch chooses by the sizes that are known then.
    Warnings about the spec are Python warnings.  Raises what a compilation raises (DiagnosticError, ScheduleError,
    UnsupportedError, ToolchainError), and InputError for wrong options.
    """
    if level not in (0, 1, 2):
        raise InputError(f"the level is {level}; allowed are 0, 1 and 2 ('nautilusc tune' searches for a schedule)")
    if variants < 1:
        raise InputError(f"the number of variants is {variants}; it must be at least 1")
    path = Path(spec)
    options: dict[str, Any] = {
        "arch": arch, "dims": dict(dims or {}), "level": level, "precision": precision, "variants": variants,
        "schedule": Path(schedule) if schedule is not None else None, "batch_invariant": batch_invariant,
        "werror": frozenset(), "quiet": True,
        "dump_ir": None, "dump_dir": None, "time_passes": False, "verbose": False, "as_json": False,
        "diagnostics": "text",
    }  # fmt: skip
    asked = Asked(None, "cubin", name, "", resource_usage=False)
    key = entry_key(path, asked, options) if cache else None
    entry = find(key) if key is not None else None
    if entry is None:
        try:
            entry = compiled_entry(path, asked, options)
        except click.UsageError as error:
            raise InputError(error.format_message()) from None
        if key is not None and key == entry_key(path, asked, options):  # no file has changed meanwhile
            store(key, entry)
    for message in entry.about["messages"]:
        warnings.warn(message["text"], stacklevel=3)
    return Kernel(json.loads(entry.files[MANIFEST]), entry.files[""])

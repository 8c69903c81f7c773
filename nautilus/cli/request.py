"""The request to the driver from the options of the command line."""

from __future__ import annotations

from dataclasses import replace
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import click

from nautilus.cli.options import given_text
from nautilus.core.errors import InputError
from nautilus.core.records.heap import keep_freed_memory
from nautilus.core.schedule import Schedule
from nautilus.driver import Request
from nautilus.export.forms import SEVERAL
from nautilus.runtime.device import default_arch
from nautilus.targets.records import NAMES
from nautilus.tune.database.lookup import tuned_schedule


def make_request(spec: Path, options: dict[str, Any], until: str) -> Request:
    """The request to the driver from the common options.  Raises InputError for an unreadable schedule.

    What follows, in this process, evaluates specs on arrays.
    """
    keep_freed_memory()
    schedule = None
    if options["schedule"] is not None:
        try:
            schedule = Schedule.from_json(Path(options["schedule"]).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"cannot read schedule {options['schedule']}: {error.strerror}") from error
        except JSONDecodeError as error:
            raise InputError(f"cannot read schedule {options['schedule']}: it is no JSON file: {error}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"cannot read schedule {options['schedule']}: {error}") from error
    if options.get("batch_invariant"):
        if schedule is not None and schedule.kernels:
            raise click.UsageError("--batch-invariant is for the planner, but --schedule gives the plans of kernels")
        schedule = replace(schedule or Schedule(), batch_invariant=True)
    explicit = frozenset(name for name in ("arch", "precision") if options[name] is not None)
    arch = options["arch"] or default_arch()
    if "," in arch:
        raise click.UsageError(f"this output holds one architecture, but got {arch}; several: {', '.join(SEVERAL)}")
    if arch not in NAMES:
        raise click.UsageError(_unknown_arch(arch))
    precision = options["precision"] or "fast"
    level = 1 if schedule is not None else options["level"]
    lookup = tuned_schedule if level >= 2 else None
    made = Request(
        spec, arch, dict(options["dims"]), schedule, precision, until,
        explicit=explicit, lookup=lookup, variants=options.get("variants", 1), text=given_text(spec),
    )  # fmt: skip
    if level in (1, 2) or spec.suffix != ".naut":
        return made
    from nautilus.cli.commands import at_level

    return at_level(made, level, options)


_GPUS = {"hopper": "sm_90a", "ada": "sm_89", "ampere": "sm_80", "h100": "sm_90a", "h200": "sm_90a", "a100": "sm_80"}


def _unknown_arch(arch: str) -> str:
    """The message for an architecture that is none, or that is spelt as elsewhere, such as ``90a`` and ``h100``."""
    meant = _GPUS.get(arch.lower(), "sm_" + arch.lower().rpartition("_")[2].removeprefix("sm").replace(".", ""))
    hint = f"; did you mean {meant}?" if meant in NAMES else ""
    return f"unknown architecture {arch!r}{hint}; supported: {', '.join(NAMES)}"

"""Dumps: the text of a module between two passes, from which a compilation can resume.

The first lines are comments with the pass, the context and the schedule.  The compilation resumes after that pass::

    ; nautilusc dump: scalar after fuse
    ; context: {"arch": "sm_90a", "precision": "fast"}
    ; schedule: {...}
    ; integers: {"page": [0, 63]}
    ; certificate: {...}

``integers`` are the ranges of inputs that are positions or are compared with some, on which a dump is checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from nautilus.core.errors import Diagnostic, DiagnosticError, ScheduleError
from nautilus.core.schedule import Schedule
from nautilus.core.source import Source, Span
from nautilus.frontend.promises import integer_ranges
from nautilus.passes.loading import load
from nautilus.passes.manager import Context, steps
from nautilus.passes.pipelines import CUDA, STAGES, Stage

CERTIFICATE = "; certificate: "
_INTEGERS = "; integers: "
_FIRST = re.compile(r"; nautilusc dump: ([\w-]+) after ([\w-]+)\s*$")


def dump_header(stage: Stage, name: str, context: Context) -> str:
    """The comment lines of a dump after ``name``; empty for a stage without a parser (spec, cuda)."""
    if not stage.parse:
        return ""
    lines = [f"; nautilusc dump: {stage.name} after {name}"]
    lines.append("; context: " + json.dumps({"arch": context.arch, "precision": context.precision}))
    if context.schedule is not None:
        lines.append("; schedule: " + json.dumps(json.loads(context.schedule.to_json())))
    integers = context.integers if context.spec is None else integer_ranges(context.spec)
    if integers:
        lines.append(_INTEGERS + json.dumps(integers))
    return "\n".join(lines) + "\n"


def is_dump(text: str) -> bool:
    """Whether ``text`` begins with a dump's header."""
    return _FIRST.match(text.split("\n", 1)[0]) is not None


def certificate_line(text: str) -> str | None:
    """The JSON text of the certificate in the header of a dump; None where it has none."""
    for line in text.split("\n", 7)[:7] if is_dump(text) else ():
        if line.startswith(CERTIFICATE):
            return line.removeprefix(CERTIFICATE)
    return None


def read_header(text: str, context: Context, explicit: Collection[str] = frozenset()) -> tuple[Context, str | None]:
    """The context of a dump, and the pass after which it was taken (None: start with the stage's first pass).

    A schedule in ``context`` and the fields that ``explicit`` names come from the command line and override the header.
    Raises ValueError for a malformed header.
    """
    lines = text.split("\n", 5)
    first = _FIRST.match(lines[0])
    if first is None:
        return context, None
    for line in lines[1:4]:
        if line.startswith("; context: "):
            known: dict[str, Any] = json.loads(line.removeprefix("; context: "))
            found = {k: str(known[k]) for k in ("arch", "precision") if k not in explicit}
            context = replace(context, **found)  # type: ignore[arg-type]
        elif line.startswith("; schedule: ") and context.schedule is None:
            context = replace(context, schedule=Schedule.from_json(line.removeprefix("; schedule: ")))
        elif line.startswith(_INTEGERS):
            context = replace(context, integers=_ranges(line.removeprefix(_INTEGERS)))
    return context, (None if first[2] == "lower" else first[2])


def _ranges(text: str) -> dict[str, tuple[int, int]]:
    found: dict[str, list[int]] = json.loads(text)
    made = {str(name): (int(low), int(high)) for name, (low, high) in found.items()}
    if any(low > high for low, high in made.values()):
        raise ValueError("a range of integers has its end before its start")
    return made


def read_dump(
    path: Path, text: str | None, stage: Stage, context: Context, explicit: Collection[str]
) -> tuple[Any, Context, str | None]:
    """The module in ``path`` (or in ``text``), its context, and the pass after which the compilation resumes.

    Raises DiagnosticError for a file that is no dump of ``stage``, and ScheduleError for options that contradict it.
    """
    name = str(path)
    try:
        text = path.read_text(encoding="utf-8") if text is None else text
        requested = context.arch
        context, after = read_header(text, context, explicit)
        if after is None and stage.plain_is_final and not is_dump(text):
            after = steps(stage)[-1].name
        todo = steps(stage, after)  # the pass must exist
    except OSError as error:
        raise bad_input(name, f"cannot read this {stage.name} file: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise bad_input(name, f"cannot read this {stage.name} file: {error}") from error
    if context.schedule is None and stage.decisions and stage.decisions[-1] not in [step.name for step in todo]:
        raise ScheduleError(f"{name} was dumped after {after}, but has no schedule line; give --schedule")
    if context.dims:
        raise bad_input(name, "sizes are fixed in a dump; --dim belongs to a spec")
    module = load(stage.parse)(text, name)
    target = getattr(module, "target", context.arch)
    if target != context.arch and "arch" in explicit:
        raise ScheduleError(f"{name} is for {target}, not {requested}; compile an earlier level")
    return module, replace(context, arch=target), after


def stage_of(path: Path) -> Stage:
    """The stage with the suffix of ``path``. Raises DiagnosticError."""
    for stage in STAGES:
        if path.suffix == stage.suffix and stage is not CUDA:
            return stage
    known = " ".join(s.suffix for s in STAGES if s is not CUDA)
    raise bad_input(str(path), f"the suffix {path.suffix!r} is none of {known}")


def bad_input(name: str, message: str) -> DiagnosticError:
    """The error of an input file that cannot be read."""
    return DiagnosticError([Diagnostic("N0902", message, Span(Source(name, ""), 0, 0, 0, 0))])

"""Instruments: Verify, Print, DumpDir, Time.

A dump is a whole input again: its first lines are comments that say where it was taken and under
which schedule, and the driver resumes behind that pass::

    ; nautilusc dump: scalar after fuse
    ; context: {"arch": "sm_90a", "precision": "fast"}
    ; schedule: {...}
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nautilus.core.schedule import Schedule
from nautilus.passes.manager import Context, Record
from nautilus.passes.pipelines import Stage
from nautilus.passes.registry import load

_FIRST = re.compile(r"; nautilusc dump: ([\w-]+) after ([\w-]+)\s*$")


def text_of(record: Record) -> str:
    """The module's text form, one newline at the end."""
    form: str = load(record.stage.format)(record.module)
    return form if form.endswith("\n") else form + "\n"


def dump_header(stage: Stage, name: str, context: Context) -> str:
    """The comment lines of a dump after ``name``; empty for a stage that is not read back (spec, cuda)."""
    if not stage.parse:
        return ""
    lines = [f"; nautilusc dump: {stage.name} after {name}"]
    lines.append("; context: " + json.dumps({"arch": context.arch, "precision": context.precision}))
    if context.schedule is not None:
        lines.append("; schedule: " + json.dumps(json.loads(context.schedule.to_json())))
    return "\n".join(lines) + "\n"


def is_dump(text: str) -> bool:
    """``text`` begins with a dump's header."""
    return _FIRST.match(text.split("\n", 1)[0]) is not None


def read_header(text: str, context: Context, explicit: Collection[str] = frozenset()) -> tuple[Context, str | None]:
    """The context and the pass a dump was taken behind (None: start with the stage's first pass).

    What the command line gave (a schedule in ``context``, fields named in ``explicit``) wins.  Raises
    ValueError for a bad header.
    """
    lines = text.split("\n", 4)
    first = _FIRST.match(lines[0])
    if first is None:
        return context, None
    for line in lines[1:3]:
        if line.startswith("; context: "):
            known: dict[str, Any] = json.loads(line.removeprefix("; context: "))
            found = {k: str(known[k]) for k in ("arch", "precision") if k not in explicit}
            context = replace(context, **found)  # type: ignore[arg-type]
        elif line.startswith("; schedule: ") and context.schedule is None:
            context = replace(context, schedule=Schedule.from_json(line.removeprefix("; schedule: ")))
    return context, (None if first[2] == "lower" else first[2])


@dataclass(frozen=True)
class Verify:
    """Run the level's verifier after every step that changed something."""

    def after(self, record: Record) -> None:
        if record.stage.verify and record.changed:
            load(record.stage.verify)(record.module)


@dataclass
class Print:
    """Collects the IR after chosen steps, of the last attempt where a kernel is planned again.

    ``what`` holds ``all`` (every stage), stage names (the stage's last step), pass names (every run of the
    pass), or one run: ``cse-1``, ``cse-2``. Each of the last two may follow ``stage/``.
    """

    what: Collection[str]
    texts: list[str] = field(default_factory=list)

    def after(self, record: Record) -> None:
        if record.number == 0:
            self.texts.clear()
        own = {record.name, record.base} if record.base != record.name else {record.name, f"{record.name}-1"}
        own |= {f"{record.stage.name}/{name}" for name in own}
        if record.is_last:
            own |= {"all", record.stage.name}
        if own.isdisjoint(self.what):
            return
        title = f"{record.stage.name} after {record.name}" + ("" if record.changed else " (unchanged)")
        self.texts.append(f"; ---- {title} ----\n{text_of(record)}\n")

    def report(self) -> str:
        """All of them."""
        return "".join(self.texts)


@dataclass
class DumpDir:
    """Write ``007-scalar-rolling-update.scalar`` after every step; one that changed nothing says so.

    Every file but the last stage's is whole, so that a compilation can start from it. Where a kernel is planned
    again, only the files of the last attempt stay.
    """

    folder: Path
    written: list[Path] = field(default_factory=list)

    def after(self, record: Record) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if record.number == 0:
            while self.written:
                self.written.pop().unlink(missing_ok=True)
        path = self.folder / f"{record.number:03d}-{record.stage.name}-{record.name}{record.stage.suffix}"
        note = "" if record.changed else "; (unchanged)\n"
        text = dump_header(record.stage, record.name, record.context) + note + text_of(record)
        path.write_text(text, encoding="utf-8")
        self.written.append(path)


@dataclass
class Time:
    """Collects the cost of every step."""

    records: list[tuple[str, float]] = field(default_factory=list)

    def after(self, record: Record) -> None:
        self.records.append((f"{record.stage.name}/{record.name}", record.seconds))

    def report(self) -> str:
        """A table: milliseconds and share of every step, and the total."""
        total = sum(s for _, s in self.records) or 1e-9
        rows = [f"{1e3 * s:9.2f} ms {100 * s / total:5.1f}%  {name}" for name, s in self.records]
        return "\n".join([*rows, f"{1e3 * total:9.2f} ms         total"]) + "\n"

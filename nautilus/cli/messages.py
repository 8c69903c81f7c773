"""Warnings and remarks about a compilation, as data: the cache keeps them beside the output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nautilus.cli.output import colored
from nautilus.core.records import dataclass

if TYPE_CHECKING:
    from nautilus.core.errors import Diagnostic
    from nautilus.driver import Request, Result


@dataclass(frozen=True, slots=True)
class Message:
    """``text`` for people, ``record`` for programs; ``word``: the part of the text that has a color on terminals."""

    text: str
    record: dict[str, Any]
    severity: str
    word: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON data."""
        return asdict(self)


def of_diagnostic(d: Diagnostic) -> Message:
    """The message of a warning or an error with a place in the source."""
    return Message(d.text(), d.as_dict(), d.severity.value, f"{d.severity.value}[{d.code}]")


def remark(severity: str, message: str) -> Message:
    """A message without a place in the source."""
    return Message(f"nautilusc: {severity}: {message}", {"severity": severity, "message": message}, severity)


def show(messages: Sequence[Message], form: str) -> None:
    """Print ``messages`` to standard error as text or as JSON lines."""
    for m in messages:
        print(json.dumps(m.record) if form == "json" else colored(m.text, m.word, m.severity), file=sys.stderr)


def about(request: Request, result: Result) -> Iterator[Message]:
    """The warnings of the spec, the spills that ptxas reports, or a note that it did not check the kernel."""
    spec = result.modules.get("spec")
    yield from map(of_diagnostic, spec.warnings if spec is not None else ())
    if result.ptxas_failure:
        yield remark("warning", f"{request.path}: {result.ptxas_failure}")
    for kernel, count in result.spills:
        reason = f"kernel {kernel} spills {count} bytes of registers of each thread to memory, which is slow"
        yield remark("warning", f"{request.path}: {reason}")
    if result.unchecked:
        yield remark("note", f"{request.path}: ptxas did not check the wgmma instructions ({result.unchecked})")

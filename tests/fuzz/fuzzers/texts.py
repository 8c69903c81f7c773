"""Fuzzers of texts that users edit: schedules and dumps of the IRs.

A broken text is refused with an error that a user is meant to see.  A schedule that is accepted gives right results.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from nautilus.core.errors import DiagnosticError, VerifyError
from nautilus.core.schedule import Schedule
from nautilus.driver import Request, compile_file
from nautilus.passes.dumps import dump_header
from nautilus.passes.instruments import text_of
from nautilus.passes.manager import Record
from tests.endtoend.support import Compilation, complaints
from tests.fuzz.case import OK, Fuzzer, Verdict, internal, is_users
from tests.fuzz.minimise import smaller_lines
from tests.fuzz.specs import GENERATORS

_WORDS = (
    "0",
    "1",
    "-1",
    "63",
    "1e9",
    "9" * 30,
    "true",
    "null",
    '""',
    "[]",
    "{}",
    '"warpgroup"',
    '"grid"',
    "nan",
    "(",
    "%9",
)
_BASES = 24  # small specs that schedules and dumps are made from


@cache
def _base(number: int) -> tuple[str, str]:
    """A small spec and its target."""
    return GENERATORS[("products", "language", "chains")[number % 3]](number), ("sm_90a", "sm_120")[number // 3 % 2]


def _compile(text: str, arch: str, schedule: Schedule | None = None) -> Compilation:
    from nautilus.check.levels import Trace

    trace = Trace()
    request = Request(Path("given.naut"), arch, text=text, schedule=schedule)
    return Compilation(compile_file(request, [trace]), tuple(trace.levels))


# -- schedules
def make_schedule(seed: int) -> str:
    """The number of a spec, and its schedule with some fields changed or the text damaged."""
    r = random.Random(seed)
    number = r.randrange(_BASES)
    raw: dict[str, Any] = json.loads(_schedule(number))
    for _ in range(r.randint(1, 3)):
        _change(r, raw)
    found = json.dumps(raw, indent=1)
    return f"{number}\n{_damage(r, found) if r.random() < 0.2 else found}"


@cache
def _schedule(number: int) -> str:
    """The schedule of a base in its JSON form."""
    schedule = _compile(*_base(number)).result.context.schedule
    assert schedule is not None
    return schedule.to_json()


def _change(r: random.Random, raw: Any) -> None:
    """Change one value of a JSON document: to another of its kind, or to anything."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(value, (dict, list)):
                walk(value)

    walk(raw)
    node, key = r.choice(places)
    old = node[key]
    if isinstance(old, bool):
        node[key] = not old
    elif isinstance(old, int):
        node[key] = r.choice((old * 2, old // 2, old + 1, 0, -1, 16, 64, 128, 2**40))
    elif isinstance(old, list) and old:
        node[key] = r.choice((old[::-1], old[1:], [*old, old[0]], []))
    elif r.random() < 0.5:
        node[key] = r.choice((None, 1, "x", [], {}, True, 0.5))
    elif isinstance(node, dict):
        del node[key]


def attempt_schedule(text: str, seed: int) -> Verdict:
    """The verdict on a compilation under the schedule."""
    number, _, schedule = text.partition("\n")
    spec, arch = _base(int(number))
    try:
        given = Schedule.from_json(schedule)
    except ValueError:
        return OK  # the command line makes an error with the file's name of it
    try:
        made = _compile(spec, arch, given)
    except Exception as error:
        return OK if is_users(error) else internal(error)
    wrong = complaints(made, seed)
    return Verdict("wrong", wrong[0].partition(":")[0], wrong[0]) if wrong else OK


# -- IR text
def make_dump(seed: int) -> str:
    """A damaged dump of a compilation at a random pass."""
    r = random.Random(seed)
    suffix, _, text = r.choice(_dumps(r.randrange(_BASES))).partition("\n")
    return f"{suffix}\n{_damage(r, text)}"


@cache
def _dumps(number: int) -> Sequence[str]:
    """The dumps of a base at every pass, each after its suffix."""
    spec, arch = _base(number)
    dumps: list[str] = []

    class Keep:
        def after(self, record: Record) -> None:
            if record.stage.parse:
                header = dump_header(record.stage, record.name, record.context)
                dumps.append(f"{record.stage.suffix}\n{header}{text_of(record)}")

    compile_file(Request(Path("given.naut"), arch, text=spec), [Keep()])
    return dumps


def attempt_dump(text: str, _seed: int) -> Verdict:
    """The verdict on a compilation that resumes at the dump."""
    suffix, _, dump = text.partition("\n")
    try:
        compile_file(Request(Path(f"given{suffix}"), text=dump))
    except (DiagnosticError, VerifyError):
        return OK
    except Exception as error:
        return OK if is_users(error) else internal(error)
    return OK


def _damage(r: random.Random, text: str) -> str:
    for _ in range(r.randint(1, 3)):
        text = r.choice(_DAMAGES)(r, text)
    return text


def _without_a_line(r: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    del lines[r.randrange(len(lines))]
    return "".join(lines) or "\n"


def _swapped_lines(r: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    a, b = r.randrange(len(lines)), r.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return "".join(lines)


def _repeated_line(r: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    lines.insert(r.randrange(len(lines)), r.choice(lines))
    return "".join(lines)


def _other_token(r: random.Random, text: str) -> str:
    tokens = [*re.finditer(r"[%\w.]+|[^\s\w]", text)]
    if not tokens:
        return text
    m, other = r.choice(tokens), r.choice(tokens)[0]
    return text[: m.start()] + (other if r.random() < 0.7 else r.choice(_WORDS)) + text[m.end() :]


def _other_number(r: random.Random, text: str) -> str:
    numbers = [*re.finditer(r"(?<![\w%])\d+", text)]
    if not numbers:
        return text
    m = r.choice(numbers)
    n = int(m[0][:18])
    return text[: m.start()] + str(r.choice((n + 1, n - 1, n * 2, n // 2, 0, 2**31, -n))) + text[m.end() :]


def _cut_off(r: random.Random, text: str) -> str:
    return text[: r.randrange(len(text) + 1)]


def _other_byte(r: random.Random, text: str) -> str:
    at = r.randrange(len(text) + 1)
    return text[:at] + chr(r.choice((0, 9, 34, 92, 123, 125, 955, 0x1F600))) + text[at + 1 :]


_DAMAGES: tuple[Callable[[random.Random, str], str], ...] = (
    _without_a_line, _swapped_lines, _repeated_line, _other_token, _other_token, _other_number, _other_number, _cut_off,
    _other_byte,
)  # fmt: skip


def fuzzers() -> tuple[Fuzzer, ...]:
    return (
        Fuzzer("schedule", make_schedule, attempt_schedule, smaller_lines, ".json"),
        Fuzzer("ir", make_dump, attempt_dump, smaller_lines, ".ir"),
    )

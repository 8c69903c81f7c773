"""Output of errors, and the reproducer of an internal error."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from nautilus import __version__
from nautilus.core.errors import Diagnostic, DiagnosticError, InputError, NautilusError, first_line
from nautilus.passes.pipelines import STAGES

_RED, _YELLOW, _OFF = "\x1b[31;1m", "\x1b[33;1m", "\x1b[0m"


def wants_color(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal and NO_COLOR is not set (no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


_DELAY = 2.0  # seconds before the time of a command is shown
_CLEAR = "\r\x1b[K"


@contextmanager
def waiting(what: str, quiet: bool) -> Iterator[None]:
    """On a terminal, show from two seconds on how long ``what`` takes; nothing else may print meanwhile."""
    stream = sys.stderr
    if quiet or stream is None or not stream.isatty():
        yield
        return
    started, done = time.monotonic(), threading.Event()

    def show() -> None:
        patience = _DELAY
        while not done.wait(patience):
            print(f"{_CLEAR}{what}: {time.monotonic() - started:.0f} s", end="", file=stream, flush=True)
            patience = 1.0
        print(_CLEAR, end="", file=stream, flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def report(error: Exception, args: Sequence[str]) -> int:
    """Print ``error`` to standard error.  Returns the exit code."""
    if isinstance(error, NautilusError) and error.exit_code != 70:
        print_error(error, _form(args))
        return error.exit_code
    if _is_out_of_memory(error):
        print_error(InputError(f"not enough memory: {first_line(error) or 'an allocation failed'}"), _form(args))
        return InputError.exit_code
    path = write_reproducer(error, args)
    notes = "".join(f" ({n})" for n in getattr(error, "__notes__", []))
    first = first_line(error) or type(error).__name__
    if asks_json(args):
        record = {"error": "internal", "message": first, "notes": list(getattr(error, "__notes__", []))}
        print(json.dumps(record | {"reproducer": str(path)}), file=sys.stderr)
        return 70
    if "-v" in args or "--verbose" in args:
        traceback.print_exception(error, file=sys.stderr)
    print(f"nautilusc: internal error: {first}{notes}", file=sys.stderr)
    print(f"this is a bug in nautilusc; a reproducer was written to {path}", file=sys.stderr)
    return 70


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed: in Python, in PyTorch (which is not imported here), or in a library of its own."""
    name = type(error).__name__
    return isinstance(error, MemoryError) or name == "OutOfMemoryError" or "_STATUS_ALLOC_FAILED" in str(error)


def _form(args: Sequence[str]) -> str:
    return "json" if asks_json(args) else "text"


def asks_json(args: Sequence[str]) -> bool:
    """Whether ``--diagnostics json`` is among ``args``."""
    joined = " ".join(args)
    return "--diagnostics=json" in joined or "--diagnostics json" in joined


def print_error(error: NautilusError, form: str) -> None:
    """Print all diagnostics of ``error``, or its message, to standard error."""
    if isinstance(error, DiagnosticError):
        print_diagnostics(error.diagnostics, form)
    elif form == "json":
        record = {"error": type(error).__name__, "message": str(error), "exit_code": error.exit_code}
        print(json.dumps(record), file=sys.stderr)
    else:
        notes = "".join(f"\n{n}" for n in getattr(error, "__notes__", []))
        print(f"nautilusc: error: {error}{notes}", file=sys.stderr)


def print_diagnostics(found: Sequence[Diagnostic], form: str) -> None:
    """Print all diagnostics to standard error as text or as JSON lines."""
    for d in found:
        text = colored(d.text(), f"{d.severity.value}[{d.code}]", d.severity.value)
        print(json.dumps(d.as_dict()) if form == "json" else text, file=sys.stderr)


def colored(text: str, word: str, severity: str) -> str:
    """``text`` with the color of ``severity`` on its first ``word``, where standard error is a terminal."""
    if not word or not wants_color(sys.stderr):
        return text
    return text.replace(word, f"{_RED if severity == 'error' else _YELLOW}{word}{_OFF}", 1)


_PASSWORD = re.compile(r"(://[^\s:/@]*):[^\s/]*@")
_MOST_OF_AN_INPUT = 1_000_000  # characters


def _without_passwords(text: str) -> str:
    """``text`` with ``***`` for the password of every URL: reproducers are sent to other people."""
    return _PASSWORD.sub(r"\1:***@", text)


def write_reproducer(error: BaseException, args: Sequence[str]) -> Path:
    """Write the command line, versions, inputs and traceback to a temporary file.  Returns its path."""
    inputs: dict[str, Any] = {}
    for arg in args:
        path = Path(arg)
        if path.suffix in {s.suffix for s in STAGES} | {".json"}:
            try:
                if path.is_file():  # a pipe was read already, and reading it again would wait
                    with path.open(encoding="utf-8", errors="replace") as source:
                        inputs[arg] = source.read(_MOST_OF_AN_INPUT)
            except OSError:
                continue
    parts = [
        f"nautilusc {__version__}, Python {sys.version.split()[0]}",
        _without_passwords("command: nautilusc " + " ".join(args)),
        _without_passwords("".join(traceback.format_exception(error))),
        *(f"---- {name} ----\n{text}" for name, text in inputs.items()),
    ]
    handle, name = tempfile.mkstemp(prefix="nautilusc-bug-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write("\n".join(parts))
    return Path(name)

"""The exceptions of the compiler, and diagnostics as data.

A :class:`Diagnostic` is one finding about a source text: a stable code (``N0203``), a severity, a
message, a span, notes and a hint.  It renders as text (file:line:col, source line, caret) or as a
dict for JSON.  A stage collects all its diagnostics and raises them together in one :class:`DiagnosticError`.

Every exception derives from :class:`NautilusError` and has the exit code of the command line.  Worker processes
send exceptions back, so they can be pickled: the default ``__reduce__`` would call ``cls(*self.args)`` and lose
keyword fields.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from nautilus.core.records import dataclass
from nautilus.core.source import NO_SPAN, Span, excerpt

T = TypeVar("T")
U = TypeVar("U")


class Severity(enum.Enum):
    """The severity of a diagnostic. Only errors stop the compilation."""

    ERROR = "error"
    WARNING = "warning"
    REMARK = "remark"


@dataclass(frozen=True, slots=True)
class Note:
    """A second place that explains a diagnostic (``span`` NO_SPAN: no place)."""

    message: str
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding about a source text. ``code`` is stable across releases."""

    code: str
    message: str
    span: Span = NO_SPAN
    notes: tuple[Note, ...] = ()
    hint: str | None = None
    severity: Severity = Severity.ERROR

    def text(self) -> str:
        """``file:line:col: error[N0203]: message``, the source line, carets, notes and the hint."""
        head = f"{self.severity.value}[{self.code}]: {self.message}"
        lines = [f"{_place(self.span)}{head}", *excerpt(self.span)]
        for note in self.notes:
            lines += [f"{_place(note.span)}note: {note.message}", *excerpt(note.span)]
        if self.hint is not None:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The same as :meth:`text`, for ``--diagnostics json``."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "message": self.message,
            **_where(self.span),
            "notes": [{"message": n.message, **_where(n.span)} for n in self.notes],
            "hint": self.hint,
        }


def _place(span: Span) -> str:
    if span.line > 0:
        return f"{span.source.name}:{span.line}:{span.column}: "
    return "" if span is NO_SPAN or span == NO_SPAN else f"{span.source.name}: "


def _where(span: Span) -> dict[str, Any]:
    if span == NO_SPAN:
        return {"file": None, "line": None, "column": None, "end_line": None, "end_column": None}
    return {
        "file": span.source.name,
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
    }


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The hint ``did you mean 'x'?`` for the candidate closest to ``name``, or None."""
    from difflib import get_close_matches  # most compilations have no error

    pool = sorted({c for c in candidates if c != name})
    found = get_close_matches(name, pool, n=1, cutoff=0.6)
    if not found:  # get_close_matches is strict on short names and on case: Q for q, Kv for KV
        found = [c for c in pool if c.lower() == name.lower()]
    return f"did you mean '{found[0]}'?" if found else None


def first_line(error: Exception) -> str:
    """The first line of the message of ``error``; empty for an error without a message."""
    return str(error).partition("\n")[0]


class NautilusError(Exception):
    """Base of all errors that the user sees. ``exit_code`` is the exit code of the command line."""

    exit_code: ClassVar[int] = 70

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(cls: type[NautilusError], args: tuple[Any, ...], state: dict[str, Any]) -> NautilusError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class DiagnosticError(NautilusError):
    """All errors and warnings of a source, in order of position."""

    exit_code = 1

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        super().__init__("\n".join(d.text() for d in self.diagnostics))


class VerifyError(NautilusError):
    """An IR breaks a rule of its level, because of a bug in a pass or in an edited dump.

    ``node`` is the text of the offending node, and ``span`` its origin in the spec.
    """

    exit_code = 70

    def __init__(self, level: str, rule: str, node: str, detail: str = "", span: Span = NO_SPAN) -> None:
        self.level, self.rule, self.node, self.detail, self.span = level, rule, node, detail, span
        lines = [f"{_place(span)}{level} IR breaks the rule '{rule}'" + (f": {detail}" if detail else "")]
        lines += [f"  in: {line}" if i == 0 else f"      {line}" for i, line in enumerate(node.splitlines())]
        super().__init__("\n".join([*lines, *excerpt(span)]))


class TargetLimitError(VerifyError):
    """A kernel exceeds a limit of the target. The cause is the schedule, not a broken IR.

    ``excess``: the ratio of what it needs to the limit; 0: not known.
    """

    exit_code = 4

    def __init__(
        self, level: str, rule: str, kernel: str, detail: str, span: Span = NO_SPAN, *, excess: float = 0.0
    ) -> None:
        self.kernel, self.excess = kernel, excess
        super().__init__(level, rule, f"kernel {kernel}", detail, span)

    def schedule_error(self) -> ScheduleError:
        """The same failure as an error of the schedule, with the notes of this one."""
        found = ScheduleError(f"{self.rule}: {self.detail}", kernel=self.kernel, excess=self.excess)
        for note in getattr(self, "__notes__", ()):
            found.add_note(note)
        return found


class UnsupportedError(NautilusError):
    """The spec is valid, but uses ``feature``, which this stage or target does not support.

    ``kernel``: the kernel that uses it, where another schedule may avoid it; empty: none.
    """

    exit_code = 4
    kernel = ""

    def __init__(self, feature: str, detail: str = "", span: Span = NO_SPAN) -> None:
        self.feature, self.detail, self.span = feature, detail, span
        text = f"{_place(span)}not supported: {feature}" + (f" ({detail})" if detail else "")
        super().__init__("\n".join([text, *excerpt(span)]))


class Cause(enum.Enum):
    """The reason that keeps a product from an engine, as far as a spec decides it."""

    ROWS = "rows of a tensor do not start at multiples of 16 bytes"
    ORDER = "the contiguous axis of a tensor is not the one that the instruction needs"
    OTHER = "anything else"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why an engine refused a kernel, as data from which a remark derives its advice.

    ``reason``: the sentence for the user.  ``cause`` is the kind of reason, and ``buffer`` the tensor that has it.
    ``elements``: the number of elements of which rows must be multiples (:attr:`Cause.ROWS`), else 0.  ``axis``: the
    axis that must be contiguous (:attr:`Cause.ORDER`), else empty.
    """

    reason: str
    cause: Cause = Cause.OTHER
    buffer: str = ""
    elements: int = 0
    axis: str = ""


class ScheduleError(NautilusError):
    """There is no legal schedule, or a given schedule is illegal.

    ``kernel`` names the kernel that fails, as the schedule does (empty: no single one).  ``field`` names the field
    of the schedule or the part of the IR (empty: none).  ``excess`` is the ratio of the resource that it needs to what
    there is (0: not known).  ``span`` is the place in the spec of what is refused, and ``obstacle`` the reason as data
    (None: only the message says it).  ``others`` are the failures of other kernels in the same step
    (:func:`each_or_failures`).  Callers use these fields, not the message.
    """

    exit_code = 4
    others: tuple[ScheduleError, ...] = ()

    def __init__(
        self, reason: str, field: str = "", *, kernel: str = "", excess: float = 0.0, span: Span = NO_SPAN,
        obstacle: Obstacle | None = None,
    ) -> None:  # fmt: skip
        self.reason, self.field, self.kernel, self.excess = reason, field, kernel, excess
        self.span, self.obstacle = span, obstacle
        places = [f"kernel {kernel}"] if kernel else []
        super().__init__(": ".join([*places, *([field] if field else []), reason]))


class AssemblerError(ScheduleError):
    """ptxas makes a kernel that is right but slow: it serialises wgmma instructions or spills their accumulators."""


class SpillError(AssemblerError):
    """ptxas spills registers of a kernel, which is right but slow: a smaller plan is better, if there is one."""


@contextmanager
def in_kernel(name: str) -> Iterator[None]:
    """A part of a compilation that is about kernel ``name`` alone, which its failures then name."""
    try:
        yield
    except (ScheduleError, UnsupportedError) as error:
        error.kernel = error.kernel or name
        raise


def each_or_failures(change: Callable[[T], U], kernels: Iterable[T]) -> tuple[U, ...]:
    """``change`` of each of ``kernels``.

    Raises the first ScheduleError, whose ``others`` are those of the kernels after it: all kernels that are refused
    take their next plans at once, and a program with many of them is not planned again for each.
    """
    made, failed = list[U](), list[ScheduleError]()
    for kernel in kernels:
        try:
            made.append(change(kernel))
        except ScheduleError as error:
            failed.append(error)
    if failed:
        failed[0].others = tuple(failed[1:])
        raise failed[0]
    return tuple(made)


class ToolchainError(NautilusError):
    """The CUDA toolchain, driver or device is missing or failed. ``log`` is its output."""

    exit_code = 3

    def __init__(self, tool: str, message: str, log: str = "") -> None:
        self.tool, self.message, self.log = tool, message, log
        super().__init__(f"{tool}: {message}" + (f"\n{log.rstrip()}" if log.strip() else ""))


class MissingToolError(ToolchainError):
    """A part of the toolchain is not there, or too old for the target, on every call of this machine."""


class InternalError(NautilusError):
    """A broken invariant of the compiler. ``reproducer`` is the path of a file that reproduces it."""

    exit_code = 70

    def __init__(self, message: str, reproducer: str = "") -> None:
        self.message, self.reproducer = message, reproducer
        super().__init__(message + (f"\nreproducer: {reproducer}" if reproducer else ""))


def is_internal(error: Exception) -> bool:
    """Whether ``error`` is a bug of the compiler, not an error in a spec, a schedule, a file or the machine."""
    if isinstance(error, NautilusError):
        return error.exit_code == InternalError.exit_code
    return not isinstance(error, (OSError, MemoryError))


class InputError(NautilusError):
    """An argument of a run is missing, unknown or of the wrong shape; a file cannot be read or written."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class RunError(NautilusError):
    """An interpreter found an error in the module or its inputs, such as a read out of range or a missing barrier."""

    exit_code = 1

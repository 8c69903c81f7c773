"""The statements of a spec in a kernel: comments that say where each begins, and names for values without one.

The level before numbers a value that no definition names (``%50``).  Its C name says the statement that it belongs to
and its operation: ``P_exp2``; where no statement comes before it, the tensor that was loaded: ``A_sub``.  A kernel that
comes from a dump has no spec, and its values are ``v50``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.scan import ScanOp
from nautilus.ma_tile.ir.traverse import bound
from nautilus.ma_tile.ir.unpack import UnpackOp

_NUMBERED = re.compile(r"(\d+)(?!\d)(.*)", re.DOTALL)
_LONGEST = 110  # characters of a comment
_WORDS = {"mul_unless_one": "scaled"}  # operation -> a shorter word for its result


class Definition(Protocol):
    """A statement of the spec."""

    @property
    def name(self) -> str:
        """The tensor that it defines."""
        ...

    @property
    def span(self) -> Span:
        """Its place in the spec."""
        ...


class Spec(Protocol):
    """An object with statements, such as a Spec."""

    @property
    def definitions(self) -> Sequence[Definition]:
        """The statements, in order of dependence."""
        ...


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements of a spec by their places; none of a dump."""

    all: tuple[Definition, ...] = ()

    @staticmethod
    def of(spec: Spec | None) -> Statements:
        """The statements of ``spec``."""
        return Statements(() if spec is None else tuple(spec.definitions))

    def at(self, span: Span) -> Definition | None:
        """The statement that ``span`` lies in."""
        if span.line <= 0:
            return None
        start = (span.line, span.column)
        for d in self.all:
            s = d.span
            if s.source == span.source and (s.line, s.column) <= start < (s.end_line, s.end_column):
                return d
        return None

    def comment(self, d: Definition) -> str:
        """The text of ``d`` on one line in ASCII, without its own comments, cut where it is long."""
        lines = (d.span.source.line(n).partition("#")[0] for n in range(d.span.line, d.span.end_line + 1))
        text = " ".join(" ".join(lines).split())
        text = "".join(c if c.isascii() and c != "\\" else "?" for c in text)
        return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."

    def names(self, kernel: ma.MemKernel) -> dict[str, str]:
        """Number of a value of ``kernel`` -> what its C name begins with."""
        return dict(self._names(kernel)) if self.all else {}

    def _names(self, kernel: ma.MemKernel) -> Iterator[tuple[str, str]]:
        last = ""  # an operation without a place belongs to the statement before it, or to the tensor loaded before it
        in_statement = False
        for op in ma.walk_ops(kernel.body):
            numbers = [m[1] for f in bound(op) if (m := _NUMBERED.fullmatch(f.name))]
            if (d := self.at(op.span)) is not None:
                last, in_statement = d.name, True
            elif isinstance(op, ma.GlobalLoad) and not in_statement:
                last = op.buffer
            if numbers and last and (word := _word(op)):
                yield numbers[0], f"{last}_{word}"


def _word(op: Any) -> str:
    """The operation of ``op`` as a part of a name; empty where it is no operation on elements."""
    match op:
        case ma.MapOp(op="cast" | "narrow", result=result):
            return str(result.type.dtype)
        case ma.MapOp(op=name):
            return _WORDS.get(name, name.removesuffix("_approx"))
        case ma.ReduceOp(combiner=name) | ScanOp(combiner=name):
            return name
        case ma.IndexOp():
            return "index"
        case UnpackOp():
            return "unpacked"
    return ""


def spelled(name: str, names: dict[str, str]) -> str:
    """``name``, with the words of ``names`` for its number."""
    m = _NUMBERED.fullmatch(name)
    return name if m is None or m[1] not in names else names[m[1]] + m[2]

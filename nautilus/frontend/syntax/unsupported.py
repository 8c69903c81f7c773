"""Constructs of the language that are not supported yet: each is refused by its name, with what to write instead.

A table holds the construct, its hint, and nothing else.  The reader and the semantic checks ask for an entry where a
spec would otherwise get an error about its form or an unknown name, so a tensor may still be called ``assume``.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.errors import Diagnostic
from nautilus.core.source import Span

#: construct -> what to write instead
INSTEAD: Mapping[str, str] = {
    "device": "write 'dim N', and give the size with --dim N=...",
    "i4": "store the values as i8",
    "u4": "store the values as u8",
    "f4e2m1": "store the values as f8e4m3, which holds each of them",
}
_SHOWN = {"device": "a size in device memory ('device')"}
_PACKED = {"i4", "u4", "f4e2m1"}


def refusal(construct: str, span: Span) -> Diagnostic:
    """The error about ``construct``, a key of :data:`INSTEAD`."""
    shown = _SHOWN.get(construct, f"the element type '{construct}'" if construct in _PACKED else f"'{construct}'")
    return Diagnostic("N0112", f"{shown} is not supported yet", span, hint=INSTEAD[construct])


def is_packed_type(name: str) -> bool:
    """Whether ``name`` is an element type of less than a byte."""
    return name in _PACKED

"""Constructs of the language that are not supported yet: each is refused by its name, with what to write instead.

A table holds the construct, its hint, and nothing else.  The reader and the semantic checks look up an entry.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.errors import Diagnostic
from nautilus.core.source import Span

#: construct -> what to write instead
INSTEAD: Mapping[str, str] = {
    "device": "the bound is part of the dim, as in 'dim N = device <= 4096'; kernels clamp every size to it",
}
_SHOWN = {"device": "a fact about a size in device memory ('device')"}


def refusal(construct: str, span: Span) -> Diagnostic:
    """The error about ``construct``, a key of :data:`INSTEAD`."""
    shown = _SHOWN.get(construct, f"'{construct}'")
    return Diagnostic("N0112", f"{shown} is not supported yet", span, hint=INSTEAD[construct])

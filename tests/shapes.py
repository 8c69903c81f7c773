"""Shapes of buffers whose extents are all known."""

from __future__ import annotations

from collections.abc import Iterable

from nautilus.core.expr.nodes import Param


def static(shape: Iterable[int | Param]) -> tuple[int, ...]:
    """``shape``, which has no runtime extent."""
    out = tuple(e for e in shape if isinstance(e, int))
    assert len(out) == len(tuple(shape)), "a runtime extent"
    return out

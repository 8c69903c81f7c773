"""Shapes of buffers whose extents are all known."""

from __future__ import annotations

from collections.abc import Iterable

from nautilus.core.index.sizes import Extent


def static(shape: Iterable[Extent]) -> tuple[int, ...]:
    """``shape``, which has no runtime extent."""
    out = tuple(e for e in shape if isinstance(e, int))
    assert len(out) == len(tuple(shape)), "a runtime extent"
    return out

"""Limits of a target by name."""

from __future__ import annotations

from nautilus.core.errors import UnsupportedError
from nautilus.targets.records import TARGETS, Limits, find

__all__ = ["Limits", "limits"]


def limits(target: str) -> Limits:
    """The limits of ``target``. Raises UnsupportedError."""
    found = find(target)
    if found is None:
        raise UnsupportedError(f"target {target}", f"known targets: {', '.join(TARGETS)}")
    return found.limits

"""Rates of a target by name."""

from __future__ import annotations

from nautilus.targets.records import TARGETS, Machine, find, version

__all__ = ["Machine", "machine"]

_OLDEST = min(TARGETS, key=version)


def machine(arch: str) -> Machine:
    """The rates of ``arch``; of an unknown one those of the nearest known one below it, or of the oldest one."""
    found = find(arch)
    if found is None:
        older = [name for name in TARGETS if version(name) <= version(arch)]
        found = TARGETS[max(older, key=version, default=_OLDEST)]
    return found.rates

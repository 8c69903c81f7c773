"""Rates of a target by name."""

from __future__ import annotations

from nautilus.targets.records import TARGETS, Machine, find

__all__ = ["Machine", "machine"]


def _number(name: str) -> int:
    return int("".join(c for c in name if c.isdigit()) or "80")


def machine(arch: str) -> Machine:
    """The rates of ``arch``. An unknown architecture has the rates of the nearest known one below it."""
    found = find(arch)
    if found is None:
        older = [name for name in TARGETS if _number(name) <= _number(arch)]
        found = TARGETS[max(older, key=_number, default="sm_80")]
    return found.rates

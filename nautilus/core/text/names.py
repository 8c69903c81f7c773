"""Names: those that are not in use yet, and those that occur twice."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable


def unused(name: str, taken: Container[str], first: int = 1, joint: str = "_") -> str:
    """``name``, or ``name`` with the least number from ``first`` on that ``taken`` lacks, such as ``name_1``."""
    new, number = name, first
    while new in taken:
        new, number = f"{name}{joint}{number}", number + 1
    return new


def word(name: str) -> str:
    """``name`` as one token of an IR text: a file may be called ``2d-conv.naut``."""
    text = re.sub(r"[^\w.]|\.(?!\w)", "_", name, flags=re.ASCII)
    return text if re.match(r"[A-Za-z_]", text) else f"v{text}"


def fresh(name: str, taken: set[str]) -> str:
    """``name``, or with the first number (from 2 on) that makes it new to ``taken``, which it joins."""
    out = unused(name, taken, first=2, joint="")
    taken.add(out)
    return out


def repeated(names: Iterable[str]) -> str | None:
    """The first name that occurs a second time."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None

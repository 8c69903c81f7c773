"""Numbers of things in messages."""

from __future__ import annotations


def counted(count: object, noun: str, plural: str = "") -> str:
    """``1 block``, ``2 blocks``, ``(M + 127) // 128 blocks``; ``plural``: where it is not ``noun`` with an s."""
    return f"{count} {noun if str(count) == '1' else plural or f'{noun}s'}"


def short(text: str) -> str:
    """``text`` as a message quotes it: at most 24 characters."""
    return text if len(text) <= 24 else text[:20] + "..."

"""Words that have a meaning at one place of a statement only, and are names everywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_DEFINES = ("ASSIGN", "LSQB", "COLON")  # what follows the name of a definition


def mark_words(tokens: Sequence[Any]) -> None:
    """Give the words of one statement their types: ``assume`` at its start, where it names no definition."""
    if tokens[0] == "assume" and len(tokens) > 1 and tokens[1].type not in _DEFINES:
        tokens[0].type = "ASSUME"

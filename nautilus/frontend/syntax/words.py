"""Words that have a meaning at one place of a statement only, and the two meanings of ``|``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

_DEFINES = ("ASSIGN", "LSQB", "COLON")  # tokens after the name of a definition


def mark_words(tokens: Sequence[Any]) -> None:
    """Give the words of one statement their types.

    ``assume`` at its start, where it names no definition; ``strided`` after the shape of a declared tensor.
    """
    if tokens[0] == "assume" and len(tokens) > 1 and tokens[1].type not in _DEFINES:
        tokens[0].type = "ASSUME"
    for before, token in pairwise(tokens) if tokens[0].type in ("INPUT", "OUTPUT") else ():
        if before.type == "RSQB" and token == "strided":
            token.type = "STRIDED"


def mark_bars(tokens: Sequence[Any]) -> None:
    """Give each ``|`` of one statement its type: BAR begins a condition, and PIPE is the bitwise operator.

    BAR is the first one directly between ``[`` and ``]``.
    """
    waits = [False]  # for each open bracket: whether a '|' would begin a condition
    for token in tokens:
        match token.type:
            case "LSQB" | "LPAR":
                waits.append(token.type == "LSQB")
            case "RSQB" | "RPAR":
                waits.pop()
            case "BAR" if waits[-1]:
                waits[-1] = False
            case "BAR":
                token.type = "PIPE"

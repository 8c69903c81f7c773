"""The stack of Python frames."""

from __future__ import annotations

from types import FunctionType
from typing import Any, TypeVar

F = TypeVar("F")
_ENTRIES = (1 << 19) + 1  # of 8 bytes; CPython doubles the size of a piece until the frame fits, so half stays free


def with_large_stack(function: F) -> F:
    """``function``, below which deep recursion finds a large stack in one piece.

    CPython has the frames of Python functions in pieces of 16 KiB.  Where a recursion crosses the end of a piece at
    every other call, each of these calls maps memory and unmaps it again, which takes longer than the work of the call.
    A frame that says that it needs much gets a large piece, whose rest serves the functions called from it.
    """
    made: Any = function
    assert isinstance(made, FunctionType)
    made.__code__ = made.__code__.replace(co_stacksize=_ENTRIES)
    return function

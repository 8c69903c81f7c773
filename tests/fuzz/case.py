"""What every fuzzer has in common: a case is made from a seed alone, tried, and has one verdict."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from nautilus.core.errors import NautilusError, is_internal

#: ``ok``; ``wrong``: a result outside its bound; ``internal``: an exception that is the program's fault; ``refused``: a
#: valid input that the compiler refuses; ``invalid``: an input that the generator should not have made; ``slow``
Status = Literal["ok", "wrong", "internal", "refused", "invalid", "slow"]


@dataclass(frozen=True)
class Verdict:
    """``kind`` names the class of the failure, such as an exception and the line that raised it; it keeps while a case
    is made smaller."""

    status: Status
    kind: str = ""
    message: str = ""


OK = Verdict("ok")


@dataclass(frozen=True)
class Fuzzer:
    """``make(seed)`` is the text of a case, ``attempt(text, seed)`` its verdict, ``smaller(text)`` candidates for
    minimisation in the order in which to try them. ``suffix`` is that of a file with a case."""

    name: str
    make: Callable[[int], str]
    attempt: Callable[[str, int], Verdict]
    smaller: Callable[[str], Iterator[str]]
    suffix: str = ".naut"
    seconds: int = 120


def judged(fuzzer: Fuzzer, text: str, seed: int) -> Verdict:
    """The verdict of a case; an exception is ``internal``, a case that exceeds the time ``slow``."""
    try:
        with limit(fuzzer.seconds):
            return fuzzer.attempt(text, seed)
    except TimeoutError:
        return Verdict("slow", "slow", f"more than {fuzzer.seconds} s")
    except Exception as error:
        return internal(error)


def internal(error: BaseException) -> Verdict:
    """The verdict on an exception, named after its type and the innermost line of the program."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "nautilus" in f.filename]
    place = f"{frames[-1].filename.rpartition('nautilus/')[2]}:{frames[-1].name}" if frames else "?"
    return Verdict("internal", f"{type(error).__name__} in {place}", str(error)[:600])


def is_users(error: BaseException) -> bool:
    """Whether ``error`` is one that a user is meant to see."""
    return isinstance(error, NautilusError) and not is_internal(error)


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in the block after ``seconds``; in the main thread of a process only."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)

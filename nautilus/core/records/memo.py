"""Memoisation of functions of immutable objects, such as kernels, that are large or cannot be hashed.

Arguments are distinguished by identity.  The memo holds the arguments of the calls that it remembers, so that no other
object has the identity of one of them.  It is right only where the arguments and the result are never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from threading import Lock
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Same:
    """An object that is equal only to itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def by_identity(calls: int) -> Callable[[F], F]:
    """Decorate a function of positional arguments: results of the last ``calls`` different calls are remembered."""

    def decorate(function: F) -> F:
        found: dict[object, tuple[Any, Any]] = {}  # by the places of the arguments: they, and the result
        writing = Lock()

        @wraps(function)
        def call(*args: Any) -> Any:
            key = id(args[0]) if len(args) == 1 else tuple(map(id, args))
            known = found.get(key)
            if known is None:
                known = args, function(*args)
            elif len(found) < calls:
                return known[1]
            with writing:  # it is the newest one now
                found.pop(key, None)
                while len(found) >= calls:
                    del found[next(iter(found))]
                found[key] = known
            return known[1]

        return call  # type: ignore[return-value]

    return decorate


@lru_cache(maxsize=256)
def _first(x: Any) -> Any:
    return x


_first_of_same = by_identity(256)(_first)


def first_equal(x: T) -> T:
    """The first one of the objects that are equal to ``x`` (hashable, small), so that a memo by identity finds it."""
    found: T = _first_of_same(x)
    return found


_WITHIN: list[Callable[[], None]] = []


def within_compilation(calls: int) -> Callable[[F], F]:
    """Decorate a function of hashable arguments: the last ``calls`` results are remembered until the next compilation.

    Compilations of one input share the same objects then, whatever ran before them.
    """

    def decorate(function: F) -> F:
        found = lru_cache(maxsize=calls)(function)
        _WITHIN.append(found.cache_clear)
        return found  # type: ignore[return-value]

    return decorate


def forget_compilation() -> None:
    """Forget the results of all functions that :func:`within_compilation` decorates."""
    for clear in _WITHIN:
        clear()


class Results:
    """The last ``most`` results that were kept, by key; a key is hashable, with a :class:`Same` for each large part."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.found: dict[object, Any] = {}

    def keep(self, key: object, result: Any) -> None:
        """Keep ``result`` for ``key``, and drop the oldest result where there are too many."""
        if len(self.found) >= self.most:
            del self.found[next(iter(self.found))]  # the oldest one
        self.found[key] = result

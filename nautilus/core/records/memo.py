"""Memoisation of functions of immutable objects, such as kernels, that are large or cannot be hashed.

Arguments are distinguished by identity.  The memo holds the arguments of the calls that it remembers, so that no other
object has the identity of one of them.  It is right only where the arguments and the result are never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class _Same:
    """An object that is equal only to itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def by_identity(calls: int) -> Callable[[F], F]:
    """Decorate a function of positional arguments: results of the last ``calls`` different calls are remembered."""

    def decorate(function: F) -> F:
        @lru_cache(maxsize=calls)
        def remembered(*args: _Same) -> Any:
            return function(*(a.value for a in args))

        @wraps(function)
        def call(*args: Any) -> Any:
            return remembered(*map(_Same, args))

        return call  # type: ignore[return-value]

    return decorate

"""The interfaces of passes, and of passes that change the maths.

A *pass* is a frozen dataclass: its ``name`` is the name of its file with hyphens, its fields are its options, and
``apply`` maps a module to a module of the same level.  A pass of MA-tile IR keeps every bit of the result, unless it
says ``reorders = True``: it changes the order in which a sum is added, or how often a sum rounds.  A pass that changes
the maths, rather than the order of loops, derives from :class:`CertifyingPass` and produces a certificate for every
rewrite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from nautilus.core.certificate import Certificate

Module = TypeVar("Module")


class Pass(Protocol):
    """A pass of a pipeline."""

    @property
    def name(self) -> str:
        """The name in dumps and on the command line."""
        ...

    def apply(self, module: Any) -> Any:
        """The module after the pass; the same object where nothing changed."""
        ...


class CertifyingPass(ABC, Generic[Module]):
    """A pass that changes the maths. Subclasses are frozen dataclasses with a ``name``."""

    __slots__ = ()

    def apply(self, module: Module) -> Module:
        """The module of :meth:`derive`."""
        return self.derive(module)[0]

    @abstractmethod
    def derive(self, module: Module) -> tuple[Module, tuple[Certificate, ...]]:
        """The new module, and a certificate for each rewrite."""


def certifies(cls: type) -> bool:
    """Whether ``cls`` derives from :class:`CertifyingPass`, without the check of abstract classes, which is slow."""
    return CertifyingPass in cls.__mro__

"""A two-pass pipeline over integers, for testing the manager alone."""

from __future__ import annotations

from dataclasses import dataclass

from nautilus.core.certificate import Certificate
from nautilus.core.errors import VerifyError
from nautilus.core.passes import CertifyingPass
from nautilus.core.schedule import Schedule
from nautilus.passes.pipelines import PassSpec, Stage

HERE = "tests.passes.fake"


@dataclass(frozen=True)
class Add:
    """Adds an option."""

    amount: int = 1
    name = "add"

    def apply(self, module: int) -> int:
        return module + self.amount


@dataclass(frozen=True)
class ByArch:
    """Takes its options from the context."""

    arch: str
    schedule: Schedule | None
    name = "by-arch"

    def apply(self, module: int) -> int:
        return module * 10 if self.arch == "sm_80" else module


def lower(text: str, precision: str) -> int:
    return int(text) + (0 if precision == "fast" else 1000)


def verify(module: int) -> None:
    if module > 99:
        raise VerifyError("fake", "small", str(module))


def show(module: int) -> str:
    return f"number {module}"


def parse(text: str, name: str) -> int:
    return int(text.split()[-1])


@dataclass(frozen=True)
class Doubling(CertifyingPass[int]):
    """Says what it does."""

    name = "doubling"

    def derive(self, module: int) -> tuple[int, tuple[Certificate, ...]]:
        return 2 * module, ()


@dataclass(frozen=True)
class Undeclared:
    """Has certificates, but does not say so in its type."""

    name = "undeclared"

    def apply(self, module: int) -> int:
        return module

    def derive(self, module: int) -> tuple[int, tuple[Certificate, ...]]:
        return module, ()


@dataclass
class Mutable:
    """Is no frozen dataclass."""

    name = "mutable"

    def apply(self, module: int) -> int:
        return module


@dataclass(frozen=True)
class Idle:
    """Has no ``apply``."""

    name = "idle"


ADD = f"{HERE}:Add"
STAGE = Stage(
    "fake",
    ".fake",
    lower=f"{HERE}:lower",
    passes=(PassSpec("add", ADD), PassSpec("by-arch", f"{HERE}:ByArch"), PassSpec("add", ADD, {"amount": 0})),
    verify=f"{HERE}:verify",
    format=f"{HERE}:show",
    parse=f"{HERE}:parse",
)

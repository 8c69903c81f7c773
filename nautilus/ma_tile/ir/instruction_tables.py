"""Instructions of warps, and completeness of the tables: each element type has one instruction, or is listed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from nautilus.core.records import dataclass
from nautilus.core.types import FORMATS, DType

_STEP_BITS = 256  # of one row of an operand that an instruction contracts, the same for every element type


@dataclass(frozen=True, slots=True)
class MmaInstr:
    """A matrix instruction: m x n x k, operand and accumulator types, per-lane operand widths.

    ``a``/``b``: element types each operand may have; ``pack``: consecutive k elements in one register; ``parts``: of
    an operand, which are numbers of a narrower type.
    """

    m: int
    n: int
    k: int
    operands: frozenset[DType]
    acc: DType
    pack: int
    parts: int = 1


class Instruction(Protocol):
    """The fields that every table of matrix instructions has."""

    @property
    def k(self) -> int: ...
    @property
    def pack(self) -> int: ...
    @property
    def operands(self) -> frozenset[DType]: ...


def check_instructions(name: str, table: Mapping[str, Instruction], without: frozenset[DType]) -> None:
    """Raise TypeError unless ``table`` and ``without`` together list each element type once, with its sizes."""
    listed = [*without, *(t for i in table.values() for t in i.operands)]
    wrong = [t.value for t in DType if listed.count(t) != 1]
    if wrong:
        raise TypeError(f"{name}: missing or listed twice: {', '.join(wrong)}")
    for key, i in table.items():
        for t in i.operands:
            if i.pack != FORMATS[t].pack or i.k * FORMATS[t].bits != _STEP_BITS:
                raise TypeError(f"{name}: {key} does not fit elements of {t.value}")

"""Instructions of warps, and completeness of the tables: each element type has one instruction, or is listed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from nautilus.core.records import dataclass
from nautilus.core.types import FORMATS, DType

E4M3, E5M2, S8, U8 = (frozenset({t}) for t in (DType.F8E4M3, DType.F8E5M2, DType.I8, DType.U8))
_STEP_BITS = 256  # of one row of an operand that an instruction contracts, the same for every element type


@dataclass(frozen=True, slots=True)
class MmaInstr:
    """A matrix instruction: m x n x k, operand and accumulator types, per-lane operand widths.

    ``operands``: element types that each operand may have; ``right``: those of the second operand, where it has
    others; ``pack``: consecutive k elements in one register; ``parts``: of an operand, which are numbers of a narrower
    type; ``short``: as in :class:`nautilus.ma_tile.ir.async_ops.WgInstr`.
    """

    m: int
    n: int
    k: int
    operands: frozenset[DType]
    acc: DType
    pack: int
    parts: int = 1
    right: frozenset[DType] | None = None
    short: bool = False


class Instruction(Protocol):
    """The fields that every table of matrix instructions has."""

    @property
    def k(self) -> int: ...
    @property
    def pack(self) -> int: ...
    @property
    def acc(self) -> DType: ...
    @property
    def right(self) -> frozenset[DType] | None: ...
    @property
    def operands(self) -> frozenset[DType]: ...


def operand_types(instr: Instruction, side: str) -> frozenset[DType]:
    """The element types of operand ``side`` (``a`` or ``b``)."""
    return instr.operands if side == "a" or instr.right is None else instr.right


def has_types(instr: Instruction, a: DType, b: DType, result: DType) -> bool:
    """Whether ``instr`` multiplies ``a`` and ``b`` into ``result``."""
    alike = instr.right is not None or a is b
    return alike and a in operand_types(instr, "a") and b in operand_types(instr, "b") and result is instr.acc


def check_instructions(name: str, table: Mapping[str, Instruction], without: frozenset[DType]) -> None:
    """Raise TypeError unless ``table`` and ``without`` together list each element type once, with its sizes.

    Instructions of two types are not counted.  A name that begins with a shape has that of the instruction.
    """
    listed = [*without, *(t for i in table.values() if i.right is None for t in i.operands)]
    wrong = [t.value for t in DType if listed.count(t) != 1]
    if wrong:
        raise TypeError(f"{name}: missing or listed twice: {', '.join(wrong)}")
    for key, i in table.items():
        if isinstance(i, MmaInstr) and not key.startswith(f"m{i.m}n{i.n}k{i.k}."):
            raise TypeError(f"{name}: {key} has the shape {i.m} x {i.n} x {i.k}")
        if any((i.acc is DType.I32) is t.is_float for t in i.operands):
            raise TypeError(f"{name}: {key} has sums of {i.acc.value}")
        for t in i.operands | (i.right or frozenset()):
            if i.pack != FORMATS[t].pack or i.k * FORMATS[t].bits != _STEP_BITS:
                raise TypeError(f"{name}: {key} does not fit elements of {t.value}")

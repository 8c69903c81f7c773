"""The matrix instructions of warps (``mma``) and of warpgroups (``wgmma``), and the layouts of their fragments.

The tables are complete: each element type has one instruction, or is listed as one without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from nautilus.core.records import dataclass
from nautilus.core.types import FORMATS, DType
from nautilus.ma_tile.ir.async_ops import GROUP_WARPS
from nautilus.ma_tile.ir.layout import FragLayout, Mode

E4M3, E5M2, S8, U8 = (frozenset({t}) for t in (DType.F8E4M3, DType.F8E5M2, DType.I8, DType.U8))
_STEP_BITS, _STEP_BITS_F64 = 256, 512  # bits of an operand's row that an instruction contracts; those of f64


@dataclass(frozen=True, slots=True)
class MmaInstr:
    """A matrix instruction: m x n x k, operand and accumulator types, per-lane operand widths.

    ``operands``: element types that each operand may have; ``right``: those of the second operand, where it has
    others; ``pack``: consecutive k elements in one register; ``parts``: of an operand, which are numbers of a narrower
    type; ``short``: as in :class:`WgInstr`.
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


@dataclass(frozen=True, slots=True)
class WgInstr:
    """A wgmma instruction m64nNk``k`` of ``operands`` types; N is a multiple of ``n_step``, at most 256.

    ``right``: the types of the second operand, where it has others.

    ``pack``: number of consecutive k elements in one register of A.  ``both_majors``: B (and A) may be MN-major.
    ``short``: the tensor core keeps about 14 bits of mantissa in its sums, less than f32 has.  One chain of such MMAs
    is therefore at most ``SHORT_DEPTH`` deep (``WHOLE_DEPTH`` for a sum of one chain), and f32 additions combine the
    chains.
    """

    k: int
    operands: frozenset[DType]
    acc: DType
    pack: int
    both_majors: bool
    n_step: int = 8
    short: bool = False
    m: int = 64
    right: frozenset[DType] | None = None


class Instruction(Protocol):
    """The fields that every table of matrix instructions has."""

    @property
    def k(self) -> int:
        """The contracted elements of one instruction."""
        ...

    @property
    def pack(self) -> int:
        """The elements of an operand in one register."""
        ...

    @property
    def acc(self) -> DType:
        """The element type of accumulators."""
        ...

    @property
    def right(self) -> frozenset[DType] | None:
        """The element types of the right operand; None: those of ``operands``."""
        ...

    @property
    def operands(self) -> frozenset[DType]:
        """The element types of the left operand."""
        ...


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
            if i.pack != FORMATS[t].pack or i.k * FORMATS[t].bits != (_STEP_BITS_F64 if t is DType.F64 else _STEP_BITS):
                raise TypeError(f"{name}: {key} does not fit elements of {t.value}")


#: PTX ISA, "Asynchronous wgmma matrix shapes and types".
WGMMA: Mapping[str, WgInstr] = {
    "wgmma.f16": WgInstr(16, frozenset({DType.F16}), DType.F32, 2, True),
    "wgmma.bf16": WgInstr(16, frozenset({DType.BF16}), DType.F32, 2, True),
    "wgmma.tf32": WgInstr(8, frozenset({DType.TF32}), DType.F32, 1, False),
    "wgmma.e4m3": WgInstr(32, E4M3, DType.F32, 4, False, short=True),
    "wgmma.e5m2": WgInstr(32, E5M2, DType.F32, 4, False, short=True),
    "wgmma.e4m3.e5m2": WgInstr(32, E4M3, DType.F32, 4, False, short=True, right=E5M2),
    "wgmma.e5m2.e4m3": WgInstr(32, E5M2, DType.F32, 4, False, short=True, right=E4M3),
    "wgmma.s8": WgInstr(32, S8, DType.I32, 4, False, 16),
    "wgmma.u8": WgInstr(32, U8, DType.I32, 4, False, 16),
    "wgmma.s8.u8": WgInstr(32, S8, DType.I32, 4, False, 16, right=U8),
    "wgmma.u8.s8": WgInstr(32, U8, DType.I32, 4, False, 16, right=S8),
}
#: element types whose products no warpgroup instruction computes
WITHOUT_WGMMA = frozenset({DType.F64, DType.F32, DType.I64, DType.I32, DType.I16, DType.BOOL})
check_instructions("WGMMA", WGMMA, WITHOUT_WGMMA)

#: PTX ISA, "Matrix multiply-accumulate operation using mma instruction".
MMA: Mapping[str, MmaInstr] = {
    "m16n8k16.f16": MmaInstr(16, 8, 16, frozenset({DType.F16}), DType.F32, 2),
    "m16n8k16.bf16": MmaInstr(16, 8, 16, frozenset({DType.BF16}), DType.F32, 2),
    "m16n8k8.tf32": MmaInstr(16, 8, 8, frozenset({DType.TF32}), DType.F32, 1),
    "m16n8k8.f64": MmaInstr(16, 8, 8, frozenset({DType.F64}), DType.F64, 1),
    "m16n8k8.tf32x2": MmaInstr(16, 8, 8, frozenset({DType.F32}), DType.F32, 1, parts=2),
    "m16n8k32.e4m3": MmaInstr(16, 8, 32, E4M3, DType.F32, 4, short=True),
    "m16n8k32.e5m2": MmaInstr(16, 8, 32, E5M2, DType.F32, 4, short=True),
    "m16n8k32.e4m3.e5m2": MmaInstr(16, 8, 32, E4M3, DType.F32, 4, right=E5M2, short=True),
    "m16n8k32.e5m2.e4m3": MmaInstr(16, 8, 32, E5M2, DType.F32, 4, right=E4M3, short=True),
    "m16n8k32.s8": MmaInstr(16, 8, 32, S8, DType.I32, 4),
    "m16n8k32.u8": MmaInstr(16, 8, 32, U8, DType.I32, 4),
    "m16n8k32.s8.u8": MmaInstr(16, 8, 32, S8, DType.I32, 4, right=U8),
    "m16n8k32.u8.s8": MmaInstr(16, 8, 32, U8, DType.I32, 4, right=S8),
}
check_instructions("MMA", MMA, WITHOUT_WGMMA - {DType.F32, DType.F64})


def acc_layout(m: str, n: str, tile: tuple[int, int], warps: tuple[int, int]) -> FragLayout:
    """Accumulator fragments of a ``tile`` (rows of axis ``m``, columns of ``n``) over a warp grid.

    Register number = c + 4 * (column tile + column tiles * row tile), c as in the PTX ISA.
    """
    rows, cols = tile[0] // warps[0], tile[1] // warps[1]
    return FragLayout(
        reg=(Mode(2, n, 1), Mode(2, m, 8), Mode(cols // 8, n, 8), Mode(rows // 16, m, 16)),
        lane=(Mode(4, n, 2), Mode(8, m, 1)),
        warp=(Mode(warps[0], m, rows), Mode(warps[1], n, cols)),
    )


def a_layout(
    instr: str, m: str, k: str, tile: tuple[int, int], warps: tuple[int, int], *, runs: bool = False
) -> FragLayout:  # fmt: skip
    """A-operand fragments of a ``tile`` (rows of ``m``, columns of ``k``); column warps hold copies.

    ``runs``: of neighbours along ``k``.  An MMA multiplies the terms in any order that its operands have in common.
    With ``runs`` each of four lanes has a quarter of them, one after another, so that it loads vectors.
    """
    i = MMA[instr]
    rows, p = tile[0] // warps[0], i.pack
    lane, half, step = _strides(i, tile[1], runs)
    return FragLayout(
        reg=(Mode(p, k, 1), Mode(2, m, 8), Mode(2, k, half), Mode(tile[1] // i.k, k, step), Mode(rows // 16, m, 16)),
        lane=(Mode(4, k, lane), Mode(8, m, 1)),
        warp=(Mode(warps[0], m, rows), Mode(warps[1], None)),
    )


def b_layout(
    instr: str, k: str, n: str, tile: tuple[int, int], warps: tuple[int, int], *, runs: bool = False
) -> FragLayout:  # fmt: skip
    """B-operand fragments of a ``tile`` (``k`` deep, columns of ``n``); row warps hold copies."""
    i = MMA[instr]
    cols, p = tile[1] // warps[1], i.pack
    lane, half, step = _strides(i, tile[0], runs)
    return FragLayout(
        reg=(Mode(p, k, 1), Mode(2, k, half), Mode(tile[0] // i.k, k, step), Mode(cols // 8, n, 8)),
        lane=(Mode(4, k, lane), Mode(8, n, 1)),
        warp=(Mode(warps[0], None), Mode(warps[1], n, cols)),
    )


def _strides(i: MmaInstr, depth: int, runs: bool) -> tuple[int, int, int]:
    """Positions between two lanes, the two registers of a k-step, and two k-steps of an operand ``depth`` deep."""
    return (depth // 4, i.pack, 2 * i.pack) if runs else (i.pack, 4 * i.pack, i.k)


def wg_acc_layout(m: str, n: str, rows: int, cols: int) -> FragLayout:
    """Accumulator of one consumer (4 warps): ``rows`` is a multiple of 64, ``cols`` a multiple of 8.

    Register number = c + 4 * (column tile + column tiles * block of 64 rows), c as in the PTX ISA,
    "Register fragments for wgmma.mma_async.m64nNk16".
    """
    return FragLayout(
        reg=(Mode(2, n, 1), Mode(2, m, 8), Mode(cols // 8, n, 8), Mode(rows // 64, m, 64)),
        lane=(Mode(4, n, 2), Mode(8, m, 1)),
        warp=(Mode(GROUP_WARPS, m, 16),),
    )


def wg_a_layout(instr: str, m: str, k: str, rows: int, depth: int) -> FragLayout:
    """Operand A in registers of one consumer: ``rows`` x ``depth``.

    The order of registers within a k-step and a block of 64 rows is that of the instruction.
    """
    i = WGMMA[instr]
    p = i.pack
    return FragLayout(
        reg=(Mode(p, k, 1), Mode(2, m, 8), Mode(2, k, 4 * p), Mode(depth // i.k, k, i.k), Mode(rows // 64, m, 64)),
        lane=(Mode(4, k, p), Mode(8, m, 1)),
        warp=(Mode(GROUP_WARPS, m, 16),),
    )

"""Matrix instructions of the physical interpreter, with the hardware's own fragment maps.

Registers of an operand are read as the PTX ISA says ("Matrix fragments for mma.m16n8k..."), never
through the declared layout: a wrong layout gives wrong numbers here as it does on the machine.
Lane = 4 * group + member; a register number is, least significant first,

    A   pack, row half (8), k half, k step, row tile (16)
    B   pack, k half, k step, column tile (8)
    C   column pair, row half (8), column tile (8), row tile (16)

A shared operand of a 16-bit type is read as ``ldmatrix`` does: whole 16-byte rows of 8x8 matrices
from the address of each row's start, so a wrong swizzle permutes chunks; other types are read
element by element.  What software decides, the rows and columns a warp starts at, comes from the
declared layout of the result.

Arithmetic: products are exact, sums are f32 (i32 for integers, f64 for f64); tf32 drops 13 low bits.  f32 operands are
multiplied in two parts of tf32 (``core.functions.parts``).
"""

from __future__ import annotations

import numpy as np

from nautilus.core.functions.parts import multiplied, truncated
from nautilus.core.numerics import Array
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.ma_tile.interp.state.values import Fault, coords
from nautilus.ma_tile.ir.instruction_tables import MMA, MmaInstr, has_types
from nautilus.ma_tile.ir.layout import FragLayout, Ints
from nautilus.ma_tile.ir.ops import Smem


def a_matrix(x: Array, instr: MmaInstr, ktiles: int) -> Array:
    """A-operand registers [W, 32, R] as [W, rows, k]. Raises Fault."""
    w, _, r = x.shape
    p = instr.pack
    if r % (4 * p * ktiles):
        raise Fault("layout", f"{r} registers are no A operand of {ktiles} k-steps")
    y = x.reshape(w, 8, 4, -1, ktiles, 2, 2, p)  # group, member, row tile, step, k half, row half, pack
    y = y.transpose(0, 3, 6, 1, 4, 5, 2, 7)
    return y.reshape(w, -1, ktiles * instr.k)


def b_matrix(x: Array, instr: MmaInstr, ktiles: int) -> Array:
    """B-operand registers [W, 32, R] as [W, k, columns]. Raises Fault."""
    w, _, r = x.shape
    p = instr.pack
    if r % (2 * p * ktiles):
        raise Fault("layout", f"{r} registers are no B operand of {ktiles} k-steps")
    y = x.reshape(w, 8, 4, -1, ktiles, 2, p)  # group, member, column tile, step, k half, pack
    y = y.transpose(0, 4, 5, 2, 6, 3, 1)
    return y.reshape(w, ktiles * instr.k, -1)


def a_registers(matrix: Array, instr: MmaInstr) -> Array:
    """[W, rows, k] as A-operand registers [W, 32, R]; the inverse of :func:`a_matrix`."""
    w, rows, k = matrix.shape
    y = matrix.reshape(w, rows // 16, 2, 8, k // instr.k, 2, 4, instr.pack)
    return y.transpose(0, 3, 6, 1, 4, 5, 2, 7).reshape(w, 32, -1)


def b_registers(matrix: Array, instr: MmaInstr) -> Array:
    """[W, k, columns] as B-operand registers [W, 32, R]; the inverse of :func:`b_matrix`."""
    w, k, cols = matrix.shape
    y = matrix.reshape(w, k // instr.k, 2, 4, instr.pack, cols // 8, 8)
    return y.transpose(0, 6, 3, 5, 1, 2, 4).reshape(w, 32, -1)


def c_registers(d: Array) -> Array:
    """Accumulators [W, rows, columns] as registers [W, 32, R]."""
    w, m, n = d.shape
    y = d.reshape(w, m // 16, 2, 8, n // 8, 4, 2)  # row tile, row half, group, column tile, member, pair
    return y.transpose(0, 3, 5, 1, 4, 2, 6).reshape(w, 32, -1)


def c_matrix(x: Array, rows: int, cols: int) -> Array:
    """Registers [W, 32, R] as accumulators [W, rows, columns]; the inverse of :func:`c_registers`."""
    y = x.reshape(x.shape[0], 8, 4, rows // 16, cols // 8, 2, 2)
    return y.transpose(0, 3, 5, 1, 4, 2, 6).reshape(x.shape[0], rows, cols)


def multiply(a: Array, b: Array, dtype: DType, acc: DType) -> Array:
    """``a @ b`` for each warp, with the arithmetic of the tensor core."""
    with np.errstate(all="ignore"):
        if acc.is_int:
            exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
            return np.asarray(exact.astype(np.int64).astype(np.int32))
        if dtype is DType.F64:
            return np.asarray(np.matmul(a, b))
        if dtype is DType.TF32:
            a, b = truncated(a), truncated(b)
        if dtype is DType.F32:
            return multiplied(a, b)
        return np.asarray(np.matmul(a.astype(np.float32, copy=False), b.astype(np.float32, copy=False)))


def warp_tile(layout: FragLayout, result: TileType, m: str, n: str) -> tuple[Ints, Ints, int, int]:
    """(first row, first column) of each warp and the (rows, columns) a warp computes.

    Raises Fault where the registers of ``layout`` are not that many accumulators.
    """
    sizes = {a.name: a.size for a in result.axes}
    over = {x: int(np.prod([w.size for w in layout.warp if w.axis == x], dtype=np.int64)) for x in (m, n)}
    rows, cols = sizes[m] // over[m], sizes[n] // over[n]
    if rows % 16 or cols % 8 or rows * cols != 32 * layout.registers:
        raise Fault("layout", f"{layout.registers} registers are no accumulators of {rows}x{cols} a warp")
    return coords(layout, m)[:, 0, 0], coords(layout, n)[:, 0, 0], rows, cols


def free_axis(names: tuple[str, ...], over: str, result: tuple[str, ...], other: tuple[str, ...] = ()) -> str:
    """The axis of a matrix operand that is neither contracted nor one of the ``other`` operand.

    Raises Fault unless there is exactly one.
    """
    free = [x for x in names if x != over and x in result and x not in other]
    if len(free) != 1 or over not in names:
        raise Fault("unsupported", f"a matrix operand over {', '.join(names)} does not contract {over}")
    return free[0]


def instruction(name: str, a: DType, b: DType) -> MmaInstr:
    """The instruction called ``name``. Raises Fault if its operands do not have the types ``a`` and ``b``."""
    instr = MMA.get(name)
    if instr is None:
        raise Fault("unsupported", f"no matrix instruction is called {name}")
    if not has_types(instr, a, b, instr.acc):
        raise Fault("unsupported", f"{name} takes no {a} and {b}")
    return instr


def matrix_addresses(buffer: Smem, swizzle: int, free: str, over: str) -> Ints:
    """Byte address, relative to the stage, of every element [free, over] for the instruction that reads it.

    Raises Fault.
    """
    layout = buffer.layout(swizzle)
    names = [a.name for a in buffer.axes if a.size > 1 or a.name in (free, over)]
    if names not in ([free, over], [over, free]):
        raise Fault("unsupported", f"{buffer.name} is not a matrix over {free} and {over}")
    rows = np.arange(layout.rows, dtype=np.int64)[:, None]
    cols = np.arange(layout.cols, dtype=np.int64)[None, :]
    if buffer.dtype.bits == 16:
        if layout.cols % 8:
            raise Fault("misaligned", f"rows of {buffer.name} are no multiple of 16 bytes, as ldmatrix needs")
        start = layout.address(rows, cols // 8 * 8)
        if np.any(start % 16):
            raise Fault("misaligned", f"a row address of ldmatrix in {buffer.name} is no multiple of 16")
        address = start + 2 * (cols % 8)
    else:
        address = layout.address(rows, cols)
    contiguous = buffer.axes[-1].name
    return address if contiguous == over else address.T

"""Printing of warpgroup MMAs: descriptors, instructions, waits, and matrix stores of their results.

Encodings: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "Matrix Descriptor Format".  A tile
lies in slabs of ``w`` bytes of columns (the swizzle width).  K-major operands step 32 bytes a k-step
inside a slab; groups of 8 rows are 8 w bytes apart (stride offset).  MN-major operands step whole rows;
8 k rows are 8 w bytes apart (stride offset), neighbouring slabs rows x w bytes (leading offset).
"""

from __future__ import annotations

from math import gcd, prod

from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.cuda.ops.mma import accumulator
from nautilus.cuda.ops.movement import plus, scaled, slot_offset
from nautilus.cuda.text.matrix import wgmma_name
from nautilus.cuda.writer import Printers, Writer, calls
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.instruction_tables import WGMMA, WgInstr
from nautilus.ma_tile.ir.layout import tile_shape
from nautilus.targets.limits import WGMMA_COLUMNS


@dataclass(frozen=True, slots=True)
class Operand:
    """A shared operand: descriptor variable, and byte offsets of k-steps and of positions on its free axis."""

    name: str
    trans: bool
    rows: int
    width: int
    size: int  # bytes an element

    def step(self, k: int, depth: int) -> int:
        """Bytes to k-step ``k`` (``depth`` elements each)."""
        if self.trans:
            return k * depth * self.width
        byte = k * depth * self.size
        return byte // self.width * self.rows * self.width + byte % self.width

    def free(self, position: int) -> int:
        """Bytes to ``position`` along the rows or columns of the result."""
        if self.trans:
            byte = position * self.size
            assert byte % self.width == 0, "blocks of an MN-major operand start at slabs"
            return byte // self.width * self.rows * self.width
        return position * self.width


def print_wgmma(w: Writer, op: ma.MmaOp) -> None:
    """Print the instructions of one warpgroup MMA. Raises UnsupportedError for the synchronous form."""
    if not op.is_async:
        raise UnsupportedError("a synchronous warpgroup MMA (async-mma)", op.result.name)
    instr = WGMMA[op.instr]
    acc = w.declare(op.result) if op.acc is None else accumulator(w, op)
    first = _first_adds(w, op)
    layout = w.layout(op.result)
    assert isinstance(op.b, ma.Slot), "the verifier admits a shared right operand only"
    depth = _extent(w, op.b, op.over)
    steps, columns = depth // instr.k, prod(tile_shape(w.smem[op.b.buffer].axes)) // depth
    used = steps if op.terms is None else op.terms // instr.k
    blocks = 2 * layout.registers // columns
    with w.braces(""):
        a = _descriptor(w, op.a, op.over, instr, "a") if isinstance(op.a, ma.Slot) else None
        b = _descriptor(w, op.b, op.over, instr, "b")
        for block in range(blocks):
            for start, count in pieces(columns, b.width // b.size if b.trans else instr.n_step):
                call = wgmma_name(op.instr, count, a is None, a is not None and a.trans, b.trans)
                target = f"&{acc}[{4 * (start // 8 + columns // 8 * block)}]"
                for k in range(used):
                    if a is None:
                        assert isinstance(op.a, ma.Frag)
                        left = f"&{w.name(op.a)}[{4 * (k + steps * block)}]"
                    else:
                        left = _plus(a.name, a.step(k, instr.k) + a.free(64 * block))
                    right = _plus(b.name, b.step(k, instr.k) + b.free(start))
                    if k == 0 and first == "0":
                        w.line(f"{w.speller.use(call + '_zero')}({target}, {left}, {right});")
                    else:
                        w.line(f"{w.speller.use(call)}({target}, {left}, {right}, {1 if k else first});")


def _first_adds(w: Writer, op: ma.MmaOp) -> str:
    """Whether the first k-step adds to the accumulator, else it starts from zero (``scale-d`` in PTX)."""
    if op.acc is None:
        return "0"
    if op.zero_init is None:
        return "1"
    started = simplify(calc("not", op.zero_init))
    return str(int(bool(started.value))) if isinstance(started, Const) else w.expr(started)


def pieces(columns: int, step: int) -> list[tuple[int, int]]:
    """(first column, columns) of each instruction: as few and as even as multiples of ``step`` allow."""
    if columns <= WGMMA_COLUMNS:
        return [(0, columns)]
    count = -(-columns // WGMMA_COLUMNS)
    size = -(-columns // (count * step)) * step
    if size > WGMMA_COLUMNS:
        size = WGMMA_COLUMNS // step * step
    return [(at, min(size, columns - at)) for at in range(0, columns, size)]


def _extent(w: Writer, slot: ma.Slot, axis: str) -> int:
    return next(a.size for a in w.smem[slot.buffer].axes if a.name == axis)


def _plus(name: str, byte: int) -> str:
    return f"{name} + {byte // 16}" if byte else name


def _descriptor(w: Writer, slot: ma.Slot, over: str, instr: WgInstr, side: str) -> Operand:
    """Declare the descriptor of a stage; constant fields are folded by the compiler."""
    buffer = w.smem[slot.buffer]
    rows, _ = tile_shape(buffer.axes)
    trans = buffer.axes[-1].name != over
    width = slot.swizzle
    out = Operand(w.unique(f"desc_{side}"), trans, rows, width, buffer.dtype.bytes)
    leading = rows * width if trans else 16
    address = f"{w.shared} + {slot_offset(w, slot)}"
    make = w.speller.use("wgmma_descriptor")
    w.line(f"const u64 {out.name} = {make}<{leading}, {8 * width}, {width}>({address});")
    assert not trans or instr.both_majors, "the verifier admits MN-major 16-bit operands only"
    return out


def print_wait(w: Writer, op: ma.WgWait) -> None:
    """Wait for warpgroup MMAs; the compiler may not move reads of the results before it."""
    w.line(f"{w.speller.use('wgmma_wait')}<{op.pending}>();")
    for frag in op.ready:
        kind = "fence_operand_int" if frag.type.dtype is DType.I32 else "fence_operand"
        w.line(f"{w.speller.use(kind)}({w.name(frag)});")


def print_matrix_store(w: Writer, op: ma.MatrixStore) -> None:
    """``st.matrix``: rows of 16 bytes of 8 x 8 blocks, two column blocks at a time."""
    rows, columns = tile_shape(w.smem[op.slot.buffer].axes)
    tiles, blocks = columns // 8, rows // 64
    width = op.slot.swizzle
    assert width, "matrix stores go to swizzled stages"
    name = w.name(op.value)
    pair = gcd(tiles, 2)
    call = w.speller.use("stmatrix_x4" if pair == 2 else "stmatrix_x2")
    swizzle = w.speller.use(f"swizzle_{width}")
    with w.braces(""):
        column = f"{w.lane} / 16 * 16" if pair == 2 else "0"
        row = f"{w.warp} * 16 + {w.lane} % 16"
        w.line(f"const u32 stage = {w.shared} + {slot_offset(w, op.slot)};")
        w.line(f"const u32 lane_row = {swizzle}<{rows}>({row}, {column});")
        with w.registers("n", tiles, pair) as n:
            for block in range(blocks):
                at = f"(lane_row ^ ({n} * 16) % {width}) + ({n} * 16) / {width} * {rows * width}"
                extra = f" + {block * 64 * width}" if block else ""
                first = scaled(plus(n, tiles * block), 2)
                w.line(f"{call}(stage + {at}{extra}, &{name}[{first}]);")


#: op class -> what prints it
PRINTERS: Printers = {
    ma.MatrixStore: print_matrix_store,
    ma.WgFence: calls("wgmma_fence"),
    ma.WgCommit: calls("wgmma_commit"),
    ma.WgWait: print_wait,
}

"""The rules of each op class; ``ma_tile.verify.scope`` traverses the kernel and keeps the scope."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from nautilus.core.expr.infer import DTypeError, result_dtype
from nautilus.core.expr.interleaved import GROUP
from nautilus.core.expr.nodes import OPS
from nautilus.core.functions import FUNCTIONS
from nautilus.core.text.expressions import format_expr
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import INDEX_TYPES, DType
from nautilus.ma_tile.ir.async_ops import GROUP_WARPS
from nautilus.ma_tile.ir.instruction_tables import MMA, WGMMA, has_types
from nautilus.ma_tile.ir.layout import FragLayout, same_threads, slice_registers, window_registers
from nautilus.ma_tile.ir.ops import (
    INCREASE,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    ConstOp,
    ConvertOp,
    ForOp,
    Frag,
    GlobalLoad,
    IfOp,
    IndexOp,
    MapOp,
    MatrixLoad,
    MmaOp,
    ParamOp,
    RolesOp,
    SharedLoad,
    SharedStore,
    SliceOp,
    Slot,
    Smem,
    StackOp,
    UndefinedOp,
    UnpackOp,
    WindowOp,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import stored
from nautilus.ma_tile.ir.unpack import is_exact, packed_layout, word_layout
from nautilus.ma_tile.verify.async_ops import named_barrier, wgmma
from nautilus.ma_tile.verify.layout import acc_grid, cover_fault, is_operand, of_slice, same_map, warp_grids
from nautilus.ma_tile.verify.reductions import RULES as REDUCTIONS
from nautilus.ma_tile.verify.scope import KernelScope, Rule
from nautilus.ma_tile.verify.stores import STORE_RULES, need_access, need_stage_vectors

# -- registers --------------------------------------------------------------------------------


def const(s: KernelScope, op: ConstOp) -> None:
    """The value is a number of the fragment's type."""
    s.define(op.result)
    dtype, v = op.result.type.dtype, op.value
    ok = isinstance(v, bool) if dtype is DType.BOOL else isinstance(v, float if dtype.is_float else int)
    s.need(ok and (dtype is DType.BOOL or not isinstance(v, bool)), "constants have their type", f"{v!r} is no {dtype}")


def index(s: KernelScope, op: IndexOp) -> None:
    """The expression has an integer type or is bool."""
    layout = s.layout(op.result.layout)
    s.typed(op.expr, "the expression", (op.result.type.dtype,), layout, op.result.type.names)
    dtype = op.result.type.dtype
    s.need(dtype in (*INDEX_TYPES, DType.BOOL), "indices are integers or bool", str(dtype))
    s.define(op.result)


def param(s: KernelScope, op: ParamOp) -> None:
    """The module declares the scalar."""
    s.need(s.params.get(op.param) is op.result.type.dtype, "params are declared", op.param)
    s.define(op.result)


def map_op(s: KernelScope, op: MapOp) -> None:
    """The operation is known, and the operands have projections of the result's layout."""
    s.need(op.op in OPS, "known operations", op.op)
    layout = s.layout(op.result.layout)
    axes = _axes(op.result.type)
    for a in op.args:
        s.projected(layout, a)
        s.need(axes.issuperset(a.type.axes), "operands have the result's axes", f"%{a.name}")
    try:
        dtype = result_dtype(op.op, [a.type.dtype for a in op.args], op.result.type.dtype)
    except DTypeError as err:
        s.fail("operations are typed", str(err))
    if dtype is not op.result.type.dtype:
        s.fail("operations are typed", f"{op.op} gives {dtype}")
    if FUNCTIONS[op.op].skips is not None:
        x, y = op.args
        ok = len(y.type.axes) < len(x.type.axes) == len(op.result.type.axes)
        s.need(ok, "the second operand of a skipped operation lacks an axis of the result", f"%{y.name}")
    s.define(op.result)


def _axes(t: TileType) -> frozenset[TileAxis]:
    return frozenset(t.axes)


def convert(s: KernelScope, op: ConvertOp) -> None:
    """The layouts differ by a permutation of the registers of each thread."""
    old = s.use(op.arg)
    s.need(op.arg.type.dtype is op.result.type.dtype, "a conversion keeps the type", f"%{op.result.name}")
    s.need(_axes(op.arg.type) == _axes(op.result.type), "a conversion keeps the type", f"%{op.result.name}")
    new = s.define(op.result)
    interleaved = op.interleaved
    known = interleaved is None or any(a.name == interleaved and a.size % GROUP == 0 for a in op.arg.type.axes)
    s.need(known, f"an interleaved axis is one of the tile, of a multiple of {GROUP} elements", f"%{op.result.name}")
    s.need(same_threads(old, new, interleaved) is not None, "a conversion stays inside each thread", f"%{op.arg.name}")


def slice_op(s: KernelScope, op: SliceOp) -> None:
    """The result is a part of the tile along one axis; every element stays in its thread."""
    old, t = s.use(op.arg), op.arg.type
    s.need(t.dtype is op.result.type.dtype, "a slice keeps the type", f"%{op.result.name}")
    whole = {a.name: a.size for a in t.axes}
    part = {a.name: a.size for a in op.result.type.axes}
    same = all(part.get(x, -1) == n for x, n in whole.items() if x != op.axis) and part.keys() <= whole.keys()
    s.need(same and op.axis in whole, "a slice is along one axis", f"{op.axis} of %{op.arg.name}")
    end = op.start + part.get(op.axis, 1)
    s.need(op.start >= 0 and end <= whole[op.axis], "a slice lies in the tile", f"{op.start}..{end} on {op.axis}")
    new = s.define(op.result)
    chosen = slice_registers(old, new, op.axis, op.start)
    s.need(chosen is not None, "a slice stays inside each thread", f"%{op.arg.name}")


def stack(s: KernelScope, op: StackOp) -> None:
    """The operands have one tile, the result one axis more; every element stays in its thread."""
    layouts = [s.use(a) for a in op.args]
    t = op.result.type
    wanted = {*op.args[0].type.axes, TileAxis(op.axis, len(op.args))} if op.args else set()
    alike = all(a.type.dtype is t.dtype and op.axis not in a.type.names for a in op.args)
    s.need(alike and wanted == _axes(t), "a stack has one axis more than its parts", f"%{op.result.name}")
    s.need(len({_axes(a.type) for a in op.args}) == 1, "the parts of a stack are alike", f"%{op.result.name}")
    new = s.define(op.result)
    stays = all(slice_registers(new, old, op.axis, n) is not None for n, old in enumerate(layouts))
    s.need(stays, "a stack stays inside each thread", f"%{op.result.name}")


def window(s: KernelScope, op: WindowOp) -> None:
    """The operand has all elements of the windows; every element stays in its thread."""
    old, t, name = s.use(op.arg), op.arg.type, f"%{op.result.name}"
    s.need(t.dtype is op.result.type.dtype, "a window keeps the type", name)
    whole, made = ({a.name: a.size for a in f.type.axes} for f in (op.arg, op.result))
    places = {op.positions, op.terms}
    own = op.axis in whole and op.axis not in made and places <= made.keys() and op.terms not in whole
    s.need(own, "windows have positions and terms instead of their axis", name)
    rest = [{x: n for x, n in sizes.items() if x not in (op.axis, *places)} for sizes in (whole, made)]
    s.need(rest[0] == rest[1] and made[op.positions] % whole.get(op.positions, 1) == 0, "windows are alike", name)
    terms = (op.start or 0) + op.dilation * (made[op.terms] - 1)
    low, end = min(op.start or 0, terms), max(op.start or 0, terms) + op.step * (op.together - 1)
    inside = op.step > 0 and op.dilation != 0 and op.start != 0 and low >= 0 and end < whole[op.axis]
    s.need(inside, "windows lie in the tile", f"{end} on {op.axis}")
    new = s.define(op.result)
    chosen = window_registers(old, new, op.axis, (op.positions, op.terms), op.sizes)
    s.need(chosen is not None, "a window stays inside each thread", f"%{op.arg.name}")


def unpack(s: KernelScope, op: UnpackOp) -> None:
    """A thread has the bytes of its elements, whose numbers and constants are exact in the type of the result."""
    bytes_, t = s.use(op.arg), op.result.type
    s.need(op.arg.type.dtype is DType.U8, "bytes are unpacked", str(op.arg.type.dtype))
    exact = is_exact(op.form, op.bias, op.factor, t.dtype)
    s.need(exact, "unpacked numbers are exact", f"{op.form} less {op.bias} by {op.factor} in {t.dtype}")
    wanted = frozenset(TileAxis(op.axis, a.size // 2) if a.name == op.into else a for a in t.axes)
    s.need(op.into in t.names and wanted == _axes(op.arg.type), "a byte has two elements", f"%{op.arg.name}")
    own = s.define(op.result)
    layout = packed_layout(own, op.into, op.axis)
    words = None if layout is None else word_layout(layout, op.axis)
    ok = any(x is not None and same_map(x, bytes_) for x in (layout, words))
    s.need(ok, "a thread has the bytes of its elements", f"#{op.arg.layout} for #{op.result.layout}")
    for a in (op.zero, op.scale):
        if a is not None:
            s.need(t.dtype.is_float, "integers are unpacked as they are", f"%{op.result.name}")
            s.projected(own, a)
            s.need(a.type.dtype is t.dtype and _axes(a.type) <= _axes(t), "operands have the result's type", a.name)


def undefined(s: KernelScope, op: UndefinedOp) -> None:
    """Every type is legal; the interpreter checks the readers."""
    s.define(op.result)


# -- memory -----------------------------------------------------------------------------------


def ld_global(s: KernelScope, op: GlobalLoad) -> None:
    """The load has the buffer's type and a legal vector width."""
    layout = s.layout(op.result.layout)
    buffer = s.access(op.buffer, op.index, op.mask, layout, op.result.type)
    s.need(buffer.dtype is op.result.type.dtype, "loads give the storage type", str(buffer.dtype))
    need_access(s, op, buffer, layout)
    plain = buffer.dtype is not DType.BOOL and buffer.dtype.bytes <= 4 and not op.volatile
    s.need(op.repeat is None or plain, "numbers of at most 4 bytes are repeated", str(buffer.dtype))
    if op.shift is not None:
        whole = [n for n in buffer.shape if isinstance(n, int)]
        inside = len(whole) == len(buffer.shape) and buffer.strides is None and prod(whole) % op.vec == 0
        words = op.vec * buffer.dtype.bytes >= 4 and layout.registers * buffer.dtype.bytes % 4 == 0
        ok = plain and op.repeat is None and 0 < op.shift < op.vec and inside and words
        s.need(ok, "shifted vectors are of whole vectors of the tensor", f"{op.shift} of {op.vec}")
    written = op.volatile and op.buffer in stored(walk_ops(s.kernel.body))
    s.need(not written, "volatile loads read buffers that the kernel does not write", op.buffer)
    s.need(not op.volatile or buffer.dtype.bytes <= 4, "volatile loads are of at most 4 bytes an element", op.buffer)
    s.define(op.result)


def _stage_of(s: KernelScope, slot: Slot, t: TileType, part: bool = False, start: int | None = None) -> Smem:
    """The buffer, whose stages have the shape of ``t``; with ``part``, ``t`` may be smaller, from ``start`` on."""
    buffer = s.slot(slot)
    want = {a.name: a.size for a in buffer.axes if a.size > 1}
    have = {a.name: a.size for a in t.axes if a.size > 1}
    ends = {a.name: have.get(a.name, 1) + (start or 0) for a in buffer.axes[:1]}
    inside = have.keys() <= want.keys() and all(n <= want.get(name, 1) for name, n in (have | ends).items())
    fits = inside if part else want == have
    s.need(fits, "an access moves a whole stage", f"axes of {buffer.name} and of the fragment differ")
    s.need(buffer.dtype is t.dtype, "accesses have the buffer's type", f"{t.dtype}, not {buffer.dtype}")
    return buffer


def ld_shared(s: KernelScope, op: SharedLoad) -> None:
    """The load is of a stage or a part of it, with the buffer's type and a legal vector width."""
    buffer = _stage_of(s, op.slot, op.result.type, True, op.start)
    layout = s.define(op.result)
    need_stage_vectors(s, buffer, layout, op.vec)


def st_shared(s: KernelScope, op: SharedStore) -> None:
    """The tile fits the stage, and the vector width is legal."""
    layout = s.use(op.value)
    buffer = _stage_of(s, op.slot, op.value.type, op.start is not None, op.start)
    need_stage_vectors(s, buffer, layout, op.vec)
    ok = op.block is None or (s.kernel.cluster > 1 and 0 <= op.block < s.kernel.cluster)
    s.need(ok, "stores go to a block of the cluster", f"block {op.block} of {s.kernel.cluster}")


def cp_async(s: KernelScope, op: AsyncCopy) -> None:
    """cp.async copies a whole stage; each instruction copies 4, 8 or 16 bytes."""
    s.need(s.target.async_copy, "the target copies asynchronously", s.module.target)
    buffer, layout = s.slot(op.slot), s.layout(op.threads)
    t = TileType(buffer.dtype, buffer.axes)
    if fault := cover_fault(layout, t):
        s.fail("layouts cover their tiles", f"#{op.threads}: {fault}")
    source = s.access(op.buffer, op.index, op.mask, layout, t)
    s.need(source.dtype is buffer.dtype, "copies keep the type", f"{source.dtype}, not {buffer.dtype}")
    size = op.vec * buffer.dtype.bytes
    s.need(size in (4, 8, 16), "copies move 4, 8 or 16 bytes", str(size))
    ok = size == 16 or not op.cached
    s.need(ok, "copies of 16 bytes are cached where they say so, shorter ones always", str(size))
    need_stage_vectors(s, buffer, layout, op.vec)
    need_access(s, op, source, layout)
    if op.mbar is not None:
        s.mbar(*op.mbar)


_PAIRS = "paired loads read 16-bit fragments of two column tiles"


def matrix_load(s: KernelScope, op: MatrixLoad) -> None:
    """Operand fragments of 16-bit types by ldmatrix."""
    buffer, t = s.slot(op.slot), op.result.type
    instr = next((n for n, i in MMA.items() if t.dtype in i.operands), None)
    if instr is None or t.dtype.bytes != 2 or buffer.dtype is not t.dtype:
        s.fail("ldmatrix reads 16-bit operands", str(t.dtype))
    sizes, stage = {a.name: a.size for a in t.axes}, {a.name: a.size for a in buffer.axes if a.size > 1}
    free = [x for x in sizes if x != op.axis]
    ok = op.axis in sizes and len(free) == 1 and set(stage) <= set(sizes) and stage.get(free[0]) == sizes[free[0]]
    s.need(ok, "ldmatrix reads a part of a matrix", f"{op.result.name} from {buffer.name}")
    end = op.start + sizes[op.axis]
    ok = op.start >= 0 and end <= stage.get(op.axis, 1) and op.start % MMA[instr].k == 0
    s.need(ok, "ldmatrix reads inside its stage", f"{op.start}..{end} on {op.axis}")
    layout, k = s.define(op.result), (op.axis, sizes[op.axis])
    x = (free[0], sizes[free[0]])
    ok = any(is_operand(layout, instr, x, k, g, a) for g in warp_grids(layout.warps) for a in (True, False))
    s.need(ok, "fragments are in the instruction's layout", f"%{op.result.name}")
    ok = layout.reg[1].axis == op.axis and layout.reg[2].size == 1 and layout.reg[-1].size > 1
    s.need(ok or not op.paired, _PAIRS, f"%{op.result.name}")


# -- MMA --------------------------------------------------------------------------------------


def _operand_type(s: KernelScope, x: Frag | Slot) -> TileType:
    if isinstance(x, Frag):
        s.use(x)
        return x.type
    buffer = s.slot(x)
    return TileType(buffer.dtype, buffer.axes)


def mma(s: KernelScope, op: MmaOp) -> None:
    """An MMA contracts one axis."""
    a, b, r = _operand_type(s, op.a), _operand_type(s, op.b), op.result.type
    depth = {x.size for t in (a, b) for x in t.axes if x.name == op.over}
    ok = len(depth) == 1 and op.over in a.names and op.over in b.names and op.over not in r.names
    s.need(ok, "an MMA contracts one axis", op.over)
    outer = frozenset(x for t in (a, b) for x in t.axes if x.name != op.over)
    s.need(outer == _axes(r), "an MMA keeps the other axes", f"%{op.result.name}")
    if op.acc is not None:
        s.use(op.acc)
        same = (op.acc.type.dtype, op.acc.layout) == (r.dtype, op.result.layout) and _axes(op.acc.type) == _axes(r)
        s.need(same, "the accumulator has the result's type and layout", f"%{op.acc.name}")
    s.need(op.ahead >= 0, "ahead is not negative", str(op.ahead))
    halves = isinstance(op.b, Slot) and b.dtype.bytes == 2 and op.instr in MMA
    s.need(not op.paired or halves, _PAIRS, f"%{op.result.name}")
    if op.unroll is not None:
        ok = op.unroll > 0 and op.instr == "fma" and isinstance(op.a, Slot) and isinstance(op.b, Slot)
        s.need(ok, "unroll of an MMA is positive and needs fma with shared operands", f"%{op.result.name}")
    if op.zero_init is not None:
        s.typed(op.zero_init, "the start of the accumulator", (DType.BOOL,), None, ())
        ok = op.acc is not None and op.instr in WGMMA
        s.need(ok, "zero_init needs wgmma with an accumulator", f"%{op.result.name}")
    s.need(op.terms is None or op.instr in WGMMA, "only wgmma has a number of terms", op.instr)
    layout = s.define(op.result)
    if op.instr in WGMMA:
        wgmma(s, op, a, b, layout, depth.pop())
        return
    s.need(not op.is_async, "only wgmma is asynchronous", op.instr)
    if op.instr == "fma":
        _fma(s, op, layout)
    else:
        _matrix(s, op, a, b, layout, depth.pop())


def _matrix(s: KernelScope, op: MmaOp, a: TileType, b: TileType, layout: FragLayout, depth: int) -> None:
    instr = MMA.get(op.instr)
    if instr is None:
        s.fail("known instructions", op.instr)
    ok = has_types(instr, a.dtype, b.dtype, op.result.type.dtype)
    types = f"{a.dtype}, {b.dtype}: {op.result.type.dtype}"
    s.need(ok, "operand and accumulator types are those of the instruction", types)
    slices = {x.name for x in a.axes if x in b.axes and x.name != op.over and x.size > 1}
    layout = _of_slice(s, op, layout, slices)
    free = [[(x.name, x.size) for x in t.axes if x.name not in (op.over, *slices) and x.size > 1] for t in (a, b)]
    ok = len(free[0]) == 1 and len(free[1]) == 1 and free[0] != free[1] and depth % instr.k == 0
    s.need(ok, "an MMA multiplies two matrices of whole k-steps", f"{op.over} is {depth} deep, a k-step {instr.k}")
    m, n = free[0][0], free[1][0]
    grid = acc_grid(layout, m, n)
    if grid is None:
        s.fail("fragments are in the instruction's layout", f"%{op.result.name} is no accumulator")
    s.need(not op.paired or layout.reg[2].size > 1, _PAIRS, f"%{op.result.name}")
    alone = isinstance(op.a, Slot) or isinstance(op.b, Slot)
    s.need(not slices or not alone, "operands in slices are fragments", f"%{op.result.name}")
    runs = isinstance(op.a, Frag) and not alone and not _is_fragment(s, op, op.a, m, grid, depth, False, slices)
    for x, side in ((op.a, m), (op.b, n)):
        if isinstance(x, Frag):
            ok = instr.parts == 1 or bool(slices)
            s.need(ok, "operands in parts are in shared memory, or in slices", f"%{x.name}")
            ok = _is_fragment(s, op, x, side, grid, depth, runs, slices)
            s.need(ok, "fragments are in the instruction's layout", f"%{x.name} is no operand")
        else:
            buffer = s.smem[x.buffer]
            row = buffer.axes[-1].size * buffer.dtype.bytes + buffer.pad
            read = {1: 4, 2: 16}.get(buffer.dtype.bytes, 1)
            s.need(row % read == 0, "rows are multiples of what lanes read", buffer.name)


def _of_slice(s: KernelScope, op: MmaOp, layout: FragLayout, slices: set[str]) -> FragLayout:
    found = of_slice(layout, slices)
    s.need(found is not None, "the warps of an MMA have a slice each", ", ".join(sorted(slices)))
    return found or layout


def _is_fragment(
    s: KernelScope, op: MmaOp, x: Frag, free: tuple[str, int], grid: tuple[int, int], depth: int, runs: bool,
    slices: set[str],
) -> bool:  # fmt: skip
    """Whether the operand ``x`` has the layout of its side, with ``runs`` of terms or without."""
    layout = _of_slice(s, op, s.layout(x.layout), slices)
    return is_operand(layout, op.instr, free, (op.over, depth), grid, x is op.a, runs=runs)


def _fma(s: KernelScope, op: MmaOp, layout: FragLayout) -> None:
    for x in (op.a, op.b):
        if isinstance(x, Frag):
            own = s.layout(x.layout)
            split = any(m.axis == op.over and m.size > 1 for m in (*own.lane, *own.warp))
            s.need(not split, "fma does not split the summed axis", f"%{x.name}")
            rest = tuple(n for n in x.type.names if n != op.over)
            digits = [[m for m in y.reg if m.axis in rest and m.size > 1] for y in (own, layout)]
            ok = digits[0] == digits[1] and same_map(own.project(rest), layout.project(rest))
            s.need(ok, "operands are projections", f"%{x.name}")


# -- time -------------------------------------------------------------------------------------


def nothing(s: KernelScope, op: AsyncCommit) -> None:
    """Every such op is legal."""


def cp_wait(s: KernelScope, op: AsyncWait) -> None:
    """The number of groups is not negative."""
    s.need(op.pending >= 0, "the number of pending groups is in range", str(op.pending))


def barrier(s: KernelScope, op: Barrier) -> None:
    """The barrier is one of the whole block, or a named barrier of whole warps."""
    if op.threads is None:
        plain = op.number == Barrier().number
        s.need(plain, "a barrier of all threads is number 0", format_expr(op.number))
        s.need(not op.team or s.kernel.team > 1, "a barrier of a team is in a kernel that has teams", s.kernel.name)
        return
    s.need(not op.team, "a barrier of a team is one of all threads", format_expr(op.number))
    named_barrier(s, op.number, op.threads)
    block = 32 * s.kernel.warps
    alone = s.role is None and s.consumers == 1 and op.threads != block
    s.need(not alone, "barriers count whole warps of the block", f"{block} threads arrive, not {op.threads}")


# -- control ----------------------------------------------------------------------------------


def if_op(s: KernelScope, op: IfOp) -> None:
    """The condition is the same for all threads of the block."""
    s.typed(op.cond, "the condition", (DType.BOOL,), None, ())
    s.nested(op.body, op)


def for_op(s: KernelScope, op: ForOp) -> None:
    """Types and layouts of carried values do not change."""
    s.uniform(op.lo, "the lower bound")
    s.uniform(op.hi, "the upper bound")
    s.need(op.unroll is None or op.unroll > 0, "unroll is positive", str(op.unroll))
    s.need(op.var not in s.vars, "loop variables do not shadow", op.var)
    s.need(op.var not in s.axes, "variables are no tile axes", op.var)
    count = {len(op.results), len(op.carried), len(op.yields)}
    s.need(len(count) == 1, "as many results as carried values", str(sorted(count)))
    for _, init in op.carried:
        s.use(init)
    outer = dict(s.frags), set(s.vars)
    s.vars.add(op.var)
    for arg, init in op.carried:
        s.define(arg)
        _alike(s, arg, init)

    def at_end() -> None:
        for y, (arg, _) in zip(op.yields, op.carried, strict=True):
            s.use(y)
            _alike(s, y, arg)

    s.nested(op.body, op, at_end)
    s.frags, s.vars = outer
    for r, (arg, _) in zip(op.results, op.carried, strict=True):
        s.define(r)
        _alike(s, r, arg)


def _alike(s: KernelScope, x: Frag, y: Frag) -> None:
    alike = x.type.dtype is y.type.dtype and _axes(x.type) == _axes(y.type) and x.layout == y.layout
    s.need(alike, "carried values keep type and layout", f"%{x.name} and %{y.name}")


def roles(s: KernelScope, op: RolesOp) -> None:
    """Roles have disjoint ranges of warps and equal consumers; some release the registers that others take."""
    s.need(s.role is None, "roles do not nest", s.role or "")
    s.need(s.consumers == 1, "roles stand in a kernel of one consumer", f"{s.consumers} consumers")
    s.need(not s.path, "roles stand at the top of a kernel", "roles")
    used: set[int] = set()
    launch = s.target.registers_at_launch(32 * s.kernel.warps, s.kernel.min_blocks)
    more = 0
    for r in op.roles:
        warps = set(range(r.first_warp, r.last_warp))
        ok = bool(warps) and r.first_warp >= 0 and r.last_warp <= s.kernel.warps and not warps & used
        s.need(ok, "roles have warps of their own", r.name)
        parts = r.consumers >= 1 and len(warps) % r.consumers == 0 and (r.consumers == 1 or not r.single)
        s.need(parts, "consumers are equal parts of whole warps", f"{r.name}: {r.consumers} of {len(warps)} warps")
        used |= warps
        if r.registers is not None:
            legal = r.registers % 8 == 0 and 24 <= r.registers <= 256
            s.need(legal, "register budgets are multiples of 8 from 24 to 256", f"{r.name}: {r.registers}")
            whole = not s.target.warpgroup or r.first_warp % GROUP_WARPS == r.last_warp % GROUP_WARPS == 0
            s.need(whole, "register budgets are of whole warpgroups", r.name)
            more += len(warps) * (r.registers - launch)
            fits = r.change is None or (r.registers >= launch if r.change == INCREASE else r.registers <= launch)
            s.need(fits, "budgets change what the launch allocates", f"{r.name}: {r.registers} of {launch}")
        s.need(r.registers is not None or r.change is None, "only budgets change", r.name)
    detail = f"{more} a lane more than {launch} for each of {s.kernel.warps} warps"
    s.need(more <= 0, "the registers of the roles are those that the launch allocates", detail)
    for r in op.roles:
        s.role, s.single, s.first, s.consumers = r.name, r.single, r.first_warp, r.consumers
        s.warps = (r.last_warp - r.first_warp) // r.consumers
        frags, s.frags = s.frags, {}
        s.nested(r.body, op)
        s.frags = frags
    s.leave_roles()


RULES: Mapping[type, Rule] = {
    ConstOp: const, IndexOp: index, ParamOp: param, MapOp: map_op, ConvertOp: convert,
    SliceOp: slice_op, StackOp: stack, WindowOp: window, UndefinedOp: undefined, UnpackOp: unpack,
    GlobalLoad: ld_global, SharedLoad: ld_shared, SharedStore: st_shared, AsyncCopy: cp_async,
    MatrixLoad: matrix_load, MmaOp: mma, AsyncCommit: nothing, AsyncWait: cp_wait, Barrier: barrier,
    IfOp: if_op, ForOp: for_op, RolesOp: roles, **REDUCTIONS, **STORE_RULES,
}  # fmt: skip

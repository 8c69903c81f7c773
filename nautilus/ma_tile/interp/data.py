"""Operations on data of the physical interpreter: registers, global and shared memory, copies.

A ``reduce`` across warps has three steps.  First, register r of lane l of warp w writes its partial result to element
``(w * registers + r) * 32 + l`` of the scratch buffer (row-major over its axes).  Then all threads of the role meet at
a barrier.  Then each thread combines the partial results of its lane from the warps that split the reduced axes, the
least significant digit of the warp first.  The next use of the scratch buffer needs another barrier.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nautilus.core.expr.nodes import COMBINERS
from nautilus.core.functions.arrays import maximum, minimum
from nautilus.core.numerics import Array
from nautilus.core.tiles import TileType
from nautilus.ma_tile.interp.state.global_memory import check_nearest, check_rows, check_shifted, check_vectors
from nautilus.ma_tile.interp.state.outstanding import Undefined
from nautilus.ma_tile.interp.state.shared_memory import MANY, Flight
from nautilus.ma_tile.interp.state.sync import Arrival
from nautilus.ma_tile.interp.state.values import (
    Fault,
    addresses,
    apply,
    coords,
    decode,
    encode,
    register_type,
    round_quietly,
    spread,
)
from nautilus.ma_tile.ir.layout import FragLayout, Ints, same_threads, slice_registers, window_registers
from nautilus.ma_tile.ir.ops import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    ConstOp,
    ConvertOp,
    Frag,
    GlobalLoad,
    GlobalStore,
    IndexOp,
    MapOp,
    ParamOp,
    ReduceOp,
    RowStore,
    ScanOp,
    SharedLoad,
    SharedStore,
    SliceOp,
    Slot,
    Smem,
    StackOp,
    UndefinedOp,
    WindowOp,
)
from nautilus.targets.limits import VECTOR_BYTES, WARP

if TYPE_CHECKING:
    from nautilus.ma_tile.interp.block import BlockRun
    from nautilus.ma_tile.interp.state.machine import Context

# -- registers --------------------------------------------------------------------------------


def const(run: BlockRun, ctx: Context, op: ConstOp) -> None:
    """Set every register to the value."""
    run.put(ctx, op.result, round_quietly(np.asarray([[[op.value]]]), op.result.type.dtype))


def param(run: BlockRun, ctx: Context, op: ParamOp) -> None:
    """Set every register to a scalar argument. Raises Fault."""
    if op.param not in run.machine.params:
        raise Fault("undefined-variable", f"no value for scalar {op.param}")
    value = np.asarray([[[run.machine.params[op.param]]]])
    run.put(ctx, op.result, round_quietly(value, op.result.type.dtype))


def index(run: BlockRun, ctx: Context, op: IndexOp) -> None:
    """Evaluate an expression of positions and variables."""
    layout = run.machine.layout(op.result.layout)
    value = run.scope(ctx, layout, op.result.type.names).eval(op.expr)
    shape = run.shape(ctx, layout)
    shaped = value if value.shape == shape else np.broadcast_to(value, shape)
    run.put(ctx, op.result, round_quietly(shaped, op.result.type.dtype))


def map_op(run: BlockRun, ctx: Context, op: MapOp) -> None:
    """Apply an elementwise operation to each register."""
    layout = run.machine.layout(op.result.layout)
    args = [spread(run.get(ctx, a), layout, a.type.names) for a in op.args]
    run.put(ctx, op.result, apply(op.op, args, op.result.type.dtype))


def convert(run: BlockRun, ctx: Context, op: ConvertOp) -> None:
    """Permute the registers of each thread as the two layouts declare it. Raises Fault."""
    old, new = run.machine.layout(op.arg.layout), run.machine.layout(op.result.layout)
    order = same_threads(old, new, op.interleaved)
    if order is None:
        raise Fault("layout", f"#{op.arg.layout} and #{op.result.layout} differ in more than register numbers")
    run.put(ctx, op.result, _chosen(run, ctx, op.arg, order))


def slice_op(run: BlockRun, ctx: Context, op: SliceOp) -> None:
    """Take some of the registers of each thread as the two layouts declare it. Raises Fault."""
    old, new = run.machine.layout(op.arg.layout), run.machine.layout(op.result.layout)
    chosen = slice_registers(old, new, op.axis, op.start)
    if chosen is None:
        raise Fault("layout", f"a part of #{op.arg.layout} is not in the threads of #{op.result.layout}")
    run.put(ctx, op.result, _chosen(run, ctx, op.arg, chosen))


def stack(run: BlockRun, ctx: Context, op: StackOp) -> None:
    """Put the registers of each part where the layout of the result has its position. Raises Fault."""
    new = run.machine.layout(op.result.layout)
    parts = [run.get(ctx, a) for a in op.args]
    out = np.zeros(run.shape(ctx, new), parts[0].dtype)
    for n, (a, x) in enumerate(zip(op.args, parts, strict=True)):
        chosen = slice_registers(new, run.machine.layout(a.layout), op.axis, n)
        if chosen is None:
            raise Fault("layout", f"%{a.name} is not in the threads of #{op.result.layout}")
        out[:, :, list(chosen)] = x
    run.put(ctx, op.result, out)


def window(run: BlockRun, ctx: Context, op: WindowOp) -> None:
    """Take the registers of windows as the two layouts declare it. Raises Fault."""
    old, new = run.machine.layout(op.arg.layout), run.machine.layout(op.result.layout)
    chosen = window_registers(old, new, op.axis, (op.positions, op.terms), op.sizes)
    if chosen is None:
        raise Fault("layout", f"windows of #{op.arg.layout} are not in the threads of #{op.result.layout}")
    run.put(ctx, op.result, _chosen(run, ctx, op.arg, chosen))


def _chosen(run: BlockRun, ctx: Context, arg: Frag, chosen: Sequence[int]) -> Ints:
    """The registers ``chosen`` of ``arg``. Raises Fault where ``arg`` has other registers than its layout."""
    x, declared = run.get(ctx, arg), run.machine.layout(arg.layout).registers
    if x.shape[2] != declared:
        raise Fault("layout", f"%{arg.name} has {x.shape[2]} registers, its layout {declared}")
    return x[:, :, list(chosen)]


def undefined(run: BlockRun, ctx: Context, op: UndefinedOp) -> None:
    """Registers whose values are undefined."""
    run.shape(ctx, run.machine.layout(op.result.layout))
    run.put_raw(ctx, op.result, Undefined())


# -- reduce -----------------------------------------------------------------------------------


def reduce(run: BlockRun, ctx: Context, op: ReduceOp) -> None:
    """Combine registers, then lanes by butterfly exchanges, then warps through scratch (module docstring).

    Raises Fault.
    """
    layout, gone = run.machine.layout(op.arg.layout), frozenset(op.axes)
    ufunc = UFUNCS[COMBINERS[op.combiner].binary]
    x = run.get(ctx, op.arg)
    if x.shape != run.shape(ctx, layout):
        raise Fault("layout", f"%{op.arg.name} does not have the registers of its layout")
    with np.errstate(all="ignore"):
        digits = tuple(m.size for m in reversed(layout.reg))
        split = x.reshape(*x.shape[:2], *digits)
        over = tuple(2 + n for n, m in enumerate(reversed(layout.reg)) if m.axis in gone)
        if op.times is not None or op.where is not None:
            x = _fold_products(run, ctx, op, split, over)
        else:
            x = _fold(ufunc, split, over) if over else split
        x = x.reshape(*x.shape[:2], -1)
        lane, distance = np.arange(32), 1
        for m in layout.lane:
            if m.axis in gone and op.into is None:
                for bit in range(m.size.bit_length() - 1):
                    x = ufunc(x, x[:, lane ^ (distance << bit)])
            distance *= m.size
        if op.into is None and any(m.axis in gone and m.size > 1 for m in layout.warp):
            x = _across_warps(run, ctx, op, layout, x, ufunc)
    rest = layout if op.into is None else layout.partial(op.axes, op.into)
    rest = rest.project(op.result.type.names)
    element = run.machine.cached(op, "element", lambda: element_numbers(rest, op.result.type))
    agree(x, element, op)
    run.put(ctx, op.result, x)


#: binary function of a combiner -> what it does to arrays
UFUNCS: dict[str, Callable[..., Any]] = {
    "add": np.add, "mul": np.multiply, "max": maximum, "min": minimum,
    "or": np.logical_or, "and": np.logical_and,
}  # fmt: skip


def _fold(f: Callable[..., Any], x: Array, axes: tuple[int, ...]) -> Array:
    """``x`` combined over ``axes`` by ``f``, in its own type.

    The order of a sum in numpy depends on the strides of its terms, which say nothing about the kernel.
    """
    if isinstance(f, np.ufunc):
        return np.asarray(f.reduce(np.ascontiguousarray(x), axis=axes, dtype=x.dtype))
    last = range(x.ndim - len(axes), x.ndim)
    moved = np.moveaxis(x, axes, tuple(last))
    parts = moved.reshape(*moved.shape[: x.ndim - len(axes)], -1)
    return np.asarray(functools.reduce(f, (parts[..., k] for k in range(parts.shape[-1]))))


def _fold_products(run: BlockRun, ctx: Context, op: ReduceOp, x: Array, axes: tuple[int, ...]) -> Array:
    """The sum over ``axes`` of the terms ``x``, as far as the condition of ``op`` holds, times its factor."""
    layout, last = run.machine.layout(op.arg.layout), tuple(range(x.ndim - len(axes), x.ndim))

    def parts(f: Frag) -> Array:
        whole = spread(run.get(ctx, f), layout, f.type.names)
        shape = (*x.shape[:2], layout.registers)
        moved = np.moveaxis(np.broadcast_to(whole, shape).reshape(x.shape), axes, last)
        return moved.reshape(*moved.shape[: x.ndim - len(axes)], -1)

    dtype, terms = op.arg.type.dtype, parts(op.arg)
    factors = np.ones_like(terms) if op.times is None else parts(op.times)
    kept = np.ones(terms.shape, np.bool_) if op.where is None else parts(op.where)
    total = np.zeros(terms.shape[:-1], terms.dtype)
    for k in range(terms.shape[-1]):
        more = apply("fma", [terms[..., k], factors[..., k], total], dtype)
        total = np.where(kept[..., k], more, total)
    return np.asarray(total)


def element_numbers(layout: FragLayout, t: TileType) -> Ints:
    """Row-major element number over the axes of ``t`` at [warp, lane, register]."""
    out: Array = np.zeros((layout.warps, 32, layout.registers), np.int64)
    for a in t.axes:
        out = out * a.size + coords(layout, a.name)
    return out


def _across_warps(
    run: BlockRun, ctx: Context, op: ReduceOp, layout: FragLayout, x: Array, ufunc: Callable[..., Any]
) -> Array:
    dtype = op.result.type.dtype
    if op.scratch is None:
        raise Fault("layout", "warps split a reduced axis and there is no scratch buffer")
    buffer = run.machine.smem(op.scratch)
    if buffer.dtype is not dtype:
        raise Fault("layout", f"{buffer.name} holds {buffer.dtype}, not {dtype}")

    def addresses() -> list[Ints]:
        warp, first, offsets, div = np.arange(layout.warps), np.arange(layout.warps), np.zeros(1, np.int64), 1
        for m in layout.warp:
            if m.axis in frozenset(op.axes):
                first = first - warp // div % m.size * div
                offsets = (offsets[None, :] + div * np.arange(m.size)[:, None]).reshape(-1)
            div *= m.size
        register, lane = np.arange(x.shape[2]), np.arange(32)[:, None]
        return [
            linear(buffer, (w[:, None, None] * x.shape[2] + register) * 32 + lane)
            for w in (warp, *(first + offset for offset in offsets))
        ]

    own, *parts = run.machine.cached(op, "scratch", addresses)
    base, number = run.origin(ctx) + buffer.offset, run.op_number(op)
    run.shared.store(ctx.actor.clock, base + own, encode(x, dtype), ctx.threads, number)
    run.barriers.complete([ctx.actor])
    read = [run.shared.load(ctx.actor.clock, base + p, dtype.bytes, ctx.threads, number) for p in parts]
    total = decode(read[0], dtype)
    for bits in read[1:]:
        total = ufunc(total, decode(bits, dtype))
    return np.asarray(total, x.dtype)


def linear(buffer: Smem, element: Ints) -> Ints:
    """Byte offsets of row-major element numbers. Raises Fault for an element past the end."""
    layout = buffer.layout()
    if int(element.max(initial=0)) >= layout.rows * layout.cols:
        raise Fault("out-of-bounds", f"{buffer.name} has {layout.rows * layout.cols} elements, too few")
    return layout.address(element // layout.cols, element % layout.cols)


def agree(x: Array, element: Ints, op: ReduceOp | ScanOp) -> None:
    """Raises Fault unless all threads with one element of the result have the same bits of it, or NaN.

    The sign and the payload of a NaN depend on the order of the operands, and no result shows them.
    """
    if element.shape != x.shape:
        raise Fault("layout", f"%{op.result.name} gets {x.shape[2]} registers, not {element.shape[2]}")
    bits = encode(np.where(x != x, np.nan, x) if x.dtype.kind == "f" else x, op.result.type.dtype)
    seen = np.zeros(int(element.max(initial=0)) + 1, bits.dtype)
    seen[element] = bits
    if not np.array_equal(seen[element], bits):
        raise Fault("holders-disagree", "threads that hold one element have different values of it")


# -- global memory ----------------------------------------------------------------------------


def _access(
    run: BlockRun,
    ctx: Context,
    op: GlobalLoad | GlobalStore | RowStore | AsyncCopy,
    layout: FragLayout,
    names: tuple[str, ...],
) -> tuple[Ints, Array | None]:
    """Element numbers and mask [warps, lanes, registers] of a global access in ``layout`` over the axes ``names``."""
    shape, scope = run.shape(ctx, layout), run.scope(ctx, layout, names)
    mask = None if op.mask is None else scope.eval(op.mask)
    if mask is not None and mask.shape != shape:
        mask = np.broadcast_to(mask, shape)
    places = tuple(scope.eval(i) for i in op.index)
    return run.machine.memory.place(op.buffer, places, mask, shape), mask


def ld_global(run: BlockRun, ctx: Context, op: GlobalLoad) -> None:
    """Load from global memory to registers. Raises Fault."""
    layout, memory = run.machine.layout(op.result.layout), run.machine.memory
    place, mask = _access(run, ctx, op, layout, op.result.type.names)
    dtype = memory.dtypes[op.buffer]
    if register_type(dtype) is not register_type(op.result.type.dtype):
        raise Fault("layout", f"{op.buffer} holds {dtype}, not {op.result.type.dtype}")
    if op.nearest:
        check_nearest(place, op.vec, dtype.bytes, mask, op.buffer)
    elif op.shift is None:
        check_vectors(place, op.vec, dtype.bytes, mask, op.buffer, op.repeat or 1)
    else:
        check_shifted(place, op.vec, op.shift, mask, op.buffer)
    run.put(ctx, op.result, memory.load(op.buffer, place, mask, _block_threads(run, ctx)))


def st_global(run: BlockRun, ctx: Context, op: GlobalStore) -> None:
    """Store registers to global memory."""
    layout, memory = run.machine.layout(op.value.layout), run.machine.memory
    shape = run.shape(ctx, layout)
    place, mask = _access(run, ctx, op, layout, op.value.type.names)
    dtype = memory.dtypes[op.buffer]
    check_vectors(place, op.vec, dtype.bytes, mask, op.buffer)
    value = _registers(run, ctx, op.value, shape)
    if op.combiner is not None:
        first = np.broadcast_to(layout.first_holders, shape)
        memory.combine(op.buffer, place, value, first if mask is None else first & mask, op.combiner)
        return
    memory.store(op.buffer, place, round_quietly(value, dtype), mask, _block_threads(run, ctx))


def _registers(run: BlockRun, ctx: Context, frag: Frag, shape: tuple[int, ...]) -> Array:
    value = run.get(ctx, frag)
    if value.shape != shape:
        raise Fault("layout", f"%{frag.name} has {value.shape[2]} registers, its layout {shape[2]}")
    return value


def _block_threads(run: BlockRun, ctx: Context) -> Array:
    """Thread numbers in the launch, from 1."""
    return ctx.threads.astype(np.int64) + (run.block * run.machine.threads + 1)


# -- shared memory ----------------------------------------------------------------------------


def stage_addresses(buffer: Smem, swizzle: int, layout: FragLayout, names: tuple[str, ...], start: int = 0) -> Ints:
    """Stage-relative byte address of each register's element. Raises Fault outside the tile.

    ``start``: where the elements begin along the first axis.
    """

    def places() -> Iterator[Ints]:
        for n, a in enumerate(buffer.axes):
            if a.size > 1 and a.name not in names:
                raise Fault("layout", f"the fragment has no axis {a.name} of {buffer.name}")
            yield coords(layout, a.name) + (start if n == 0 else 0)

    return addresses(buffer, swizzle, places(), (layout.warps, WARP, layout.registers))


def _shared_access(
    run: BlockRun,
    ctx: Context,
    op: object,
    slot: Slot,
    layout: FragLayout,
    names: tuple[str, ...],
    vec: int,
    start: int | None = None,
) -> Ints:
    """Byte address of each register's element in the stage that ``slot`` names, from ``start`` on."""
    buffer = run.machine.smem(slot.buffer)
    width = buffer.dtype.bytes

    def make() -> Ints:
        out = stage_addresses(buffer, slot.swizzle, layout, names, start or 0)
        check_vectors(out // width, vec, width, None, buffer.name)
        return out

    base = run.base(ctx, slot)
    if base % (vec * width):
        raise Fault("misaligned", f"the stage of {buffer.name} starts at {base}, no multiple of {vec * width}")
    relative: Ints = run.machine.cached(op, "address", make)
    return relative + base


def ld_shared(run: BlockRun, ctx: Context, op: SharedLoad) -> None:
    """Load from shared memory to registers. Raises Fault."""
    layout, dtype = run.machine.layout(op.result.layout), op.result.type.dtype
    run.shape(ctx, layout)
    if run.machine.smem(op.slot.buffer).dtype.bytes != dtype.bytes:
        raise Fault("layout", f"{op.slot.buffer} does not hold {dtype}")
    every = tuple(a.name for a in run.machine.smem(op.slot.buffer).axes)  # the first position of those it lacks
    address = _shared_access(run, ctx, op, op.slot, layout, every, op.vec, op.start)
    bits = run.shared.load(ctx.actor.clock, address, dtype.bytes, ctx.threads, run.op_number(op))
    run.put(ctx, op.result, decode(bits, dtype))


def st_shared(run: BlockRun, ctx: Context, op: SharedStore) -> None:
    """Store registers to shared memory, rounded to the type of the buffer."""
    layout, dtype = run.machine.layout(op.value.layout), run.machine.smem(op.slot.buffer).dtype
    value = round_quietly(_registers(run, ctx, op.value, run.shape(ctx, layout)), dtype)
    address = _shared_access(run, ctx, op, op.slot, layout, op.value.type.names, op.vec, op.start)
    if op.block is not None:
        address = address + run.cluster.reach(ctx.actor, op.block)
    run.shared.store(ctx.actor.clock, address, encode(value, dtype), ctx.threads, run.op_number(op))


def st_rows(run: BlockRun, ctx: Context, op: RowStore) -> None:
    """Store a stage to global memory.  The threads that read and store an element depend on where its row begins."""
    layout, memory = run.machine.layout(op.threads), run.machine.memory
    buffer = run.machine.smem(op.slot.buffer)
    names = tuple(a.name for a in buffer.axes)
    place, mask = _access(run, ctx, op, layout, names)
    number = element_numbers(layout, TileType(buffer.dtype, buffer.axes))
    check_rows(place, number, buffer.axes[-1].size, mask, op.buffer)
    address = _shared_access(run, ctx, op, op.slot, layout, names, VECTOR_BYTES // buffer.dtype.bytes)
    several = np.asarray(MANY, np.int32)
    bits = run.shared.load(ctx.actor.clock, address, buffer.dtype.bytes, several, run.op_number(op))
    memory.store(op.buffer, place, decode(bits, buffer.dtype), mask, _block_threads(run, ctx))


# -- asynchronous copies ----------------------------------------------------------------------


def cp_async(run: BlockRun, ctx: Context, op: AsyncCopy) -> None:
    """Copy from global to shared memory, asynchronously. Raises Fault."""
    layout, memory = run.machine.layout(op.threads), run.machine.memory
    buffer = run.machine.smem(op.slot.buffer)
    dtype = buffer.dtype
    size = op.vec * dtype.bytes
    if size not in (4, 8, 16):
        raise Fault("copy-size", f"cp.async moves 4, 8 or 16 bytes, not {size}")
    names = tuple(a.name for a in buffer.axes)
    place, mask = _access(run, ctx, op, layout, names)
    if memory.dtypes[op.buffer].bytes != dtype.bytes:
        raise Fault("layout", f"{op.buffer} holds {memory.dtypes[op.buffer]}, {buffer.name} {dtype}")
    check_vectors(place, op.vec, dtype.bytes, mask, op.buffer)
    address = _shared_access(run, ctx, op, op.slot, layout, names, op.vec)
    value = memory.load(op.buffer, place, mask, _block_threads(run, ctx))
    flight = Flight(address, encode(value, dtype), ctx.threads, run.op_number(op))
    run.shared.issue(ctx.actor.clock, flight)
    if op.mbar is None:
        ctx.actor.open.append(flight)
    else:
        bar = run.mbarriers.at(op.mbar[0], run.integer(ctx, op.mbar[1], "a stage"), ctx.actor)
        run.mbarriers.outstanding.append(Arrival(bar, flight, threads=ctx.actor.threads))


def cp_commit(run: BlockRun, ctx: Context, op: AsyncCommit) -> None:
    """Make one group of the copies since the last commit."""
    ctx.actor.groups.append(ctx.actor.open)
    ctx.actor.open = []


def cp_wait(run: BlockRun, ctx: Context, op: AsyncWait) -> None:
    """Wait for all groups except for the youngest ``pending`` ones."""
    groups = ctx.actor.groups
    while len(groups) > op.pending:
        for flight in groups.pop(0):
            run.shared.land(flight, ctx.actor.clock.component, engine=False)


#: op class -> what runs it in one thread block
TABLE: Mapping[type, Callable[[BlockRun, Context, Any], None]] = {
    ConstOp: const,
    IndexOp: index,
    ParamOp: param,
    MapOp: map_op,
    ReduceOp: reduce,
    ConvertOp: convert,
    SliceOp: slice_op,
    StackOp: stack,
    WindowOp: window,
    UndefinedOp: undefined,
    GlobalLoad: ld_global,
    GlobalStore: st_global,
    SharedLoad: ld_shared,
    SharedStore: st_shared,
    RowStore: st_rows,
    AsyncCopy: cp_async,
    AsyncCommit: cp_commit,
    AsyncWait: cp_wait,
}

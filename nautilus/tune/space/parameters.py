"""The choices of one kernel, and how each changes its plan.

A :class:`TuningParameter` starts from the plan that the default rules made for an engine, and its default is what
that plan has: where every parameter has its default, the plan is the rules' own, bit for bit.  A changed tile makes
what depends on it follow the same rules again (``_settle_*``): the ring as deep as shared memory allows, registers, the
epilogue's pieces.  Structure and sizes decide which values are listed, without those that measurements ruled out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import KernelPlan, MemoryPlan
from nautilus.planner.kernel import ceil_pow2
from nautilus.planner.warpgroup import CHUNK, NARROW, ROWS, with_tiles
from nautilus.targets.records import DEFAULT_TARGET, TARGETS
from nautilus.tune.space import loop_structures as walks
from nautilus.tune.space.shape import CHAIN, GRID, LOOP, PRODUCT, KernelShape, others

Apply = Callable[[KernelPlan, Any], KernelPlan]
MOST, RULE = "most", "rule"
_RESERVE, _REGISTERS = 2048, 200  # bytes of shared memory for barriers; registers of a thread for accumulators


@dataclass(frozen=True, slots=True)
class TuningParameter:
    """``values`` with the default among them. ``structural``: what depends on tiles is worked out again."""

    name: str
    values: tuple[Any, ...]
    default: Any
    apply: Apply
    structural: bool = False


def knobs(plan: KernelPlan, shape: KernelShape) -> tuple[TuningParameter, ...]:
    """The knobs of ``plan``, those that matter most first; those of one value are left out."""
    wide = plan.memory.engine == "warpgroup"
    if plan.memory.join:
        found = _unit(plan, shape)
    elif plan.memory.cluster > 1 and not wide:
        found = [_memory("cluster", (plan.memory.cluster, 1), plan)]  # the rest is settled by how the walk is cut
    elif shape.kind == PRODUCT:
        found = _wide_product(plan, shape) if wide else _plain_product(plan, shape)
    elif shape.kind == CHAIN:
        found = _wide_chain(plan, shape) if wide else _plain_chain(plan, shape)
    else:
        found = _rows(plan, shape)
    return tuple(k for k in found if len(k.values) > 1)


def apply(plan: KernelPlan, shape: KernelShape, chosen: dict[str, Any]) -> KernelPlan:
    """``plan`` with every knob of ``chosen`` turned. Raises ScheduleError for a value that a knob does not have."""
    out, settle, turned = plan, False, []
    for k in knobs(plan, shape):
        value = chosen.get(k.name, k.default)
        if value not in k.values:
            raise ScheduleError(f"{k.name} is {value!r} here, not one of {', '.join(map(str, k.values))}")
        if value != k.default:
            turned.append((k, value))
    for k, value in turned:
        if k.structural:
            out, settle = k.apply(out, value), True
    if settle and plan.memory.engine == "warpgroup":
        out = _settle_product(out, shape) if shape.kind == PRODUCT else _settle_chain(out, shape)
    for k, value in turned:
        if not k.structural:
            out = k.apply(out, value)
    return out


def _memory(name: str, values: Iterable[Any], plan: KernelPlan) -> TuningParameter:
    """A knob for one field of the memory plan; the field's value is among the values."""
    now = getattr(plan.memory, name)

    def turn(p: KernelPlan, value: Any) -> KernelPlan:
        return replace(p, memory=replace(p.memory, **{name: value}))

    return TuningParameter(name, _with(values, now), now, turn)


def _field(name: str, values: Iterable[Any], plan: KernelPlan) -> TuningParameter:
    now = getattr(plan, name)
    return TuningParameter(name, _with(values, now), now, lambda p, value: replace(p, **{name: value}))


def _tile(name: str, axis: str, values: Iterable[int], plan: KernelPlan, structural: bool = False) -> TuningParameter:
    now = plan.axis(axis).tile
    return TuningParameter(
        name, _with(values, now), now, lambda p, value: with_tiles(p, {axis: value}, p.memory), structural
    )  # fmt: skip


def _with(values: Iterable[Any], now: Any) -> tuple[Any, ...]:
    """``values`` and ``now``, once each; numbers rise."""
    out = list(dict.fromkeys((*values, now)))
    if all(isinstance(v, int) and not isinstance(v, bool) for v in out):
        return tuple(sorted(out))
    return tuple(out)


# -- products of warpgroups ---------------------------------------------------------------------------


def block_text(rows: int, columns: int, units: int, own: bool) -> str:
    """``128x256/2``: two units share the rows of a tile; ``128x192*2``: each takes tiles of its own."""
    return f"{rows}x{columns}{'*' if own else '/'}{units}"


def _block(value: str) -> tuple[int, int, int, bool]:
    own = "*" in value
    tile, units = value.split("*" if own else "/")
    rows, columns = tile.split("x")
    return int(rows), int(columns), int(units), own


def _wide_product(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    m = plan.memory
    assert shape.row is not None and shape.column is not None
    now = block_text(plan.axis(shape.row).tile, plan.axis(shape.column).tile, m.units, m.own_tiles)
    persistent = ("static", "snake", "dynamic", "none")

    def block(p: KernelPlan, value: str) -> KernelPlan:
        rows, columns, units, own = _block(value)
        memory = replace(p.memory, units=units, own_tiles=own)
        return with_tiles(p, {str(shape.row): rows, str(shape.column): columns}, memory)

    most = most_stages(plan, shape)
    stages = MOST if m.stages == most else m.stages
    span = m.group * plan.axis(shape.row).tile

    def grouped(p: KernelPlan, rows: int) -> KernelPlan:
        group = max(1, rows // p.axis(str(shape.row)).tile)
        return replace(p, memory=replace(p.memory, group=group))

    return [
        TuningParameter("block", _with(_blocks(shape), now), now, block, structural=True),
        TuningParameter("group_rows", _with((512, 1024, 2048, 4096), span), span, grouped),
        _refilled(_store(plan, ("bulk/64", "bulk/32", "bulk/0", "bulk-ring/64", "direct")), shape),
        TuningParameter("stages", _with((MOST, 2, 3, 4), stages), stages, _stages(shape)),
        _follow(_memory("persistent", persistent, plan)),
        _follow(_memory("cluster", (1, 2), plan)),
        _memory("pin_waits", (False, True), plan),
        _memory("specialise", (True, False), plan),
        _registers(plan),
    ]


#: (each unit has tiles of its own, units, rows of a unit)
_UNITS = (
    (False, 2, 64), (False, 2, 128), (True, 2, 64), (True, 2, 128), (False, 3, 64), (False, 3, 128), (True, 3, 64),
    (False, 1, 64), (False, 1, 128),
)  # fmt: skip
_COLUMNS = (64, 96, 128, 144, 160, 192, 224, 256, 320)


def _blocks(shape: KernelShape) -> list[str]:
    """Tiles whose accumulators fit in a unit's registers, not wider than the result."""
    rows, columns = shape.size(shape.row), shape.size(shape.column)
    out = []
    for own, units, unit_rows in _UNITS:
        for n in _COLUMNS:
            each = unit_rows * n * shape.products // 128
            tile = unit_rows if own else units * unit_rows
            if each > _REGISTERS or each < 32 or tile >= 2 * rows + 64 or n > max(64, ceil_pow2(columns)):
                continue
            out.append(block_text(tile, n, units, own))
    return out


def most_stages(plan: KernelPlan, shape: KernelShape) -> int:
    """As many stages as shared memory holds beside the epilogue's buffers, at most 8."""
    m = plan.memory
    rows, columns = plan.axis(str(shape.row)).tile, plan.axis(str(shape.column)).tile * shape.products
    step = plan.axis(str(shape.walk)).tile * shape.bytes
    buffers = 0 if m.epilogue in ("direct", "bulk-ring") else m.units * 2 * 2 * ROWS * (m.store_columns or CHUNK)
    return max(1, min(8, (shape.limits.smem_block - _RESERVE - buffers) // (step * (rows + columns))))


def _stages(shape: KernelShape) -> Apply:
    def turn(p: KernelPlan, value: Any) -> KernelPlan:
        stages = most_stages(p, shape) if value == MOST else value
        return replace(p, memory=replace(p.memory, stages=stages))

    return turn


def _settle_product(plan: KernelPlan, shape: KernelShape) -> KernelPlan:
    """What follows from a product's tile, as the default rules have it."""
    rows, columns = plan.axis(str(shape.row)).tile, plan.axis(str(shape.column)).tile
    m = plan.memory
    chunk = CHUNK if columns % CHUNK == 0 else NARROW
    memory = replace(
        m, store_columns=chunk if m.store_columns else 0, persistent=_persistent(m), registers=registers_for(m),
        group=max(1, (2048 if columns * shape.products > 256 else 1024) // rows),
    )  # fmt: skip
    return _stages(shape)(replace(plan, memory=memory), MOST)


def registers_for(m: MemoryPlan) -> tuple[int, int]:
    """Registers of a producer and of a consumer: what the launch allocates, shared out (PTX ISA, setmaxnreg)."""
    return shared_out(m.units, 32 if m.units >= 3 else 40 if m.persistent == "dynamic" or m.cluster > 1 else 24)


def shared_out(units: int, low: int) -> tuple[int, int]:
    """``low`` for a producer's thread, and what that leaves for one of ``units`` consumers."""
    launch = min(TARGETS[DEFAULT_TARGET].limits.registers_at_launch((1 + units) * 128), 256)
    return low, min(240, ((1 + units) * launch - low) // units // 8 * 8)


def _store(plan: KernelPlan, ways: tuple[str, ...]) -> TuningParameter:
    """How results leave: the unit that copies, and in which pieces."""
    m = plan.memory
    now = f"{m.epilogue}/{m.store_columns}" if m.epilogue.startswith("bulk") else m.epilogue

    def turn(p: KernelPlan, value: str) -> KernelPlan:
        name, _, columns = value.partition("/")
        return replace(p, memory=replace(p.memory, epilogue=name, store_columns=int(columns or 0)))

    return TuningParameter("store", _with(ways, now), now, turn)


def _refilled(k: TuningParameter, shape: KernelShape) -> TuningParameter:
    """``k`` with the ring as deep again as there is room beside what it changed, where it was before."""

    def turn(p: KernelPlan, value: Any) -> KernelPlan:
        full = p.memory.stages == most_stages(p, shape)
        p = k.apply(p, value)
        return _stages(shape)(p, MOST) if full else p

    return replace(k, apply=turn)


def _registers(plan: KernelPlan) -> TuningParameter:
    """What a thread of the producer may hold; consumers get the rest. A producer that spills is a slow one."""

    def turn(p: KernelPlan, value: Any) -> KernelPlan:
        return replace(p, memory=replace(p.memory, registers=shared_out(p.memory.units, value)))

    if plan.memory.registers != registers_for(plan.memory):  # the rules have reasons of their own
        return TuningParameter("registers", (RULE, 24, 32, 40, 56), RULE, turn)
    others = tuple(n for n in (24, 32, 40, 56) if n != plan.memory.registers[0])
    return TuningParameter("registers", (RULE, *others), RULE, turn)


# -- chains of warpgroup products ---------------------------------------------------------------------


def _wide_chain(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    m, row, walk = plan.memory, str(shape.row), str(shape.walk)
    now = rows_text(plan.axis(row).tile, m.units, m.own_tiles)

    def units(p: KernelPlan, value: str) -> KernelPlan:
        rows, count, own = _rows_block(value)
        return with_tiles(p, {row: rows}, replace(p.memory, units=count, own_tiles=own))

    blocks = [b for b in _CHAIN_ROWS if _rows_block(b)[0] < 2 * shape.size(row)]
    persistent = ("none", "static", "snake", "dynamic") if shape.uneven else ("none", "static", "dynamic")
    sections = (0, *_near(m.sections, others(shape, plan))) if shape.uneven else (0,)
    stages = (1, 2, 3, 4) if shape.width <= 64 else (1, 2, 3)
    stores = (
        "bulk/64", "bulk/0", "bulk/32", "bulk/128", "bulk-reuse/0", "bulk-reuse/64", "bulk-ring/64", "bulk-ring/32",
        "direct",
    )  # fmt: skip
    found = [
        TuningParameter("rows", _with(blocks, now), now, units, structural=True),
        _tile("step", walk, _steps(plan.axis(walk).tile, shape.size(walk)), plan, True),
        _follow(_memory("persistent", persistent, plan)),
        _memory("stages", stages, plan),
        _store(plan, stores),
        _memory("overlap", (True, False), plan),
        _memory("hold", (False, True), plan),
        _memory("ping_pong", (False, True), plan),
        _follow(_memory("cluster", (1, 2), plan)),
        _memory("sections", sections, plan),
        _memory("held_stages", (1, 2), plan),
        _memory("pin_waits", (False, True), plan),
        _memory("in_flight", (True, False), plan),
        _memory("specialise", (True, False), plan),
        _registers(plan),
    ]
    return [*found, *_repair_knobs(plan, shape), *_order_knobs(plan, shape)]


#: rows of a block and the units that share them, or (``*``) that each take blocks of their own
_CHAIN_ROWS = ("64/1", "128/1", "128/2", "256/2", "192/3", "64*2", "64*3")


def rows_text(rows: int, units: int, own: bool) -> str:
    """``128/2``: two units share a block's rows; ``64*2``: each takes blocks of its own."""
    return f"{rows}{'*' if own else '/'}{units}"


def _rows_block(value: str) -> tuple[int, int, bool]:
    own = "*" in value
    rows, units = value.split("*" if own else "/")
    return int(rows), int(units), own


def _near(count: int, whole: int) -> list[int]:
    """Divisors of ``whole`` about ``count``: two below, itself, two above (others leave a run that is shorter)."""
    divisors = [n for n in range(1, min(whole, 4096) + 1) if whole % n == 0]
    below, above = [n for n in divisors if n < count], [n for n in divisors if n > count]
    return sorted({*below[-2:], *above[:2], *([count] if count else [])})


def _steps(step: int, size: int) -> list[int]:
    """Steps of a walk near ``step``: half to one and a half of it."""
    return [s for s in (48, 64, 80, 96, 112, 128, 144, 160, 176) if step <= 2 * s and 2 * s <= 3 * step and s <= size]


def _follow(k: TuningParameter) -> TuningParameter:
    """``k`` with registers shared out again."""

    def turn(p: KernelPlan, value: Any) -> KernelPlan:
        p = k.apply(p, value)
        return replace(p, memory=replace(p.memory, registers=registers_for(p.memory)))

    return replace(k, apply=turn)


def _repair_knobs(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    """When running results are repaired, and where in the loop."""
    if not shape.repaired:
        return []
    found = [_field("repair", ("always", "skip", "auto"), plan)]
    if plan.memory.engine == "warpgroup":
        found.append(_field("lazy_bits", (4, 8, 12), plan))
    return [*found, _memory("rescale", ("early", "late"), plan)] if plan.memory.engine == "warpgroup" else found


def _order_knobs(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    if not shape.uneven:
        return []
    return [
        _memory("order", ("longest-first", "natural"), plan),
        _field("walk_order", ("ascending", "mixed-first"), plan),
    ]


def _settle_chain(plan: KernelPlan, shape: KernelShape) -> KernelPlan:
    """What follows from a chain's tiles: registers, what fits beside the rings, operands in registers."""
    m = plan.memory
    rows, step = plan.axis(str(shape.row)).tile, plan.axis(str(shape.walk)).tile
    rows *= m.units if m.own_tiles else 1  # all that are in shared memory at a time
    held, walked, own = 2 * rows * shape.deep, 2 * step * (shape.deep + shape.width), 2 * rows * shape.width
    free = shape.limits.smem_block - _RESERVE - held - m.stages * walked
    registers = registers_for(m)
    live = shape.width // 2 + step // 2 + step // 4 + shape.deep // 4
    fits = own <= free
    epilogue = m.epilogue if fits or m.epilogue in ("direct", "bulk-ring") else "bulk-reuse"
    hold = m.hold and rows == ROWS * m.units and live <= registers[1] - 30
    memory = replace(
        m, registers=registers, epilogue=epilogue, hold=hold, persistent=_persistent(m),
        store_columns=m.store_columns if epilogue != "bulk-reuse" else 0,
        held_stages=m.held_stages if own + held <= free else 1,
        ping_pong=m.ping_pong and m.units > 1 and not m.own_tiles,
    )  # fmt: skip
    return replace(plan, memory=memory)


def _persistent(m: MemoryPlan) -> str:
    """Units with tiles of their own need a grid that stays."""
    return "static" if m.own_tiles and m.persistent == "none" else m.persistent


# -- products of single warps -------------------------------------------------------------------------


def _plain_product(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    row, column = str(shape.row), str(shape.column)
    m = plan.memory
    now = f"{plan.axis(row).tile}x{plan.axis(column).tile}:{m.warps[0]}x{m.warps[1]}"

    def block(p: KernelPlan, value: str) -> KernelPlan:
        tile, _, grid = value.partition(":")
        rows, columns = map(int, tile.split("x"))
        down, across = map(int, grid.split("x"))
        return with_tiles(p, {row: rows, column: columns}, replace(p.memory, warps=(down, across)))

    group = m.group if m.order == "grouped" else 8
    found = [
        TuningParameter("block", _with(_plain_blocks(shape), now), now, block),
        _memory("stages", (1, 2, 3, 4), plan),
        _tile("step", str(shape.walk), (32, 64), plan),
        _memory("min_blocks", (1, 2), plan),
        _memory("fragments_across", (False, True), plan),
        _memory("epilogue", ("shared", "direct"), plan),
    ]
    return [*found, _memory("group", (4, 8, 16, group), plan)] if m.order == "grouped" else found


def _plain_blocks(shape: KernelShape) -> list[str]:
    """Blocks of 4 or 8 warps with warp tiles of 32 to 64 rows and 32 to 64 columns, and small ones for few rows."""
    rows, columns = ceil_pow2(shape.size(shape.row)), ceil_pow2(shape.size(shape.column))
    out = []
    for down, across in ((1, 4), (2, 2), (4, 1), (2, 4), (4, 2)):
        for r in (16, 32, 64):
            for c in (32, 64):
                tile = (down * r, across * c)
                fits = tile[0] <= max(16, rows) and tile[1] <= max(16, columns)
                if fits and r * c * shape.products <= 4096 and (r > 16 or rows <= 32):
                    out.append(f"{tile[0]}x{tile[1]}:{down}x{across}")
    return out


def _plain_chain(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    row, walk, m = str(shape.row), str(shape.walk), plan.memory
    now = f"{plan.axis(row).tile}:{m.warps[0]}x{m.warps[1]}"

    def rows(p: KernelPlan, value: str) -> KernelPlan:
        tile, _, grid = value.partition(":")
        down, across = map(int, grid.split("x"))
        return with_tiles(p, {row: int(tile)}, replace(p.memory, warps=(down, across)))

    most = max(16, ceil_pow2(shape.size(row)))
    blocks = [f"{each * down}:{down}x1" for down in (1, 2, 4, 8) for each in (16, 32) if each * down <= min(most, 128)]
    blocks += [f"{r}:1x{across}" for r in (16, 32) for across in (2, 4) if r <= most and shape.size(row) <= 64]
    found = [
        TuningParameter("rows", _with(blocks, now), now, rows),
        _tile("step", walk, [s for s in (16, 32, 64, 128, 256) if s <= shape.size(walk)], plan),
        _memory("stages", (1, 2, 3, 4), plan),
        _memory("min_blocks", (1, 2, 3), plan),
        _memory("bulk_copies", (False, True) if shape.limits.warpgroup else (False,), plan),
        _memory("join", (False, True) if shape.limits.warpgroup else (False,), plan),
        _memory("epilogue", ("shared", "direct"), plan),
    ]
    return [*found, *_repair_knobs(plan, shape), *_order_knobs(plan, shape)]


def _unit(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    """Of a unit that joins others in a block: how many units, and their step, are choices of how the walk is cut."""
    now = plan.memory.stages

    def stages(p: KernelPlan, value: Any) -> KernelPlan:
        return replace(p, memory=replace(p.memory, stages=now if value == RULE else value))

    found = [
        TuningParameter("stages", (RULE, 2, 3, 4), RULE, stages),  # the rule goes by units and step
        _memory("bulk_copies", (False, True) if shape.limits.warpgroup else (False,), plan),
        _memory("join", (True, False), plan),
        _memory("min_blocks", (1, 2), plan),
    ]
    return [*found, *_repair_knobs(plan, shape)]


# -- everything else ----------------------------------------------------------------------------------


def _rows(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    """Row-wise and elementwise work, and products that have no structure above."""
    m = plan.memory
    found: list[TuningParameter] = []
    ways = walks.modes(plan, shape.unified, 32768) if not shape.products else ()
    if len(ways) > 1:
        found.append(
            TuningParameter(
                "walk", ways, ways[0], lambda p, mode: walks.with_mode(p, shape.unified, mode), structural=True
            )
        )
    found += [
        _tile(f"tile.{a.name}", a.name, _around(a.tile, shape.size(a.name)), plan)
        for a in plan.axes
        if (a.role == GRID and _spread(plan, shape, a.name)) or a.role == LOOP
    ]
    total = m.warps[0] * m.warps[1]

    def warps(p: KernelPlan, value: int) -> KernelPlan:
        down = min(m.warps[0], value)
        while value % down:
            down -= 1
        return replace(p, memory=replace(p.memory, warps=(down, value // down)))

    counts = [w for w in (1, 2, 4, 8, 16, 32) if total // 8 <= w <= total * 8]
    found += [
        TuningParameter("warps", _with(counts, total), total, warps),
        _memory("min_blocks", (1, 2, 4), plan),
        _memory("vector_bytes", (8, 16), plan),
    ]
    if any(a.role == LOOP for a in plan.axes):
        found.append(_memory("stages", (0, 1, 2, 3), plan))
    if shape.products:
        found.append(_memory("epilogue", ("shared", "direct"), plan))
    return found


def _spread(plan: KernelPlan, shape: KernelShape, axis: str) -> bool:
    """Whether blocks may take several elements of ``axis``: it is tiled, or the last of the grid."""
    last = [a.name for a in plan.axes if a.role == GRID][-1:]
    return shape.size(axis) > 1 and (plan.axis(axis).tile > 1 or axis in last)


def _around(tile: int, size: int) -> list[int]:
    """Powers of two from a quarter of ``tile`` to four times as much."""
    most = ceil_pow2(size)
    return [t for t in (tile // 4, tile // 2, tile, tile * 2, tile * 4) if 1 <= t <= max(most, tile)]

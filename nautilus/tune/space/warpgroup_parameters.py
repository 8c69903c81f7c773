"""Tuning parameters of kernels with warpgroup MMAs: GEMM and back-to-back GEMM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nautilus.core.schedule import KernelPlan, WarpgroupPlan, option_of
from nautilus.core.tiles import ceil_pow2
from nautilus.planner.warpgroup import CHUNK, NARROW, RESERVE, with_tiles
from nautilus.targets.limits import WGMMA_ROWS
from nautilus.targets.records import DEFAULT_TARGET, TARGETS
from nautilus.tune.space.shape import GEMM, KernelShape, others
from nautilus.tune.space.tuning_parameter import (
    MOST,
    RULE,
    Apply,
    TuningParameter,
    including,
    kernel_parameter,
    mapping_parameter,
    tile_parameter,
    with_mapping,
)

_REGISTERS = 200  # most accumulator registers of a thread in a GEMM
_COOPERATIVE, _PINGPONG = "cooperative", "pingpong"


def finalise(plan: KernelPlan, m: WarpgroupPlan, shape: KernelShape) -> KernelPlan:
    """``plan``, whose mapping is ``m``, with what follows from its tiles."""
    return _finalised_gemm(plan, m, shape) if shape.kind == GEMM else _finalised_back_to_back(plan, m, shape)


def _mapping(plan: KernelPlan) -> WarpgroupPlan:
    assert isinstance(plan.mapping, WarpgroupPlan)
    return plan.mapping


# -- GEMM -------------------------------------------------------------------------------------------------


def block_text(rows: int, columns: int, warpgroups: int, scheduling: str) -> str:
    """``128x256/2``: two cooperative warpgroups share the rows of a tile; ``128x192*2``: two pingpong ones."""
    return f"{rows}x{columns}{'*' if scheduling == _PINGPONG else '/'}{warpgroups}"


def _block(value: str) -> tuple[int, int, int, str]:
    pingpong = "*" in value
    tile, warpgroups = value.split("*" if pingpong else "/")
    rows, columns = tile.split("x")
    return int(rows), int(columns), int(warpgroups), _PINGPONG if pingpong else _COOPERATIVE


def gemm(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    """The parameters of a matrix product whose rows and columns are both spread over blocks."""
    m = _mapping(plan)
    assert shape.row is not None and shape.column is not None
    now = block_text(plan.axis(shape.row).tile, plan.axis(shape.column).tile, m.warpgroups, m.tile_scheduling)

    def block(p: KernelPlan, value: str) -> KernelPlan:
        rows, columns, warpgroups, scheduling = _block(value)
        p = with_mapping(p, warpgroups=warpgroups, tile_scheduling=scheduling)
        return with_tiles(p, {str(shape.row): rows, str(shape.column): columns}, p.mapping)

    stages = MOST if m.stages == most_stages(plan, shape) else m.stages
    span = m.raster_group * plan.axis(shape.row).tile

    def raster_rows(p: KernelPlan, rows: int) -> KernelPlan:
        return with_mapping(p, raster_group=max(1, rows // p.axis(str(shape.row)).tile))

    return [
        TuningParameter("block_tile", including(_blocks(shape), now), now, block, structural=True),
        TuningParameter("raster_rows", including((512, 1024, 2048, 4096), span), span, raster_rows),
        _refilled(_epilogue(plan, ("tma/64", "tma/32", "tma/0", "tma-staged/64", "direct")), shape),
        TuningParameter("stages", including((MOST, 2, 3, 4), stages), stages, _stages(shape)),
        _with_registers(mapping_parameter("persistent", plan)),
        _with_registers(mapping_parameter("cluster", plan)),
        mapping_parameter("volatile_waits", plan),
        mapping_parameter("warp_specialised", plan),
        _producer_registers(plan),
    ]


#: (tile scheduling, warpgroups, rows of a warpgroup)
_WARPGROUPS = (
    (_COOPERATIVE, 2, 64), (_COOPERATIVE, 2, 128), (_PINGPONG, 2, 64), (_PINGPONG, 2, 128), (_COOPERATIVE, 3, 64),
    (_COOPERATIVE, 3, 128), (_PINGPONG, 3, 64), (_COOPERATIVE, 1, 64), (_COOPERATIVE, 1, 128),
)  # fmt: skip
_COLUMNS = (64, 96, 128, 144, 160, 192, 224, 256, 320)


def _blocks(shape: KernelShape) -> list[str]:
    """Tiles whose accumulators fit in a warpgroup's registers, not wider than the result."""
    rows, columns = shape.size(shape.row), shape.size(shape.column)
    out = []
    for scheduling, warpgroups, own_rows in _WARPGROUPS:
        for n in _COLUMNS:
            each = own_rows * n * shape.gemms // 128
            tile = own_rows if scheduling == _PINGPONG else warpgroups * own_rows
            if each > _REGISTERS or each < 32 or tile >= 2 * rows + 64 or n > max(64, ceil_pow2(columns)):
                continue
            out.append(block_text(tile, n, warpgroups, scheduling))
    return out


def most_stages(plan: KernelPlan, shape: KernelShape) -> int:
    """The most stages that shared memory holds beside the epilogue's buffers, at most 8."""
    m = _mapping(plan)
    rows, columns = plan.axis(str(shape.row)).tile, plan.axis(str(shape.column)).tile * shape.gemms
    step = plan.axis(str(shape.loop)).tile * shape.bytes
    chunks = m.warpgroups * 2 * 2 * WGMMA_ROWS * (m.store_columns or CHUNK)
    buffers = 0 if m.epilogue in ("direct", "tma-staged") else chunks
    return max(1, min(8, (shape.limits.smem_block - RESERVE - buffers) // (step * (rows + columns))))


def _stages(shape: KernelShape) -> Apply:
    def apply(p: KernelPlan, value: Any) -> KernelPlan:
        return with_mapping(p, stages=most_stages(p, shape) if value == MOST else value)

    return apply


def _finalised_gemm(plan: KernelPlan, m: WarpgroupPlan, shape: KernelShape) -> KernelPlan:
    """``plan`` with the values that follow from a GEMM's tile by the default rules."""
    rows, columns = plan.axis(str(shape.row)).tile, plan.axis(str(shape.column)).tile
    chunk = CHUNK if columns % CHUNK == 0 else NARROW
    low, high = registers_for(m)
    plan = with_mapping(
        plan, store_columns=chunk if m.store_columns else 0, persistent=_persistent(m), producer_registers=low,
        consumer_registers=high, raster_group=max(1, (2048 if columns * shape.gemms > 256 else 1024) // rows),
    )  # fmt: skip
    return _stages(shape)(plan, MOST)


def registers_for(m: WarpgroupPlan) -> tuple[int, int]:
    """Registers of a producer and of a consumer: what the launch allocates, divided (PTX ISA, setmaxnreg)."""
    low = 32 if m.warpgroups >= 3 else 40 if m.persistent == "dynamic" or m.cluster > 1 else 24
    return divided_registers(m.warpgroups, low)


def divided_registers(warpgroups: int, low: int) -> tuple[int, int]:
    """``low`` for a producer's thread, and what that leaves for one of ``warpgroups`` consumers."""
    launch = min(TARGETS[DEFAULT_TARGET].limits.registers_at_launch((1 + warpgroups) * 128), 256)
    return low, min(240, ((1 + warpgroups) * launch - low) // warpgroups // 8 * 8)


def _epilogue(plan: KernelPlan, ways: tuple[str, ...]) -> TuningParameter:
    """The parameter of the epilogue and of its chunks: ``tma/64`` is the epilogue tma with 64 store_columns."""
    m = _mapping(plan)
    now = m.epilogue if m.epilogue == "direct" else f"{m.epilogue}/{m.store_columns}"

    def apply(p: KernelPlan, value: str) -> KernelPlan:
        name, _, columns = value.partition("/")
        return with_mapping(p, epilogue=name, store_columns=int(columns or 0))

    return TuningParameter("epilogue", including(ways, now), now, apply)


def _refilled(parameter: TuningParameter, shape: KernelShape) -> TuningParameter:
    """``parameter`` that again fills shared memory with stages, where these filled it before."""

    def apply(p: KernelPlan, value: Any) -> KernelPlan:
        full = p.mapping.stages == most_stages(p, shape)
        p = parameter.apply(p, value)
        return _stages(shape)(p, MOST) if full else p

    return replace(parameter, apply=apply)


def _producer_registers(plan: KernelPlan) -> TuningParameter:
    """Registers of the producer's threads; consumers get the rest. A producer that spills is slow."""
    m = _mapping(plan)

    def apply(p: KernelPlan, value: Any) -> KernelPlan:
        return _with_divided(p, *divided_registers(_mapping(p).warpgroups, value))

    listed: tuple[int, ...] = (24, 32, 40, 56)
    if (m.producer_registers, m.consumer_registers) == registers_for(m):  # else the rules chose others
        listed = tuple(n for n in listed if n != m.producer_registers)
    return TuningParameter("producer_registers", (RULE, *listed), RULE, apply)


def _with_registers(parameter: TuningParameter) -> TuningParameter:
    """``parameter`` that divides the registers again."""

    def apply(p: KernelPlan, value: Any) -> KernelPlan:
        p = parameter.apply(p, value)
        return _with_divided(p, *registers_for(_mapping(p)))

    return replace(parameter, apply=apply)


def _with_divided(plan: KernelPlan, low: int, high: int) -> KernelPlan:
    return with_mapping(plan, producer_registers=low, consumer_registers=high)


# -- back-to-back GEMM -------------------------------------------------------------------------------------


def back_to_back_gemm(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    """The parameters of matrix products of which one feeds the next along a loop."""
    m, row, loop = _mapping(plan), str(shape.row), str(shape.loop)
    now = rows_text(plan.axis(row).tile, m.warpgroups, m.tile_scheduling)

    def rows(p: KernelPlan, value: str) -> KernelPlan:
        tile, warpgroups, scheduling = _rows_block(value)
        p = with_mapping(p, warpgroups=warpgroups, tile_scheduling=scheduling)
        return with_tiles(p, {row: tile}, p.mapping)

    blocks = [b for b in _ROW_BLOCKS if _rows_block(b)[0] < 2 * shape.size(row)]
    orders = option_of(WarpgroupPlan, "persistent").values
    persistent = orders if shape.uneven else tuple(o for o in orders if o != "snake")
    supertiles = (0, *_near(m.l2_supertiles, others(shape, plan))) if shape.uneven else (0,)
    stages = (1, 2, 3, 4) if shape.width <= 64 else (1, 2, 3)
    epilogues = (
        "tma/64", "tma/0", "tma/32", "tma/128", "tma-aliased/0", "tma-aliased/64", "tma-staged/64", "tma-staged/32",
        "direct",
    )  # fmt: skip
    found = [
        TuningParameter("row_tile", including(blocks, now), now, rows, structural=True),
        tile_parameter("loop_tile", loop, _steps(plan.axis(loop).tile, shape.size(loop)), plan, True),
        _with_registers(mapping_parameter("persistent", plan, persistent)),
        mapping_parameter("stages", plan, stages),
        _epilogue(plan, epilogues),
        mapping_parameter("pipeline_mma", plan),
        mapping_parameter("register_operands", plan),
        mapping_parameter("ordered_mma", plan),
        _with_registers(mapping_parameter("cluster", plan)),
        mapping_parameter("l2_supertiles", plan, supertiles),
        mapping_parameter("resident_stages", plan, (1, 2)),
        mapping_parameter("volatile_waits", plan),
        mapping_parameter("outstanding_mma", plan),
        mapping_parameter("warp_specialised", plan),
        _producer_registers(plan),
    ]
    if shape.repaired:
        found += [
            kernel_parameter("rescale_policy", plan, RESCALE_POLICIES),
            kernel_parameter("lazy_bits", plan, (4, 8, 12)),
            mapping_parameter("rescale_placement", plan),
        ]
    return [*found, *iteration_parameters(plan, shape)]


#: lazy alone is refused where it is not proved safe, so auto covers it
RESCALE_POLICIES = tuple(v for v in option_of(KernelPlan, "rescale_policy").values if v != "lazy")


def iteration_parameters(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    """Orders of tiles and of iterations, where tiles have loops of different lengths."""
    if not shape.uneven:
        return []
    return [
        mapping_parameter("raster_order", plan, ("longest-first", "natural")),
        kernel_parameter("iteration_order", plan),
    ]


#: rows of a block and the warpgroups that share them, or (``*``) pingpong ones
_ROW_BLOCKS = ("64/1", "128/1", "128/2", "256/2", "192/3", "64*2", "64*3")


def rows_text(rows: int, warpgroups: int, scheduling: str) -> str:
    """``128/2``: two cooperative warpgroups share the rows of a block; ``64*2``: two pingpong ones."""
    return f"{rows}{'*' if scheduling == _PINGPONG else '/'}{warpgroups}"


def _rows_block(value: str) -> tuple[int, int, str]:
    pingpong = "*" in value
    rows, warpgroups = value.split("*" if pingpong else "/")
    return int(rows), int(warpgroups), _PINGPONG if pingpong else _COOPERATIVE


def _near(count: int, whole: int) -> list[int]:
    """Divisors of ``whole`` about ``count``: two below, itself, two above (others leave a shorter supertile)."""
    divisors = [n for n in range(1, min(whole, 4096) + 1) if whole % n == 0]
    below, above = [n for n in divisors if n < count], [n for n in divisors if n > count]
    return sorted({*below[-2:], *above[:2], *([count] if count else [])})


def _steps(step: int, size: int) -> list[int]:
    """Steps of a loop near ``step``: half to one and a half of it."""
    return [s for s in (48, 64, 80, 96, 112, 128, 144, 160, 176) if step <= 2 * s and 2 * s <= 3 * step and s <= size]


def _finalised_back_to_back(plan: KernelPlan, m: WarpgroupPlan, shape: KernelShape) -> KernelPlan:
    """``plan`` with the values that follow from the tiles of a back-to-back GEMM.

    These are the registers, the buffers that fit beside the pipelines, and the operands in registers.
    """
    rows, step = plan.axis(str(shape.row)).tile, plan.axis(str(shape.loop)).tile
    rows *= m.warpgroups if m.tile_scheduling == _PINGPONG else 1  # all that are in shared memory at a time
    resident, streamed, own = 2 * rows * shape.deep, 2 * step * (shape.deep + shape.width), 2 * rows * shape.width
    free = shape.limits.smem_block - RESERVE - resident - m.stages * streamed
    low, high = registers_for(m)
    live = shape.width // 2 + step // 2 + step // 4 + shape.deep // 4
    epilogue = m.epilogue if own <= free or m.epilogue in ("direct", "tma-staged") else "tma-aliased"
    return with_mapping(
        plan, producer_registers=low, consumer_registers=high, epilogue=epilogue, persistent=_persistent(m),
        register_operands=m.register_operands and rows == WGMMA_ROWS * m.warpgroups and live <= high - 30,
        store_columns=m.store_columns if epilogue != "tma-aliased" else 0,
        resident_stages=m.resident_stages if own + resident <= free else 1,
        ordered_mma=m.ordered_mma and m.warpgroups > 1 and m.tile_scheduling == _COOPERATIVE,
    )  # fmt: skip


def _persistent(m: WarpgroupPlan) -> str:
    """The option ``persistent`` of ``m``: pingpong tile scheduling needs a persistent grid."""
    return "static" if m.tile_scheduling == _PINGPONG and m.persistent == "none" else m.persistent

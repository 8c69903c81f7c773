"""How one kernel is mapped onto the machine: a union of plans, tagged by the engine of its matrix products.

``WarpPlan`` is for kernels whose warps all run the same code, with ``mma.sync`` and ``cp.async`` copies;
``WarpgroupPlan`` is for kernels with ``wgmma`` and TMA copies (targets of the ``sm_90a`` class).  An option
that both have stands in ``_CommonPlan``; no plan has an option that means nothing for its engine.
"""

from dataclasses import field
from typing import Annotated, Literal

from nautilus.core.records import dataclass
from nautilus.core.schedule.options import option, record

RasterOrder = Literal["natural", "longest-first", "grouped"]
WarpEpilogue = Literal["shared", "direct"]
WarpgroupEpilogue = Literal["direct", "tma", "tma-aliased", "tma-staged"]
TileScheduling = Literal["cooperative", "pingpong"]
Persistence = Literal["none", "static", "snake", "dynamic"]
RescalePlacement = Literal["early", "late"]

_STORE_COLUMNS = (0, 32, 64, 128)
_VECTOR_BYTES = (1, 2, 4, 8, 16)
_REGISTERS = "registers a thread"


@dataclass(frozen=True, slots=True)
class _CommonPlan:
    """Options that every engine has."""

    engine: str = field(init=False, default="")
    min_blocks: Annotated[
        int,
        option(
            "Blocks that must fit on a multiprocessor at once, as asked of the register allocator "
            "(second argument of __launch_bounds__).",
            unit="blocks", low=1, high=32, read_by=("ma-tile",),
        ),
    ] = 1  # fmt: skip
    dependent_launch: Annotated[
        bool,
        option(
            "Programmatic dependent launch, only if this grid and that of the kernel before it fit on disjoint"
            " multiprocessors.",
            read_by=("dependent-launch",),
        ),
    ] = True
    vector_bytes: Annotated[
        int,
        option("Widest access to global memory.", unit="bytes", values=_VECTOR_BYTES, read_by=("ma-tile",)),
    ] = 16
    raster_order: Annotated[
        RasterOrder,
        option(
            "Order in which tiles are numbered: natural has the last grid axis fastest; longest-first starts with the "
            "tiles of the longest loops; grouped keeps tiles that share operands together.",
            read_by=("ma-tile",),
        ),
    ] = "natural"
    raster_group: Annotated[
        int,
        option(
            "Tiles of the last grid axis but one that are numbered together when raster_order is grouped.",
            unit="tiles", low=1, high=1 << 16, read_by=("ma-tile",),
        ),
    ] = 8  # fmt: skip
    l2_supertiles: Annotated[
        int,
        option(
            "Supertiles into which the outer grid axes are cut when raster_order is longest-first, run one after the "
            "other so that their operands stay in the L2 cache; 0 and 1 cut nothing.",
            unit="supertiles", low=0, high=1 << 16, read_by=("ma-tile",),
        ),
    ] = 0  # fmt: skip


@record
@dataclass(frozen=True, slots=True)
class WarpPlan(_CommonPlan):
    """A kernel whose warps all run the same code: ``mma.sync`` and ``cp.async``."""

    engine: Annotated[
        Literal["warp"],
        option("The tag of this plan: mma.sync and cp.async copies.", read_by=("ma-tile",)),
    ] = field(init=False, default="warp")
    stages: Annotated[
        int,
        option(
            "Buffers of the multi-stage pipeline through which the loop's operands are loaded; 0 copies without "
            "overlap, 1 has one buffer and two barriers an iteration.",
            unit="stages", low=0, high=64, read_by=("pipeline-copies",),
        ),
    ] = 2  # fmt: skip
    warps: Annotated[
        tuple[int, int],
        option("Warps of a block along the rows and the columns of its main tile.", low=1, read_by=("ma-tile",)),
    ] = (4, 1)
    epilogue: Annotated[
        WarpEpilogue,
        option(
            "How accumulators are stored: shared goes through shared memory to 16-byte stores, direct stores from "
            "registers.",
            read_by=("ma-tile",),
        ),
    ] = "shared"
    prefetch_fragments: Annotated[
        int,
        option(
            "K-steps between the load of an operand fragment from shared memory and its MMA; 1 is double "
            "buffering.",
            unit="k-steps", low=0, high=64, read_by=("prefetch-fragments",),
        ),
    ] = 1  # fmt: skip
    double_buffer_fragments: Annotated[
        bool,
        option(
            "Double-buffer operand fragments across the iterations of the reduction loop.",
            read_by=("double-buffer-fragments",),
        ),
    ] = False
    tma_loads: Annotated[
        bool,
        option("Fill the multi-stage pipeline by TMA loads instead of cp.async.", read_by=("tma-loads",)),
    ] = False
    combine_in_block: Annotated[
        bool,
        option(
            "Fuse this split-K kernel into the kernel that combines its partial results: the producers of one result "
            "become warps of one block.",
            read_by=("combine-in-block",),
        ),
    ] = False
    cluster: Annotated[
        int,
        option(
            "Blocks of a cluster that compute partial results of one result, which the first of them combines; 1 has "
            "no cluster.",
            unit="blocks", values=(1, 2, 4, 8), read_by=("combine-in-cluster",),
        ),
    ] = 1  # fmt: skip


@record
@dataclass(frozen=True, slots=True)
class WarpgroupPlan(_CommonPlan):
    """A kernel of warpgroups: ``wgmma`` and TMA copies."""

    engine: Annotated[
        Literal["warpgroup"],
        option("The tag of this plan: wgmma and TMA copies.", read_by=("ma-tile",)),
    ] = field(init=False, default="warpgroup")
    stages: Annotated[
        int,
        option(
            "Buffers of the multi-stage pipeline through which the loop's operands are loaded.",
            unit="stages", low=1, high=64, read_by=("specialise-warps", "tma-stores", "stage-loads"),
        ),
    ] = 2  # fmt: skip
    warpgroups: Annotated[
        int,
        option(
            "Consumer warpgroups of a block, each with 64 or 128 rows of an MMA.",
            unit="warpgroups", low=1, high=3,
            read_by=("ma-tile", "specialise-warps", "persistent-grid", "tma-stores", "stage-stores", "stage-loads"),
        ),
    ] = 2  # fmt: skip
    tile_scheduling: Annotated[
        TileScheduling,
        option(
            "How warpgroups divide tiles: cooperative shares the rows of each tile, or the columns of one of 64 rows, "
            "pingpong gives each warpgroup whole tiles, which needs a persistent grid.",
            read_by=("ma-tile", "specialise-warps", "persistent-grid", "tma-stores", "stage-loads"),
        ),
    ] = "cooperative"
    warp_specialised: Annotated[
        bool,
        option(
            "A producer warpgroup issues the TMA loads, the other warpgroups compute.",
            read_by=("specialise-warps", "tma-stores", "stage-stores", "stage-loads"),
        ),
    ] = True
    producer_registers: Annotated[
        int,
        option(
            "Registers that a thread of the producer warpgroup keeps (setmaxnreg).",
            unit=_REGISTERS, low=24, high=256, read_by=("specialise-warps",),
        ),
    ] = 24  # fmt: skip
    consumer_registers: Annotated[
        int,
        option(
            "Registers that a thread of a consumer warpgroup gets (setmaxnreg).",
            unit=_REGISTERS, low=24, high=256, read_by=("specialise-warps",),
        ),
    ] = 240  # fmt: skip
    pipeline_mma: Annotated[
        bool,
        option(
            "Software pipelining: MMAs of one iteration are issued before the elementwise work of the iteration "
            "before.",
            read_by=("pipeline-mma", "register-operands"),
        ),
    ] = True
    rescale_placement: Annotated[
        RescalePlacement,
        option(
            "Where accumulators of a rolling update are rescaled: early as soon as the factor is known, late right "
            "before the MMA that adds to them.",
            read_by=("pipeline-mma", "register-operands"),
        ),
    ] = "early"
    register_operands: Annotated[
        bool,
        option("Keep loop-invariant left operands of MMAs in registers.", read_by=("register-operands",)),
    ] = False
    outstanding_mma: Annotated[
        bool,
        option(
            "Leave one group of asynchronous MMAs outstanding across iterations where nothing reads its results.",
            read_by=("async-mma",),
        ),
    ] = True
    volatile_waits: Annotated[
        bool,
        option(
            "Make waits for MMAs volatile, so that the compiler does not move them up.",
            read_by=("async-mma",),
        ),
    ] = False
    ordered_mma: Annotated[
        bool,
        option(
            "An ordered barrier lets the warpgroups issue their MMAs one after the other, while the others do "
            "elementwise work.",
            read_by=("ping-pong",),
        ),
    ] = False
    resident_stages: Annotated[
        int,
        option(
            "Buffers of operands that are loaded once a tile.",
            unit="stages", low=1, high=8, read_by=("specialise-warps", "tma-stores"),
        ),
    ] = 1  # fmt: skip
    persistent: Annotated[
        Persistence,
        option(
            "Persistent tile scheduler: none has one block a tile; static strides over the tiles; snake strides "
            "forth and back; dynamic takes the next tile from a counter.",
            read_by=("persistent-grid", "multicast-loads"),
        ),
    ] = "none"
    cluster: Annotated[
        int,
        option(
            "Blocks of a cluster that share TMA loads by multicast; 1 has no cluster.",
            unit="blocks", values=(1, 2), read_by=("multicast-loads",),
        ),
    ] = 1  # fmt: skip
    epilogue: Annotated[
        WarpgroupEpilogue,
        option(
            "How accumulators are stored: direct from registers; tma by TMA stores from a buffer of its own; "
            "tma-aliased from the buffer of an operand that is dead by then; tma-staged in chunks from a stage of the "
            "pipeline of a loaded operand. What the TMA unit cannot store goes through a buffer too, by rows, except "
            "with direct, where that writes fewer parts of sectors.",
            read_by=("tma-stores", "stage-stores", "specialise-warps"),
        ),
    ] = "direct"
    store_columns: Annotated[
        int,
        option(
            "Columns of the chunks in which finished accumulators are processed and stored; 0 takes them whole.",
            unit="columns", values=_STORE_COLUMNS, read_by=("chunk-epilogue",),
        ),
    ] = 0  # fmt: skip

    @property
    def is_pingpong(self) -> bool:
        """Whether each of several warpgroups takes whole tiles."""
        return self.tile_scheduling == "pingpong" and self.warpgroups > 1


MappingPlan = WarpPlan | WarpgroupPlan


def is_fused_into_consumer(plan: MappingPlan) -> bool:
    """Whether a split-K kernel runs in the launch of its consumer, by a combine in a block or in a cluster."""
    return isinstance(plan, WarpPlan) and (plan.combine_in_block or plan.cluster > 1)

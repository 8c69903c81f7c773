"""The pipeline as data: every stage with its lowering and its passes in order.

A stage has a text form (suffix, printer, parser), so a compilation can stop at it, and start
from a dump of it.  A new pass is registered only here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from nautilus.core.records import dataclass

_SCALAR = "nautilus.scalar.passes"
_VR_TILE = "nautilus.vr_tile.passes"
_MA_TILE = "nautilus.ma_tile.passes"


class Only(Enum):
    """The kernels that a pass may change, where these are not all: it is loaded for modules with such kernels alone."""

    RECURRENCES = "recurrences"
    WARPGROUPS = "kernels whose plan is for the engine ``warpgroup``"


@dataclass(frozen=True, slots=True)
class PassSpec:
    """A pass: its name, its class as ``"module:Class"``, and options that override those of the context.

    ``only``: the kernels that the pass may change; None: any.  ``whole``: what it makes of a kernel depends on others,
    or it adds buffers or kernels.
    """

    name: str
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)
    only: Only | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """A level of the pipeline. Code is given as ``"module:attribute"`` and imported on first use.

    ``lower`` takes the module of the stage above; ``verify`` raises VerifyError; ``format`` and
    ``parse(text, name)`` are the text form.  ``planner``: the class whose ``decide`` completes the schedule
    before the first run of each pass in ``decisions``.  ``header``: a function of the module above, which gives the
    function that finds the lines of the leading comment of ``lower``.  ``plain_is_final``: a file without a dump's
    header is the result of all passes, because they cannot run on a final module.  ``by_kernel``: the lowering and the
    passes that are not ``whole`` make of each kernel what they make of a module with the kernel, its plan and the
    buffers that it names alone.
    """

    name: str
    suffix: str
    lower: str = ""
    passes: tuple[PassSpec, ...] = ()
    verify: str = ""
    format: str = ""
    parse: str = ""
    planner: str = ""
    decisions: tuple[str, ...] = ()
    header: str = ""
    plain_is_final: bool = False
    by_kernel: bool = False

    @property
    def step_names(self) -> tuple[str, ...]:
        """The name of every step in order; the second run of ``cse`` is ``cse-2``."""
        plain = [p.name for p in self.passes]
        again = [plain[:i].count(name) for i, name in enumerate(plain)]
        return tuple(f"{name}-{n + 1}" if n else name for name, n in zip(plain, again, strict=True))

    def before(self, name: str) -> str:
        """The step before step ``name``, which is not the first one."""
        names = self.step_names
        return names[names.index(name) - 1]


def _passes(
    folder: str, *passes: str | PassSpec, only: Only | None = None, whole: bool = False
) -> tuple[PassSpec, ...]:  # fmt: skip
    """Passes of ``folder``, each ``"module:Class"``, named after its module with hyphens, or with options."""

    def spec(text: str) -> PassSpec:
        module = text.partition(":")[0].rpartition(".")[2]
        return PassSpec(module.replace("_", "-"), f"{folder}.{text}", only=only, whole=whole)

    return tuple(spec(p) if isinstance(p, str) else p for p in passes)


def _recurrences(*passes: str) -> tuple[PassSpec, ...]:
    """Passes of Scalar IR that change recurrences alone."""
    return _passes(f"{_SCALAR}.recurrences", *passes, only=Only.RECURRENCES)


def _warpgroups(*passes: str) -> tuple[PassSpec, ...]:
    """Passes of MA-tile IR that change kernels for warpgroups alone."""
    return _passes(_MA_TILE, *passes, only=Only.WARPGROUPS)


SPEC = Stage(
    "spec",
    ".naut",
    lower="nautilus.frontend.semantics.check:load_spec",
    format="nautilus.frontend.printer:format_spec",
)
SCALAR = Stage(
    "scalar",
    ".scalar",
    lower="nautilus.scalar.lowering:lower",
    passes=_passes(
        _SCALAR,
        *("positions.scan_positions:ScanPositions", "recurrences.recur_scans:RecurScans"),
        "references.running_moments:RunningMoments",
        *_recurrences("reverse_recurrences:ReverseRecurrences"),
        *_recurrences("unroll_recurrences:UnrollRecurrences", "members.split_recurrences:SplitRecurrences"),
        "recurrences.scan_recurrences:ScanRecurrences",
        *_recurrences("members.join_recurrences:JoinRecurrences", "chunk_matrix_states:ChunkMatrixStates"),
        *_recurrences("scan_tiles:ScanTiles"),
        *_recurrences("chunk_recurrences:ChunkRecurrences", "chunk_filters:ChunkFilters"),
        *_recurrences("members.merge_recurrences:MergeRecurrences", "members.accumulate_steps:AccumulateSteps"),
        *("roundings.round_temps:RoundTemps", "simplify:Simplify"),
        *("inline:Inline", "roundings.divide_floors:DivideFloors", "simplify:Simplify"),
        "positions.solve_equations:SolveEquations",
        "positions.restrict_results:RestrictResults",
        "results.choose_terms:ChooseTerms",
        *("positions.expand_gathers:ExpandGathers", "matrices.count_bits:CountBits"),
        "results.unroll_reductions:UnrollReductions",
        *("windows.count_terms:CountTerms", "matrices.multiply_conditions:MultiplyConditions"),
        "roundings.defer_roundings:DeferRoundings",
        *("operands.split_sums:SplitSums", "factor:Factor", "simplify:Simplify"),
        "references.split_references:SplitReferences",
        *("windows.join_shifts:JoinShifts", "windows.separate_windows:SeparateWindows"),
        "axes.separate_digits:SeparateDigits",
        *("operands.order_contractions:OrderContractions", "simplify:Simplify", "axes.join_sums:JoinSums"),
        *(
            "operands.join_groups:JoinGroups",
            "operands.join_digits:JoinDigits",
            "positions.flatten_blocks:FlattenBlocks",
        ),
        *("windows.restrict_products:RestrictProducts", "results.sink_gathers:SinkGathers"),
        *("axes.add_unit_axes:AddUnitAxes", "operands.scale_products:ScaleProducts"),
        *("narrow:Narrow", "axes.drop_unit_axes:DropUnitAxes", "axes.collapse_axes:CollapseAxes"),
        PassSpec("store-tables", f"{_SCALAR}.results.store_tables:StoreTables", {"shared": True}),
        *("results.separate_columns:SeparateColumns", "results.sort_rows:SortRows"),
        *("positions.sort_terms:SortTerms", "positions.chunk_keys:ChunkKeys", "axes.scatter:Scatter"),
        *("results.reduce_rows:ReduceRows", "results.store_partial_sums:StorePartialSums"),
        *("axes.delinearize:Delinearize", "results.store_results:StoreResults", "results.order_results:OrderResults"),
        *("positions.invert_reads:InvertReads", "windows.extend_reductions:ExtendReductions"),
        "axes.orient_products:OrientProducts",
        *("axes.split_residues:SplitResidues", "results.unroll_reductions:UnrollReductions"),
        "matrices.store_phases:StorePhases",
        *("windows.taps_to_columns:TapsToColumns", "matrices.join_matrices:JoinMatrices"),
        *("operands.store_shifted:StoreShifted", "operands.store_windows:StoreWindows"),
        "windows.store_transposed:StoreTransposed",
        "matrices.store_digits:StoreDigits",
        *("operands.store_matrices:StoreMatrices", "operands.store_masked:StoreMasked"),
        *("operands.store_operands:StoreOperands", "results.store_tables:StoreTables"),
        *("axes.flatten_contractions:FlattenContractions", "windows.slide_windows:SlideWindows"),
        *("windows.separate_windows:SeparateWindows", "windows.nest_windows:NestWindows"),
        *("positions.separate_phases:SeparatePhases", "windows.match_extents:MatchExtents"),
        "positions.flatten_positions:FlattenPositions",
        *(
            "positions.scan_positions:ScanPositions",
            "references.running_moments:RunningMoments",
            "windows.rescale_scans:RescaleScans",
            "axes.chunk_scans:ChunkScans",
        ),
        "axes.chunk_moments:ChunkMoments",
        *("results.order_temps:OrderTemps", "windows.order_operands:OrderOperands"),
        *("positions.find_ranges:FindRanges", "operands.rematerialise:Rematerialise"),
        *("operands.mark_undefined:MarkUndefined", "results.tile_columns:TileColumns", "dead:Dead", "pack:Pack"),
        *("split_k_update:SplitKUpdate", "fuse:Fuse", "split:Split"),
        *("reorder:Reorder", "rolling_update:RollingUpdate", "partition:Partition"),
        *_recurrences("tile_recurrences:TileRecurrences"),
    ),
    verify="nautilus.scalar.verify:verify",
    format="nautilus.scalar.text:format_program",
    parse="nautilus.scalar.text:parse_program",
    planner="nautilus.passes.selection.planner:PricedPlanner",
    decisions=("inline", "narrow", "scatter", "rematerialise", "pack", "split-k-update", "fuse"),
)
#: the decisions after which kernels may be in other parts of a program with recurrences
REGROUPING = frozenset({"inline", "rematerialise"})
PLANNED = SCALAR.decisions[-1]  # the pass before which a schedule is complete
VR_TILE = Stage(
    "vr-tile",
    ".vr",
    lower="nautilus.vr_tile.lowering.lower:lower",
    passes=_passes(
        _VR_TILE,
        *("axes.merge_axes:MergeAxes", "simplify_masks:SimplifyMasks"),
        *_passes(_VR_TILE, "hardware_math:HardwareMath", whole=True),
        "exp_to_exp2:ExpToExp2",
        *("div_to_rcp:DivToRcp", "fold_scale:FoldScale", "exponents.unscale_maxima:UnscaleMaxima"),
        *("fold_scale:FoldScale", "hoist:Hoist", "cse:Cse", "sink_masks:SinkMasks"),
        "masked.sink_loop_masks:SinkLoopMasks",
        *_passes(_VR_TILE, "contract:Contract", whole=True),
        "exponents.raise_exponents:RaiseExponents",
        *_passes(_VR_TILE, "lazy_rescale:LazyRescale", whole=True),
        *("exponents.guard_exponents:GuardExponents", "parts.decompose_operands:DecomposeOperands"),
        *_passes(_VR_TILE, "masked.recompute_masked:RecomputeMasked", "parts.store_parts:StoreParts", whole=True),
        *("share_operands:ShareOperands", "cse:Cse", "dce:Dce"),
    ),
    verify="nautilus.vr_tile.verify:verify",
    format="nautilus.vr_tile.text:format",
    parse="nautilus.vr_tile.text:parse",
    by_kernel=True,
)
MA_TILE = Stage(
    "ma-tile",
    ".ma",
    lower="nautilus.ma_tile.lowering.lower:lower",
    passes=_passes(
        _MA_TILE,
        "epilogue.defer_reductions:DeferReductions",
        "copies.pipeline_copies:PipelineCopies",
        "copies.double_buffer_fragments:DoubleBufferFragments",
        "copies.prefetch_fragments:PrefetchFragments",
        "mma.load_ahead:LoadAhead",
        *_warpgroups("mma.register_operands:RegisterOperands", "epilogue.chunk_epilogue:ChunkEpilogue"),
        *_warpgroups("epilogue.tma_stores:TmaStores", "epilogue.stage_stores:StageStores"),
        *_warpgroups("copies.stage_loads:StageLoads", "mma.pipeline_mma:PipelineMma"),
        "mma.fold_infinities:FoldInfinities",
        *_warpgroups("copies.specialise_warps:SpecialiseWarps"),
        "mma.zero_accumulators:ZeroAccumulators",
        *_warpgroups("mma.async_mma:AsyncMma", "copies.multicast_loads:MulticastLoads"),
        *_warpgroups("grid.persistent_grid:PersistentGrid"),
        "grid.block_scatters:BlockScatters",
        *_warpgroups("mma.ping_pong:PingPong"),
        "steps.vector_steps:VectorSteps",
        *("steps.copy_steps:CopySteps", "steps.prefetch_steps:PrefetchSteps", "steps.stage_steps:StageSteps"),
        "registers.share_windows:ShareWindows",
        *_passes(_MA_TILE, "registers.contract_sums:ContractSums", whole=True),
        "registers.sink_windows:SinkWindows",
        "finalise.fold_selects:FoldSelects",
        "finalise.sink_indices:SinkIndices",
        "finalise.dead_fragments:DeadFragments",
        "finalise.allocate_shared:AllocateShared",
        "finalise.synchronize:Synchronize",
        "copies.tma_loads:TmaLoads",
        "copies.await_copies:AwaitCopies",
        *_passes(_MA_TILE, "grid.combine_in_block:CombineInBlock", whole=True),
        *_passes(_MA_TILE, "grid.combine_in_cluster:CombineInCluster", whole=True),
        *_passes(_MA_TILE, "grid.dependent_launch:DependentLaunch", whole=True),
        "grid.pack_blocks:PackBlocks",
        "finalise.elide_waits:ElideWaits",
        "finalise.initialise_mbarriers:InitialiseMbarriers",
        "finalise.repeat_waits:RepeatWaits",
        "finalise.split_positions:SplitPositions",
        "finalise.limit_unrolling:LimitUnrolling",
        "copies.pair_fragments:PairFragments",
        "finalise.request_registers:RequestRegisters",
        *_passes(_MA_TILE, "finalise.approximate:Approximate", whole=True),
    ),
    verify="nautilus.ma_tile.verify.module:verify",
    format="nautilus.ma_tile.text:format",
    parse="nautilus.ma_tile.text:parse",
    plain_is_final=True,
    by_kernel=True,
)
CUDA = Stage(
    "cuda",
    ".cu",
    lower="nautilus.cuda.module:lower",
    format="nautilus.cuda.module:format",
    header="nautilus.passes.header:later",
)

STAGES: tuple[Stage, ...] = (SPEC, SCALAR, VR_TILE, MA_TILE, CUDA)
STAGE_NAMES: tuple[str, ...] = tuple(s.name for s in STAGES)


def stage(name: str) -> Stage:
    """The stage called ``name``. Raises KeyError."""
    for s in STAGES:
        if s.name == name:
            return s
    raise KeyError(name)


def listing() -> str:
    """The stages and their passes in order, one stage a line."""
    lines = []
    for s in STAGES:
        names = ", ".join(p.name for p in s.passes)
        lines.append(f"{s.name} ({s.suffix})" + (f": {names}" if names else ""))
    return "\n".join(lines) + "\n"


def listing_data() -> list[dict[str, Any]]:
    """The stages and their passes in order as data for JSON."""
    return [
        {
            "stage": s.name,
            "suffix": s.suffix,
            "passes": [{"name": p.name, "class": p.target, "options": dict(p.options)} for p in s.passes],
        }
        for s in STAGES
    ]

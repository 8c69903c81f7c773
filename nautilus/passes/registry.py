"""Names to code, imported late: a pass or a lowering costs nothing until it runs.

A *target* is the text ``"package.module:attribute"``.  :func:`bind` fills the options of a pass (a
frozen dataclass) or the further arguments of a function by name: from explicit options first, then
from the fields of the :class:`~nautilus.passes.manager.Context`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from nautilus.core.errors import InternalError

#: pass name -> target.  Names are unique over all levels; a class takes its options as fields.
PASSES: Mapping[str, str] = {
    # Scalar IR
    "simplify": "nautilus.scalar.passes.simplify:Simplify",
    "inline": "nautilus.scalar.passes.inline:Inline",
    "factor": "nautilus.scalar.passes.factor:Factor",
    "narrow": "nautilus.scalar.passes.narrow:Narrow",
    "dead": "nautilus.scalar.passes.dead:Dead",
    "pack": "nautilus.scalar.passes.pack:Pack",
    "split-k-update": "nautilus.scalar.passes.split_k_update:SplitKUpdate",
    "fuse": "nautilus.scalar.passes.fuse:Fuse",
    "split": "nautilus.scalar.passes.split:Split",
    "reorder": "nautilus.scalar.passes.reorder:Reorder",
    "rolling-update": "nautilus.scalar.passes.rolling_update:RollingUpdate",
    "partition": "nautilus.scalar.passes.partition:Partition",
    # VR-tile IR
    "contract": "nautilus.vr_tile.passes.contract:Contract",
    "hardware-math": "nautilus.vr_tile.passes.hardware_math:HardwareMath",
    "sink-masks": "nautilus.vr_tile.passes.sink_masks:SinkMasks",
    "simplify-masks": "nautilus.vr_tile.passes.simplify_masks:SimplifyMasks",
    "div-to-rcp": "nautilus.vr_tile.passes.div_to_rcp:DivToRcp",
    "exp-to-exp2": "nautilus.vr_tile.passes.exp_to_exp2:ExpToExp2",
    "fold-scale": "nautilus.vr_tile.passes.fold_scale:FoldScale",
    "cse": "nautilus.vr_tile.passes.cse:Cse",
    "hoist": "nautilus.vr_tile.passes.hoist:Hoist",
    "lazy-rescale": "nautilus.vr_tile.passes.lazy_rescale:LazyRescale",
    "dce": "nautilus.vr_tile.passes.dce:Dce",
    # MA-tile IR
    "defer-reductions": "nautilus.ma_tile.passes.epilogue.defer_reductions:DeferReductions",
    "pipeline-copies": "nautilus.ma_tile.passes.copies.pipeline_copies:PipelineCopies",
    "double-buffer-fragments": "nautilus.ma_tile.passes.copies.double_buffer_fragments:DoubleBufferFragments",
    "prefetch-fragments": "nautilus.ma_tile.passes.copies.prefetch_fragments:PrefetchFragments",
    "dead-fragments": "nautilus.ma_tile.passes.finalise.dead_fragments:DeadFragments",
    "allocate-shared": "nautilus.ma_tile.passes.finalise.allocate_shared:AllocateShared",
    "register-operands": "nautilus.ma_tile.passes.mma.register_operands:RegisterOperands",
    "pipeline-mma": "nautilus.ma_tile.passes.mma.pipeline_mma:PipelineMma",
    "async-mma": "nautilus.ma_tile.passes.mma.async_mma:AsyncMma",
    "sink-indices": "nautilus.ma_tile.passes.finalise.sink_indices:SinkIndices",
    "specialise-warps": "nautilus.ma_tile.passes.copies.specialise_warps:SpecialiseWarps",
    "chunk-epilogue": "nautilus.ma_tile.passes.epilogue.chunk_epilogue:ChunkEpilogue",
    "tma-stores": "nautilus.ma_tile.passes.epilogue.tma_stores:TmaStores",
    "zero-accumulators": "nautilus.ma_tile.passes.mma.zero_accumulators:ZeroAccumulators",
    "multicast-loads": "nautilus.ma_tile.passes.copies.multicast_loads:MulticastLoads",
    "persistent-grid": "nautilus.ma_tile.passes.grid.persistent_grid:PersistentGrid",
    "ping-pong": "nautilus.ma_tile.passes.mma.ping_pong:PingPong",
    "await-copies": "nautilus.ma_tile.passes.copies.await_copies:AwaitCopies",
    "tma-loads": "nautilus.ma_tile.passes.copies.tma_loads:TmaLoads",
    "dependent-launch": "nautilus.ma_tile.passes.grid.dependent_launch:DependentLaunch",
    "combine-in-block": "nautilus.ma_tile.passes.grid.combine_in_block:CombineInBlock",
    "combine-in-cluster": "nautilus.ma_tile.passes.grid.combine_in_cluster:CombineInCluster",
    "synchronize": "nautilus.ma_tile.passes.finalise.synchronize:Synchronize",
}


@cache
def load(target: str) -> Any:
    """The attribute that ``target`` names. Raises InternalError where it does not exist."""
    module, _, attribute = target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InternalError(f"cannot load {target}: {error}") from error


def bind(target: Any, context: object, options: Mapping[str, Any], skip: int = 0) -> dict[str, Any]:
    """Keyword arguments for ``target`` (the first ``skip`` parameters are the caller's).

    Raises InternalError for a required parameter that nobody gives, or an option it does not have.
    """
    parameters = list(inspect.signature(target).parameters.values())[skip:]
    names = {p.name for p in parameters}
    if unknown := sorted(set(options) - names):
        raise InternalError(f"{target!r} has no option {', '.join(unknown)}")
    found: dict[str, Any] = {}
    for p in parameters:
        if p.name in options:
            found[p.name] = options[p.name]
        elif getattr(context, p.name, None) is not None:
            found[p.name] = getattr(context, p.name)
        elif p.default is not inspect.Parameter.empty or p.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        elif hasattr(context, p.name):
            found[p.name] = None
        else:
            raise InternalError(f"{target!r} needs {p.name!r}, which the context does not have")
    return found

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
    "contract": "nautilus.tile.passes.contract:Contract",
    "hardware-math": "nautilus.tile.passes.hardware_math:HardwareMath",
    "sink-masks": "nautilus.tile.passes.sink_masks:SinkMasks",
    "simplify-masks": "nautilus.tile.passes.simplify_masks:SimplifyMasks",
    "div-to-rcp": "nautilus.tile.passes.div_to_rcp:DivToRcp",
    "exp-to-exp2": "nautilus.tile.passes.exp_to_exp2:ExpToExp2",
    "fold-scale": "nautilus.tile.passes.fold_scale:FoldScale",
    "cse": "nautilus.tile.passes.cse:Cse",
    "hoist": "nautilus.tile.passes.hoist:Hoist",
    "stale-reference": "nautilus.tile.passes.stale_reference:StaleReference",
    "dce": "nautilus.tile.passes.dce:Dce",
    # MA-tile IR
    "defer-reductions": "nautilus.memory.passes.defer_reductions:DeferReductions",
    "pipeline-copies": "nautilus.memory.passes.pipeline_copies:PipelineCopies",
    "carry-fragments": "nautilus.memory.passes.carry_fragments:CarryFragments",
    "fragment-ahead": "nautilus.memory.passes.fragment_ahead:FragmentAhead",
    "clean-memory": "nautilus.memory.passes.clean_memory:CleanMemory",
    "allocate-shared": "nautilus.memory.passes.allocate_shared:AllocateShared",
    "hold-operands": "nautilus.memory.passes.hold_operands:HoldOperands",
    "pipeline-products": "nautilus.memory.passes.pipeline_products:PipelineProducts",
    "order-products": "nautilus.memory.passes.order_products:OrderProducts",
    "sink-indices": "nautilus.memory.passes.sink_indices:SinkIndices",
    "specialise-warps": "nautilus.memory.passes.specialise_warps:SpecialiseWarps",
    "chunk-epilogue": "nautilus.memory.passes.chunk_epilogue:ChunkEpilogue",
    "bulk-stores": "nautilus.memory.passes.bulk_stores:BulkStores",
    "fresh-accumulators": "nautilus.memory.passes.fresh_accumulators:FreshAccumulators",
    "cluster-loads": "nautilus.memory.passes.cluster_loads:ClusterLoads",
    "persistent-grid": "nautilus.memory.passes.persistent_grid:PersistentGrid",
    "ping-pong": "nautilus.memory.passes.ping_pong:PingPong",
    "await-copies": "nautilus.memory.passes.await_copies:AwaitCopies",
    "bulk-rings": "nautilus.memory.passes.bulk_rings:BulkRings",
    "early-launch": "nautilus.memory.passes.early_launch:EarlyLaunch",
    "join-blocks": "nautilus.memory.passes.join_blocks:JoinBlocks",
    "join-clusters": "nautilus.memory.passes.join_clusters:JoinClusters",
    "synchronize": "nautilus.memory.passes.synchronize:Synchronize",
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

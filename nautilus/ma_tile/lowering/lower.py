"""VR-tile IR to MA-tile IR, by the engine that the schedule names.

* ``warp`` (:mod:`nautilus.ma_tile.lowering.warp`): all warps run the same code, MMAs are those of
  single warps, tiles come by cp.async.
* ``warpgroup`` (:mod:`nautilus.ma_tile.lowering.warpgroup`): consumers of four warps, warpgroup MMAs, TMA
  copies; for targets that have them.

The ops come out in dependence order without waits or barriers; :func:`lower_module` then allocates
shared memory and synchronises (``allocate-shared``, ``synchronize``), so its result
runs as it is, one stage deep, with nothing overlapped.

Raises ``core.errors.ScheduleError`` where the engine cannot do the kernel.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from math import gcd, prod

from nautilus.core.buffers import Buffer
from nautilus.core.errors import ScheduleError, each_or_failures
from nautilus.core.index.sizes import at_most
from nautilus.core.schedule import MappingPlan, Schedule, WarpPlan, mapping_of
from nautilus.core.tiles import ceil_pow2, floor_pow2
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from nautilus.ma_tile.lowering.warp import lower_warp_kernel
from nautilus.ma_tile.rewriting.bound_reads import with_lets
from nautilus.ma_tile.rewriting.clamped_scalars import with_clamped_scalars
from nautilus.ma_tile.rewriting.named_barriers import with_arrivals
from nautilus.targets.limits import BLOCK_REGISTERS, WARP, Limits, limits
from nautilus.vr_tile.ir import DotOp, LoadOp, ReduceOp, TileKernel, TileModule, operands, results, walk_ops

ELEMENTS = 16  # elements of the largest tile for each thread, in a kernel without a plan
_MORE_WARPS = 4
_SPREAD = 16  # warps of a block of a cluster, with 128 registers a thread
_HELD = 72  # of these registers for terms
STAGED = 3  # quarters of the shared memory of a block that stages of loads and stores may have


def lower_raw(module: TileModule, schedule: Schedule | None, target: str, strict: bool = False) -> MemModule:
    """Lower without waits, barriers and shared-memory offsets, which passes place; ``strict``: :func:`lower_kernel`."""
    buffers = {b.name: b for b in module.buffers}

    def lowered(k: TileKernel) -> MemKernel:
        return lower_kernel(k, buffers, mapping_of(schedule, k.name) or unplanned(k), target, strict)

    kernels = each_or_failures(lowered, module.kernels)
    return with_arrivals(MemModule(module.name, target, module.buffers, module.params, kernels, module.facts))


def lower_module(module: TileModule, schedule: Schedule | None, target: str, strict: bool = False) -> MemModule:
    """VR-tile to MA-tile, correct and synchronous. Raises ScheduleError when shared memory does not suffice."""
    from nautilus.ma_tile.passes.finalise.allocate_shared import AllocateShared
    from nautilus.ma_tile.passes.finalise.synchronize import Synchronize

    return Synchronize().apply(AllocateShared().apply(lower_raw(module, schedule, target, strict)))


def lower(module: TileModule, schedule: Schedule | None, arch: str, strict: bool = False) -> MemModule:
    """:func:`lower_module` under the names that the pass manager binds."""
    return lower_module(module, schedule, arch, strict)


def unplanned(kernel: TileKernel) -> WarpPlan:
    """The plan of a kernel that the schedule leaves out: as many warps as its largest tile has work for.

    A block that is spread has as many as hold the terms of its reductions, :data:`_HELD` in each thread, and share
    their results.
    """
    plan = WarpPlan()
    least, most = plan.warps[0], plan.warps[0] * _MORE_WARPS
    if kernel.spread > 1:
        found = [op for op in walk_ops(kernel.body) if isinstance(op, ReduceOp)]
        held = sum(prod(op.arg.type.shape) for op in found) // (32 * _HELD * kernel.spread)
        shared = (prod(op.result.type.shape) for op in found if op.result.type.shape)
        return replace(plan, warps=(gcd(kernel.spread * min(_SPREAD, max(least, ceil_pow2(held))), *shared), 1))
    if (slices := _slices(kernel)) > 1:
        return replace(plan, warps=(slices, 1), epilogue="direct")
    wanted = _largest(kernel) // (32 * ELEMENTS)
    return replace(plan, warps=(min(most, max(least, floor_pow2(wanted))), 1))


def _slices(kernel: TileKernel) -> int:
    """The size of the axis that both operands of a product and its result have; 1 where no product has one."""
    sizes = {a.name: a.size for a in kernel.axes}
    found = (op for op in walk_ops(kernel.body) if isinstance(op, DotOp) and op.b.type.axes)
    shared = (x for op in found for x in op.result.type.names if x in op.a.type.names and x in op.b.type.names)
    return next((sizes[x] for x in shared), 1)


def _largest(kernel: TileKernel, without: Container[str] = ()) -> int:
    """The elements of the largest tile of a value that is not in ``without``."""
    values = (v for op in walk_ops(kernel.body) for v in results(op) if v.name not in without)
    return max((prod(v.type.shape) for v in values), default=1)


def _operands(kernel: TileKernel) -> frozenset[str]:
    """Loads that only dots read: copies stage them in shared memory, and registers hold a part at a time."""
    ops = list(walk_ops(kernel.body))
    elsewhere = {v.name for op in ops if not isinstance(op, DotOp) for v in operands(op)}
    return frozenset(op.result.name for op in ops if isinstance(op, LoadOp)) - elsewhere


def _check_tiles(kernel: TileKernel, mapping: MappingPlan, target: Limits) -> None:
    """Raise ScheduleError for a tile of more elements than registers hold; beside a dot, those of its warps.

    Multiply-adds go through a tile that no registers hold, but a sum of so many terms has a kernel of its own.  Warps
    that divide a reduction have parts of a tile, so that tiles of up to :data:`BLOCK_REGISTERS` are not refused.
    """
    staged: Container[str] = ()
    most = target.threads_block * target.registers_thread * kernel.spread
    if isinstance(mapping, WarpPlan) and any(isinstance(op, DotOp) for op in walk_ops(kernel.body)):
        most = min(most, max(BLOCK_REGISTERS, WARP * prod(mapping.warps) * target.registers_thread))
        staged = _operands(kernel)
    largest = _largest(kernel, staged)
    if largest > most:
        reason = f"a tile of {largest} elements; the registers of a block have room for {most}"
        raise ScheduleError(reason, kernel=kernel.name, excess=largest / most)


def lower_kernel(
    kernel: TileKernel, buffers: dict[str, Buffer], mapping: MappingPlan, target: str, strict: bool = False
) -> MemKernel:
    """One kernel by its engine. ``strict``: sums keep all bits of f32, which those of MMAs of 8-bit floats do not.

    Raises ScheduleError for a tile with more elements than a block has registers, before any work on its layout.
    """
    has = limits(target)
    _check_tiles(kernel, mapping, has)
    grid = {g.var: (0, max(at_most(g.extent) - 1, 0)) for g in kernel.grid}
    room = has.smem_block * STAGED // 4 if kernel.spread == 1 else 0
    if mapping.engine == "warpgroup":
        from nautilus.ma_tile.lowering.warpgroup import lower_warpgroup_kernel  # most targets have no such MMAs

        lowered = lower_warpgroup_kernel(kernel, buffers, mapping, target, strict)
    else:
        lowered = lower_warp_kernel(kernel, buffers, mapping, has.float8 and not strict, room)
    return with_lets(with_clamped_scalars(lowered, grid), buffers, grid)

"""The cost model: estimates the seconds of an MA-tile module from its work, the machine's rates and its scheduling.

The model combines for each kernel the cycles of one tile on a multiprocessor (``_tile_cycles``), the distribution of
tiles over resident blocks (``_makespan``), the clock frequency under the load, the memory traffic with L2 reuse
between waves, and the sectors that L1 loads from L2 (``cost.traffic``).  Asynchronous MMA and elementwise work that
overlap take the longer time plus a part of the shorter one; dependent work takes the sum.  In kernels of plain loads
without MMAs, blocks queue for the multiprocessor and for the memory, and wait as :mod:`.latency` says.  A time is that
of one launch on a cool GPU.

The constants are fitted to measurements on an H200: back-to-back GEMMs at D = 64, 128 and 256 in about 40 schedules,
GEMMs in 25 tiles x 5 shapes, row-wise kernels, reads at the memory rate, decoding with split-K warps, and the kernels
of 340 specs of all kinds.  The purpose is ranking: times are within a factor of 1.5 on most of these kernels, and
measurement decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from heapq import heapreplace
from typing import Any

import numpy as np

from nautilus.core.records import dataclass
from nautilus.cost.estimates import estimated
from nautilus.cost.latency import REGISTER, loads_ahead
from nautilus.cost.registers import estimate_registers
from nautilus.cost.traffic import KEPT, Traffic, traffic
from nautilus.cost.work import MOST_TILES, Counts, Numbers, Work, count
from nautilus.ma_tile.ir.dependent_launch import GridWait
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from nautilus.targets.limits import Limits, limits
from nautilus.targets.rates import Machine, machine

UNDER = 0.3  # exposed share of the shorter of MMA and overlapping elementwise work, for one consumer warpgroup
ORDERED = 0.45  # exposed share of elementwise work outside async MMA, for ping-pong consumer warpgroups
LOCKSTEP = 0.75  # ORDERED for consumer warpgroups without ping-pong, which mostly run the same phase
PART = 2.5  # cycles of a sector of memory of which an instruction stores a part
COUPLED = 0.02  # share of a cluster's time in which its blocks wait for each other
INDEPENDENT = 0.06  # exposed share of the shorter of work and traffic, for warps that do not wait for each other
MOST_AHEAD = 32  # registers for loads ahead that have a price
MIXED = 0.3  # exposed share of the shorter of special-function and other instructions, which share issue slots
LOOKUP = 1.1  # cycles in which L1 finds a line of a load
DEPENDENT = 0.3  # cycles that an instruction of a lone warp waits for earlier ones
SHARP = 6.0  # exponent of the overlap of work and copies: of two equal times, seven eighths of one are hidden
_FEW = 20_000  # number of tiles up to which the list schedule is simulated instead of bounded


@dataclass(frozen=True, slots=True)
class KernelEstimate:
    """The estimate of one kernel.  ``parts``: seconds of each resource if it were alone; their sum has no meaning."""

    name: str
    seconds: float
    parts: Mapping[str, float]
    flops: float
    dram_bytes: float
    l2_bytes: float
    tiles: int
    blocks: int
    resident: int  # blocks a multiprocessor
    waves: float
    registers: int
    smem: int
    clock: float

    @property
    def bound(self) -> str:
        """The resource with the longest time."""
        return max(self.parts, key=lambda p: self.parts[p])


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of a module: seconds of all kernels, bytes to and from memory, floating-point operations of MMAs."""

    seconds: float
    bytes: float
    flops: float
    kernels: tuple[KernelEstimate, ...] = field(default=())

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of each resource, summed over all kernels."""
        out: dict[str, float] = {}
        for k in self.kernels:
            for name, seconds in k.parts.items():
                out[name] = out.get(name, 0.0) + seconds
        return out


def estimate(ma_module: MemModule, arch: str, registers: Sequence[int] = (), most: int = MOST_TILES) -> Estimate:
    """The estimate of ``ma_module`` on ``arch``; ``registers``: of its kernels, where they were estimated before.

    ``most``: tiles of a kernel that are evaluated one by one.
    """
    m, target = machine(arch), limits(arch)
    found = registers or [estimate_registers(k, target) for k in ma_module.kernels]
    kernels = (_kernel(ma_module, k, n, m, target, most) for k, n in zip(ma_module.kernels, found, strict=True))
    return together(kernels, arch)


def together(kernels: Iterable[KernelEstimate], arch: str) -> Estimate:
    """The estimate of a module on ``arch`` whose kernels take what ``kernels`` say."""
    found = tuple(kernels)
    seconds = machine(arch).first + sum(k.seconds for k in found)
    return Estimate(seconds, sum(k.dram_bytes for k in found), sum(k.flops for k in found), found)


def _kernel(
    module: MemModule, kernel: MemKernel, registers: int, m: Machine, target: Limits, most: int
) -> KernelEstimate:
    work, apart = count(module, kernel, most), kernel.spread
    resident = occupancy(kernel, registers, target) * kernel.packed
    persistent = work.order != "none"
    blocks = _blocks(work, kernel, m) if persistent else work.tiles
    slots, size = min(m.multiprocessors * resident, max(1, blocks * apart)), max(kernel.cluster, apart)
    if size > 1 and (whole := target.clusters(size, resident)):
        slots = min(slots, whole * size)
    active_blocks = min(resident, -(-slots // m.multiprocessors))
    moved = traffic(module, work, slots, m, target.smem_sm - float(kernel.smem_bytes) * active_blocks)
    memory = _memory_seconds(moved, work, slots, m)
    memory *= 1.0 + float(np.mean(work.consumer.row_overhead)) * work.tiles * work.consumers / max(1.0, moved.dram)
    waited = max(memory, moved.sectors / m.l2_sectors)
    latency = _latency(moved, work, m)
    span = _makespan(_tile_cycles(work, m, active_blocks, persistent, latency), work, slots // apart, active_blocks)
    flops = float(np.mean(work.consumer.flops)) * work.tiles * (1 if work.separate_tiles else work.consumers)
    shared = work.cluster if np.any(work.consumer.lane_reductions) else 1  # without them L2 merges equal loads
    clock, on_chip = _clock(span, flops, moved.l2 / shared, m)
    blocks = -(-blocks // kernel.packed)
    start = 0.0 if persistent else blocks / m.block_starts
    if flops and memory > on_chip:  # blocks that wait for the memory are not in step
        memory *= 1.0 + moved.apart / max(1.0, moved.dram)
        waited = max(waited, memory)
    serial = float(np.mean(work.consumer.meets)) * work.tiles / (m.line_atomics * m.clock)
    held = 1.0 - REGISTER * min(loads_ahead(kernel), MOST_AHEAD)
    if work.plain:  # its blocks queue for what they read as they do for the multiprocessor; no one waits for stores
        read = 1.0 - moved.written / max(1.0, moved.dram)
        full = max(_bandwidth_seconds(moved, slots, m), moved.sectors / m.l2_sectors)
        share = read * full * m.clock * min(m.multiprocessors, slots) / work.tiles
        cycles = _tile_cycles(work, m, active_blocks, persistent, latency, share)
        alone = _tile_cycles(work, m, 1, persistent, latency, share)
        together = _makespan(cycles, work, slots // apart, active_blocks, float(alone[0])) / m.clock
        together = max(waited, together) + INDEPENDENT * min(waited, on_chip)
    else:
        together = _overlapped(on_chip, waited, work, active_blocks)
    launch = m.dependent_launch if any(isinstance(op, GridWait) for op in kernel.body) else m.launch
    launch += m.producer_start if work.specialised else 0.0
    total = (max(together, start, serial) + launch) / held
    parts = _parts(work, m, clock, moved, memory, on_chip) | {"atomics": serial, "launch": launch + start}
    return KernelEstimate(
        kernel.name, total, parts, flops, moved.dram, moved.l2, work.tiles, blocks, resident // kernel.packed,
        work.tiles * apart / max(1, slots), registers, kernel.smem_bytes, clock,
    )  # fmt: skip


def _overlapped(on_chip: float, memory: float, work: Work, active_blocks: int) -> float:
    """Seconds of on-chip work and traffic, which overlap through pipelines or other active blocks."""
    ahead = bool(work.pipelines) and min(s for s, _ in work.pipelines.values()) > 1
    serial = 0.1 if work.specialised else 1.0 / (active_blocks * work.consumers if work.combines else active_blocks)
    most = INDEPENDENT if work.combines else 0.12
    shorter, longer = sorted((on_chip, memory))
    return longer + (min(serial, most) if ahead else serial) * shorter


def _blocks(work: Work, kernel: MemKernel, m: Machine) -> int:
    return max(1, min(work.tiles, int(estimated(kernel.blocks, {})), m.multiprocessors * kernel.min_blocks))


def occupancy(kernel: MemKernel, registers: int, target: Limits) -> int:
    """Resident blocks of a multiprocessor (CUDA C++ Programming Guide, "Occupancy"); at least one."""
    threads = kernel.threads
    by_smem = target.smem_sm // (kernel.smem_bytes + 1024)
    by_registers = target.registers_sm // max(1, registers * threads)
    return max(1, min(by_smem, by_registers, target.threads_sm // threads, 32))


# -- one tile ---------------------------------------------------------------------------------------


def instruction_cycles(issue: Any, integer: Any, m: Machine) -> Any:
    """Cycles of warp instructions on four schedulers; the integer unit of each executes ``integer`` of them."""
    return np.maximum(np.asarray(issue) * 32.0 / m.fma, np.asarray(integer) * 32.0 / m.integer)


def _mixed(special: Any, issue: Any, integer: Any, m: Machine) -> Any:
    """Cycles of elementwise work: special-function results and warp instructions."""
    a, b = np.asarray(special) / m.special, instruction_cycles(issue, integer, m)
    return np.maximum(a, b) + MIXED * np.minimum(a, b)


def _tile_cycles(
    work: Work, m: Machine, active_blocks: int, persistent: bool, latency: float, memory: float = 0.0
) -> Numbers:  # fmt: skip
    """Cycles of each tile for a block that is alone on its multiprocessor; the makespan accounts for sharing.

    ``latency``: of plain loads; ``memory``: cycles for which the block has its multiprocessor's share of the memory.
    """
    c, consumers = work.consumer, (1 if work.separate_tiles else work.consumers)
    mma = consumers * (c.wgmma * 4096.0 / m.tensor_half)
    slow = consumers * (c.warp_mma * 4096.0 / (m.tensor_half * m.warp_mma))
    under = consumers * _mixed(c.special_under, c.issue_under, c.integer_under, m)
    alone = consumers * (_mixed(c.special, c.issue, c.integer, m) + c.sectors * PART)
    finds = consumers * LOOKUP * np.asarray(c.finds)
    shared = consumers * np.asarray(c.shared) / m.shared
    slow = np.maximum(slow, shared) + MIXED * np.minimum(slow, shared)
    idle = max(1.0, 4.0 / (work.warps * consumers * active_blocks))  # a scheduler without a warp is idle
    slow, alone = slow * idle, alone * idle
    drains = (m.mma_drain + 36.0) * np.asarray(c.drains)
    copies = np.maximum(np.asarray(c.lines) * m.tma_row, np.asarray(c.read) / m.tma) if np.any(c.lines) else np.zeros(1)
    if work.separate_tiles:
        return _ping_pong_cycles(mma, under, _with_copies(alone, finds), drains, copies, work, m)
    factor = ORDERED if work.ordered else LOCKSTEP if consumers > 1 and not work.combines else 1.0
    inside = _with_async_mma(mma, under, consumers, work.ordered)
    ordered = m.barrier * np.asarray(c.drains) if work.ordered else 0.0
    dependent = ordered + (0.0 if work.plain else m.lane_reduction * np.asarray(c.lane_reductions))
    # warps of several active blocks fill each other's stalls
    others = _with_copies(_with_other_warps(slow, factor * alone, work, active_blocks), finds)
    barriers = np.asarray(c.barriers) * m.barrier * (2.0 if not work.specialised else 1.0)
    waits = np.asarray(c.waits) * (0.0 if work.specialised else _fetch(work, m))
    barriers = barriers + np.asarray(c.cluster_syncs) * m.cluster_sync
    fixed = 200.0 if persistent else m.block_start if work.plain else m.block_overhead
    others = _with_stalls(others, np.asarray(c.stalls) * m.load_latency, work, active_blocks)
    delays = drains / consumers + dependent + barriers + waits + fixed
    if np.any(c.flops):  # operands that come from shared memory leave multiprocessors idle as well
        cycles = inside + others + delays / active_blocks
    else:
        delays = delays + (_plain_delays(work, latency, m) if work.plain else 0.0)
        cycles = _with_other_blocks(others, delays, active_blocks, memory)
        cycles = np.maximum(cycles, np.asarray(c.chain) / active_blocks)
    if work.cluster > 1 and not np.any(c.lane_reductions):
        cycles = cycles * (1.0 + COUPLED)
    return _as_array(_with_copies(np.maximum(cycles, _pipeline_cycles(work, cycles, m)), copies), work)


def _with_async_mma(mma: Any, under: Any, consumers: int, ordered: bool) -> Any:
    """Cycles of async MMA and the elementwise work that overlaps it; more consumers leave fewer stalls."""
    longer, shorter = np.maximum(mma, under), np.minimum(mma, under)
    gaps = 0.4 + 3.0 * (shorter / np.maximum(longer, 1.0)) ** 3
    return longer + np.minimum(1.0, (0.9 if ordered else 1.0) * 2.0 * UNDER / consumers**2 * gaps) * shorter


def _with_copies(cycles: Any, copies: Any) -> Any:
    """Cycles of work and of copies or L1 beside it: the longer time, and up to an eighth more where both are equal."""
    found: Any = (np.asarray(cycles) ** SHARP + np.asarray(copies) ** SHARP) ** (1.0 / SHARP)
    return found


def _with_other_warps(slow: Any, alone: Any, work: Work, active_blocks: int) -> Any:
    """Cycles of warp-level MMA and elementwise work; more warps a scheduler overlap more of the two."""
    streams = max(1.0, active_blocks * work.warps * work.consumers / 4.0)
    longer, shorter = np.maximum(slow, alone), np.minimum(slow, alone)
    return longer + shorter / min(4.0, streams)


def _plain_delays(work: Work, latency: float, m: Machine) -> Any:
    """Cycles in which the warps of a block of plain loads wait; what a block stores itself is in L1."""
    loads = np.asarray(work.waits.loads) * latency + np.asarray(work.waits.reloads) * m.l1_latency
    return loads + np.asarray(work.waits.serial) + DEPENDENT * np.asarray(work.consumer.issue) / work.warps


def _with_other_blocks(work: Any, waits: Any, active_blocks: int, memory: float = 0.0) -> Any:
    """Cycles a block of its ``work``, of its ``memory`` traffic, and of its ``waits``, in which others go on.

    The active blocks queue for one multiprocessor, and for its share of the memory: mean value analysis of a closed
    network with two queues.
    """
    shape = np.broadcast_shapes(np.shape(work), np.shape(waits))
    work, waits = _alike(work), _alike(waits)
    working, loading, each = np.asarray(0.0), np.asarray(0.0), np.asarray(work)
    for n in range(1, active_blocks + 1):
        answer, loaded = work * (1.0 + working), memory * (1.0 + loading)
        each = (answer + loaded + waits) / n
        working, loading = answer / np.maximum(each, 1.0), loaded / np.maximum(each, 1.0)
    return np.broadcast_to(each, shape)


def _alike(cycles: Any) -> Any:
    """The only number in ``cycles``, or all of them where they differ."""
    found = np.asarray(cycles)
    return found.flat[0] if found.size > 1 and np.ptp(found) == 0 else found


def _with_stalls(work: Any, stalls: Any, kernel: Work, active_blocks: int) -> Any:
    """Cycles a tile of its ``work`` and of its ``stalls``, loads that an iteration awaits.

    Other warps of the same scheduler work in the meantime: those of other active blocks, since the warps of a block
    meet at barriers, and those of a split-K block, which do not.
    """
    if not np.any(stalls):
        return work
    alone = kernel.consumers if kernel.combines else 1  # parts of a block that do not wait for each other
    schedulers = min(4.0, kernel.warps if kernel.combines else kernel.warps * kernel.consumers)  # that a part runs on
    each = np.asarray(work) * 4.0 / (alone * schedulers)
    streams = max(1, round(active_blocks * alone * schedulers / 4.0))
    return _with_other_blocks(each, stalls, streams) * alone * schedulers / 4.0


def _ping_pong_cycles(
    wgmma: Any, under: Any, alone: Any, drains: Any, copies: Any, work: Work, m: Machine
) -> Numbers:  # fmt: skip
    """Cycles a tile where consumer warpgroups work on separate tiles (CUTLASS: pingpong).

    The MMA of one warpgroup overlaps the epilogue of another.  There is no overlap in loops in which MMAs depend on
    elementwise work, because the warpgroups then drift into the same phase.
    """
    inside = np.maximum(wgmma, under) + UNDER * np.minimum(wgmma, under) + drains
    whole = inside + alone + 200.0
    cycles = np.maximum(inside + 0.1 * alone, whole / work.consumers)
    if np.any(work.consumer.lane_reductions):
        cycles = wgmma + under + alone + drains + 200.0
    return _as_array(_with_copies(np.maximum(cycles, _pipeline_cycles(work, cycles, m)), copies), work)


def _fetch(work: Work, m: Machine) -> float:
    """Cycles that an iteration waits for copies which its own block issues; a single stage hides no latency."""
    stages = min((s for s, _ in work.pipelines.values()), default=1)
    transfer = float(np.mean(work.consumer.read)) / max(1.0, float(np.mean(work.consumer.waits))) / m.l2
    return (m.load_latency + transfer) if stages < 2 else 60.0 if stages == 2 else 30.0


def _pipeline_cycles(work: Work, cycles: Any, m: Machine) -> Any:
    """Cycles under the latency limit of the pipeline: a stage is loaded again only after its release.

    A stage that is released late stays occupied for one more iteration.
    """
    if not work.specialised or not work.pipelines:
        return cycles
    iterations = np.maximum(1.0, _iterations(work))
    each = cycles / iterations
    slowest = np.asarray(0.0)
    for stages, late in work.pipelines.values():
        held = 2.0 * each if late else 0.5 * each
        slowest = np.maximum(slowest, (m.load_latency + held) / stages + (0.25 * m.load_latency if stages < 2 else 0))
    if min(s for s, _ in work.pipelines.values()) < 2:
        slowest = np.maximum(slowest, each + 0.25 * m.load_latency)
    return slowest * iterations


def _iterations(work: Work) -> Any:
    """The number of pipeline iterations of a tile, from the bytes that it reads."""
    return np.asarray(work.consumer.read) / max(1.0, work.stage_bytes)


def _as_array(cycles: Any, work: Work) -> Numbers:
    n = min(work.tiles, work.evaluated)
    return np.broadcast_to(np.asarray(cycles, np.float64), (n,)) if np.ndim(cycles) < 2 else np.ravel(cycles)[:n]


# -- all tiles ---------------------------------------------------------------------------------------


def _makespan(cycles: Numbers, work: Work, slots: int, active_blocks: int, alone: float | None = None) -> float:
    """Cycles until the last slot finishes; active blocks of one multiprocessor share its execution units.

    ``alone``: those of a block without others, if the blocks of the last wave are faster when fewer are active.
    """
    scale = work.tiles / len(cycles)
    share = active_blocks
    if np.ptp(cycles) == 0:
        rounds = float(-(-work.tiles // slots))
        if work.order == "none" and active_blocks > 1:  # blocks end at different times, so the last wave is partial
            last = 0.5 * (work.tiles % slots != 0)
            if alone is not None:
                return float(cycles[0]) * max(1.0, work.tiles / slots) * share + last * alone
            rounds = max(1.0, work.tiles / slots + last)
        return float(cycles[0]) * rounds * share
    if work.order in ("static", "snake"):
        total = np.zeros(slots)
        for n in range(0, len(cycles), slots):
            row = cycles[n : n + slots]
            at = (
                slice(None, len(row))
                if work.order == "static" or (n // slots) % 2 == 0
                else slice(slots - len(row), None)
            )
            total[at] += row if at.start is None else row[::-1]
        return float(total.max()) * scale * share
    if len(cycles) > _FEW:
        return (float(cycles.sum()) / slots + float(cycles.max()) / 2) * scale * share
    heap = [0.0] * slots
    for c in cycles:
        heapreplace(heap, heap[0] + float(c))
    return max(heap) * scale * share


def _clock(cycles: float, flops: float, l2_bytes: float, m: Machine) -> tuple[float, float]:
    """(clock in Hz, seconds): the clock falls with the MMA rate and the L2 traffic."""
    clock = m.clock
    if flops > 0 and cycles > 0:
        used = min(1.0, flops / (cycles * m.multiprocessors * m.tensor_half))
        clock = m.clock - used * (m.power_tensor + m.power_bytes * min(0.03, l2_bytes / flops))
    return clock, cycles / clock


def _memory_seconds(moved: Traffic, work: Work, slots: int, m: Machine) -> float:
    """Seconds of the memory traffic at the rate that the outstanding loads sustain (Little's law).

    The rate of a single multiprocessor needs outstanding loads in the same proportion as the rate of the memory.  It is
    higher where a producer issues TMA copies (H200: 32 blocks of 1.2 MB each load 132 GB/s).
    Loads that L2 serves arrive early, so that those of memory alone are outstanding.
    Stores do not wait for outstanding loads: where more is stored than loaded, only so much of it as is loaded does.
    """
    if moved.written and moved.written >= moved.dram:
        return moved.dram / min(m.dram, min(m.multiprocessors, slots) * m.load_rate)
    missed = min(1.0, (moved.dram - moved.written) / max(1.0, moved.l2)) if np.any(work.consumer.flops) else 1.0
    in_flight = slots * max(work.pipeline_bytes * missed, 1.0)  # of operands, L2 serves the rest
    full = _full_rate(moved, m)
    rate = full * (1.0 - float(np.exp(-in_flight / m.bytes_in_flight)))
    most = min(m.multiprocessors, slots) * (m.tma * m.clock if work.specialised else m.load_rate)
    rate = min(rate, most * (1.0 - float(np.exp(-in_flight * full / (m.bytes_in_flight * most)))))
    waiting = min(moved.dram, 2.0 * (moved.dram - moved.written))
    return max(waiting / max(rate, 1.0), moved.dram / min(full, most))


def _full_rate(moved: Traffic, m: Machine) -> float:
    """The bandwidth of the memory in bytes a second, which is higher where nearly all traffic is loads."""
    return m.dram_read if moved.written < 0.1 * moved.dram else m.dram


def _bandwidth_seconds(moved: Traffic, slots: int, m: Machine) -> float:
    """Seconds of the memory traffic at its full rate."""
    return moved.dram / min(_full_rate(moved, m), min(m.multiprocessors, slots) * m.load_rate)


def _latency(moved: Traffic, work: Work, m: Machine) -> float:
    """Cycles of a wait for plain loads: of several loads together, the one that is furthest away counts.

    L2 still has a small working set from before.
    """
    asked = (sum(work.moved.values()) + sum(work.gathered.values())) * work.tiles
    together = max(1.0, float(np.mean(work.waits.requests)) / max(1.0, float(np.mean(work.waits.loads))))
    beyond = min(1.0, together * moved.sectors / max(1.0, asked))
    absent = min(1.0, (moved.dram - moved.written) / max(1.0, moved.sectors))
    absent *= min(1.0, moved.dram / (KEPT * m.l2_bytes))
    return m.l1_latency + beyond * (m.l2_latency - m.l1_latency + absent * m.memory_latency)


def _parts(work: Work, m: Machine, clock: float, moved: Traffic, memory: float, on_chip: float) -> dict[str, float]:
    c, consumers = work.consumer, (1 if work.separate_tiles else work.consumers)
    each = work.tiles * consumers / m.multiprocessors / clock

    def seconds(cycles: Any) -> float:
        return float(np.mean(cycles)) * each

    return {
        "mma": seconds(c.wgmma * 4096.0 / m.tensor_half) + seconds(c.warp_mma * 4096.0 / (m.tensor_half * m.warp_mma)),
        "special": seconds((np.asarray(c.special) + c.special_under) / m.special),
        "issue": seconds(
            instruction_cycles(np.asarray(c.issue) + c.issue_under, np.asarray(c.integer) + c.integer_under, m)
        ),
        "shared": seconds(np.asarray(c.shared) / m.shared),
        "l1": seconds(LOOKUP * np.asarray(c.finds)),
        "l2": max(moved.l2 / (m.l2 * m.multiprocessors * clock), moved.sectors / m.l2_sectors),
        "dram": memory,
        "multiprocessors": on_chip,
    }


__all__ = ["Counts", "Estimate", "KernelEstimate", "estimate", "occupancy"]

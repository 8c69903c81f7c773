"""The cost model: seconds of an MA-tile module, from its work, the machine's rates, and how work is scheduled.

For each kernel: the cycles of one tile on a multiprocessor (``_tile_cycles``), the tiles dealt out to the blocks
that are resident (``_makespan``), the clock that the load leaves, and the traffic to memory with what the L2 cache
keeps between waves (``cost.traffic``).  Products and elementwise work that are in flight together take the longer
of the two and a part of the shorter; what waits for each other takes the sum.  A time is one launch on a cool card.

The measured truth it was fitted to: fused chains at D = 64, 128 and 256 in some 40 schedules, plain products in 25
tiles x 5 shapes, row-wise kernels, reads at the memory's rate, and decoding in joined units (H200).  It is for
ranking: expect the time to within a factor of 1.5 there, and check by measurement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapreplace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nautilus.core.schedule import Schedule
from nautilus.cost.registers import estimate_registers
from nautilus.cost.traffic import Traffic, traffic
from nautilus.cost.work import Counts, Work, count, estimated
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from nautilus.targets.limits import Limits, limits
from nautilus.targets.rates import Machine, machine
from nautilus.tune.search.stopping import place_of_best, spearman

Numbers = NDArray[np.float64]
UNDER = 0.3  # of the shorter of two kinds of work that overlap, for one unit alone: it does not fit in
TURNS = 0.45  # of elementwise work that nothing of its own unit covers, where units take turns
LOCKSTEP = 0.75  # ... where several units do as they please: they mostly do the same thing at the same time
STORE = 20.0  # cycles of an instruction of a warp that stores pieces shorter than 8 bytes, each in a row of its own
COUPLED = 0.02  # of a cluster's time that its blocks wait for each other: what they share, L2 had merged anyway
INDEPENDENT = 0.06  # of the shorter of work and traffic, where units with rings of their own wait for nobody
MIXED = 0.3  # of the shorter of special-function and other instructions: they share the issue slots
SHARP = 6.0  # how well work hides copies: of two that take as long, all but an eighth of one
_FEW = 20_000  # tiles up to which a list schedule is run, not bounded


@dataclass(frozen=True, slots=True)
class KernelEstimate:
    """One kernel. ``parts``: seconds that each resource alone would take; the sum is meaningless."""

    name: str
    seconds: float
    parts: Mapping[str, float]
    flops: float
    dram_bytes: float
    l2_bytes: float
    tiles: int
    blocks: int
    resident: int  # blocks of a multiprocessor
    waves: float
    registers: int
    smem: int
    clock: float

    @property
    def bound(self) -> str:
        """The resource that takes longest."""
        return max(self.parts, key=lambda p: self.parts[p])


@dataclass(frozen=True, slots=True)
class Estimate:
    """A module: seconds of all kernels, bytes to and from memory, floating-point operations of its products."""

    seconds: float
    bytes: float
    flops: float
    kernels: tuple[KernelEstimate, ...] = field(default=())

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of each resource, over all kernels."""
        out: dict[str, float] = {}
        for k in self.kernels:
            for name, seconds in k.parts.items():
                out[name] = out.get(name, 0.0) + seconds
        return out


def estimate(ma_module: MemModule, arch: str) -> Estimate:
    """What ``ma_module`` costs on ``arch``."""
    m, target = machine(arch), limits(arch)
    kernels = tuple(_kernel(ma_module, k, m, target) for k in ma_module.kernels)
    return Estimate(
        sum(k.seconds for k in kernels), sum(k.dram_bytes for k in kernels), sum(k.flops for k in kernels), kernels
    )


def estimate_schedule(program: Any, schedule: Schedule, arch: str, precision: str = "fast") -> Estimate | None:
    """The estimate of ``program`` (after the pass ``dead``) under ``schedule``; None where that is refused."""
    from nautilus.tune.search.trial_lowering import lower_program

    done = lower_program(program, schedule, arch, precision)
    return estimate(done.module, arch) if done.ok and done.module is not None else None


def _kernel(module: MemModule, kernel: MemKernel, m: Machine, target: Limits) -> KernelEstimate:
    work = count(module, kernel)
    registers = estimate_registers(kernel, target)
    resident = occupancy(kernel, registers, target)
    persistent = work.order != "none"
    blocks = _blocks(work, kernel, m) if persistent else work.tiles
    slots = min(m.multiprocessors * resident, max(1, blocks))
    moved = traffic(module, work, slots, m)
    beside = min(resident, -(-slots // m.multiprocessors))  # blocks that one multiprocessor really has
    cycles = _tile_cycles(work, m, beside, persistent)
    span = _makespan(cycles, work, slots, beside)
    flops = float(np.mean(work.consumer.flops)) * work.tiles * (1 if work.own else work.units)
    shared = work.cluster if np.any(work.consumer.chains) else 1  # else L2 merges what neighbours ask for anyway
    clock, on_chip = _clock(span, flops, moved.l2 / shared, m)
    start = 0.0 if persistent else blocks / m.start
    memory = _memory_seconds(moved, work, slots, m)
    total = max(_together(on_chip, memory, work, beside), start) + m.launch
    parts = _parts(work, m, clock, moved, memory, on_chip) | {"launch": m.launch + start}
    return KernelEstimate(
        kernel.name, total, parts, flops, moved.dram, moved.l2, work.tiles, blocks, resident,
        work.tiles / max(1, slots), registers, kernel.smem_bytes, clock,
    )  # fmt: skip


def _together(on_chip: float, memory: float, work: Work, beside: int) -> float:
    """Seconds of a multiprocessor's work and of the traffic, where rings or other blocks let them overlap."""
    ahead = bool(work.rings) and min(s for s, _ in work.rings.values()) > 1
    serial = 0.1 if work.specialised else 1.0 / (beside * work.units if work.joined else beside)
    most = INDEPENDENT if work.joined else 0.12
    shorter, longer = sorted((on_chip, memory))
    return longer + (min(serial, most) if ahead else serial) * shorter


def _blocks(work: Work, kernel: MemKernel, m: Machine) -> int:
    return max(1, min(work.tiles, int(estimated(kernel.blocks, {})), m.multiprocessors * kernel.min_blocks))


def occupancy(kernel: MemKernel, registers: int, target: Limits) -> int:
    """Blocks that one multiprocessor holds (CUDA C++ Programming Guide, "Occupancy"); at least one."""
    threads = 32 * kernel.warps
    by_smem = target.smem_sm // (kernel.smem_bytes + 1024)
    by_registers = target.registers_sm // max(1, registers * threads)
    return max(1, min(by_smem, by_registers, target.threads_sm // threads, 32))


# -- one tile ---------------------------------------------------------------------------------------


def _mixed(special: Any, issue: Any, m: Machine) -> Any:
    """Cycles of elementwise work: special-function results, and instructions of warps on four schedulers."""
    a, b = np.asarray(special) / m.special, np.asarray(issue) * 32.0 / m.fma
    return np.maximum(a, b) + MIXED * np.minimum(a, b)


def _tile_cycles(work: Work, m: Machine, beside: int, persistent: bool) -> Numbers:
    """Cycles of a multiprocessor for each tile, as if the block were alone on it (the makespan shares it)."""
    c, units = work.consumer, (1 if work.own else work.units)
    products = units * (c.products * 4096.0 / m.tensor_half)
    slow = units * (c.warp_products * 4096.0 / (m.tensor_half * m.warp_products))
    under = units * _mixed(c.special_under, c.issue_under, m)
    alone = units * (_mixed(c.special, c.issue, m) + c.stores * STORE)
    shared = units * np.asarray(c.shared) / m.shared
    slow = np.maximum(slow, shared) + MIXED * np.minimum(slow, shared)
    idle = max(1.0, 4.0 / (work.warps * units * beside))  # a scheduler without a warp does nothing
    slow, alone = slow * idle, alone * idle
    empties = (m.drain + 36.0) * np.asarray(c.empties)
    copies = np.maximum(np.asarray(c.lines) * m.line, np.asarray(c.read) / m.bulk) if np.any(c.lines) else np.zeros(1)
    if work.own:
        return _own_cycles(products, under, alone, empties, copies, work, m)
    factor = TURNS if work.turns else LOCKSTEP if units > 1 and not work.joined else 1.0
    inside = _in_flight(products, under, units, work.turns)
    chains = m.chain * np.asarray(c.chains) + (m.barrier * np.asarray(c.empties) if work.turns else 0.0)
    # warps of blocks beside each other fill each other's gaps
    others = _others(slow, factor * alone, work, beside)
    barriers = np.asarray(c.barriers) * m.barrier * (2.0 if not work.specialised else 1.0)
    waits = np.asarray(c.waits) * (0.0 if work.specialised else _fetch(work, m))
    barriers = barriers + np.asarray(c.meetings) * m.meeting
    fixed = 200.0 if persistent else m.block
    cycles = inside + others + (empties / units + chains + barriers + waits + fixed) / beside
    if work.cluster > 1 and not np.any(c.chains):
        cycles = cycles * (1.0 + COUPLED)
    return _as_array(_beside(np.maximum(cycles, _ring_cycles(work, cycles, m)), copies), work)


def _in_flight(products: Any, under: Any, units: int, turns: bool) -> Any:
    """Products and the elementwise work under them: more units fill more gaps, and there are few where one is short."""
    longer, shorter = np.maximum(products, under), np.minimum(products, under)
    gaps = 0.4 + 3.0 * (shorter / np.maximum(longer, 1.0)) ** 3
    return longer + np.minimum(1.0, (0.9 if turns else 1.0) * 2.0 * UNDER / units**2 * gaps) * shorter


def _beside(cycles: Any, copies: Any) -> Any:
    """Work and the copies that feed it: the longer one, and more where they take about as long."""
    found: Any = (np.asarray(cycles) ** SHARP + np.asarray(copies) ** SHARP) ** (1.0 / SHARP)
    return found


def _others(slow: Any, alone: Any, work: Work, beside: int) -> Any:
    """Products of single warps beside elementwise work: more warps a scheduler, more overlap."""
    streams = max(1.0, beside * work.warps * work.units / 4.0)
    longer, shorter = np.maximum(slow, alone), np.minimum(slow, alone)
    return longer + shorter / min(4.0, streams)


def _own_cycles(
    products: Any, under: Any, alone: Any, empties: Any, copies: Any, work: Work, m: Machine
) -> Numbers:  # fmt: skip
    """One unit's products run while the others do the rest of their tiles.

    Not so in loops in which products wait for elementwise work: the units come to want the same at the same time.
    """
    inside = np.maximum(products, under) + UNDER * np.minimum(products, under) + empties
    whole = inside + alone + 200.0
    cycles = np.maximum(inside + 0.1 * alone, whole / work.units)
    if np.any(work.consumer.chains):
        cycles = products + under + alone + empties + 200.0
    return _as_array(_beside(np.maximum(cycles, _ring_cycles(work, cycles, m)), copies), work)


def _fetch(work: Work, m: Machine) -> float:
    """Cycles that an iteration waits for copies that the block itself asked for: one stage hides nothing."""
    stages = min((s for s, _ in work.rings.values()), default=1)
    transfer = float(np.mean(work.consumer.read)) / max(1.0, float(np.mean(work.consumer.waits))) / m.l2
    return (m.load_latency + transfer) if stages < 2 else 60.0 if stages == 2 else 30.0


def _ring_cycles(work: Work, cycles: Any, m: Machine) -> Any:
    """A ring of few stages: a stage is asked for again only when it is free, one iteration later if held on to."""
    if not work.specialised or not work.rings:
        return cycles
    iterations = np.maximum(1.0, _iterations(work))
    each = cycles / iterations
    slowest = np.asarray(0.0)
    for stages, late in work.rings.values():
        held = 2.0 * each if late else 0.5 * each
        slowest = np.maximum(slowest, (m.load_latency + held) / stages + (0.25 * m.load_latency if stages < 2 else 0))
    if min(s for s, _ in work.rings.values()) < 2:
        slowest = np.maximum(slowest, each + 0.25 * m.load_latency)
    return slowest * iterations


def _iterations(work: Work) -> Any:
    """How often a tile fills a stage of its rings: from what it reads."""
    return np.asarray(work.consumer.read) / max(1.0, work.stage_bytes)


def _as_array(cycles: Any, work: Work) -> Numbers:
    n = min(work.tiles, work.evaluated)
    return np.broadcast_to(np.asarray(cycles, np.float64), (n,)) if np.ndim(cycles) < 2 else np.ravel(cycles)[:n]


# -- all tiles ---------------------------------------------------------------------------------------


def _makespan(cycles: Numbers, work: Work, slots: int, beside: int) -> float:
    """Cycles until the last slot is done; blocks of one multiprocessor share its units."""
    scale = work.tiles / len(cycles)
    share = beside
    if np.ptp(cycles) == 0:
        rounds = float(-(-work.tiles // slots))
        if work.order == "none" and beside > 1:  # blocks end at different times: the last wave is not whole
            rounds = max(1.0, work.tiles / slots + 0.5 * (work.tiles % slots != 0))
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
    """(Hz, seconds): the more products and traffic a cycle, the lower the clock."""
    clock = m.clock
    if flops > 0 and cycles > 0:
        used = min(1.0, flops / (cycles * m.multiprocessors * m.tensor_half))
        clock = m.clock - used * (m.power_tensor + m.power_bytes * min(0.03, l2_bytes / flops))
    return clock, cycles / clock


def _memory_seconds(moved: Traffic, work: Work, slots: int, m: Machine) -> float:
    """Time of the traffic to memory at the rate that the loads in flight sustain.

    A multiprocessor's own rate needs loads in flight as well: as many bytes a rate as the memory's (Little's law).
    """
    in_flight = slots * max(work.ring_bytes, 1.0)
    full = m.dram_read if moved.written < 0.1 * moved.dram else m.dram
    rate = full * (1.0 - float(np.exp(-in_flight / m.in_flight)))
    most = min(m.multiprocessors, slots) * m.reach
    rate = min(rate, most * (1.0 - float(np.exp(-in_flight * full / (m.in_flight * most)))))
    return moved.dram / max(rate, 1.0)


def _parts(work: Work, m: Machine, clock: float, moved: Traffic, memory: float, on_chip: float) -> dict[str, float]:
    c, units = work.consumer, (1 if work.own else work.units)
    each = work.tiles * units / m.multiprocessors / clock

    def seconds(cycles: Any) -> float:
        return float(np.mean(cycles)) * each

    return {
        "mma": seconds(c.products * 4096.0 / m.tensor_half)
        + seconds(c.warp_products * 4096.0 / (m.tensor_half * m.warp_products)),
        "special": seconds((np.asarray(c.special) + c.special_under) / m.special),
        "issue": seconds((np.asarray(c.issue) + c.issue_under) * 32.0 / m.fma),
        "shared": seconds(np.asarray(c.shared) / m.shared),
        "l2": moved.l2 / (m.l2 * m.multiprocessors * clock),
        "dram": memory,
        "multiprocessors": on_chip,
    }


def rank_correlation(estimates: Sequence[float], measured: Sequence[float]) -> float:
    """Spearman's rank correlation, ties at their mean rank; 0 for fewer than two points or no spread."""
    if len(estimates) != len(measured):
        raise ValueError(f"{len(estimates)} estimates for {len(measured)} measurements")
    return spearman(list(zip(estimates, measured, strict=True))) or 0.0


def best_rank(estimates: Sequence[float], measured: Sequence[float]) -> int:
    """The place (from 1) that the model gives the candidate that measured best."""
    if not measured or len(estimates) != len(measured):
        raise ValueError(f"{len(estimates)} estimates for {len(measured)} measurements")
    return place_of_best(list(zip(estimates, measured, strict=True)))


def in_top(estimates: Sequence[float], measured: Sequence[float], places: int = 10) -> bool:
    """Whether the best measured candidate is among the model's first ``places``."""
    return best_rank(estimates, measured) <= places


__all__ = [
    "Counts", "Estimate", "KernelEstimate", "best_rank", "estimate", "estimate_schedule", "in_top", "occupancy",
    "rank_correlation",
]  # fmt: skip

"""One record per architecture: the limits of a block, the engines, and the rates of the cost model.

The limits are those of the CUDA C++ Programming Guide, "Compute Capabilities".  The arithmetic rates are those of the
same guide, "Arithmetic Instructions", in results a cycle and multiprocessor: 64 for integers, comparisons, extrema,
selections, logic and conversions on all of these targets, which is half of what they issue.

The numbers of sm_90a were measured on one H200 (132 multiprocessors, 700 W):

* wgmma reaches 4096 operations a cycle and multiprocessor, and MUFU 16 results;
* a wait for all outstanding MMAs costs 64 cycles (one warpgroup that waits after every 8 steps reaches 88.8% at n128
  and 94.1% at n256);
* the clock falls with the power that MMAs and L2 traffic take: 1.58 GHz for 256 x 192 tiles, 1.53 for 128 x 256,
  1.44 for 128 x 128, and 1.62 for a back-to-back GEMM that keeps the tensor cores 80% busy;
* back-to-back GEMMs with reduction loops in steps of 64, 96 and 128 keep the tensor cores 68%, 76% and 80% busy, which
  is a fixed cost a step;
* 8.4 MB of outstanding loads reach 98.8% of the read rate, and 4.2 MB reach 89%;
* the launch, its ramp and its drain take 2.2 us, and blocks start at 1.6 a nanosecond;
* one tile of attention takes 2.7 us in blocks of two warps, and 4.3 us with a producer warpgroup; a kernel that is
  launched early and reads flags adds 0.4 us to either;
* two blocks of a cluster combine partial results in 0.4 us;
* 30 clusters of 4 blocks with a multiprocessor each run at the same time, so the graphics processing clusters are not
  equal; two of 14 and two of 16 multiprocessors beside four of 18 explain it.

The numbers of the other targets are those of the vendor's data sheets, scaled in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.records import dataclass

_KB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources of a block and of a multiprocessor, and the instructions of a target. Memory is in bytes."""

    smem_block: int
    smem_sm: int
    threads_sm: int
    registers_sm: int = 65536
    registers_thread: int = 255
    threads_block: int = 1024
    async_copy: bool = True
    warpgroup: bool = False  # warpgroup MMAs, TMA copies and mbarriers with byte counts
    float8: bool = False  # instructions that convert 8-bit floats, and MMAs of them
    multiprocessors: int = 0  # those of the largest device, which give the size of persistent grids; 0: not known
    gpcs: tuple[int, ...] = ()  # multiprocessors of each graphics processing cluster, for whole clusters of blocks

    def registers_at_launch(self, threads: int, blocks: int = 1) -> int:
        """The most registers of a thread with which ``blocks`` blocks of ``threads`` threads fit."""
        return min(self.registers_sm // (blocks * threads), self.registers_thread + 1) // 8 * 8

    def clusters(self, size: int, blocks: int) -> int:
        """The clusters of ``size`` blocks that run at the same time, with ``blocks`` blocks on a multiprocessor."""
        return sum(n * blocks // size for n in self.gpcs)


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates and latencies of a target.

    Cycles are those of a multiprocessor.  Rates without another unit are per cycle and multiprocessor.
    """

    multiprocessors: int
    clock: float  # Hz of an idle device
    tensor_half: float  # operations of wgmma with 16-bit operands
    warp_mma: float  # the share of ``tensor_half`` that MMAs of single warps reach
    fma: float  # multiply-adds
    special: float  # results of the special-function unit
    shared: float  # bytes of shared memory
    l2: float  # bytes from L2
    tma: float  # bytes from L2 by TMA
    l2_sectors: float  # bytes a second of sectors that plain loads of all multiprocessors move from L2
    l2_bytes: float  # capacity of L2 for operands that successive waves share
    dram: float  # bytes a second, reading and writing
    dram_read: float  # bytes a second, reading only
    bytes_in_flight: float  # outstanding loads that reach 63% of the rate; the rate is 1 - exp(-bytes / this)
    power_tensor: float  # Hz by which the clock falls at full use of the tensor cores
    power_bytes: float  # Hz by which the clock falls further for each byte from L2 an operation
    load_rate: float = 70e9  # bytes a second that one multiprocessor can load
    integer: float = 64.0  # instructions of the integer unit: integers, comparisons, selections, bits, conversions
    launch: float = 2.2e-6  # seconds of an empty kernel, with ramp and drain
    dependent_launch: float = 0.6e-6  # the same of a kernel that is launched before the previous one ends
    producer_start: float = 1.2e-6  # seconds until a producer's first copies arrive, and until its block ends
    first: float = 1.2e-6  # seconds until the first of several kernels runs, whose start no other one hides
    block_starts: float = 1.6e9  # blocks a second
    mma_drain: float = 64.0  # cycles for which the tensor cores are idle after a wait for all outstanding MMAs
    load_latency: float = 512.0  # cycles between the request of a stage and its arrival from L2
    l1_latency: float = 40.0  # cycles of a load that L1 has
    l2_latency: float = 280.0  # cycles of a load that L2 has
    memory_latency: float = 570.0  # further cycles of one that memory has
    tma_row: float = 1.35  # cycles of a row of shared memory that TMA fills, of any length
    barrier: float = 40.0  # cycles of a barrier of the block
    cluster_sync: float = 600.0  # cycles until stores into another block's shared memory are visible to that block
    line_atomics: float = 0.28  # atomic operations a cycle on one line of memory, which follow each other
    lane_reduction: float = 300.0  # cycles that a shuffle reduction and its dependent operations leave unused
    block_start: float = 300.0  # cycles for a block of plain loads to start and to end
    block_overhead: float = 1500.0  # cycles for a block to start, to load its first operands and to end


@dataclass(frozen=True, slots=True)
class Target:
    """The record of an architecture."""

    limits: Limits
    rates: Machine


_H200 = Machine(
    multiprocessors=132, clock=1.98e9, tensor_half=4096.0, warp_mma=0.62, fma=128.0, special=16.0, shared=128.0,
    l2=80.0, tma=85.0, l2_sectors=5.7e12, l2_bytes=48e6, dram=4.25e12, dram_read=4.7e12, bytes_in_flight=1.9e6,
    power_tensor=0.265e9, power_bytes=18e9,
)  # fmt: skip
# A load takes the same time on all of these memories, so bytes in flight are in proportion to the rate.
#: A100 80 GB: 312 TFLOP/s at 1.41 GHz, 2.04 TB/s.
_A100 = replace(
    _H200, multiprocessors=108, clock=1.41e9, tensor_half=2048.0, warp_mma=0.95, l2=64.0, l2_sectors=3.5e12,
    l2_bytes=38e6, dram=1.7e12, dram_read=1.8e12, bytes_in_flight=0.73e6, power_tensor=0.0, power_bytes=0.0,
)  # fmt: skip
#: RTX 3090, RTX 4090, RTX 5090. MMAs of half precision with f32 accumulators run at half rate.
_RTX3090 = replace(
    _H200, multiprocessors=82, clock=1.7e9, tensor_half=512.0, warp_mma=1.0, l2=64.0, l2_sectors=2.5e12,
    l2_bytes=4e6, dram=0.85e12, dram_read=0.9e12, bytes_in_flight=0.36e6, power_tensor=0.0, power_bytes=0.0,
)  # fmt: skip
_RTX4090 = replace(
    _H200, multiprocessors=128, clock=2.5e9, tensor_half=512.0, warp_mma=1.0, l2=64.0, l2_sectors=4.5e12,
    dram=0.93e12, dram_read=0.97e12, bytes_in_flight=0.39e6, power_tensor=0.0, power_bytes=0.0,
)  # fmt: skip
_RTX5090 = replace(
    _H200, multiprocessors=170, clock=2.4e9, tensor_half=512.0, warp_mma=1.0, l2=64.0, l2_sectors=5.5e12,
    dram=1.6e12, dram_read=1.7e12, bytes_in_flight=0.69e6, power_tensor=0.0, power_bytes=0.0,
)  # fmt: skip

_AMPERE = Limits(163 * _KB, 164 * _KB, 2048)
_HOPPER = Limits(227 * _KB, 228 * _KB, 2048, float8=True)

TARGETS: Mapping[str, Target] = {
    "sm_80": Target(_AMPERE, _A100),
    "sm_86": Target(Limits(99 * _KB, 100 * _KB, 1536), _RTX3090),
    "sm_87": Target(replace(_AMPERE, threads_sm=1536), _RTX3090),
    "sm_89": Target(Limits(99 * _KB, 100 * _KB, 1536, float8=True), _RTX4090),
    "sm_90": Target(_HOPPER, _H200),
    "sm_90a": Target(
        replace(_HOPPER, warpgroup=True, multiprocessors=_H200.multiprocessors, gpcs=(18, 18, 18, 18, 16, 16, 14, 14)),
        _H200,
    ),
    "sm_120": Target(Limits(99 * _KB, 100 * _KB, 1536, float8=True), _RTX5090),
}

#: The targets that a compilation may name: sm_120a has the record of sm_120.
NAMES = (*TARGETS, "sm_120a")

#: The target of a compilation that names none and finds no GPU.
DEFAULT_TARGET = "sm_90a"


def version(name: str) -> int:
    """The number in the name of an architecture; 0 where there is none."""
    found = re.match(r"sm_(\d+)", name)
    return int(found[1]) if found else 0


def find(name: str) -> Target | None:
    """The record of ``name``, or of ``name`` without its suffix ``a`` or ``f``; None for an unknown target."""
    return TARGETS.get(name) or TARGETS.get(name.rstrip("af"))

"""One record per architecture: what a block may use, which engines there are, and the rates of the cost model.

The limits are those of the CUDA C++ Programming Guide, "Compute Capabilities"; the arithmetic rates are those of the
same guide, "Arithmetic Instructions", in results a cycle and multiprocessor.

The numbers of sm_90a were measured on one H200 (132 multiprocessors, 700 W): products reach 4096 operations a
cycle and multiprocessor, MUFU 16 results; a drained product pipeline costs 64 cycles (one warpgroup waiting
after every 8 steps: 88.8% at n128, 94.1% at n256); the clock falls with the power that products and L2 traffic
take (1.58 GHz for 256 x 192 tiles, 1.53 for 128 x 256, 1.44 for 128 x 128, 1.62 under a fused chain at 80%);
fused chains with walks in steps of 64, 96 and 128 keep the matrix unit 68%, 76% and 80% busy, which is a fixed cost
a step; 8.4 MB of loads in flight reach 98.8% of the read rate and 4.2 MB 89%; the launch, its ramp and its drain
take 2.2 us; blocks start at 1.6 a nanosecond; two blocks of a cluster combine in 0.4 us.  The other
lines are the vendor's data sheets scaled the same way.
CUDA C++ Programming Guide, "Arithmetic Instructions", gives results a cycle and multiprocessor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

_KB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What one block and one multiprocessor may use, and which instructions there are. Memory in bytes."""

    smem_block: int
    smem_sm: int
    threads_sm: int
    registers_sm: int = 65536
    registers_thread: int = 255
    threads_block: int = 1024
    async_copy: bool = True
    warpgroup: bool = False  # warpgroup MMAs, TMA copies and mbarriers with byte counts
    float8: bool = False  # instructions that convert 8-bit floats
    multiprocessors: int = 0  # of the largest device that persistent grids are sized for; 0: not known

    def registers_at_launch(self, threads: int) -> int:
        """Registers of a thread that the launch of one block of ``threads`` threads can give to it."""
        return self.registers_sm // threads // 8 * 8


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates and latencies of one target. Cycles are those of a multiprocessor; bytes in units of 1."""

    multiprocessors: int
    clock: float  # Hz with nothing running
    tensor_half: float  # operations a cycle and multiprocessor, 16-bit operands, warpgroup products
    warp_products: float  # share of ``tensor_half`` that products of single warps reach
    fma: float  # multiply-adds a cycle and multiprocessor
    special: float  # results of the special-function unit a cycle and multiprocessor
    shared: float  # bytes a cycle and multiprocessor
    l2: float  # bytes a cycle and multiprocessor from L2
    bulk: float  # the same by bulk copies
    l2_bytes: float  # of operands that stay in L2 between waves
    dram: float  # bytes a second, reading and writing
    dram_read: float  # bytes a second, reading only
    in_flight: float  # bytes: loads in flight that reach 63% of the rate; the rate is 1 - exp(-bytes / this)
    power_tensor: float  # Hz that the clock falls by at full use of products ...
    power_bytes: float  # ... and this more for each byte from L2 an operation
    reach: float = 70e9  # bytes a second that one multiprocessor can load
    launch: float = 2.2e-6  # seconds: an empty kernel, ramp and drain
    start: float = 1.6e9  # blocks a second
    drain: float = 64.0  # cycles that a product pipeline stands still for when it is waited for
    load_latency: float = 512.0  # cycles from asking for a stage to its arrival, from L2
    line: float = 1.35  # cycles of a row of shared memory that a bulk copy fills, however short
    barrier: float = 40.0  # cycles to bring the warps of a block together
    meeting: float = 600.0  # cycles until stores into another block of the cluster are there, and known to be
    chain: float = 300.0  # cycles that a reduction between lanes, and what depends on it, leaves unused
    block: float = 1500.0  # cycles for a block to start, fetch its first operands and end


@dataclass(frozen=True, slots=True)
class Target:
    """All that the compiler knows of an architecture."""

    limits: Limits
    rates: Machine


_H200 = Machine(
    multiprocessors=132, clock=1.98e9, tensor_half=4096.0, warp_products=0.62, fma=128.0, special=16.0, shared=128.0,
    l2=80.0, bulk=85.0, l2_bytes=48e6, dram=4.25e12, dram_read=4.66e12, in_flight=1.9e6, power_tensor=0.265e9,
    power_bytes=18e9,
)  # fmt: skip
#: A100 80 GB: 312 TFLOP/s at 1.41 GHz, 2.04 TB/s.
_A100 = replace(
    _H200, multiprocessors=108, clock=1.41e9, tensor_half=2048.0, warp_products=0.95, l2=64.0, l2_bytes=38e6,
    dram=1.7e12, dram_read=1.8e12, power_tensor=0.0, power_bytes=0.0,
)  # fmt: skip
#: RTX 3090, RTX 4090, RTX 5090: MMAs of half precision with f32 sums run at half rate.
_RTX3090 = replace(
    _H200, multiprocessors=82, clock=1.7e9, tensor_half=512.0, warp_products=1.0, l2=64.0, l2_bytes=4e6,
    dram=0.85e12, dram_read=0.9e12, power_tensor=0.0, power_bytes=0.0,
)  # fmt: skip
_RTX4090 = replace(
    _H200, multiprocessors=128, clock=2.5e9, tensor_half=512.0, warp_products=1.0, l2=64.0, dram=0.93e12,
    dram_read=0.97e12, power_tensor=0.0, power_bytes=0.0,
)  # fmt: skip
_RTX5090 = replace(
    _H200, multiprocessors=170, clock=2.4e9, tensor_half=512.0, warp_products=1.0, l2=64.0, dram=1.6e12,
    dram_read=1.7e12, power_tensor=0.0, power_bytes=0.0,
)  # fmt: skip

_AMPERE = Limits(163 * _KB, 164 * _KB, 2048)
_HOPPER = Limits(227 * _KB, 228 * _KB, 2048, float8=True)

TARGETS: Mapping[str, Target] = {
    "sm_80": Target(_AMPERE, _A100),
    "sm_86": Target(Limits(99 * _KB, 100 * _KB, 1536), _RTX3090),
    "sm_87": Target(replace(_AMPERE, threads_sm=1536), _RTX3090),
    "sm_89": Target(Limits(99 * _KB, 100 * _KB, 1536, float8=True), _RTX4090),
    "sm_90": Target(_HOPPER, _H200),
    "sm_90a": Target(replace(_HOPPER, warpgroup=True, multiprocessors=_H200.multiprocessors), _H200),
    "sm_120": Target(Limits(99 * _KB, 100 * _KB, 1536, float8=True), _RTX5090),
}

#: The target of a compilation that names none and finds no GPU.
DEFAULT_TARGET = "sm_90a"


def find(name: str) -> Target | None:
    """The record of ``name``; a suffix ``a`` or ``f`` without a record of its own is dropped."""
    return TARGETS.get(name) or TARGETS.get(name.rstrip("af"))

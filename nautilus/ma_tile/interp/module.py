"""The physical, adversarial interpreter of the MA-tile IR.

Shared memory is an array of bytes that each access addresses with its own swizzle.  Fragments are (warp, lane,
register) arrays.  Copies arrive at the last legal moment, and an adversary schedules the roles.  Conflicting accesses
that no barrier orders are an error, even where the result is correct.  Every error is an :class:`InterpError`
that names the operation, the buffer and the rule (``kind``):

==================== ==================================================================
pending-copy         bytes read before a ``cp.wait`` that covers their copy
unsynchronised-read  bytes read that another thread wrote, no barrier between
overwrite-in-use     bytes written (or copied over) that another thread read, no barrier between, or that a
                     pending MMA or TMA store may still read; registers that a pending MMA may read
outstanding          the result of an MMA used before a ``wg.wait`` lists it, or listed too early
missing-fence        no ``wg.fence`` between a write to registers and the MMA that uses them; no
                     ``fence.proxy`` and barrier between a write to shared memory and its use by TMA or wgmma
unfinished           a consumer ends with pending MMAs or stores, or a block ends with pending TMA loads
unordered-writes     bytes written twice, no barrier between, or over a pending copy
uninitialised        bytes or elements read that have never been written; an mbarrier that may be so
out-of-bounds        a shared address, stage or tile position outside its buffer
global-out-of-bounds an unmasked global index outside its tensor
global-race          an element of global memory used by several threads of one launch
misaligned, non-contiguous-vector, mask-not-uniform, copy-size     an access that the instruction does not support
undefined-fragment, undefined-variable, undefined-buffer           a name without a value
layout, holders-disagree                                           registers that do not match the layout
barrier, over-arrival, phase, deadlock, not-uniform                incorrect synchronisation
tile-counter                                                       a counter that is cleared too early, or not once
multicast                                                          blocks that copy parts of different tiles
cluster                              a store into a block that may not run yet, or that may have ended; an arrival there
unsupported                                                        an operation without an instruction
==================== ==================================================================

The files of ``interp``: ``block`` (control flow), ``data``, ``scan``, ``unpack`` and ``dot`` (operations), ``mma``
(fragment maps), ``wgmma`` and ``tma`` (MMAs and copies of the sm_90a class), ``tile_scheduler`` (persistent blocks),
``cluster`` (barriers and stores between blocks).  Those of ``interp.state``: ``values`` (registers, expressions),
``shared_memory`` (bytes and their history), ``global_memory``, ``sync`` (barriers, scheduler), ``outstanding`` (pending
operations), ``machine``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from nautilus.core.buffers import Space
from nautilus.core.numerics import Array
from nautilus.core.types import DType
from nautilus.ma_tile.interp.block import BlockRun
from nautilus.ma_tile.interp.state.global_memory import GlobalMemory, State
from nautilus.ma_tile.interp.state.machine import InterpError, Machine
from nautilus.ma_tile.interp.state.values import round_registers
from nautilus.ma_tile.ir.ops import MemKernel, MemModule, RolesOp, walk_ops
from nautilus.ma_tile.ir.traverse import exchanged

__all__ = ["InterpError", "Launches", "run_block", "run_blocks", "run_module"]


class Launches:
    """The last launch of each kernel in runs on the same inputs, scalars and seed.

    A run of another module, such as that before a pass, repeats the launch of an equal kernel on equal memory.
    """

    def __init__(self) -> None:
        self.found: dict[str, tuple[object, MemKernel, State, State]] = {}

    def repeat(self, m: MemModule, kernel: MemKernel, memory: GlobalMemory) -> bool:
        """Whether a launch of ``kernel`` is known, whose results are then in ``memory``."""
        about, other, before, after = self.found.get(kernel.name, (None, None, {}, {}))
        if other != kernel or about != _surroundings(m) or before != memory.state():
            return False
        memory.restore(after)
        return True

    def keep(self, m: MemModule, kernel: MemKernel, before: State, after: State) -> None:
        """Remember the launch of ``kernel`` that turned memory ``before`` into ``after``."""
        self.found[kernel.name] = (_surroundings(m), kernel, before, after)


def _surroundings(m: MemModule) -> object:
    """What else a launch of a kernel of ``m`` depends on."""
    return m.target, m.buffers, m.params, m.facts


def run_module(
    m: MemModule,
    inputs: Mapping[str, Array],
    scalars: Mapping[str, Any] | None = None,
    seed: int = 0,
    known: Launches | None = None,
) -> dict[str, Array]:
    """Every output and temp of ``m``, storage-rounded (bf16 and tf32 as float32 values).

    ``inputs`` are rounded to their declared types; elements that no block wrote are NaN (the least
    integer, false).  ``seed`` picks the adversary of the first block;
    later blocks take the next ones, and a launch of fewer than three blocks with roles is run under
    all three policies.  ``known``: the launches of runs with the same other arguments, to which this one adds its own.
    Raises InterpError, ValueError for an input of the wrong shape.
    """
    params = _params(m, scalars or {})
    memory = GlobalMemory(m, inputs, params)
    for kernel in m.kernels:
        memory.launch(exchanged(kernel.body))
        if known is not None and known.repeat(m, kernel, memory):
            continue
        before = memory.state() if known is not None else {}
        _launch(Machine(m, kernel, memory, params, seed), seed)
        memory.launch()
        if known is not None:
            known.keep(m, kernel, before, memory.state())
    return {b.name: memory.array(b.name).copy() for b in m.buffers if b.space is not Space.INPUT}


def _launch(machine: Machine, seed: int, blocks: Iterable[int] | None = None) -> None:
    """Run ``blocks`` (the first ones of their clusters), or all."""
    kernel, count = machine.kernel, machine.blocks
    if count % kernel.together:
        raise ValueError(f"{count} blocks are no clusters of {kernel.together}")
    chosen = list(range(0, count, kernel.together) if blocks is None else blocks)
    for block in chosen:
        BlockRun(machine, block, seed + block).run()
    if blocks is None and machine.blocks:
        machine.check_counter()
    several = kernel.consumers > 1 or kernel.cluster > 1 or any(isinstance(op, RolesOp) for op in walk_ops(kernel.body))
    if len(chosen) < 3 and several:
        for block in chosen:
            for other in (1, 2):
                BlockRun(machine, block, seed + block + other).run()


def run_block(
    m: MemModule,
    kernel: str,
    block: int,
    inputs: Mapping[str, Array],
    scalars: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> dict[str, Array]:
    """What one block of the kernel called ``kernel`` writes; see :func:`run_blocks`."""
    return run_blocks(m, kernel, (block,), inputs, scalars, seed)


def run_blocks(
    m: MemModule,
    kernel: str,
    blocks: Iterable[int],
    inputs: Mapping[str, Array],
    scalars: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> dict[str, Array]:
    """What ``blocks`` of the kernel called ``kernel``, and others of their clusters, write, as :func:`run_module` does.

    Temps that the kernel reads are taken from ``inputs``; what the blocks leave
    unwritten is NaN, the least integer or false.
    """
    params = _params(m, scalars or {})
    memory = GlobalMemory(m, inputs, params)
    for name in memory.owner:
        if name in inputs:
            memory.values[name] = round_registers(np.asarray(inputs[name]), memory.dtypes[name]).reshape(-1)
            memory.ready[name][:] = True
    (found,) = [k for k in m.kernels if k.name == kernel]
    memory.launch(exchanged(found.body))
    first = dict.fromkeys(block // found.together * found.together for block in blocks)
    _launch(Machine(m, found, memory, params, seed), seed, first)
    return {b.name: memory.array(b.name).copy() for b in m.buffers if b.space is not Space.INPUT}


def _params(m: MemModule, scalars: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for p in m.params:
        value = scalars.get(p.name, p.default)
        if value is None:
            raise ValueError(f"scalar {p.name} has no value")
        out[p.name] = _scalar(value, p.dtype)
    return out


def _scalar(value: Any, dtype: DType) -> Any:
    return round_registers(np.asarray([value]), dtype)[0]

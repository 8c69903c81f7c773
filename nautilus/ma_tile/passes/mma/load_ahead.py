"""``load-ahead``: a loop of MMAs loads what its elementwise work reads some iterations before it is used.

Operands of MMAs arrive in shared memory ahead of their use (``pipeline-copies``).  Scales, zero points and vectors
along the loop go to registers, and a load of them at its use waits for the memory in every iteration, which a few warps
do not hide.  They are loaded in the iteration before, into registers that the loop carries::

    for j0 in 0..n {                                 %first = ld.global S[j] where 0 < n
        cp.async ..                                  for j0 in 0..n carry(%ahead = %first) {
        %s = ld.global S[j0 * 16 + j]         ->         %next = ld.global S[min(j0 + 1, n - 1) * 16 + j]
        %k = mul %k_tile, %s                             cp.async ..
        mma ..                                           %k = mul %k_tile, %ahead
    }                                                    mma ..
                                                         yield %next }

With ``depth`` iterations ahead the loop carries as many fragments for each load.  A load that is issued in an iteration
queues behind the copies of later ones where the memory is busy, so that one iteration is not enough for it: loads are
then issued as far ahead as copies.

A load qualifies if its address and its mask depend on the iteration and on nothing else that the loop computes, if the
kernel does not store its buffer, and if the iteration reads it and does not hand it to the next one.  Loads stay where
the loop has no copies that run ahead: it waits for memory in any case.  The last iterations load the last elements
again, so that the loads of the loop have no condition.  In loops of warpgroup MMAs, whose consumers have few registers,
only what operands are made from without the result of another MMA is loaded ahead, such as the scales of a dequantised
tile.

The cost model decides how many of the loads move.  A warp that waits for a load is idle unless other warps of the
multiprocessor work, and a load ahead takes registers, so that the multiprocessor may have one block fewer.  The pass
makes a module for each number of registers in :data:`ROOMS`, with the first loads that fit, and takes the cheapest one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Var
from nautilus.core.index.simplify import simplify
from nautilus.core.ops import declaration
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.mma_stages import is_wgmma, operands_from
from nautilus.ma_tile.ir.async_ops import TmaLoad
from nautilus.ma_tile.ir.instruction_tables import MMA
from nautilus.ma_tile.ir.ops import (
    AsyncCopy,
    ForOp,
    Frag,
    GlobalLoad,
    IfOp,
    MemKernel,
    MemModule,
    MemOp,
    MmaOp,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import reads, rebuild
from nautilus.ma_tile.passes.copies.prefetch_steps import at_step, independent, registers
from nautilus.ma_tile.passes.finalise.dead_fragments import clean
from nautilus.ma_tile.rewriting.renaming import Names, Renaming
from nautilus.targets.limits import limits

ROOMS = (4, 16)  # registers of a thread for the elements of the next iteration, at most
Price = Callable[[MemModule], float]  # the time of a module on which the later passes have not run


@dataclass(frozen=True, slots=True)
class LoadAhead:
    """``price``: the time by which the pass chooses among ``rooms``; None: as many loads as the largest one holds."""

    price: Price | None = None
    rooms: tuple[int, ...] = ROOMS
    name = "load-ahead"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with the loads of loops of MMAs one iteration ahead."""
        most = limits(module.target).registers_thread
        for n, k in enumerate(module.kernels):
            tried = ((room, depth) for room in self.rooms for depth in (1, _copied_ahead(k)))
            made = [x for room, depth in dict.fromkeys(tried) if (x := _kernel(k, room, depth, most)) is not k]
            if made:
                module = self._best(module, n, made)
        return module

    def _best(self, module: MemModule, n: int, made: Sequence[MemKernel]) -> MemModule:
        """The best of ``module`` and of those with one of ``made`` as kernel ``n``."""
        candidates = [replace(module, kernels=(*module.kernels[:n], k, *module.kernels[n + 1 :])) for k in made]
        if self.price is None:
            return candidates[-1]
        return min(module, *candidates, key=self.price)


def _copied_ahead(kernel: MemKernel) -> int:
    """How many iterations ahead the loops of MMAs of warps copy their operands; 1 in other kernels."""
    loops = [op for op in walk_ops(kernel.body) if isinstance(op, ForOp) and _runs_ahead(op)]
    if any(is_wgmma(x) for op in loops for x in op.body):
        return 1
    copied = {x.slot.buffer for op in loops for x in walk_ops(op.body) if isinstance(x, AsyncCopy)}
    return max((s.stages - 1 for s in kernel.smem if s.name in copied), default=1)


def _kernel(kernel: MemKernel, room: int, depth: int, most: int) -> MemKernel:
    """``most``: registers of a thread."""
    whole, kernel = kernel, clean(kernel)  # loads that nothing reads stay in their place, where they are removed
    names = Names(kernel)

    def rule(op: MemOp) -> Sequence[MemOp]:
        if not isinstance(op, ForOp) or not _runs_ahead(op) or _is_crowded(kernel, op, room, most):
            return (op,)
        ahead = int(max(1, min(depth, _iterations(op) - 1)))
        made = operands_from(op.body) if any(map(is_wgmma, op.body)) else None
        found = (x for x in independent(kernel, op) if _is_used(x, op))
        loads = _fitting(kernel, [x for x in found if made is None or x.result.name in made], room // ahead)
        return _ahead(op, loads, ahead, names) if loads else (op,)

    body = rebuild(kernel.body, rule)
    return whole if body == kernel.body else replace(kernel, body=body)


def _is_used(x: GlobalLoad, loop: ForOp) -> bool:
    """Whether the iteration that loads ``x`` reads it, and no later one, as for an index that is loaded ahead."""
    read = any(x.result.name in reads(y) for y in walk_ops(loop.body))
    return read and all(f.name != x.result.name for f in loop.yields)


def _runs_ahead(loop: ForOp) -> bool:
    """Whether ``loop`` has MMAs and two iterations or more, and issues copies of later iterations.

    In a loop of warpgroup MMAs, the producer of warpgroups will issue them.
    """
    if _iterations(loop) < 2:
        return False
    if any(map(is_wgmma, loop.body)):
        return any(isinstance(x, TmaLoad) for x in loop.body)
    mmas = any(isinstance(x, MmaOp) and x.instr in MMA for x in loop.body)
    return mmas and any(isinstance(y, AsyncCopy) for x in loop.body if isinstance(x, IfOp) for y in x.body)


def _iterations(loop: ForOp) -> float:
    """The iterations of ``loop``; infinite where they are not known."""
    count = simplify(calc("sub", loop.hi, loop.lo))
    return float(count.value) if isinstance(count, Const) else inf


def _is_crowded(kernel: MemKernel, loop: ForOp, room: int, most: int) -> bool:
    """Whether a ``loop`` of MMAs of warps has less than ``room`` registers of ``most`` beside its largest values."""
    if any(map(is_wgmma, loop.body)):
        return False
    widest = max((registers(kernel, f) for op in loop.body for f in declaration(type(op)).results(op)), default=0)
    return sum(registers(kernel, f) for f, _ in loop.carried) + widest + room > most


def _fitting(kernel: MemKernel, loads: Sequence[GlobalLoad], room: int) -> list[GlobalLoad]:
    """Those of ``loads`` that ``room`` registers hold."""
    out: list[GlobalLoad] = []
    for x in loads:
        need = -(-registers(kernel, x.result) // (x.repeat or 1))  # those with the same element count once
        if need <= room:
            out.append(x)
            room -= need
    return out


def _ahead(loop: ForOp, loads: Sequence[GlobalLoad], depth: int, names: Names) -> tuple[MemOp, ...]:
    """``loop`` with ``loads`` ``depth`` iterations ahead."""
    last, firsts, slots, nexts = calc("sub", loop.hi, 1), list[GlobalLoad](), list[list[Frag]](), list[GlobalLoad]()
    for x in loads:
        for n in range(depth):
            first = at_step(x, loop.var, calc("add", loop.lo, n), loop.hi)
            firsts.append(replace(first, result=names.frag(x.result, "first")))
        slots.append([names.frag(x.result, "ahead") for _ in range(depth)])
        step = calc("min", calc("add", Var(loop.var), depth), last)
        nexts.append(replace(at_step(x, loop.var, step, None), result=names.frag(x.result, "next")))
    rename = Renaming({x.result.name: own[0] for x, own in zip(loads, slots, strict=True)})
    body = rename.ops(x for x in loop.body if x not in loads)
    carried = zip((f for own in slots for f in own), (x.result for x in firsts), strict=True)
    moved = [f for own, x in zip(slots, nexts, strict=True) for f in (*own[1:], x.result)]
    results = (*loop.results, *(names.frag(f, "last") for f in moved))
    yields = (*map(rename.frag, loop.yields), *moved)
    made = replace(loop, results=results, carried=(*loop.carried, *carried), body=(*nexts, *body), yields=yields)
    return (*firsts, made)

"""``load-ahead``: a loop of MMAs loads what its elementwise work reads one iteration before it is used.

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

A load qualifies if its address and its mask depend on the iteration and on nothing else that the loop computes, if the
kernel does not store its buffer, and if the iteration reads it and does not hand it to the next one.  Loads stay where
the loop has no copies that run ahead: it waits for memory in any case.  The last iteration loads its own elements
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

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Var
from nautilus.core.ops import declaration
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.mma_stages import is_wgmma, operands_from
from nautilus.ma_tile.ir.async_ops import TmaLoad
from nautilus.ma_tile.ir.instruction_tables import MMA
from nautilus.ma_tile.ir.ops import (
    AsyncCopy,
    ForOp,
    GlobalLoad,
    IfOp,
    MemKernel,
    MemModule,
    MemOp,
    MmaOp,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import reads, rebuild
from nautilus.ma_tile.passes.finalise.dead_fragments import clean
from nautilus.ma_tile.passes.steps.prefetch_steps import at_step, independent, registers
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
        kernels = tuple(self._best(module, k, most) for k in module.kernels)
        return module if kernels == module.kernels else replace(module, kernels=kernels)

    def _best(self, module: MemModule, kernel: MemKernel, most: int) -> MemKernel:
        """The best of ``kernel`` and its forms with loads ahead. Each is priced without the other kernels."""
        made = [x for room in self.rooms if (x := _kernel(kernel, room, most)) is not kernel]
        price = self.price
        if not made or price is None:
            return made[-1] if made else kernel
        different = (x for n, x in enumerate(made) if x not in made[:n])
        return min((kernel, *different), key=lambda k: price(replace(module, kernels=(k,))))


def _kernel(kernel: MemKernel, room: int, most: int) -> MemKernel:
    """``most``: registers of a thread."""
    whole, kernel = kernel, clean(kernel)  # loads that nothing reads stay in their place, where they are removed
    names = Names(kernel)

    def rule(op: MemOp) -> Sequence[MemOp]:
        if not isinstance(op, ForOp) or not _runs_ahead(op) or _is_crowded(kernel, op, room, most):
            return (op,)
        made = operands_from(op.body) if any(map(is_wgmma, op.body)) else None
        found = (x for x in independent(kernel, op) if _is_used(x, op))
        loads = _fitting(kernel, [x for x in found if made is None or x.result.name in made], room)
        return _ahead(op, loads, names) if loads else (op,)

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
    if isinstance(loop.lo, Const) and isinstance(loop.hi, Const) and int(loop.hi.value) - int(loop.lo.value) < 2:
        return False
    if any(map(is_wgmma, loop.body)):
        return any(isinstance(x, TmaLoad) for x in loop.body)
    mmas = any(isinstance(x, MmaOp) and x.instr in MMA for x in loop.body)
    return mmas and any(isinstance(y, AsyncCopy) for x in loop.body if isinstance(x, IfOp) for y in x.body)


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


def _ahead(loop: ForOp, loads: Sequence[GlobalLoad], names: Names) -> tuple[MemOp, ...]:
    firsts = [replace(at_step(x, loop.var, loop.lo, loop.hi), result=names.frag(x.result, "first")) for x in loads]
    ahead = [names.frag(x.result, "ahead") for x in loads]
    step = calc("min", calc("add", Var(loop.var), 1), calc("sub", loop.hi, 1))
    nexts = [replace(at_step(x, loop.var, step, None), result=names.frag(x.result, "next")) for x in loads]
    rename = Renaming({x.result.name: a for x, a in zip(loads, ahead, strict=True)})
    body = rename.ops(x for x in loop.body if x not in loads)
    results = (*loop.results, *(names.frag(x.result, "last") for x in loads))
    carried = (*loop.carried, *zip(ahead, (x.result for x in firsts), strict=True))
    yields = (*map(rename.frag, loop.yields), *(x.result for x in nexts))
    return (*firsts, replace(loop, results=results, carried=carried, body=(*nexts, *body), yields=yields))

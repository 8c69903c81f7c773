"""Accumulators of MMA loops start from zero by the instruction, not by zeros in registers.

A warpgroup MMA has a predicate that says whether it adds to its accumulator or overwrites it (``scale-d``:
PTX ISA, "wgmma.mma_async").  An accumulator that a loop carries from a constant 0, and that only a chain of
MMAs touches, needs no value to begin with: the first MMA of the chain is ``zero_init`` in the first
iteration, and what the loop starts from is ``undefined``.  Zeros in registers cost a move each, and the
assembler may sink them between the MMAs of a short loop, which then run one after the other.

A loop that may run no iteration keeps its zeros: they are its result.  Outside of loops, an MMA onto a
constant 0 has no accumulator.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import copysign

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Var
from nautilus.core.index.simplify import TRUE, Ranges, simplify
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.async_ops import CONSUMER
from nautilus.ma_tile.ir.instruction_tables import WGMMA
from nautilus.ma_tile.ir.ops import ConstOp, ForOp, Frag, MemKernel, MemModule, MemOp, MmaOp, UndefinedOp, walk_ops
from nautilus.ma_tile.ir.traverse import each_kernel, reads, rebuild
from nautilus.ma_tile.rewriting.renaming import Names, uniform_ranges


@dataclass(frozen=True, slots=True)
class ZeroAccumulators:
    """The pass ``zero-accumulators``, which has no options."""

    name = "zero-accumulators"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose MMAs start from zero."""
        return each_kernel(module, zero_accumulators)


def zero_accumulators(kernel: MemKernel) -> MemKernel:
    """``kernel`` without zeros that warpgroup MMAs start from."""
    zeros = {op.result.name for op in walk_ops(kernel.body) if isinstance(op, ConstOp) and _is_zero(op.value)}
    ranges = {name: r for name, r in uniform_ranges(kernel).items() if name != CONSUMER}
    work = _Fresh(zeros, _uses(kernel.body), ranges, Names(kernel))
    body = rebuild(kernel.body, work.op)
    if body == kernel.body:
        return kernel
    left = _uses(body)
    body = rebuild(body, lambda op: () if isinstance(op, ConstOp) and not left[op.result.name] else (op,))
    return replace(kernel, body=body)


def _is_zero(value: int | float | bool) -> bool:
    return value == 0 and copysign(1.0, value) > 0


def _uses(body: tuple[MemOp, ...]) -> Counter[str]:
    return Counter(name for op in walk_ops(body) for name in reads(op))


@dataclass(frozen=True, slots=True)
class _Fresh:
    zeros: set[str]
    uses: Counter[str]
    ranges: Ranges
    names: Names

    def op(self, op: MemOp) -> tuple[MemOp, ...]:
        """The ops that replace ``op``, whose bodies are rewritten already."""
        match op:
            case MmaOp(acc=acc) if acc is not None and op.instr in WGMMA and acc.name in self.zeros:
                return (replace(op, acc=None, zero_init=None),)
            case ForOp():
                return self._loop(op)
        return (op,)

    def _loop(self, loop: ForOp) -> tuple[MemOp, ...]:
        if simplify(calc("lt", loop.lo, loop.hi), self.ranges) != TRUE:
            return (loop,)
        first = calc("eq", Var(loop.var), loop.lo)
        made: list[MemOp] = []
        carried, body = list(loop.carried), list(loop.body)
        for n, (arg, init) in enumerate(loop.carried):
            at = self._start(arg, body)
            if init.name in self.zeros and at is not None:
                start = self.names.frag(init, "start")
                made.append(UndefinedOp(start, loop.span))
                carried[n] = (arg, start)
                body[at[0]] = replace(at[1], zero_init=first)
        return (*made, replace(loop, carried=tuple(carried), body=tuple(body))) if made else (loop,)

    def _start(self, arg: Frag, body: list[MemOp]) -> tuple[int, MmaOp] | None:
        """The MMA at the top of ``body`` that is the only reader of ``arg``, as its accumulator, and its place."""
        if self.uses[arg.name] != 1:
            return None
        for n, op in enumerate(body):
            if isinstance(op, MmaOp) and op.instr in WGMMA and op.zero_init is None and op.acc == arg:
                return n, op
        return None

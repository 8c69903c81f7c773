"""Kernels of full sizes, each as a module of its own that is little work to run.

A module of a large spec is taken apart: each kernel becomes a module whose temps are inputs and outputs.  Its plan, its
offsets and its text stay those of the full sizes.  Where a block would run for long, a persistent grid gets more
blocks, and loops of many iterations get fewer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import lcm, prod
from typing import Literal

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.nodes import Const, Expr, loads
from nautilus.core.index.sizes import at_most
from nautilus.core.types import DType
from nautilus.ma_tile.ir.dependent_launch import GridLaunchDependents, GridWait
from nautilus.ma_tile.ir.ops import ForOp, GlobalStore, MemKernel, MemModule, MemOp, MmaOp, RolesOp, walk_ops
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.ir.traverse import defined, exchanged, expressions, memory_of, rebuild, stored

#: Bytes of the tensors of a kernel that is run.
MOST_BYTES = 3 << 29
#: Elements that the ops of a block compute, of which the simulated GPU takes some seconds.
MOST_ELEMENTS = 6_000_000
#: Multiply-adds of a matrix unit that take as long as one element.
_PRODUCTS = 64
#: Tiles of a block of a persistent grid.
_TILES = 2
#: Iterations of a loop that stay.
_ITERATIONS = 4


Cut = Literal["none", "last", "first"]
#: Every way to cut a kernel, in the order in which to try them.
CUTS: tuple[Cut, ...] = ("none", "last", "first")


@dataclass(frozen=True)
class Alone:
    """A module of one kernel.  ``given``: outputs that have contents before the launch."""

    module: MemModule
    given: frozenset[str]

    @property
    def kernel(self) -> MemKernel:
        """The kernel."""
        return self.module.kernels[0]

    @property
    def blocks(self) -> int:
        """Blocks of its launch."""
        assert isinstance(self.kernel.blocks, Const)
        return int(self.kernel.blocks.value)


def alone(module: MemModule, kernel: MemKernel, cut: Cut = "none") -> Alone | str:
    """``kernel`` by itself, or why its blocks are not run: a size that is known at launch, too much work, and blocks
    that wait for others.

    ``cut``: the iterations that long loops lose.
    """
    if not isinstance(kernel.blocks, Const):
        return "a grid that is known at launch"
    if kernel.team > 1 or kernel.spread > 1:
        return "blocks that wait for others"
    ops = list(walk_ops(kernel.body))
    read = {ld.buffer for e in _expressions(kernel, ops) for ld in loads(e)}
    used, written = read | {name for op in ops for name in memory_of(op)}, stored(ops)
    buffers = tuple(
        replace(b, space=Space.OUTPUT if b.name in written else Space.INPUT) for b in module.buffers if b.name in used
    )
    if any(not isinstance(n, int) for b in buffers for n in (*b.shape, *(b.strides or ()))):
        return "a tensor whose size is known at launch"
    if sum(_elements(b) * max(b.dtype.bytes, 1) for b in buffers) > MOST_BYTES:
        return "tensors that are too large"
    body = tuple(op for op in kernel.body if not isinstance(op, GridWait | GridLaunchDependents))
    made = _of_few_tiles(_with_few_iterations(replace(kernel, body=body), cut))
    if work(made) > MOST_ELEMENTS:
        return "blocks that are too much work"
    given = exchanged(kernel.body) | {op.buffer for op in ops if isinstance(op, GlobalStore) and op.combiner}
    return Alone(replace(module, buffers=buffers, kernels=(made,)), frozenset(given))


def _expressions(kernel: MemKernel, ops: list[MemOp]) -> Iterator[Expr]:
    yield from (e for _, e in kernel.decode)
    for op in ops:
        yield from expressions(op)


def _elements(b: Buffer) -> int:
    return prod(at_most(n) for n in b.shape)


def _of_few_tiles(kernel: MemKernel) -> MemKernel:
    """A persistent kernel with so many blocks that each has few tiles; one where it takes them from a counter."""
    loop = next((op for op in walk_ops(kernel.body) if isinstance(op, TileSchedulerOp)), None)
    if loop is None or not isinstance(loop.count, Const) or not isinstance(kernel.blocks, Const):
        return kernel
    count = int(loop.count.value)
    blocks = (count if loop.order == "dynamic" else -(-count // _TILES)) * kernel.cluster
    return replace(kernel, blocks=Const(max(int(kernel.blocks.value), blocks), kernel.blocks.dtype))


def _with_few_iterations(kernel: MemKernel, cut: Cut) -> MemKernel:
    """The kernel with fewer iterations of its long loops, without the first or the last ones.

    Loops that end at nearly the same number, as those of a producer and its consumers do, lose as many iterations, a
    multiple of all numbers of stages, so that the others find the stages that they expect.  Where a condition on the
    iteration says what is loaded or where a sum starts, one of the two cuts leaves a kernel that the interpreter
    refuses.
    """
    loops = [op for op in walk_ops(kernel.body) if isinstance(op, ForOp) and isinstance(op.hi, Const)]
    pipelines = [*(b.stages for b in kernel.mbars), *(c.stages for c in kernel.pipelines)]
    step = 2 * lcm(*(s.stages for s in kernel.smem), *pipelines, 1)
    most = max((_end(op) for op in loops), default=0)
    less = 0 if cut == "none" else (most - _ITERATIONS) // step * step
    if less <= 0:
        return kernel

    def shorter(op: MemOp) -> tuple[MemOp, ...]:
        if not isinstance(op, ForOp) or not isinstance(op.hi, Const) or _end(op) <= less:
            return (op,)
        if cut == "last":
            return (replace(op, hi=Const(_end(op) - less, DType.I32)),)
        return (replace(op, lo=Const(int(op.lo.value) + less, DType.I32)),) if isinstance(op.lo, Const) else (op,)

    return replace(kernel, body=rebuild(kernel.body, shorter))


def _end(op: ForOp) -> int:
    assert isinstance(op.hi, Const)
    return int(op.hi.value)


def work(kernel: MemKernel) -> int:
    """The elements that the ops of a block compute, with matrix products as :data:`_PRODUCTS` says."""
    return sum(_work(kernel, op) for op in kernel.body)


def _work(kernel: MemKernel, op: MemOp) -> int:
    match op:
        case ForOp(lo=lo, hi=hi, body=body):
            count = int(hi.value) - int(lo.value) if isinstance(hi, Const) and isinstance(lo, Const) else 64
            return max(count, 0) * sum(_work(kernel, x) for x in body)
        case RolesOp(roles=roles):
            return sum(r.consumers * sum(_work(kernel, x) for x in r.body) for r in roles)
        case TileSchedulerOp(body=body):
            return _TILES * sum(_work(kernel, x) for x in body)
    inner = getattr(op, "body", None)
    if inner is not None:
        return sum(_work(kernel, x) for x in inner)
    held = sum(32 * kernel.layouts[f.layout].warps * kernel.layouts[f.layout].registers for f in defined(op))
    return held * _depth(kernel, op) if isinstance(op, MmaOp) else held


def _depth(kernel: MemKernel, op: MmaOp) -> int:
    smem = {s.name: s.axes for s in kernel.smem}
    axes = [x.type.axes if hasattr(x, "type") else smem[x.buffer] for x in (op.a, op.b)]
    depth = next((a.size for found in axes for a in found if a.name == op.over), 1)
    return depth if op.instr == "fma" else max(1, depth // _PRODUCTS)

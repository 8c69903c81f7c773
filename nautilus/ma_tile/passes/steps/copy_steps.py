"""``copy-steps``: a warp copies the rows of later steps to shared memory, many elements with each instruction.

A loop of steps (``prefetch-steps``) whose rows are contiguous across the lanes of its only warp loads 128 bytes with
each instruction.  On an H200 two loads and a store a step take 50 to 65 cycles then, also where memory has nothing else
to do and 16 to 64 steps are loaded ahead, as if a warp had about 32 loads outstanding.  ``cp.async`` copies 16 bytes a
lane, four rows of 32 elements of f32 with each instruction, into a pipeline of stages of ``N`` steps::

    for t in 0..T carry(h):                       for s in 0..T // N carry(h):
        %x = ld.global X[b, t, d]                     cp.async steps_X[stage], X[b, (s + S - 1) * N + v, d];  cp.commit
        %h1 = f(%h, %x)                               %xs = ld.shared steps_X[stage]
        st.global Y[b, t, d], %h1                     %x = slice %xs at v 0;  %h1 = f(%h, %x);  st.global ..;  ..
                                                  for t in T // N * N..T: the steps that are left

``pipeline-copies`` issues the copies of later iterations, and ``synchronize`` puts the waits.  H200, f32, two loads and
a store a step: 8 sequences of 2048 steps of 1024 channels 56 us with 8 stages of 16 steps, 81 to 98 with loads ahead
(the memory takes 52); 32 of 4096 steps of 256 channels 112 and 157 to 190; 2 of 4096 steps of 512 channels 58 and 118.

A loop is changed if all loads that only the number of the step decides on have such rows, its bounds are known, and its
multiprocessors have at most :data:`WARPS` warps, which otherwise have enough loads outstanding together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import ZERO, calc, integer
from nautilus.core.expr.nodes import Const, Var, refs, substitute
from nautilus.core.index.simplify import TRUE, simplify
from nautilus.core.records import dataclass
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileAxis
from nautilus.ma_tile.analysis.access import contiguous_axis, vector_width
from nautilus.ma_tile.analysis.code_size import MOST, code_size
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.ops import (
    AsyncCommit,
    AsyncCopy,
    ForOp,
    Frag,
    GlobalLoad,
    IndexOp,
    MemKernel,
    MemModule,
    MemOp,
    SharedLoad,
    SliceOp,
    Slot,
    Smem,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import each_kernel, rebuild
from nautilus.ma_tile.lowering.layouts import spread
from nautilus.ma_tile.passes.copies.pipeline_copies import pipeline
from nautilus.ma_tile.passes.steps.prefetch_steps import COMPUTED, NEEDED, computed, independent, is_steps
from nautilus.ma_tile.rewriting.renaming import Names, axes_of, layout_name, left_over, step
from nautilus.targets.limits import VECTOR_BYTES, WARP, WORD
from nautilus.targets.rates import machine

STEPS = 16  # of a stage
STAGES = 8
LEAST = 4  # stages of a loop that is worth the rewrite
WARPS = 4  # of a multiprocessor


@dataclass(frozen=True, slots=True)
class CopySteps:
    """``steps``: those of a stage of any loop whose rows are copied (for tests); 0: what the rule says."""

    steps: int = 0
    name = "copy-steps"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose loops of steps copy the rows of later steps."""
        buffers = {b.name: b for b in module.buffers}
        return each_kernel(module, lambda k: _kernel(k, buffers, module.target, self.steps))


def _kernel(kernel: MemKernel, buffers: Mapping[str, Buffer], target: str, steps: int) -> MemKernel:
    if kernel.consumers > 1 or kernel.warps > 1 or kernel.team > 1 or kernel.spread > 1:
        return kernel
    blocks = int(kernel.launched.value) if isinstance(kernel.launched, Const) else None
    each = -(-blocks // machine(target).multiprocessors) if blocks is not None else WARPS + 1
    if any(isinstance(x, AsyncCopy) for x in walk_ops(kernel.body)) or (each > WARPS and not steps):
        return kernel
    work, stages = _Copies(kernel, buffers, dict(kernel.layouts), Names(kernel), []), STAGES

    def rule(op: MemOp) -> Sequence[MemOp]:
        nonlocal stages
        if not isinstance(op, ForOp) or not is_steps(op) or any(isinstance(x, ForOp) for x in op.body):
            return (op,)
        loads = independent(kernel, op)
        size = steps or _steps(kernel, op)
        row = sum(WARP * x.result.type.dtype.bytes for x in loads)
        count = min(STAGES, NEEDED // max(1, each * size * row)) if not steps else STAGES
        made = work.copied(op, loads, size) if loads and size > 1 and count > 2 else None
        if made is None:
            return (op,)
        stages = min(stages, count)
        return made

    body = rebuild(kernel.body, rule)
    if not work.smem:
        return kernel
    return pipeline(replace(kernel, body=body, layouts=work.layouts, smem=(*kernel.smem, *work.smem)), stages)


def _steps(kernel: MemKernel, loop: ForOp) -> int:
    """The steps of a stage: fewer where they are long."""
    size, code = STEPS, code_size(kernel, loop.body)
    while size > 1 and (size * computed(kernel, loop) > COMPUTED or 2 * size * code > MOST):
        size //= 2
    return size


@dataclass(slots=True)
class _Copies:
    """The copies of one kernel; ``layouts``, ``names`` and ``smem`` take what they add."""

    kernel: MemKernel
    buffers: Mapping[str, Buffer]
    layouts: dict[str, FragLayout]
    names: Names
    smem: list[Smem]

    def copied(self, loop: ForOp, loads: Sequence[GlobalLoad], size: int) -> tuple[MemOp, ...] | None:
        """``loop`` with ``size`` steps in an iteration, and the loop of the steps that are left.

        None where its bounds are not known, or where one of ``loads`` has no row across the lanes.
        """
        if not isinstance(loop.lo, Const) or not isinstance(loop.hi, Const):
            return None
        low, high = int(loop.lo.value), int(loop.hi.value)
        if low % size or high - low < LEAST * size:
            return None
        axis = TileAxis(fresh("v", axes_of(self.layouts) | self.names.variables), size)
        copies, whole, smem = list[MemOp](), dict[int, Frag](), list[Smem]()
        for x in loads:
            copy = self._copy(loop, x, axis, {s.name for s in (*self.kernel.smem, *self.smem, *smem)})
            if copy is None:
                return None
            smem.append(copy[0])
            copies.append(copy[1])
            whole[id(x)] = self._whole(x.result, axis)
        self.smem += smem
        reads = [
            SharedLoad(whole[id(x)], Slot(s.name, ZERO), 1, x.span) for x, s in zip(loads, smem, strict=True)
        ]  # fmt: skip
        body: list[MemOp] = [*copies, AsyncCommit(loop.span), *reads]
        state = [a for a, _ in loop.carried]
        for k in range(size):
            state = self._step(loop, k, state, whole, axis, high // size, body)
        rest = high % size
        results = loop.results if not rest else tuple(self.names.frag(f, "copied") for f in loop.results)
        main = replace(
            loop, results=results, lo=integer(low // size), hi=integer(high // size), body=tuple(body),
            yields=tuple(state),
        )  # fmt: skip
        return (main, left_over(loop, integer(high - rest), results, self.names)) if rest else (main,)

    def _copy(self, loop: ForOp, x: GlobalLoad, axis: TileAxis, taken: set[str]) -> tuple[Smem, AsyncCopy] | None:
        """The copy of the rows that ``x`` loads in the steps of an iteration, and where they are; None without rows."""
        buffer, kind = self.buffers[x.buffer], x.result.type
        if len(kind.axes) != 1 or self.layouts[x.result.layout].registers != 1 or kind.dtype is not buffer.dtype:
            return None
        (row,) = kind.axes
        if row.size == 1 or x.repeat is not None or any(map(refs, (*x.index, x.mask or TRUE))):
            return None
        step = {loop.var: calc("add", calc("mul", Var(loop.var), axis.size), Var(axis.name))}
        index = tuple(simplify(substitute(e, step)) for e in x.index)
        mask = None if x.mask is None else simplify(substitute(x.mask, step))
        if contiguous_axis(buffer, x.index, (row.name,), {}) is None:
            return None
        most = min(VECTOR_BYTES // buffer.dtype.bytes, row.size & -row.size)
        vec = vector_width(buffer, index, mask, row.name, most, {})
        if vec * buffer.dtype.bytes < WORD:
            return None
        smem = Smem(fresh(f"steps_{buffer.name}", taken), buffer.dtype, (axis, row))
        threads = layout_name(self.layouts, spread((axis, row), vec, 1), f"{x.result.layout}_copies")
        return smem, AsyncCopy(Slot(smem.name, ZERO), x.buffer, index, mask, vec, threads, None, x.span)

    def _whole(self, f: Frag, axis: TileAxis) -> Frag:
        """A fragment as ``f`` for each step of an iteration."""
        layout = self.layouts[f.layout]
        steps = replace(layout, reg=(Mode(axis.size, axis.name, 1), *layout.reg))
        known = layout_name(self.layouts, steps, f"{f.layout}_{axis.name}")
        return replace(self.names.frag(f, "steps"), type=replace(f.type, axes=(axis, *f.type.axes)), layout=known)

    def _step(
        self, loop: ForOp, k: int, state: Sequence[Frag], whole: Mapping[int, Frag], axis: TileAxis, iterations: int,
        body: list[MemOp],
    ) -> list[Frag]:  # fmt: skip
        """Append step ``k`` of an iteration to ``body``, from ``state``; the state after it."""
        at = calc("add", calc("mul", Var(loop.var), axis.size), k)
        one = step(loop, at, state, self.names, f"s{k}")
        ranges = {loop.var: (0, iterations - 1)}
        for x in loop.body:
            if isinstance(x, GlobalLoad) and id(x) in whole:
                body.append(SliceOp(one.frags[x.result.name], whole[id(x)], axis.name, k, x.span))
                continue
            made = one.op(x)
            body.append(replace(made, expr=simplify(made.expr, ranges)) if isinstance(made, IndexOp) else made)
        return [one.rename.frag(f) for f in loop.yields]

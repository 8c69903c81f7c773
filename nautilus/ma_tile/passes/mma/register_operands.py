"""Read a left operand that does not change in a loop into registers once, in front of it.

A warpgroup MMA takes its left operand from shared memory or from registers.  One that is loaded
outside of the loop is then read by the matrix unit in every iteration; in fragments
(``wg_a_layout``, by ldmatrix, 16-bit types) it is read once, and its stage is free from there on.  It
costs rows x depth / 256 registers a thread.

An operand stays in shared memory where the same loop goes on to compute a left operand of another MMA, in the same
iteration: ptxas 13.0 then gives that operand the registers of the register-resident one, which the next iteration
still reads (found on an H200: wrong results, and no message in its log).  An operand that is carried from the
previous iteration, as ``pipeline-mma`` makes it, is live beside the register-resident one and keeps its registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from nautilus.core.expr.nodes import Ref, free_vars, walk
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.core.tiles import TileType
from nautilus.ma_tile.analysis.mma_stages import chains, is_wgmma
from nautilus.ma_tile.ir.async_ops import AdvanceOp
from nautilus.ma_tile.ir.instruction_tables import WGMMA, wg_a_layout
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import ForOp, Frag, LetOp, MatrixLoad, MemKernel, MemModule, MemOp, MmaOp, Slot, walk_ops
from nautilus.ma_tile.ir.traverse import bound, deep_touch, each_planned_kernel, rebuild
from nautilus.ma_tile.passes.mma.pipeline_mma import most_iterations, pipeline
from nautilus.ma_tile.rewriting.renaming import Names, each_block, layout_name
from nautilus.targets.limits import WGMMA_ROWS


@dataclass(frozen=True, slots=True)
class RegisterOperands:
    """``register_operands`` overrides the schedule's."""

    schedule: Schedule | None = None
    register_operands: bool | None = None
    name = "register-operands"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose invariant left operands are in registers."""

        def one(k: MemKernel, plan: WarpgroupPlan) -> MemKernel:
            if not plan.register_operands:
                return k
            resident = in_registers(k)
            ahead = pipeline(resident, plan.rescale_placement == "late") if plan.pipeline_mma else resident
            loops = (op for op in walk_ops(ahead.body) if isinstance(op, ForOp))
            repeated = (op for op in loops if most_iterations(op, {}) not in (0, 1))
            return k if any(_computes_operands(op) for op in repeated) else resident

        return each_planned_kernel(module, self, WarpgroupPlan, one)


def _computes_operands(loop: ForOp) -> bool:
    """Whether an MMA of a left operand from outside is followed by one of an operand made in the same iteration."""
    made = {f.name for op in walk_ops(loop.body) for f in bound(op)}
    inside = made | {arg.name for arg, _ in loop.carried}
    mmas = (op for op in walk_ops(loop.body) if isinstance(op, MmaOp) and is_wgmma(op))
    left = [op.a.name for op in mmas if isinstance(op.a, Frag)]
    return any(name not in inside for name in left) and any(name in made for name in left)


def in_registers(kernel: MemKernel) -> MemKernel:
    """``kernel`` with the left operands of its loops' MMAs in registers where they do not change."""
    work = _Hold(kernel, Names(kernel), dict(kernel.layouts))
    body = each_block(kernel.body, work.block)
    return kernel if body == kernel.body else replace(kernel, body=body, layouts=work.layouts)


@dataclass(slots=True)
class _Hold:
    kernel: MemKernel
    names: Names
    layouts: dict[str, FragLayout]
    resident: dict[tuple[Slot, str, str], Frag] = field(default_factory=dict)  # by slot, contracted axis, layout

    def block(self, body: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
        """``body`` with reads in front of its chains of loops; reads in front of outer loops come later."""
        out = list(body)
        for members in reversed(chains(body)):
            fixed = _fixed(body, members)
            self.resident = {}
            for n in members:
                (out[n],) = rebuild((body[n],), lambda op, fixed=fixed: (self._mma(op, fixed),))  # type: ignore[misc]
            loads = [
                MatrixLoad(f, slot, over, 0, span=body[members[0]].span) for (slot, over, _), f in self.resident.items()
            ]
            out[members[0] : members[0]] = loads
        return tuple(out)

    def _mma(self, op: MemOp, fixed: frozenset[Slot]) -> MemOp:
        """``op``, its left operand from registers if it is one of ``fixed`` and of a 16-bit type, with rows of one MMA.

        ldmatrix has no fragment of several MMAs, whose rows a warp has apart.
        """
        if not (isinstance(op, MmaOp) and is_wgmma(op)) or op.a not in fixed or op.is_async:
            return op
        assert isinstance(op.a, Slot)
        buffer = next(s for s in self.kernel.smem if s.name == op.a.buffer)
        if buffer.dtype not in WGMMA[op.instr].operands or buffer.dtype.bytes != 2 or len(buffer.axes) != 2:
            return op
        (depth,) = (a for a in buffer.axes if a.name == op.over)
        (rows,) = (a for a in buffer.axes if a.name != op.over)
        if rows.size != WGMMA_ROWS:
            return op
        whole = wg_a_layout(op.instr, rows.name, depth.name, rows.size, depth.size)
        layout = layout_name(self.layouts, whole, f"held_{depth.name}")
        key = (op.a, op.over, layout)
        if key not in self.resident:
            like = Frag(op.a.buffer, TileType(buffer.dtype, buffer.axes), layout)
            self.resident[key] = self.names.frag(like, "held")
        return replace(op, a=self.resident[key])


def _fixed(body: tuple[MemOp, ...], members: Sequence[int]) -> frozenset[Slot]:
    """Left operands of the chain's MMAs that are written before its first loop and not until after its last."""
    first, last = members[0], members[-1]
    written = {s.buffer for op in body[first : last + 1] for s in _written(op)}
    before = {s.buffer for op in body[:first] for s in _written(op)}
    inner = [x for op in body[first : last + 1] for x in walk_ops((op,))]
    own = {x.var for x in inner if isinstance(x, ForOp | LetOp)}
    own |= {v for c in _moved(inner) for v in (f"{c}_stage", f"{c}_phase")}
    out: set[Slot] = set()
    for x in inner:
        if isinstance(x, MmaOp) and isinstance(x.a, Slot) and x.a.buffer in before - written:
            moves = free_vars(x.a.stage) & own or any(isinstance(n, Ref) for n in walk(x.a.stage))
            if not moves:
                out.add(x.a)
    return frozenset(out)


def _moved(ops: Sequence[MemOp]) -> set[str]:
    """Pipelines that ``ops`` advance."""
    return {op.pipeline for op in ops if isinstance(op, AdvanceOp)}


def _written(op: MemOp) -> tuple[Slot, ...]:
    found = deep_touch(op)
    return (*found.writes, *found.copies)

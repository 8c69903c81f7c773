"""Layouts of computed operands: tiles computed from loads for one dot and nothing else.

Such a chain of elementwise work (a dequantised weight, a scaled query) is computed where its result
is needed: in the instruction's own fragments for the row operand, spread over all threads as a copy
would be for the other one, which then goes to shared memory once.

The column operand of a warp that has all rows needs no shared memory where the other operand is loaded unchanged: both
become fragments of *runs* (``ma_tile.ir.instruction_tables``), in which a thread has as many neighbours along the
contracted axis as it has positions there, and loads them, or the bytes that it converts, by vectors.  A warp with a
pipeline of its own turns the product, so that the computed operand has the rows (:func:`turned`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer
from nautilus.core.expr.nodes import Ref, walk
from nautilus.core.records import dataclass
from nautilus.core.schedule import MappingPlan
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.access import RefAxes, contiguous_axis, repeated_width, vector_width
from nautilus.ma_tile.ir.instruction_tables import MMA, WGMMA, a_layout, b_layout, operand_types
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.unpack import packed_layout
from nautilus.ma_tile.lowering.dots import DotPlan, as_operand, definitions
from nautilus.ma_tile.lowering.layouts import a_fragment, spread
from nautilus.ma_tile.lowering.operands.packed_operands import Packed, packed_values
from nautilus.ma_tile.lowering.operands.value_runs import value_runs
from nautilus.ma_tile.lowering.staging import ordered, with_fewest_conflicts
from nautilus.vr_tile import ir as vr
from nautilus.vr_tile.analysis.computed_from import computed_for, sources_of
from nautilus.vr_tile.ir import TileKernel, Value


def operand_chains(
    kernel: TileKernel, buffers: Mapping[str, Buffer], mapping: MappingPlan,
    dots: Mapping[str, DotPlan], refs: RefAxes, warps: int, runs: Runs,
) -> dict[str, FragLayout]:  # fmt: skip
    """Value name -> layout, for the members of every such chain."""
    work = _Chains(
        {a.name: a.size for a in kernel.axes}, buffers, mapping, refs, warps, definitions(kernel.body), users(kernel),
        runs,
    )  # fmt: skip
    out: dict[str, FragLayout] = {}
    for op in vr.walk_ops(kernel.body):
        if isinstance(op, vr.DotOp) and dots[op.result.name].instr != "map":
            plan = dots[op.result.name]
            sides = (op.b, op.a) if plan.swap else (op.a, op.b)
            for side, v in zip("ab", sides, strict=True):
                out |= work.chain(v, op, plan, side)
    return out


def packed_chains(
    kernel: TileKernel, buffers: Mapping[str, Buffer], dots: Mapping[str, DotPlan], refs: RefAxes,
    layouts: dict[str, FragLayout], runs: Runs,
) -> tuple[dict[str, Packed], frozenset[str]]:  # fmt: skip
    """The members of such chains, with the layouts of :func:`operand_chains`, that halves of bytes are unpacked to.

    Also the names of the values that nothing reads then.  Where nothing else of the column operand of a warp's MMA is
    made for each position along the contracted axis, ``layouts`` become those of its fragments: it needs no shared
    memory.
    """
    defs, readers = definitions(kernel.body), users(kernel)

    def shared(load: vr.LoadOp) -> str | None:
        buffer, names = buffers[load.buffer], load.result.type.names
        return next((x for x in names if repeated_width(buffer, load.index, load.mask, x, 1, refs)[1] == 2), None)

    found, unread = dict[str, Packed](), frozenset[str]()
    for op in vr.walk_ops(kernel.body):
        if isinstance(op, vr.DotOp) and (plan := dots[op.result.name]).instr not in ("map", "fma"):
            for v in (op.a, op.b):
                if v.name in layouts:
                    made, left = packed_values(v, defs, readers, shared)
                    if v is operand_of(op, plan, "b") and v.name in made and _is_fragment(made[v.name], plan):
                        along = runs.allowed(op, plan, "b")
                        layouts[v.name] = runs.vectors(plan, "b") if along else runs.layout(plan, "b", runs=False)
                    if all(x in layouts and packed_layout(layouts[x], p.axis, "") for x, p in made.items()):
                        found, unread = found | made, unread | left
    return found, unread


@dataclass(frozen=True, slots=True)
class Runs:
    """Which computed operands of a kernel become fragments of runs. ``turned``: also those with rows."""

    sizes: Mapping[str, int]
    defs: Mapping[str, vr.TileOp]
    buffers: Mapping[str, Buffer]
    refs: RefAxes
    turned: bool

    def allowed(self, dot: vr.DotOp, plan: DotPlan, side: str) -> bool:
        """Whether the operand of ``dot`` on the other side is loaded by vectors, and few registers hold it.

        Warps that share the elements of ``side`` would convert them more than once.
        """
        instr, other, free = MMA.get(plan.instr), "ab"[side == "a"], plan.n if side == "a" else plan.m
        if instr is None or not self.exist(plan):
            return False
        if plan.warps[side == "a"] > 1 or (side == "a" and not self.turned):
            return False
        v = as_operand(operand_of(dot, plan, other), self.defs, operand_types(instr, other))
        load = self.defs.get(v.name)
        if not isinstance(load, vr.LoadOp) or self.sizes[free] * self.sizes[plan.k] > _LOADED:
            return False
        return contiguous_axis(self.buffers[load.buffer], load.index, v.type.names, self.refs) == plan.k

    def exist(self, plan: DotPlan) -> bool:
        """Whether the instruction has fragments of runs: an MMA of 16-bit elements in one part."""
        instr = MMA.get(plan.instr)
        return instr is not None and instr.parts == 1 and instr.pack * DType.F16.bytes == _REGISTER

    def layout(self, plan: DotPlan, side: str, *, runs: bool) -> FragLayout:
        """The fragments of one side."""
        m, n, k = (self.sizes[x] for x in (plan.m, plan.n, plan.k))
        if side == "a":
            return a_layout(plan.instr, plan.m, plan.k, (m, k), plan.warps, runs=runs)
        return b_layout(plan.instr, plan.k, plan.n, (k, n), plan.warps, runs=runs)

    def vectors(self, plan: DotPlan, side: str) -> FragLayout:
        """The fragments of runs of one side with neighbours along the contracted axis in neighbouring registers."""
        found = self.layout(plan, side, runs=True)
        along = tuple(x for x in found.reg if x.axis == plan.k)
        return FragLayout((*along, *(x for x in found.reg if x not in along)), found.lane, found.warp)


def operand_of(dot: vr.DotOp, plan: DotPlan, side: str) -> Value:
    """The operand of ``dot`` that its instruction takes on one side, "a" or "b"."""
    return dot.a if (side == "a") is not plan.swap else dot.b


def turned(
    kernel: TileKernel, buffers: Mapping[str, Buffer], mapping: MappingPlan, dots: dict[str, DotPlan]
) -> dict[str, DotPlan]:  # fmt: skip
    """``dots`` with the only product turned where its computed operand has the columns and becomes fragments of runs.

    The registers of a left fragment come from two rows, and a conversion writes where they belong.  Those of a right
    one are as they are loaded by vectors, and it has half as many rows.
    """
    found = [op for op in vr.walk_ops(kernel.body) if isinstance(op, vr.DotOp)]
    if len(found) != 1 or dots[found[0].result.name].instr not in MMA:
        return dots
    (dot,), sizes, defs = found, {a.name: a.size for a in kernel.axes}, definitions(kernel.body)
    refs = value_runs(kernel)
    plan, instr = dots[dot.result.name], MMA[dots[dot.result.name].instr]
    runs, v = Runs(sizes, defs, buffers, refs, turned=True), operand_of(dot, plan, "b")
    if prod(plan.warps) > 1 or sizes[plan.n] % instr.m or sizes[plan.m] % instr.n or not runs.allowed(dot, plan, "b"):
        return dots
    chains = _Chains(sizes, buffers, mapping, refs, 1, defs, users(kernel), runs)
    if not chains.is_computed(v) or chains.contiguous(v) != plan.k:
        return dots
    return {dot.result.name: replace(plan, m=plan.n, n=plan.m, swap=not plan.swap)}


def _is_fragment(found: Packed, plan: DotPlan) -> bool:
    """Whether warps may unpack the whole operand to fragments, each its own columns."""
    more = [x for x in (found.zero, found.scale) if x is not None]
    apart = plan.instr in MMA and MMA[plan.instr].pack * found.dtype.bytes == _REGISTER and plan.warps[0] == 1
    return apart and found.axis == plan.k and all(plan.k not in x.type.names for x in more)


def users(kernel: TileKernel) -> dict[str, list[vr.TileOp]]:
    """Value name -> the ops that read it, directly or inside an expression; a loop reads what it yields."""
    out: dict[str, list[vr.TileOp]] = {}
    for op in vr.walk_ops(kernel.body):
        used = [v.name for v in vr.operands(op)]
        if isinstance(op, vr.ForOp):
            used += [v.name for v in op.yields]
        used += [n.name for e in vr.expressions(op) for n in walk(e) if isinstance(n, Ref)]
        for name in used:
            out.setdefault(name, []).append(op)
    return out


_REGISTER = 4  # bytes
_LOADED = 2048  # elements of the other operand in a step: 32 registers a thread
_LONGEST = 32  # elements of a thread that follow one another: 16 bytes of 4-bit elements


@dataclass(frozen=True, slots=True)
class _Chains:
    sizes: Mapping[str, int]
    buffers: Mapping[str, Buffer]
    mapping: MappingPlan
    refs: RefAxes
    warps: int
    defs: Mapping[str, vr.TileOp]
    users: Mapping[str, Sequence[vr.TileOp]]
    runs: Runs

    def chain(self, v: Value, dot: vr.DotOp, plan: DotPlan, side: str) -> dict[str, FragLayout]:
        """Layouts of the chain that ends in operand ``v`` of ``dot``; empty where it is none."""
        if not self.is_computed(v) or any(u is not dot for u in self.users.get(v.name, ())):
            return {}
        leaves = (vr.LoadOp, vr.ConstOp, vr.IndexOp, vr.ParamOp)
        if not all(isinstance(s, leaves) for s in sources_of(v, self.defs)):
            return {}
        fragment = side == "a" and plan.instr != "fma" and (plan.instr in WGMMA or MMA[plan.instr].parts == 1)
        last = self.contiguous(v)
        if last == plan.k and self.runs.allowed(dot, plan, side):
            layout = self.runs.vectors(plan, side)
        elif fragment and (plan.instr in WGMMA or last in (plan.k, None)):
            layout = a_fragment(plan, self.sizes)
        else:
            last = last or self._lanes(v)
            found = spread(ordered(v.type.axes, last), self._vec(v, last), self.warps)
            layout = with_fewest_conflicts(found, v.type, plan.instr, plan.k)
        names = set(v.type.names)
        return dict.fromkeys(
            computed_for([v.name], self.defs, self.users, lambda a: set(a.type.names) == names), layout
        )

    def is_computed(self, v: Value) -> bool:
        """Whether ``v`` is computed, or chosen from a table by what is computed for each of its elements."""
        op = self.defs.get(v.name)
        chosen = {n.name for e in op.index for n in walk(e) if isinstance(n, Ref)} if isinstance(op, vr.LoadOp) else ()
        names = set(v.type.names)
        return isinstance(op, vr.MapOp) or any(
            isinstance(made := self.defs.get(x), vr.MapOp) and set(made.result.type.names) == names for x in chosen
        )

    def contiguous(self, v: Value) -> str | None:
        """The axis along which the loads of small elements for ``v`` are contiguous; None where there is none.

        In fragments, whose registers follow the contracted axis, elements along another one are loads of their own.
        """
        for s in self._loads(v):
            if set(s.result.type.names) == set(v.type.names):
                buffer = self.buffers[s.buffer]
                axis = contiguous_axis(buffer, s.index, v.type.names, self.refs)
                if axis is None:
                    axis = next((x for x in v.type.names if self._width(s, x) > 1), None)
                if axis is not None and buffer.dtype.bytes <= 2 and self._width(s, axis) > 1:
                    return axis
        return None

    def _lanes(self, v: Value) -> str:
        """The axis whose neighbours neighbouring lanes have: that along which a load for ``v`` is contiguous.

        Where none is, the axis whose neighbours share a word, of which a thread then loads each once.
        """
        whole = [s for s in self._loads(v) if set(s.result.type.names) == set(v.type.names)]
        near = (contiguous_axis(self.buffers[s.buffer], s.index, v.type.names, self.refs) for s in whole)
        shared = (x for s in whole for x in v.type.names if self._width(s, x) > 1)
        return next((x for x in near if x is not None), None) or next(shared, v.type.axes[-1].name)

    def _vec(self, v: Value, axis: str) -> int:
        """Vector width along ``axis`` of the loads that ``v`` is computed from."""
        best = 1
        for s in self._loads(v):
            if set(s.result.type.names) == set(v.type.names):
                best = max(best, self._width(s, axis))
        return best

    def _loads(self, v: Value) -> Iterator[vr.LoadOp]:
        """The loads that ``v`` is computed from, each before those of the numbers that give its place in a table."""
        for s in sources_of(v, self.defs):
            if isinstance(s, vr.LoadOp):
                yield s
                for n in (n for e in vr.expressions(s) for n in walk(e) if isinstance(n, Ref)):
                    yield from self._loads(vr.results(self.defs[n.name])[0])

    def _width(self, s: vr.LoadOp, axis: str) -> int:
        buffer, size = self.buffers[s.buffer], self.sizes[axis]
        most = max(1, self.mapping.vector_bytes // buffer.dtype.bytes)
        run, _ = repeated_width(buffer, s.index, s.mask, axis, most, self.refs)
        if run > 1:
            return min(run, size & -size, _LONGEST)
        return vector_width(buffer, s.index, s.mask, axis, min(size & -size, most), self.refs)

"""Right operands of warpgroup MMAs that are computed from loads elementwise, such as a dequantised tile.

Warpgroup MMAs read right operands from shared memory.  Each consumer computes its own part of the tile, in pieces of a
few rows: a piece passes through registers beside the accumulators, which leave few.  The lowering
(:mod:`nautilus.ma_tile.lowering.warpgroup`) loads what the pieces are computed from, and stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Expr, Ref, Var, free_vars, refs, rewrite
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.access import RefAxes, contiguous_axis, repeated_width
from nautilus.ma_tile.ir.async_ops import GROUP_WARPS
from nautilus.ma_tile.ir.instruction_tables import WGMMA, operand_types
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.lowering.consumers import LEAVES, Own
from nautilus.ma_tile.lowering.dots import DotPlan, as_operand
from nautilus.ma_tile.lowering.layouts import spread
from nautilus.ma_tile.lowering.operands.computed_operands import users
from nautilus.ma_tile.lowering.staging import ordered
from nautilus.targets.limits import VECTOR_BYTES
from nautilus.vr_tile import ir as vr
from nautilus.vr_tile.analysis.computed_from import computed_for, computed_from
from nautilus.vr_tile.ir import TileKernel, Value

REGISTERS = 32  # elements of a piece that a thread has
PIECE = "_from_"  # between the name of a value and where its piece begins


@dataclass(frozen=True, slots=True)
class ComputedTile:
    """The part of a tile that a consumer computes, in pieces of ``rows`` along the first axis.

    ``axes``: those of the part, in the order of shared memory.  ``vec``: elements along the last axis that a thread
    stores at once.
    """

    axes: tuple[TileAxis, TileAxis]
    rows: int
    vec: int

    def layout(self, warps: int) -> FragLayout:
        """The layout of a piece."""
        return spread((TileAxis(self.axes[0].name, self.rows), self.axes[1]), self.vec, warps)


def computed_tiles(
    own: Own, dots: Mapping[str, DotPlan], defs: Mapping[str, vr.TileOp], buffers: Mapping[str, Buffer], refs: RefAxes
) -> dict[str, ComputedTile]:
    """The values of the consumer ``own`` that are such operands; ``dots``: their products."""
    out: dict[str, ComputedTile] = {}
    for op in vr.walk_ops(own.kernel.body):
        if isinstance(op, vr.DotOp) and (instr := WGMMA.get(dots[op.result.name].instr)) is not None:
            v = as_operand(op.a if dots[op.result.name].swap else op.b, defs, operand_types(instr, "b"))
            v = replace(v, name=own.parts.get(v.name, (v.name, 0))[0])
            chain = [op for _, op in computed_from([v], defs)]
            not_copied = isinstance(x := defs.get(v.name), vr.MapOp) or _is_gathered(x, defs)
            if not_copied and all(isinstance(x, vr.MapOp | LEAVES) for x in chain):
                found = _tile(v, chain, buffers, refs)
                out |= {} if found is None else {v.name: found}
    return out


def _is_gathered(op: vr.TileOp | None, defs: Mapping[str, vr.TileOp]) -> bool:
    """Whether ``op`` loads rows at positions of their own, which no TMA copy does."""
    names = {n for e in op.index for n in refs(e)} if isinstance(op, vr.LoadOp) else set()
    return any(v.type.axes for name in names if name in defs for v in vr.results(defs[name]))


def delayed(kernel: TileKernel, tiles: Mapping[str, ComputedTile], defs: Mapping[str, vr.TileOp]) -> frozenset[str]:
    """The values that only ``tiles`` are computed from, so that they are computed in pieces too."""
    return computed_for(tiles, defs, users(kernel))


def _tile(v: Value, chain: list[vr.TileOp | None], buffers: Mapping[str, Buffer], refs: RefAxes) -> ComputedTile | None:
    """How a consumer computes ``v``; None where it is no matrix of whole vectors."""
    names = v.type.names
    loads = [op for op in chain if isinstance(op, vr.LoadOp) and set(op.result.type.names) == set(names)]
    last = next((x for op in loads if (x := contiguous_axis(buffers[op.buffer], op.index, names, refs))), None)
    last = last or next((x for op in loads for x in names if _shares(op, buffers[op.buffer], x, refs)), None)
    axes = ordered(v.type.axes, last)
    vec = VECTOR_BYTES // v.type.dtype.bytes
    if last is None or len(axes) != 2 or axes[1].size % vec:
        return None
    threads, rows, columns = 32 * GROUP_WARPS, axes[0].size, axes[1].size
    if rows * columns % (threads * vec):
        return None
    while rows * columns > REGISTERS * threads and rows * columns % (2 * threads * vec) == 0 and rows % 2 == 0:
        rows //= 2
    return ComputedTile((axes[0], axes[1]), rows, vec)


def _shares(op: vr.LoadOp, buffer: Buffer, axis: str, refs: RefAxes) -> bool:
    """Whether neighbours along ``axis`` share an element, such as a byte that holds two, and these are contiguous."""
    return repeated_width(buffer, op.index, op.mask, axis, VECTOR_BYTES // buffer.dtype.bytes, refs)[0] > 1


def pieces(
    defs: Mapping[str, vr.TileOp], v: Value, rows: TileAxis, start: int, copied: Callable[[str], bool]
) -> list[vr.TileOp]:
    """The ops that compute the piece of ``v`` with ``rows`` from ``start`` on, operands first.

    ``copied``: whether a loaded value is in shared memory, with elements in place of those that its mask leaves out.
    """
    work = _Pieces(defs, rows, start, copied)
    work.piece(v)
    return list(work.ops.values())


@dataclass(slots=True)
class _Pieces:
    """The ops of one piece, by the names of their results."""

    defs: Mapping[str, vr.TileOp]
    rows: TileAxis
    start: int
    copied: Callable[[str], bool]
    ops: dict[str, vr.TileOp] = field(default_factory=dict)

    def piece(self, x: Value) -> Value:
        """The piece of ``x``; itself where it has no rows."""
        axes = tuple(self.rows if a.name == self.rows.name else a for a in x.type.axes)
        name = f"{x.name}{PIECE}{self.start}_to_{self.start + self.rows.size}"
        out, op = Value(name, TileType(x.type.dtype, axes)), self.defs.get(x.name)
        if self.rows.name not in x.type.names or op is None:
            return x
        if f"{name}_chosen" in self.ops:
            return vr.results(self.ops[f"{name}_chosen"])[0]
        if name in self.ops:
            return out
        match op:
            case vr.MapOp():
                self.ops[name] = replace(op, result=out, args=tuple(map(self.piece, op.args)))
            case vr.LoadOp():
                op, condition = unmasked(op) if self.copied(x.name) else (op, None)
                mask = None if op.mask is None else self.expr(op.mask)
                self.ops[name] = replace(op, result=out, index=tuple(map(self.expr, op.index)), mask=mask)
                return out if condition is None else self.chosen(out, self.expr(condition))
            case vr.IndexOp():
                self.ops[name] = replace(op, result=out, expr=self.expr(op.expr))
            case _:
                assert isinstance(op, vr.ConstOp | vr.ParamOp)
                self.ops[name] = replace(op, result=out)
        return out

    def expr(self, e: Expr) -> Expr:
        """``e`` at the rows of the piece."""

        def rule(n: Expr) -> Expr | None:
            if isinstance(n, Var) and n.name == self.rows.name and self.start:
                return calc("add", n, self.start)
            if isinstance(n, Ref) and (op := self.defs.get(n.name)) is not None:
                (x,) = vr.results(op)
                return replace(n, name=self.piece(x).name) if self.rows.name in x.type.names else None
            return None

        return rewrite(e, rule)

    def chosen(self, x: Value, condition: Expr) -> Value:
        """``x`` where ``condition`` holds, and 0 elsewhere."""
        dtype = x.type.dtype.compute
        axes = tuple(a for a in x.type.axes if a.name in free_vars(condition))
        cond = Value(f"{x.name}_inside", TileType(DType.BOOL, axes))
        wide, out = (Value(f"{x.name}_{name}", TileType(dtype, x.type.axes)) for name in ("wide", "chosen"))
        zero = Value(f"{x.name}_zero", TileType(dtype))
        self.ops |= {
            cond.name: vr.IndexOp(cond, condition),
            wide.name: vr.MapOp(wide, "cast", (x,)),
            zero.name: vr.ConstOp(zero, 0.0 if dtype.is_float else 0),
            out.name: vr.MapOp(out, "select", (cond, wide, zero)),
        }
        return out


def unmasked(op: vr.LoadOp) -> tuple[vr.LoadOp, Expr | None]:
    """``op`` without the conditions of its mask that differ between elements, and these.

    A TMA copy loads whole tiles, and such elements are replaced by 0 after it.
    """
    every = conjuncts(op.mask)
    apart = [c for c in every if not free_vars(c).isdisjoint(op.result.type.names)]
    return replace(op, mask=conjunction([c for c in every if c not in apart])), conjunction(apart)

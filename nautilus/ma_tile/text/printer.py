"""The text form of the MA-tile IR: ``parse(format(m)) == m`` for every module (grammar: ``ma_tile.ir.ops``).

A fragment's type and layout stand at its definition only; a carried argument has those of its
initial value, a loop's results those of the arguments.  Zeros that mean "nothing" are not printed:
the swizzle of a slot, ``ahead``, the number of the barrier of all threads.
"""

from __future__ import annotations

from nautilus.core.expr.nodes import Expr
from nautilus.core.text.declarations import format_buffer, format_param
from nautilus.core.text.expressions import format_expr, format_list
from nautilus.core.text.tokens import format_number
from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType
from nautilus.ma_tile.ir.ops import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    ConstOp,
    ConvertOp,
    ForOp,
    Frag,
    GlobalLoad,
    GlobalStore,
    IfOp,
    IndexOp,
    MapOp,
    MatrixLoad,
    MbarArrive,
    MbarWait,
    MemKernel,
    MemModule,
    MemOp,
    MmaOp,
    ParamOp,
    ReduceOp,
    Role,
    RolesOp,
    SharedLoad,
    SharedStore,
    SliceOp,
    Slot,
    UndefinedOp,
)
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.text.parser import parse
from nautilus.ma_tile.text.parts import (
    WarpgroupOp,
    format_barrier,
    format_frags,
    format_ring,
    format_slot,
    format_warpgroup,
)

__all__ = ["format", "format_op", "format_ops", "format_type", "parse"]

_STEP = "  "

# -- printing ---------------------------------------------------------------------------------


def format(m: MemModule) -> str:
    """The text of a module."""
    lines = [f"module {m.name} target {m.target} {{"]
    lines += [_STEP + format_buffer(b) for b in m.buffers]
    lines += [_STEP + format_param(p) for p in m.params]
    for k in m.kernels:
        lines += _kernel(k)
    lines.append("}")
    return "\n".join(lines) + "\n"


def _kernel(k: MemKernel) -> list[str]:
    head = f"kernel {k.name} grid {format_expr(k.blocks)} warps {k.warps} min_blocks {k.min_blocks}"
    head += "".join(f" {word} {n}" for word, n in (("units", k.units), ("cluster", k.cluster)) if n != 1)
    head += " early {" if k.early else " {"
    inner = [f"let {var} = {format_expr(e)}" for var, e in k.decode]
    inner += [f"layout #{name} = {layout}" for name, layout in k.layouts.items()]
    inner += [
        f"smem {s.name} : {format_type(s.dtype, s.axes, brackets=True)} stages {s.stages} "
        f"swizzle {s.swizzle} pad {s.pad} {'' if s.over is None else f'over {s.over} '}@ {s.offset}"
        for s in k.smem
    ]
    inner += [f"mbar {b.name} stages {b.stages} arrivals {b.arrivals} @ {b.offset}" for b in k.mbars]
    inner += [f"cursor {c.name} stages {c.stages}" for c in k.cursors]
    return [_STEP + head, *(2 * _STEP + line for line in inner), *format_ops(k.body, 2), _STEP + "}"]


def format_type(dtype: DType, axes: tuple[TileAxis, ...], brackets: bool = False) -> str:
    """``f32[i: 128, j: 64]``; a single element has no brackets unless they are asked for."""
    if not axes and not brackets:
        return str(dtype)
    return f"{dtype}[{', '.join(f'{a.name}: {a.size}' for a in axes)}]"


def format_ops(body: tuple[MemOp, ...], depth: int = 0) -> list[str]:
    """The lines of a block of ops."""
    pad, out = _STEP * depth, list[str]()
    for op in body:
        out.append(pad + format_op(op))
        match op:
            case ForOp():
                out += format_ops(op.body, depth + 1)
                out += [f"{pad}{_STEP}yield {format_frags(op.yields)}".rstrip(), pad + "}"]
            case IfOp() | TileSchedulerOp():
                out += [*format_ops(op.body, depth + 1), pad + "}"]
            case RolesOp():
                for role in op.roles:
                    out.append(pad + _STEP + _role(role))
                    out += [*format_ops(role.body, depth + 2), pad + _STEP + "}"]
                out.append(pad + "}")
            case _:
                pass
    return out


def format_op(op: MemOp) -> str:
    """One op as one line (a structured op: its head)."""
    if isinstance(op, _Defining):
        r = op.result
        return f"%{r.name} = {_right(op)} : {format_type(r.type.dtype, r.type.axes)} #{r.layout}"
    if isinstance(op, WarpgroupOp):
        return format_warpgroup(op)
    match op:
        case GlobalStore():
            target = f"{op.buffer}[{format_list(op.index)}]"
            return f"st.global {target}, %{op.value.name}{_where(op.mask)} vec {op.vec}"
        case SharedStore():
            block = "" if op.block is None else f" block {op.block}"
            return f"st.shared {format_slot(op.slot)}{block}, %{op.value.name} vec {op.vec}"
        case AsyncCopy():
            mbar = "" if op.mbar is None else f" mbar {format_ring(*op.mbar)}"
            source = f"{op.buffer}[{format_list(op.index)}]{_where(op.mask)}"
            return f"cp.async {format_slot(op.slot)}, {source} vec {op.vec} threads #{op.threads}{mbar}"
        case AsyncCommit():
            return "cp.commit"
        case AsyncWait():
            return f"cp.wait {op.pending}"
        case Barrier(number=number, threads=threads):
            which = "" if number == Barrier().number and threads is None else f" {format_barrier(number)}"
            return f"barrier{which}" + ("" if threads is None else f", {threads}")
        case MbarArrive():
            each = "" if op.each == "thread" else f" each {op.each}"
            return f"mbar.arrive {format_ring(op.mbar, op.stage)}{each}" + (" cluster" if op.cluster else "")
        case MbarWait():
            return f"mbar.wait {format_ring(op.mbar, op.stage)} parity {format_expr(op.parity)}"
        case IfOp():
            return f"if {format_expr(op.cond)} {{"
        case ForOp():
            return _for_head(op)
        case RolesOp():
            return "roles {"


_Defining = (
    ConstOp | IndexOp | ParamOp | MapOp | ReduceOp | ConvertOp | SliceOp | UndefinedOp | GlobalLoad | SharedLoad
    | MatrixLoad | MmaOp
)  # fmt: skip


def _right(op: _Defining) -> str:
    match op:
        case ConstOp():
            return f"const {format_number(op.value, op.result.type.dtype)}"
        case IndexOp():
            return f"index {format_expr(op.expr)}"
        case ParamOp():
            return f"param {op.param}"
        case MapOp():
            return f"{op.op} {format_frags(op.args)}"
        case ReduceOp():
            scratch = "" if op.scratch is None else f" scratch {op.scratch}"
            into = "" if op.into is None else f" into {op.into}"
            return f"reduce {op.combiner} %{op.arg.name} over {', '.join(op.axes)}{scratch}{into}"
        case ConvertOp():
            return f"convert %{op.arg.name}"
        case SliceOp():
            return f"slice %{op.arg.name} at {op.axis} {op.start}"
        case UndefinedOp():
            return "undefined"
        case GlobalLoad():
            pinned = " pinned" if op.pinned else ""
            return f"ld.global {op.buffer}[{format_list(op.index)}]{_where(op.mask)} vec {op.vec}{pinned}"
        case SharedLoad():
            return f"ld.shared {format_slot(op.slot)} vec {op.vec}"
        case MatrixLoad():
            return f"ld.matrix {format_slot(op.slot)} at {op.axis} {op.start}"
        case MmaOp():
            acc = "" if op.acc is None else f" + %{op.acc.name}"
            ahead = "" if op.ahead == 0 else f" ahead {op.ahead}"
            pending = " pending" if op.pending else ""
            fresh = "" if op.fresh is None else f" fresh {format_expr(op.fresh)}"
            return f"mma {op.instr} {_operand(op.a)}, {_operand(op.b)}{acc} over {op.over}{ahead}{pending}{fresh}"


def _for_head(op: ForOp) -> str:
    left = f"{format_frags(op.results)} = " if op.results else ""
    chain = "" if op.chain is None else f" chain {op.chain}"
    carry = ", ".join(f"%{arg.name} = %{init.name}" for arg, init in op.carried)
    return f"{left}for {op.var} in {format_expr(op.lo)}..{format_expr(op.hi)}{chain} carry({carry}) {{"


def _role(role: Role) -> str:
    registers = "" if role.registers is None else f" registers {role.registers}"
    units = "" if role.units == 1 else f" units {role.units}"
    single = " single" if role.single else ""
    return f"role {role.name} warps {role.first_warp}..{role.last_warp}{registers}{units}{single} {{"


def _operand(operand: Frag | Slot) -> str:
    return f"%{operand.name}" if isinstance(operand, Frag) else f"smem {format_slot(operand)}"


def _where(mask: Expr | None) -> str:
    return "" if mask is None else f" where {format_expr(mask)}"

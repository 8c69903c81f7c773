"""One block of the physical interpreter: control flow, synchronisation, and errors that name the op.

:class:`Machine` holds what all blocks of a launch share (addresses are computed once an op);
:class:`BlockRun` runs one block.  A Fault inside an operation becomes an :class:`InterpError` with
the operation's text.  Operations on data are in ``interp_data`` and ``interp_dot``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nautilus.core.errors import NautilusError
from nautilus.core.expr import Expr
from nautilus.memory.interp_global import GlobalMemory
from nautilus.memory.interp_smem import Clock, OpFault, SharedMemory
from nautilus.memory.interp_sync import Actor, Barriers, Deadlock, Mbarriers, Program, Scheduler, Wait
from nautilus.memory.interp_values import Array, Fault, Ints, Scope, coords, spread, uniform
from nautilus.memory.layout import FragLayout
from nautilus.memory.ops import (
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
    RolesOp,
    SharedLoad,
    SharedStore,
    Slot,
    Smem,
    walk_ops,
)
from nautilus.memory.text import format_op


class InterpError(NautilusError):
    """A kernel broke a rule of the machine.

    ``kind`` names the rule, ``op`` is the operation's text (a deadlock: of every role), ``buffer``
    the buffer concerned (empty: none).
    """

    exit_code = 70

    def __init__(self, kernel: str, kind: str, op: str, buffer: str, message: str) -> None:
        self.kernel, self.kind, self.op, self.buffer, self.message = kernel, kind, op, buffer, message
        where = f" [buffer {buffer}]" if buffer else ""
        super().__init__(f"kernel {kernel}: {kind}: {message}{where}\n  in: {op}")


class Machine:
    """What the blocks of one launch share."""

    def __init__(self, module: MemModule, kernel: MemKernel, memory: GlobalMemory, params: Mapping[str, Any]) -> None:
        self.module, self.kernel, self.memory, self.params = module, kernel, memory, params
        self.ops: list[MemOp] = list(walk_ops(kernel.body))
        self.number = {id(op): n for n, op in enumerate(self.ops)}
        self.buffers: dict[str, Smem] = {s.name: s for s in kernel.smem}
        self.frags: dict[str, Frag] = {}
        for op in self.ops:
            match op:
                case ForOp():
                    self.frags |= {f.name: f for f in (*op.results, *(arg for arg, _ in op.carried))}
                case _ if hasattr(op, "result"):
                    self.frags[op.result.name] = op.result
                case _:
                    pass
        roles = [r for op in self.ops if isinstance(op, RolesOp) for r in op.roles]
        self.component = {id(r): n + 1 for n, r in enumerate(roles)}
        self.threads = 32 * kernel.warps
        self._cache: dict[tuple[int, str], Any] = {}

    def smem(self, name: str) -> Smem:
        """The shared buffer called ``name``. Raises Fault."""
        if name not in self.buffers:
            raise Fault("undefined-buffer", f"no shared buffer is called {name}")
        return self.buffers[name]

    def layout(self, name: str) -> FragLayout:
        """The kernel's layout ``name``. Raises Fault."""
        if name not in self.kernel.layouts:
            raise Fault("layout", f"no layout is called #{name}")
        return self.kernel.layouts[name]

    def cached(self, op: object, what: str, make: Callable[[], Any]) -> Any:
        """``make()``, once an op (ops live as long as the machine)."""
        key = (id(op), what)
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def shared_memory(self) -> SharedMemory:
        """Fresh shared memory for one block."""
        size = max(self.kernel.smem_bytes, 16)
        granule = min((s.dtype.bytes for s in self.kernel.smem), default=4)
        roles = 1 + len(self.component)
        return SharedMemory(size, granule, roles + sum(m.stages for m in self.kernel.mbars), roles)


class Context:
    """Where an operation runs: its role, the fragments and the integer variables in scope."""

    __slots__ = ("actor", "frags", "threads", "variables")

    def __init__(self, actor: Actor, frags: dict[str, Array], variables: dict[str, int]) -> None:
        self.actor, self.frags, self.variables = actor, frags, variables
        warp = actor.first_warp + np.arange(actor.warps, dtype=np.int32)
        self.threads: Array = (32 * warp[:, None] + np.arange(32, dtype=np.int32))[:, :, None]

    def inner(self, **variables: int) -> Context:
        """A nested scope: definitions in it do not leave it."""
        out = object.__new__(Context)
        out.actor, out.threads = self.actor, self.threads
        out.frags, out.variables = dict(self.frags), {**self.variables, **variables}
        return out


class BlockRun:
    """Block ``block`` of a launch, scheduled by ``seed``."""

    def __init__(self, machine: Machine, block: int, seed: int) -> None:
        self.machine, self.block = machine, block
        self.shared = machine.shared_memory()
        roles = 1 + len(machine.component)
        self.barriers = Barriers(self.shared, machine.threads, roles)
        self.mbarriers = Mbarriers(self.shared, machine.kernel.mbars, roles)
        self.scheduler = Scheduler(seed, self.mbarriers)

    def run(self) -> None:
        """Run the block to its end. Raises InterpError."""
        kernel = self.machine.kernel
        variables = {"block": self.block}
        scope = Scope(variables, self.machine.params, {}, self._no_refs)
        for name, e in kernel.decode:
            variables[name] = int(scope.eval(e))
        clock = Clock(0, np.zeros(len(self.shared.time), np.int32))
        main = Actor("block", 0, kernel.warps, clock)
        self._schedule({0: (main, self._program(Context(main, {}, variables), kernel.body))})

    def _schedule(self, programs: dict[int, tuple[Actor, Program]]) -> None:
        try:
            self.scheduler.run(programs)
        except Deadlock as stuck:
            ops = "; ".join(f"{actor.name} at `{format_op(w.op)}`" for actor, w in stuck.waits)
            raise InterpError(self.machine.kernel.name, "deadlock", ops, "", "no role can run") from None
        except OpFault as f:  # a copy that arrived while every role waited
            raise self.error(self.machine.ops[f.op], f) from None

    def error(self, op: MemOp, f: Fault) -> InterpError:
        """The error of ``f`` in ``op``."""
        message = f.message
        if isinstance(f, OpFault):
            message += f" ({f.link} `{format_op(self.machine.ops[f.op])}`)"
        return InterpError(self.machine.kernel.name, f.kind, format_op(op), _buffer_of(op), message)

    # -- control flow -------------------------------------------------------------------------
    def _program(self, ctx: Context, body: tuple[MemOp, ...]) -> Program:
        for op in body:
            try:
                handler = _DATA.get(type(op))
                if handler is not None:
                    handler(self, ctx, op)
                else:
                    yield from self._control(ctx, op)
            except OpFault as f:
                raise self.error(op, f) from None
            except Fault as f:
                raise self.error(op, f) from None

    def _control(self, ctx: Context, op: MemOp) -> Program:
        match op:
            case ForOp():
                yield from self._for(ctx, op)
            case IfOp(cond=cond, body=body):
                if self.integer(ctx, cond, "the condition of an if"):
                    yield from self._program(ctx.inner(), body)
            case RolesOp():
                self._roles(ctx, op)
            case Barrier(number=number, threads=threads):
                which = self.integer(ctx, number, "a barrier's number")
                yield Wait(op, self.barriers.arrive(ctx.actor, which, threads))
            case MbarArrive(mbar=name, stage=stage):
                self.mbarriers.arrive(ctx.actor, self.mbarriers.at(name, self.integer(ctx, stage, "a stage")))
                yield Wait(op, lambda: True)
            case MbarWait(mbar=name, stage=stage, parity=parity):
                bar = self.mbarriers.at(name, self.integer(ctx, stage, "a stage"))
                p = self.integer(ctx, parity, "a parity")
                if p not in (0, 1):
                    raise Fault("phase", f"parity {p} is neither 0 nor 1")
                yield Wait(op, lambda: self.mbarriers.passed(bar, p))
                self.mbarriers.observe(ctx.actor, bar)
            case _:
                raise Fault("unsupported", "the interpreter does not know this operation")

    def _for(self, ctx: Context, op: ForOp) -> Program:
        lo, hi = self.integer(ctx, op.lo, "a loop bound"), self.integer(ctx, op.hi, "a loop bound")
        values = [self.get(ctx, init) for _, init in op.carried]
        for i in range(lo, hi):
            inner = ctx.inner(**{op.var: i})
            inner.frags.update({arg.name: v for (arg, _), v in zip(op.carried, values, strict=True)})
            yield from self._program(inner, op.body)
            values = [self.get(inner, y) for y in op.yields]
        ctx.frags.update({r.name: v for r, v in zip(op.results, values, strict=True)})

    def _roles(self, ctx: Context, op: RolesOp) -> None:
        if ctx.actor.name != "block":
            raise Fault("unsupported", "roles do not nest")
        used: set[int] = set()
        programs: dict[int, tuple[Actor, Program]] = {}
        for n, role in enumerate(op.roles):
            warps = range(role.first_warp, role.last_warp)
            if not used.isdisjoint(warps) or not 0 <= warps.start < warps.stop <= self.machine.kernel.warps:
                raise Fault("layout", f"role {role.name} has no warps of its own")
            used.update(warps)
            clock = Clock(self.machine.component[id(role)], ctx.actor.clock.vc.copy())
            actor = Actor(role.name, role.first_warp, len(warps), clock)
            frags = {k: v[role.first_warp : role.last_warp] for k, v in ctx.frags.items()}
            inner = Context(actor, frags, dict(ctx.variables))
            programs[n] = (actor, self._program(inner, role.body))
        self._schedule(programs)
        clocks = [actor.clock.vc for actor, _ in programs.values()]
        idle = [] if len(used) == self.machine.kernel.warps else [ctx.actor.clock.vc]
        ctx.actor.clock.vc = np.min([*clocks, *idle], axis=0)

    # -- what operations on data need ---------------------------------------------------------
    def _no_refs(self, name: str) -> Array:
        raise Fault("undefined-fragment", f"%{name} is not defined here")

    def get(self, ctx: Context, frag: Frag) -> Array:
        """The registers of ``frag``. Raises Fault before its definition."""
        x = ctx.frags.get(frag.name)
        if x is None:
            raise Fault("undefined-fragment", f"%{frag.name} is read before it is defined")
        return x

    def put(self, ctx: Context, frag: Frag, value: Array) -> None:
        """Define ``frag``; its layout must have as many warps and registers. Raises Fault."""
        shape = self.shape(ctx, self.machine.layout(frag.layout))
        if value.shape != shape:
            if np.broadcast_shapes(value.shape, shape) != shape:
                raise Fault("layout", f"%{frag.name} has {value.shape[2]} registers, its layout {shape[2]}")
            value = np.broadcast_to(value, shape)
        ctx.frags[frag.name] = value

    def shape(self, ctx: Context, layout: FragLayout) -> tuple[int, int, int]:
        """(warps, 32, registers). Raises Fault where the layout is of another role."""
        if layout.warps != ctx.actor.warps:
            raise Fault("layout", f"a layout of {layout.warps} warps in a role of {ctx.actor.warps}")
        return layout.warps, 32, layout.registers

    def scope(self, ctx: Context, layout: FragLayout | None, axes: tuple[str, ...]) -> Scope:
        """What an expression over the fragment positions of ``layout`` may mention."""
        places: dict[str, Ints] = {} if layout is None else {a: coords(layout, a) for a in axes}

        def refs(name: str) -> Array:
            if name not in self.machine.frags:
                self._no_refs(name)
            frag = self.machine.frags[name]
            x = self.get(ctx, frag)
            return x if layout is None else spread(x, layout, frag.type.names)

        return Scope(ctx.variables, self.machine.params, places, refs)

    def integer(self, ctx: Context, e: Expr, what: str) -> int:
        """``e`` where all threads must agree. Raises Fault."""
        return uniform(self.scope(ctx, None, ()).eval(e), what)

    def base(self, ctx: Context, slot: Slot) -> int:
        """Byte offset of the stage that ``slot`` names. Raises Fault outside the ring."""
        buffer = self.machine.smem(slot.buffer)
        stage = self.integer(ctx, slot.stage, "a stage")
        if not 0 <= stage < buffer.stages:
            raise Fault("out-of-bounds", f"stage {stage} is outside the {buffer.stages} of {buffer.name}")
        return buffer.offset + stage * buffer.stage_bytes

    def op_number(self, op: MemOp) -> int:
        """What the history of shared memory calls ``op``."""
        return self.machine.number[id(op)]


def _buffer_of(op: MemOp) -> str:
    match op:
        case SharedLoad(slot=slot) | SharedStore(slot=slot) | AsyncCopy(slot=slot) | MatrixLoad(slot=slot):
            return slot.buffer
        case GlobalLoad(buffer=name) | GlobalStore(buffer=name):
            return name
        case MmaOp(a=a, b=b):
            return ", ".join(x.buffer for x in (a, b) if isinstance(x, Slot))
        case ReduceOp(scratch=name):
            return name or ""
        case MbarArrive(mbar=name) | MbarWait(mbar=name):
            return name
        case _:
            return ""


def _table() -> dict[type, Callable[[BlockRun, Context, Any], None]]:
    from nautilus.memory import interp_data as data
    from nautilus.memory import interp_dot as dot

    return {
        ConstOp: data.const, IndexOp: data.index, ParamOp: data.param, MapOp: data.map_op,
        ReduceOp: data.reduce, ConvertOp: data.convert, GlobalLoad: data.ld_global,
        GlobalStore: data.st_global, SharedLoad: data.ld_shared, SharedStore: data.st_shared,
        AsyncCopy: data.cp_async, AsyncCommit: data.cp_commit, AsyncWait: data.cp_wait, MmaOp: dot.dot,
        MatrixLoad: dot.matrix_load,
    }  # fmt: skip


_DATA = _table()

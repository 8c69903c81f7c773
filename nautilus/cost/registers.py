"""Will a thread's registers do?  An estimate from the liveness of fragments, made before any compiler runs.

The peak of live fragment registers plus what addresses, counters and temporaries take must stay below the cap of
the role.  Calibrated with ptxas 13.0: under a cap of 160 registers 137 and 141 live ones passed, 149, 157 and 165
did not (products serialised); under 232, 209 passed and 265 did not; under 240, 227.  Kernels without products do
with far fewer registers than fragments.  The compiler's own report decides in the end (``runtime.nvrtc``); this rule
spares it the hopeless ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from math import prod

from nautilus.cost.work import is_joined
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.async_ops import WGMMA
from nautilus.ma_tile.ir.ops import Frag, MemKernel, MemModule, MemOp, RolesOp
from nautilus.targets.limits import Limits

OVERHEAD = 12  # registers of a thread beside its fragments, in a role with products
PLAIN_OVERHEAD = 24  # of one that computes no products in flight
INSTRUCTION = 26  # registers that a warpgroup product needs beside its result, under the cap of the launch
#: how far beyond the cap fragments may go: the compiler computes again what it can
SLACK = {"rows": 1.4, "products": 1.15, "warpgroup": 1.0}


def register_fault(module: MemModule, target: Limits) -> str | None:
    """Which kernel certainly needs more registers than a thread has, or None."""
    for k in module.kernels:
        for name, body, cap in bodies(k, target):
            who = f"kernel {k.name}" + (f", role {name}" if name else "")
            live, kind = peak(k, body), _kind(body)
            extra = OVERHEAD if name else 0
            if live + extra > cap * SLACK[kind]:
                rest = f"; {cap} less {extra} for the rest are there" if extra else f", of {cap}"
                return f"{who}: {live} registers of a thread hold fragments{rest}"
            if kind == "warpgroup" and (needed := _instruction_registers(k, body)) > launch_cap(k, target):
                cap = launch_cap(k, target)
                return f"{who}: a product takes {needed} registers of a thread, the launch has {cap} for each"
    return None


def _kind(body: tuple[MemOp, ...]) -> str:
    products = [op for op in ma.walk_ops(body) if isinstance(op, ma.MmaOp)]
    if any(op.instr in WGMMA for op in products):
        return "warpgroup"
    return "products" if products else "rows"


def _instruction_registers(kernel: MemKernel, body: tuple[MemOp, ...]) -> int:
    """What ptxas wants for the widest warpgroup product: 154 for 256 columns, 90 for 128 (H200, error C7602)."""
    found = 0
    for op in ma.walk_ops(body):
        if isinstance(op, ma.MmaOp) and op.instr in WGMMA:
            rows = {m.axis for m in kernel.layouts[op.result.layout].warp}
            columns = prod(a.size for a in op.result.type.axes if a.name not in rows)
            found = max(found, columns // -(-columns // 256) // 2 + INSTRUCTION)
    return found


def bodies(kernel: MemKernel, target: Limits) -> Iterator[tuple[str, tuple[MemOp, ...], int]]:
    """Every role (name, body, registers of a thread); a kernel without roles is one without a name."""
    roles = [op for op in kernel.body if isinstance(op, RolesOp)]
    if not roles:
        yield "", kernel.body, launch_cap(kernel, target)
    for op in roles:
        for r in op.roles:
            if not r.single:
                yield r.name, r.body, r.registers or launch_cap(kernel, target)
    if is_joined(kernel):  # what combines the units' results
        yield "", tuple(op for op in kernel.body if not isinstance(op, RolesOp)), launch_cap(kernel, target)


def launch_cap(kernel: MemKernel, target: Limits) -> int:
    """Registers a thread that the launch can allocate."""
    threads = 32 * kernel.warps
    return min(target.registers_thread, target.registers_sm // (kernel.min_blocks * max(threads, 1)) // 8 * 8)


def estimate_registers(kernel: MemKernel, target: Limits) -> int:
    """Registers of a thread that the launch will allocate, as far as liveness tells."""
    if any(isinstance(op, RolesOp) for op in kernel.body) and not is_joined(kernel):
        return launch_cap(kernel, target) if kernel.min_blocks > 1 else 65536 // (32 * kernel.warps) // 8 * 8
    return min(launch_cap(kernel, target), -(-(peak(kernel, kernel.body) + PLAIN_OVERHEAD) // 8) * 8)


def width(kernel: MemKernel, f: Frag) -> int:
    """32-bit registers of a thread that ``f`` takes; predicates pack 32 to one."""
    count = kernel.layouts[f.layout].registers if f.layout in kernel.layouts else 1
    if f.type.dtype.value == "bool":
        return -(-count // 32)
    return -(-count * f.type.dtype.bytes // 4)


def peak(kernel: MemKernel, body: tuple[MemOp, ...]) -> int:
    """The most registers that fragments of ``body`` hold at once."""
    return _Liveness(kernel).block(body, frozenset())[1]


_STREAMED = (ma.MapOp, ma.ConvertOp, ma.SliceOp, ma.IndexOp, ma.ConstOp, ma.ParamOp)


class _Liveness:
    """Backwards over structured ops; constants are immediates and take nothing."""

    def __init__(self, kernel: MemKernel) -> None:
        self.kernel = kernel
        self.size: dict[str, int] = {}
        self.source: dict[str, Frag] = {}  # a slice is registers of what it was cut from
        for op in ma.walk_ops(kernel.body):
            if isinstance(op, ma.SliceOp):
                self.source[op.result.name] = self.source.get(op.arg.name, op.arg)
            elif isinstance(op, ma.IndexOp) or (isinstance(op, ma.MapOp) and all(map(self._cheap, op.args))):
                self._computed(op.result)

    def _computed(self, f: Frag) -> None:
        """Positions, and what follows from them and from rows, are computed where they are used."""
        if len(f.type.axes) > 1:
            self.size[f.name] = 0

    def _cheap(self, f: Frag) -> bool:
        return self.size.get(f.name) == 0 or len(f.type.axes) < 2

    def note(self, frags: Iterable[Frag]) -> frozenset[str]:
        names = []
        for f in (self.source.get(f.name, f) for f in frags):
            self.size.setdefault(f.name, width(self.kernel, f))
            names.append(f.name)
        return frozenset(names)

    def cost(self, live: Iterable[str]) -> int:
        return sum(self.size[n] for n in live)

    def block(self, body: tuple[MemOp, ...], after: frozenset[str]) -> tuple[frozenset[str], int]:
        """(live before, the most live at once)."""
        live, most, streaming = after, self.cost(after), False
        for op in reversed(body):
            before, here = self.op(op, live)
            if isinstance(op, _STREAMED):  # element by element: only the ends of a run hold whole tiles
                streaming = True
            else:
                most = max(most, here, self.cost(live) if streaming else 0)
                streaming = False
            live = before
        return live, max(most, self.cost(live))

    def op(self, op: MemOp, after: frozenset[str]) -> tuple[frozenset[str], int]:
        match op:
            case ma.ConstOp(result=r):
                self.size[r.name] = 0
                return after - {r.name}, self.cost(after - {r.name})
            case ma.ForOp():
                return self.loop(op, after)
            case ma.IfOp(body=body) | ma.TileSchedulerOp(body=body):
                before, most = self.block(body, after)
                return before | after, max(most, self.cost(before | after))
            case ma.RolesOp(roles=roles):
                return after, max((self.block(r.body, frozenset())[1] for r in roles), default=0)
            case ma.SliceOp(arg=a):
                live = after | self.note([a])
                return live, self.cost(live)
        results, args = results_of(op), self.note(args_of(op))
        out = self.note(results)
        before = (after - out) | args
        return before, max(self.cost(before), self.cost(after | out))

    def loop(self, op: ma.ForOp, after: frozenset[str]) -> tuple[frozenset[str], int]:
        outer = after - self.note(op.results)
        yields, carried = self.note(op.yields), self.note(f for f, _ in op.carried)
        inside: frozenset[str] = frozenset()
        most = 0
        for _ in range(2):  # what the body reads from outside lives through every iteration
            before, most = self.block(op.body, outer | yields | inside)
            inside = (before - carried) | inside
        before = outer | inside | self.note(init for _, init in op.carried)
        return before, max(most, self.cost(before))


def results_of(op: MemOp) -> tuple[Frag, ...]:
    """Fragments that ``op`` defines (not those inside of it)."""
    if isinstance(op, ma.ForOp):
        return op.results
    found = getattr(op, "result", None)
    return (found,) if isinstance(found, Frag) else ()


def args_of(op: MemOp) -> tuple[Frag, ...]:
    """Fragments that ``op`` reads (not those read inside of it)."""
    if isinstance(op, ma.WgWait):
        return ()
    out: list[Frag] = []
    for f in fields(op):
        if f.name in ("result", "results", "body", "roles", "carried", "yields"):
            continue
        value = getattr(op, f.name)
        out += [item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, Frag)]
    return tuple(out)

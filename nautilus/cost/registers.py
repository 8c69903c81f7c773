"""An estimate of register pressure from the liveness of fragments, made before ptxas runs.

The peak of live fragment registers plus those for addresses, counters and temporaries must stay below the register
limit of the role.  The rule is calibrated with ptxas 13.0.  Under a limit of 160 registers, 137 and 141 live ones
passed; with 149, 157 and 165 ptxas serialised wgmma.  Under 232, 209 passed and 265 did not; under 240, 227 passed.
Kernels without MMA need far fewer registers than fragments.  The report of ptxas decides (``runtime.nvrtc``); this rule
avoids compilations that are certain to fail.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from math import prod

from nautilus.core.ops import declaration
from nautilus.core.records.memo import by_identity
from nautilus.ma_tile.analysis.consumers import is_split_k_block
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.instruction_tables import MMA, WGMMA
from nautilus.ma_tile.ir.ops import Frag, MemKernel, MemModule, MemOp, RolesOp
from nautilus.ma_tile.ir.traverse import defined
from nautilus.targets.limits import Limits

OVERHEAD = 12  # registers of a thread besides its fragments, in a role
PLAIN_OVERHEAD = 24  # the same number in a kernel without asynchronous MMAs
INSTRUCTION = 26  # registers that wgmma needs besides its result, under the limit of the launch
#: the ratio of live fragments to the limit from which on kernels without wgmma were seen to spill more than 64 bytes
DOUBT = 0.85
#: allowed ratio of fragment registers to the limit by kind of kernel, since ptxas rematerialises values
SLACK = {"rows": 1.4, "mma": 1.15, "wgmma": 1.0}


def register_fault(module: MemModule, target: Limits) -> str | None:
    """A message for the first kernel that certainly needs more registers than a thread has; None if all fit."""
    for k in module.kernels:
        if (found := kernel_fault(k, target)) is not None:
            role, fault = found
            return f"kernel {k.name}" + (f", role {role}" if role else "") + f": {fault}"
    return None


@by_identity(256)  # kernels that trials have in common
def kernel_fault(k: MemKernel, target: Limits) -> tuple[str, str] | None:
    """The role of ``k`` (empty: none) that certainly needs too many registers, and a message; None if all fit."""
    for name, body, cap in bodies(k, target):
        live, kind = peak(k, body), _kind(body)
        extra = OVERHEAD if name else 0
        if live + extra > cap * SLACK[kind]:
            free = f"{cap - extra} of {cap}" if extra else f"{cap}"
            return name, f"fragments need {live} registers a thread, but only {free} are available"
        if kind == "wgmma" and (needed := _instruction_registers(k, body)) > launch_cap(k, target):
            return name, f"wgmma needs {needed} registers a thread; the launch has {launch_cap(k, target)}"
    return None


def may_spill(kernel: MemKernel, target: Limits) -> bool:
    """Whether fragments of ``kernel`` need so many registers that ptxas may spill some (:data:`DOUBT`)."""
    return any(peak(kernel, body) > DOUBT * cap for _, body, cap in bodies(kernel, target))


def _kind(body: tuple[MemOp, ...]) -> str:
    mmas = [op for op in ma.walk_ops(body) if isinstance(op, ma.MmaOp)]
    if any(op.instr in WGMMA for op in mmas):
        return "wgmma"
    return "mma" if mmas else "rows"


def _instruction_registers(kernel: MemKernel, body: tuple[MemOp, ...]) -> int:
    """Registers that ptxas needs for the widest wgmma: 154 for 256 columns, 90 for 128 (H200, error C7602)."""
    found = 0
    for op in ma.walk_ops(body):
        if isinstance(op, ma.MmaOp) and op.instr in WGMMA:
            rows = {m.axis for m in kernel.layouts[op.result.layout].warp}
            columns = prod(a.size for a in op.result.type.axes if a.name not in rows)
            found = max(found, columns // -(-columns // 256) // 2 + INSTRUCTION)
    return found


def bodies(kernel: MemKernel, target: Limits) -> Iterator[tuple[str, tuple[MemOp, ...], int]]:
    """(name, body, register limit of a thread) of every role; a kernel without roles is one role without a name."""
    roles = [op for op in kernel.body if isinstance(op, RolesOp)]
    if not roles:
        yield "", kernel.body, launch_cap(kernel, target)
    for op in roles:
        for r in op.roles:
            if not r.single:
                yield r.name, r.body, r.registers or launch_cap(kernel, target)
    if is_split_k_block(kernel):  # the combine of the partial results
        yield "", tuple(op for op in kernel.body if not isinstance(op, RolesOp)), launch_cap(kernel, target)


def launch_cap(kernel: MemKernel, target: Limits) -> int:
    """The largest number of registers a thread that the launch can allocate."""
    threads = kernel.threads
    return min(target.registers_thread, target.registers_sm // (kernel.min_blocks * max(threads, 1)) // 8 * 8)


def estimate_registers(kernel: MemKernel, target: Limits) -> int:
    """The estimated number of registers a thread that the launch allocates."""
    if any(isinstance(op, RolesOp) for op in kernel.body) and not is_split_k_block(kernel):
        return launch_cap(kernel, target) if kernel.min_blocks > 1 else target.registers_at_launch(kernel.threads)
    return min(launch_cap(kernel, target), -(-(peak(kernel, kernel.body) + PLAIN_OVERHEAD) // 8) * 8)


def width(kernel: MemKernel, f: Frag) -> int:
    """32-bit registers a thread of ``f``; 32 predicates share one register."""
    count = kernel.layouts[f.layout].registers if f.layout in kernel.layouts else 1
    if f.type.dtype.value == "bool":
        return -(-count // 32)
    return -(-count * f.type.dtype.bytes // 4)


def width_of_load(kernel: MemKernel, op: ma.GlobalLoad) -> int:
    """32-bit registers a thread of what ``op`` loads; registers with the same element count once."""
    return -(-width(kernel, op.result) // (op.repeat or 1))


def peak(kernel: MemKernel, body: tuple[MemOp, ...]) -> int:
    """The maximum number of registers a thread that live fragments of ``body`` hold."""
    return _Liveness(kernel).block(body, frozenset())[1]


_STREAMED = (
    ma.MapOp,
    ma.ConvertOp,
    ma.SliceOp,
    ma.StackOp,
    ma.WindowOp,
    ma.IndexOp,
    ma.ConstOp,
    ma.ParamOp,
    ma.UnpackOp,
)


class _Liveness:
    """Backward liveness over structured ops; constants are immediates and need no registers."""

    def __init__(self, kernel: MemKernel) -> None:
        self.kernel = kernel
        self.size: dict[str, int] = {}
        self.source: dict[str, Frag] = {}  # the fragment whose registers a slice or a masked value shares
        constants = set[str]()
        for op in ma.walk_ops(kernel.body):
            if isinstance(op, ma.SliceOp | ma.WindowOp):
                self.source[op.result.name] = self.source.get(op.arg.name, op.arg)
            elif isinstance(op, ma.GlobalLoad) and op.repeat is not None:
                self.size[op.result.name] = width_of_load(kernel, op)
            elif isinstance(op, ma.ForOp):
                self._carried(op)
            elif isinstance(op, ma.ConstOp):
                constants.add(op.result.name)
            elif isinstance(op, ma.MapOp) and (masked := self._masked(op, constants)) is not None:
                self.source[op.result.name] = self.source.get(masked.name, masked)
            elif isinstance(op, ma.IndexOp) or (isinstance(op, ma.MapOp) and all(map(self._cheap, op.args))):
                self._computed(op.result)
        self.size |= dict.fromkeys(self._terms(), 0)

    def _carried(self, op: ma.ForOp) -> None:
        """A carried load, such as one for the next iteration, has the registers of the first one."""
        for (f, init), result in zip(op.carried, op.results, strict=True):
            if init.name in self.size:
                self.size[f.name] = self.size[result.name] = self.size[init.name]

    def _terms(self) -> set[str]:
        """Terms of pairs: computed from operands with fewer elements, and added up in the registers of a thread.

        ptxas adds each of them before it computes the next one.
        """
        made = {op.result.name: op for op in ma.walk_ops(self.kernel.body) if isinstance(op, ma.MapOp)}
        readers: dict[str, list[MemOp]] = {}
        for op in ma.walk_ops(self.kernel.body):
            for f in args_of(op):
                readers.setdefault(f.name, []).append(op)
        found = set[str]()
        for op in made.values():  # operands before results
            fewer = (a.name in found or width(self.kernel, a) < width(self.kernel, op.result) for a in op.args)
            if op.result.type.axes and all(fewer):
                found.add(op.result.name)
        for op in reversed(made.values()):
            kept = (isinstance(x, ma.ReduceOp) or _is_in(x, found) for x in readers.get(op.result.name, ()))
            if not all(kept):
                found.discard(op.result.name)
        return found

    def _computed(self, f: Frag) -> None:
        """Index values, and values computed from them and from row vectors, are rematerialised at their uses."""
        if len(f.type.axes) > 1:
            self.size[f.name] = 0

    def _masked(self, op: ma.MapOp, constants: Container[str]) -> Frag | None:
        """The value of a select between it and a constant under a condition on indices, which is done at its uses."""
        if op.op != "select" or not self._cheap(op.args[0]) or op.args[2].name not in constants:
            return None
        value = op.args[1]
        return value if width(self.kernel, value) == width(self.kernel, op.result) else None

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
        """(values live before the body, maximum registers within it)."""
        live, most, streaming = after, self.cost(after), False
        for op in reversed(body):
            before, here = self.op(op, live)
            if isinstance(op, _STREAMED):  # fused elementwise: only the ends of a run hold whole tiles
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
            case ma.SliceOp(arg=a) | ma.WindowOp(arg=a):
                live = after | self.note([a])
                return live, self.cost(live)
        results, args = defined(op), self.note(args_of(op))
        out = self.note(results)
        before = (after - out) | args
        more = self.cost(out) if isinstance(op, ma.MmaOp) and op.instr in MMA and MMA[op.instr].parts > 1 else 0
        return before, max(self.cost(before), self.cost(after | out) + more)  # more: the sum of few terms

    def loop(self, op: ma.ForOp, after: frozenset[str]) -> tuple[frozenset[str], int]:
        outer = after - self.note(op.results)
        yields, carried = self.note(op.yields), self.note(f for f, _ in op.carried)
        inside: frozenset[str] = frozenset()
        most = 0
        for _ in range(2):  # values that the body reads from outside are live in every iteration
            before, most = self.block(op.body, outer | yields | inside)
            inside = (before - carried) | inside
        before = outer | inside | self.note(init for _, init in op.carried)
        return before, max(most, self.cost(before))


def _is_in(op: MemOp, names: Container[str]) -> bool:
    return isinstance(op, ma.MapOp) and op.result.name in names


def args_of(op: MemOp) -> tuple[Frag, ...]:
    """Fragments that ``op`` itself reads, without those of nested ops."""
    if isinstance(op, ma.WgWait):
        return ()
    return tuple(f for f in declaration(type(op)).operands(op) if isinstance(f, Frag))

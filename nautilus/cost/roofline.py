"""The roofline: the least time of a program's matrix instructions, special functions, other arithmetic and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import COMBINERS, Op, Var, free_vars, walk
from nautilus.core.index.sizes import nominal, volume
from nautilus.core.records import dataclass
from nautilus.cost.instructions import integer_slots, issue_slots
from nautilus.cost.model import Estimate, instruction_cycles
from nautilus.planner.products.dots import dot_of
from nautilus.scalar.analysis.definitions import Def, points
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs
from nautilus.targets.limits import WARP
from nautilus.targets.rates import machine
from nautilus.targets.records import Machine


@dataclass(frozen=True, slots=True)
class Roofline:
    """Lower bounds in seconds by resource, and the share of the highest bound in the predicted time.

    ``unit``: the unit that binds in the prediction, with its share of the predicted time (:func:`binding_unit`).
    """

    floors: Mapping[str, float]
    share: float
    unit: str = ""
    unit_share: float = 0.0

    @property
    def bound(self) -> str:
        """The resource with the highest floor."""
        return max(self.floors, key=lambda f: self.floors[f])


def roofline(program: Program, found: Estimate, arch: str) -> Roofline:
    """The lower bounds of ``program``'s arithmetic, and of moving inputs and outputs once.

    Compute bounds hold at the nominal clock of ``arch``.  Of an input that the kernels do not read whole, such as a
    table from which they gather rows, only what they read counts.  ``program``: before definitions share kernels; of
    other ones, the arithmetic of reductions does not count.
    """
    m = machine(arch)
    read, written = (
        sum(b.dtype.bytes * nominal(volume(b.shape)) for b in program.buffers if b.space is s)
        for s in (Space.INPUT, Space.OUTPUT)
    )
    rate = m.dram_read if written < 0.1 * (read + written) else m.dram
    mma, special, issue = (
        sum(k.parts[unit] * k.clock for k in found.kernels) / m.clock for unit in ("mma", "special", "issue")
    )
    floors = {
        "mma": mma,
        "special functions": special,
        "arithmetic": min(issue, sum(_reductions(program, m))),
        "memory": min(read + written, found.bytes) / rate,
    }
    share = max(floors.values()) / found.seconds if found.seconds > 0 else 0.0
    return Roofline(floors, share, *binding_unit(found.parts, found.seconds))


def _reductions(program: Program, m: Machine) -> Iterator[float]:
    """The least seconds of each reduction whose terms are all different and that no matrix unit computes.

    A term has an instruction, which may contain one operation on it too: a product that is added, or a sum of which the
    largest one is taken.  What definitions of the same tensors compute of them may be computed once.  Terms under a
    condition do not count, because a loop may leave them out, nor do those at sums of indices, as in windows, of which
    neighbours share partial results.
    """
    seen = set[frozenset[str]]()
    for d in find_defs(program).values():
        if d.op is None or d.guard is not None or d.scatter is not None or dot_of(d) is not None or not _differ(d):
            continue
        read = frozenset(ld.buffer for ld in d.reads())
        own = [] if read in seen else [e for e in walk(d.value) if isinstance(e, Op) and _is_counted(e, d)]
        seen.add(read)
        ops = [(e.op, e.args[0].dtype, e.dtype) for e in own]
        dtype = d.value.dtype
        if len(ops) < 2 and (d.op != "sum" or ops):
            ops = [(COMBINERS[d.op].binary, dtype, dtype)]
        slots = [issue_slots(*x) for x in ops]
        integer = sum(integer_slots(*x, n) for x, n in zip(ops, slots, strict=True))
        cycles = float(instruction_cycles(sum(slots), integer, m)) / WARP
        yield points(d.axes) * cycles / (m.multiprocessors * m.clock)


def _differ(d: Def) -> bool:
    """Whether each axis of ``d`` is alone a position of what it reads, so that no two terms are the same one."""
    alone = {x.name for ld in d.reads() for x in ld.index if isinstance(x, Var)}
    return all(a.name in alone for a in d.axes)


def _is_counted(e: Op, d: Def) -> bool:
    """Whether ``e`` has an instruction at each term that neither a product nor a special-function unit contains."""
    ours = ("add", "sub", "min", "max", "bit_and", "bit_or", "bit_xor")
    return e.op in ours and {a.name for a in d.axes} <= free_vars(e)


#: Part of an estimate -> the unit of the GPU that takes so long, if it works alone.
UNITS = {
    "mma": "matrix units",
    "special": "special-function units",
    "issue": "instruction issue",
    "shared": "shared memory",
    "l1": "L1 cache",
    "l2": "L2 cache",
    "dram": "memory",
    "launch": "launches",
}
DEPENDENT = "dependent work on the multiprocessors"
_FEW = 0.5  # share of the on-chip time below which no unit of a multiprocessor is busy enough to bind


def binding_unit(parts: Mapping[str, float], seconds: float) -> tuple[str, float]:
    """The unit that takes the longest part of ``seconds``, and its share.

    Where no unit is busy for half of the time that the multiprocessors take, their dependent work binds.
    """
    if seconds <= 0:
        return "", 0.0
    name = max(UNITS, key=lambda p: parts.get(p, 0.0))
    on_chip = parts.get("multiprocessors", 0.0)
    if parts[name] < _FEW * on_chip:
        return DEPENDENT, min(1.0, on_chip / seconds)
    return UNITS[name], min(1.0, parts[name] / seconds)

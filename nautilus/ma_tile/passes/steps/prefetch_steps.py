"""``prefetch-steps``: a loop of steps loads the elements of later steps while it computes the present one.

A loop of *steps* stores results that depend on earlier iterations: on values that it carries, such as the sum of a scan
so far, or on what it stored, such as the state of a recurrence that several warps exchange.  Its iterations cannot run
side by side, and a block of few warps has no other work while a load is outstanding.  Loads that do not wait for
earlier iterations are issued ``D`` iterations ahead, into registers that the loop carries::

    x_0 = X[lo];  ...;  x_{D-1} = X[lo + D - 1]
    for t in lo..hi-D carry(h, x_0, ..., x_{D-1}):  next = X[t + D];  h = f(h, x_0);   yield h, x_1, ..., next
    for t in hi-D..hi carry(h, x_0, ..., x_{D-1}):                    h = f(h, x_0);   yield h, x_1, ..., x_{D-1}

``D`` iterations are unrolled together: after them each value is in its register again, and none is moved.  Where the
bounds are known at launch only, the first loop may have no iterations, and the loads before it have masks.

A load qualifies if its address and its mask depend on the iteration and on nothing else that the loop computes, and if
the kernel does not store its buffer.

``D`` is as large as the registers allow (:data:`LOADED`, :data:`COMPUTED`), and no larger than what the memory needs:
:data:`NEEDED` outstanding bytes hide the latency of a multiprocessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import short_circuit
from nautilus.core.expr.nodes import Const, Expr, Var, free_vars, substitute
from nautilus.core.expr.nodes import refs as refs_of
from nautilus.core.index.simplify import TRUE, simplify
from nautilus.core.ops import declaration
from nautilus.core.records import dataclass
from nautilus.core.tiles import floor_pow2
from nautilus.ma_tile.ir.ops import (
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
    MemKernel,
    MemModule,
    MemOp,
    MmaOp,
    ParamOp,
    ReduceOp,
    ScanOp,
    SharedLoad,
    SharedStore,
    SliceOp,
    StackOp,
    UnpackOp,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import bound, each_kernel, rebuild, stored, variables
from nautilus.ma_tile.rewriting.renaming import Names, Renaming, with_variables
from nautilus.targets.limits import limits
from nautilus.targets.rates import machine

LOADED = 96  # largest number of registers of a thread for the elements of later steps
COMPUTED = 1024  # registers of the results of all ops in the steps that are unrolled together: what hides a latency
NEEDED = 64 << 10  # most outstanding bytes of a multiprocessor
_MOST = 64  # steps
TEAM = 1  # steps ahead in a kernel with teams, whose barriers take longer than memory does

_STEP = (
    Barrier, ConstOp, ConvertOp, ForOp, GlobalLoad, GlobalStore, IfOp, IndexOp, MapOp, ParamOp, ReduceOp, ScanOp,
    SharedLoad, SharedStore, SliceOp, StackOp, UnpackOp,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PrefetchSteps:
    """``steps``: how many steps ahead loads are issued; None: what the rule says."""

    steps: int | None = None
    name = "prefetch-steps"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose loops of steps load elements ahead."""
        return each_kernel(module, lambda k: _kernel(k, module.target, self.steps))


def _kernel(kernel: MemKernel, target: str, steps: int | None) -> MemKernel:
    if kernel.consumers > 1:
        return kernel
    names = Names(kernel)

    def rule(op: MemOp) -> Sequence[MemOp]:
        if not isinstance(op, ForOp) or not is_steps(op, mma=kernel.team > 1):
            return (op,)
        loads = independent(kernel, op)
        ahead = (TEAM if kernel.team > 1 else depth(kernel, op, loads, target)) if steps is None else steps
        return _rotated(op, loads, ahead, names) if loads and ahead > 0 else (op,)

    return replace(kernel, body=rebuild(kernel.body, rule))


def is_steps(loop: ForOp, *, mma: bool = False) -> bool:
    """Whether ``loop`` is one of steps; ``mma``: also one with MMAs of single warps."""
    inner = list(walk_ops(loop.body))
    results = {x.buffer for x in inner if isinstance(x, GlobalStore) and x.combiner is None}
    in_order = loop.carried or any(isinstance(x, GlobalLoad) and x.buffer in results for x in inner)
    known = all(isinstance(x, _STEP) or (mma and isinstance(x, MmaOp) and not x.is_async) for x in inner)
    return bool(results and in_order) and loop.chain is None and known


def independent(kernel: MemKernel, loop: ForOp) -> list[GlobalLoad]:
    """The loads of an iteration that only its number decides on."""
    written = stored(walk_ops(kernel.body))
    made = {f.name for x in walk_ops(loop.body) for f in bound(x)} | {a.name for a, _ in loop.carried}
    inner = {v for x in walk_ops(loop.body) for v in variables(x)}

    def qualifies(x: GlobalLoad) -> bool:
        parts = (*x.index, *(() if x.mask is None else (x.mask,)))
        mentioned = frozenset[str]().union(*map(free_vars, parts))
        read = frozenset[str]().union(*map(refs_of, parts))
        return x.buffer not in written and loop.var in mentioned and not mentioned & inner and not read & made

    return [x for x in loop.body if isinstance(x, GlobalLoad) and not x.volatile and qualifies(x)]


def depth(kernel: MemKernel, loop: ForOp, loads: Sequence[GlobalLoad], target: str) -> int:
    """How many steps ahead ``loads`` are issued; 0 where that saves no time."""
    device, multiprocessors = limits(target), machine(target).multiprocessors
    words = sum(registers(kernel, x.result) for x in loads)
    made = computed(kernel, loop)
    blocks = int(found.value) if isinstance(found := kernel.launched, Const) else multiprocessors
    threads = min(device.threads_sm, kernel.threads * -(-blocks // multiprocessors))
    loaded = min(LOADED, device.registers_sm // (2 * threads))
    most = min(_MOST, loaded / max(words, 1), COMPUTED / max(made, 1), NEEDED / max(4 * words * threads, 1))
    if isinstance(loop.lo, Const) and isinstance(loop.hi, Const):
        most = min(most, (int(loop.hi.value) - int(loop.lo.value)) // 2)
    return floor_pow2(int(most)) if most >= 1 else 0


def computed(kernel: MemKernel, loop: ForOp) -> int:
    """The elements in a thread of the results of all ops in an iteration of ``loop``."""
    return sum(kernel.layouts[f.layout].registers for x in walk_ops(loop.body) for f in declaration(type(x)).results(x))


def registers(kernel: MemKernel, f: Frag) -> int:
    """The registers of a thread for ``f``."""
    return max(1, kernel.layouts[f.layout].registers * f.type.dtype.bytes // 4)


def _rotated(loop: ForOp, loads: Sequence[GlobalLoad], ahead: int, names: Names) -> tuple[MemOp, ...]:
    lo, hi = loop.lo, loop.hi
    middle = simplify(calc("max", lo, calc("sub", hi, ahead)))
    before, slots = list[MemOp](), list[tuple[Frag, Frag]]()
    for x in loads:
        for n in range(ahead):
            first = replace(at_step(x, loop.var, calc("add", lo, n), hi), result=names.frag(x.result, "first"))
            before.append(first)
            slots.append((names.frag(x.result, "ahead"), first.result))
    arguments = [a for a, _ in slots]
    nexts = [
        replace(at_step(x, loop.var, calc("add", Var(loop.var), ahead), None), result=names.frag(x.result, "next"))
        for x in loads
    ]
    present = {x.result.name: arguments[n * ahead] for n, x in enumerate(loads)}
    body = Renaming(present).ops(x for x in loop.body if x not in loads)
    yields = tuple(present.get(f.name, f) for f in loop.yields)
    states = [names.frag(f, "middle") for f in loop.results]
    left = [names.frag(a, "left") for a in arguments]
    main = replace(
        loop, results=(*states, *left), hi=middle, carried=(*loop.carried, *slots), body=(*nexts, *body),
        yields=(*yields, *_shifted(arguments, [x.result for x in nexts], ahead)), unroll=ahead,
    )  # fmt: skip
    return (*before, main, _tail(loop, body, yields, (states, left), arguments, ahead, middle, names))


def _tail(
    loop: ForOp, body: tuple[MemOp, ...], yields: Sequence[Frag], given: tuple[Sequence[Frag], Sequence[Frag]],
    arguments: Sequence[Frag], ahead: int, middle: Expr, names: Names,
) -> ForOp:  # fmt: skip
    """The last steps, whose elements are loaded: ``given`` are the states and the elements after the main loop."""
    states, left = given
    var = names.variable(loop.var)
    frags = {f.name: names.frag(f, "last") for x in walk_ops(body) for f in bound(x)}
    frags |= {f.name: names.frag(f, "last") for f in (*(a for a, _ in loop.carried), *arguments)}
    inner = {v: names.variable(v) for x in walk_ops(body) for v in variables(x)}
    rename = Renaming(frags, {loop.var: Var(var), **{v: Var(new) for v, new in inner.items()}})
    slots = [rename.frag(a) for a in arguments]
    kept = [slots[n] for n in range(ahead - 1, len(slots), ahead)]
    carried = [(rename.frag(a), s) for (a, _), s in zip(loop.carried, states, strict=True)]
    ends = [names.frag(a, "end") for a in arguments]
    return replace(
        loop, results=(*loop.results, *ends), var=var, lo=middle, carried=(*carried, *zip(slots, left, strict=True)),
        body=with_variables(rename.ops(body), inner),
        yields=(*map(rename.frag, yields), *_shifted(slots, kept, ahead)), unroll=ahead,
    )  # fmt: skip


def _shifted(slots: Sequence[Frag], last: Sequence[Frag], ahead: int) -> tuple[Frag, ...]:
    """The elements of the next iteration: those of ``slots`` but the first one of each load, and ``last``."""
    out: list[Frag] = []
    for n, x in enumerate(last):
        out += [*slots[n * ahead + 1 : (n + 1) * ahead], x]
    return tuple(out)


def at_step(x: GlobalLoad, var: str, step: Expr, hi: Expr | None) -> GlobalLoad:
    """``x`` in the iteration ``step``; ``hi``: the end of the loop, if it may be before that."""
    env = {var: simplify(step)}
    mask = None if x.mask is None else simplify(substitute(x.mask, env))
    inside = TRUE if hi is None else simplify(calc("lt", step, hi))
    if inside != TRUE:
        mask = inside if mask is None or mask == TRUE else short_circuit(inside, mask)
    return replace(x, index=tuple(simplify(substitute(e, env)) for e in x.index), mask=None if mask == TRUE else mask)

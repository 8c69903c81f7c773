"""Moves the last steps of a running reduction, which combine lanes and warps, from every iteration after the loop.

A sum over tile axes ends with shuffles between the lanes that split the axis, and with an exchange through shared
memory between the warps.  If a loop only *scales* the running value and adds such sums to it::

    for ... carry(l = 0):   l' = l * fix + reduce sum p over j;   yield l'

each thread may carry its own partial sum through the loop, and the partial sums are added once after the loop.  No
thread waits for another one inside of the loop then.  This is correct because a factor that all lanes of a row share
distributes over the sum of the partial sums::

    for ... carry(q = 0):   q' = q * fix + (reduce sum p over j into t);   yield q'
    l = reduce sum q over t

The rewrite is legal for a carried value that starts as the constant 0 and that every loop of its chain uses in no other
ops than a ``mul`` by a value that does not vary along ``j``, an ``add`` of a ``reduce sum`` over ``j`` that has no
other use, and the yield.  It re-associates sums, which the numeric contract permits.  A running result of another
combiner, such as ``max``, ``prod`` or ``any``, starts as its identity and is not scaled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import field, replace

from nautilus.core.expr.nodes import COMBINERS, identity
from nautilus.core.records import dataclass
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileAxis, TileType
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import ConstOp, ForOp, Frag, MapOp, MemKernel, MemModule, MemOp, ReduceOp, walk_ops
from nautilus.ma_tile.ir.scan import ScanOp
from nautilus.ma_tile.ir.traverse import each_kernel, reads

_Part = Callable[[Frag], Frag]


@dataclass(frozen=True, slots=True)
class DeferReductions:
    """The pass ``defer-reductions``, which has no options."""

    name = "defer-reductions"
    reorders = True

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose loops combine lanes and warps after the last iteration."""
        return each_kernel(module, defer)


@dataclass
class _Chain:
    """One running reduction through consecutive loops, and the ops that change if its last steps are deferred.

    ``scratch``: where the warps exchange their partial results.
    """

    loops: list[int]
    slot: int
    combiner: str
    scratch: str | None = None
    linear: dict[str, Frag] = field(default_factory=dict)
    reduces: dict[str, ReduceOp] = field(default_factory=dict)
    shape: tuple[tuple[str, ...], FragLayout, str] | None = None  # reduced axes, their operand's layout, its name


def defer(kernel: MemKernel) -> MemKernel:
    """``kernel`` with each running reduction of an outermost loop deferred, if that is legal."""
    done: set[str] = set()
    before = _scratch(kernel)
    while True:
        uses = Counter(name for op in walk_ops(kernel.body) for name in reads(op))
        found = next(iter(_chains(kernel, uses, done)), None)
        if found is None:
            idle = before - _scratch(kernel)
            return replace(kernel, smem=tuple(s for s in kernel.smem if s.name not in idle)) if idle else kernel
        done.add(_result(kernel, found).name)
        kernel = _rewrite(kernel, found)


def _result(kernel: MemKernel, chain: _Chain) -> Frag:
    last = kernel.body[chain.loops[-1]]
    assert isinstance(last, ForOp)
    return last.results[chain.slot]


def _chains(kernel: MemKernel, uses: Counter[str], done: set[str]) -> list[_Chain]:
    """Running reductions that may be deferred, by their first loop."""
    starts = {op.result.name: op.value for op in kernel.body if isinstance(op, ConstOp)}
    out: list[_Chain] = []
    for at, op in enumerate(kernel.body):
        if not isinstance(op, ForOp):
            continue
        for slot, (_, init) in enumerate(op.carried):
            for combiner in COMBINERS:
                if starts.get(init.name) != identity(combiner, init.type.dtype).value:
                    continue
                chain = _follow(kernel, at, _Chain([], slot, combiner), uses)
                if chain is not None and _result(kernel, chain).name not in done:
                    out.append(chain)
    return out


def _follow(kernel: MemKernel, at: int, chain: _Chain, uses: Counter[str]) -> _Chain | None:
    """``chain`` from loop ``at`` on; None if a use is not linear."""
    slot = chain.slot
    while True:
        loop = kernel.body[at]
        assert isinstance(loop, ForOp)
        if not _linear(kernel, loop, slot, chain, uses):
            return None
        chain.loops.append(at)
        result = loop.results[slot]
        after = _next_loop(kernel, at, result)
        if after is None or uses[result.name] != 1:
            return chain if chain.shape is not None else None
        at, slot = after
        if slot != chain.slot:
            return None


def _next_loop(kernel: MemKernel, at: int, value: Frag) -> tuple[int, int] | None:
    for n, op in enumerate(kernel.body[at + 1 :], at + 1):
        if isinstance(op, ForOp):
            for slot, (_, init) in enumerate(op.carried):
                if init == value:
                    return n, slot
    return None


def _linear(kernel: MemKernel, loop: ForOp, slot: int, chain: _Chain, uses: Counter[str]) -> bool:
    """Collect the linear uses of the running value in ``loop``. False if it has another use."""
    arg = loop.carried[slot][0]
    linear = {arg.name: arg}
    sums = {op.result.name: op for op in loop.body if isinstance(op, ReduceOp) and op.combiner == chain.combiner}
    step = COMBINERS[chain.combiner].binary
    scales = ("mul",) if chain.combiner == "sum" else ()
    seen: Counter[str] = Counter()
    for op in loop.body:
        used = [name for name in reads(op) if name in linear]
        if not used:
            continue
        if not isinstance(op, MapOp) or op.op not in (step, *scales) or len(used) != 1:
            return False
        other = next((a for a in op.args if a.name not in linear), None)
        if other is None or op.result.type != arg.type or op.result.layout != arg.layout:
            return False
        if op.op == step:
            reduce = sums.get(other.name)
            if reduce is None or uses[other.name] != 1 or not _same_shape(kernel, reduce, arg, chain):
                return False
            chain.reduces[other.name] = reduce
        seen.update(used)
        linear[op.result.name] = op.result
    if loop.yields[slot].name not in linear or loop.yields[slot] == arg:
        return False
    seen[loop.yields[slot].name] += 1
    chain.linear.update(linear)
    return all(uses[name] == seen[name] == 1 for name in linear)


def _same_shape(kernel: MemKernel, op: ReduceOp, arg: Frag, chain: _Chain) -> bool:
    """Whether all sums of the chain reduce the same axes of the same layout, which lanes or warps split."""
    layout = kernel.layouts[op.arg.layout]
    if op.into is not None or op.result.layout != arg.layout:
        return False
    if not any(m.axis in op.axes and m.size > 1 for m in (*layout.lane, *layout.warp)):
        return False
    shape = (op.axes, layout, op.arg.layout)
    if chain.shape is not None and chain.shape[:2] != shape[:2]:
        return False
    chain.shape = shape
    chain.scratch = op.scratch
    return True


def _rewrite(kernel: MemKernel, chain: _Chain) -> MemKernel:
    """``kernel`` with partial sums as carried values, whose sum after the last loop has the old name."""
    assert chain.shape is not None
    axes, layout, base = chain.shape
    into = fresh(f"{'_'.join(axes)}_lane", {a.name for x in walk_ops(kernel.body) for f in _types(x) for a in f.axes})
    partial = layout.partial(axes, into)
    name = fresh(f"{base}_{into}", set(kernel.layouts))
    whole = _result(kernel, chain)
    kept = TileType(whole.type.dtype, (*whole.type.axes, TileAxis(into, partial.extent(into))))
    own = partial.project(kept.names)

    def part(f: Frag) -> Frag:
        return Frag(f.name, kept, name)

    names = set(chain.linear) | set(chain.reduces)
    names |= {_loop(kernel, n).results[chain.slot].name for n in chain.loops}
    body: list[MemOp] = []
    for n, op in enumerate(kernel.body):
        if n not in chain.loops:
            body.append(op)
            continue
        assert isinstance(op, ForOp)
        new = _partial_loop(op, chain, names, part, into)
        if n == chain.loops[0]:
            init = op.carried[chain.slot][1]
            zero = Frag(f"{init.name}_{into}", kept, name)
            body.append(ConstOp(zero, identity(chain.combiner, whole.type.dtype).value, op.span))
            new = _with_init(new, chain.slot, zero)
        if n == chain.loops[-1]:
            last = replace(part(whole), name=f"{whole.name}_{into}")
            new = replace(new, results=_set(new.results, chain.slot, last))
            body += [new, ReduceOp(whole, chain.combiner, last, (into,), chain.scratch, span=op.span)]
        else:
            body.append(new)
    return replace(kernel, body=tuple(body), layouts={**kernel.layouts, name: own})


def _scratch(kernel: MemKernel) -> set[str | None]:
    """The shared buffers through which the warps of ``kernel`` exchange partial results."""
    return {op.scratch for op in walk_ops(kernel.body) if isinstance(op, ReduceOp | ScanOp)}


def _loop(kernel: MemKernel, n: int) -> ForOp:
    op = kernel.body[n]
    assert isinstance(op, ForOp)
    return op


def _partial_loop(loop: ForOp, chain: _Chain, names: set[str], part: _Part, into: str) -> ForOp:
    """``loop`` with partial sums for the running value and for the sums that are added to it."""

    def swap(f: Frag) -> Frag:
        return part(f) if f.name in names else f

    body: list[MemOp] = []
    for op in loop.body:
        if isinstance(op, ReduceOp) and op.result.name in chain.reduces:
            body.append(replace(op, result=part(op.result), into=into, scratch=None))
        elif isinstance(op, MapOp) and op.result.name in chain.linear:
            body.append(replace(op, result=part(op.result), args=tuple(map(swap, op.args))))
        else:
            body.append(op)
    carried = tuple((swap(a), swap(i)) for a, i in loop.carried)
    yields = tuple(map(swap, loop.yields))
    return replace(loop, body=tuple(body), carried=carried, yields=yields, results=tuple(map(swap, loop.results)))


def _with_init(loop: ForOp, slot: int, init: Frag) -> ForOp:
    carried = tuple((a, init if n == slot else i) for n, (a, i) in enumerate(loop.carried))
    return replace(loop, carried=carried)


def _set(values: tuple[Frag, ...], n: int, value: Frag) -> tuple[Frag, ...]:
    return (*values[:n], value, *values[n + 1 :])


def _types(op: MemOp) -> list[TileType]:
    match op:
        case ForOp(results=results):
            return [f.type for f in results]
        case _:
            return [op.result.type] if hasattr(op, "result") else []

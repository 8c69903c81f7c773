"""Static rules of asynchronous work: expected bytes and outstanding MMAs.

The check traverses a body in order, and a loop twice, so that the second iteration starts with the results that the
first one leaves outstanding.  Its state is

* the outstanding results, and the group of each (0: not yet committed; else counted from the oldest);
* the fragments that threads wrote since the last ``wg.fence``.

Rules: only the next MMA of its chain reads an outstanding result, as its accumulator.  A wait lists results that
are outstanding and that it covers, all of them but those that an MMA accumulates into: a read of another one may be
moved in front of the wait.  A fence stands at the start of each group (the assembler may move registers
there, its C7519), and between a write to a fragment and the MMA that uses it.  After an ``if`` that issues, commits or
waits, the state is unknown and the check rejects nothing; the interpreter checks the rest.
"""

from __future__ import annotations

from dataclasses import field, replace

from nautilus.core.expr.nodes import Const, Expr
from nautilus.core.ops import declaration
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.async_ops import MbarExpect, TmaLoad, WgCommit, WgFence, WgWait
from nautilus.ma_tile.ir.instruction_tables import WGMMA
from nautilus.ma_tile.ir.ops import ForOp, Frag, IfOp, MemKernel, MemOp, MmaOp, RolesOp, UndefinedOp, walk_ops
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.ir.traverse import Ops, blocks, defined, reads
from nautilus.ma_tile.verify import reject_op


def check_async(k: MemKernel) -> None:
    """Raise VerifyError where straight-line code of ``k`` breaks a rule of the module docstring."""
    for body in blocks(k.body):
        _expected_bytes(k, body)
    if not any(isinstance(op, MmaOp) and op.is_async for op in walk_ops(k.body)):
        return
    top = [r.body for op in k.body if isinstance(op, RolesOp) for r in op.roles]
    mmas = (op for op in walk_ops(k.body) if isinstance(op, MmaOp) and op.acc is not None)
    accumulators = frozenset(op.acc.name for op in mmas if op.acc is not None)
    for body in (k.body, *top):
        _traverse(body, _State(accumulators))


# -- bytes ------------------------------------------------------------------------------------


def _expected_bytes(k: MemKernel, body: Ops) -> None:
    """Check that straight-line code expects on a stage of an mbarrier the bytes that it loads there."""
    size = {s.name: s.stage_bytes for s in k.smem}
    loads: dict[tuple[str, Expr], int] = {}
    expected: dict[tuple[str, Expr], list[MbarExpect]] = {}
    nested: set[str] = set()
    for op in body:
        match op:
            case TmaLoad(mbar=(name, stage), slot=slot):
                loads[name, stage] = loads.get((name, stage), 0) + size[slot.buffer]
            case MbarExpect(mbar=name, stage=stage):
                expected.setdefault((name, stage), []).append(op)
            case _ if declaration(type(op)).regions:
                nested.update(name for x in walk_ops((op,)) for name in _counted(x))
    for key, ops in expected.items():
        count = sum(op.bytes for op in ops)
        if key in loads and key[0] not in nested and count != loads[key]:
            reject_op(ops[0], "an mbarrier expects the bytes that are loaded", f"{count}, not {loads[key]}")


def _counted(op: MemOp) -> tuple[str, ...]:
    match op:
        case TmaLoad(mbar=(name, _)) | MbarExpect(mbar=name):
            return (name,)
    return ()


# -- outstanding MMAs -------------------------------------------------------------------------


@dataclass(slots=True)
class _State:
    """``group``: the group of each outstanding result; ``spent``: results into which a later MMA accumulates.

    ``dirty``: fragments that threads wrote since the last fence.  ``carried``: fragments that loops bind; they may be
    outstanding in some iterations only.  ``committed``: number of groups so far.  ``known``: the state is known.
    ``accumulators``: fragments of the kernel into which MMAs accumulate.
    """

    accumulators: frozenset[str]
    group: dict[str, int] = field(default_factory=dict)
    spent: frozenset[str] = frozenset()
    dirty: frozenset[str] = frozenset()
    carried: frozenset[str] = frozenset()
    fenced: bool = False
    committed: int = 0
    known: bool = True

    def copy(self) -> _State:
        return replace(self, group=dict(self.group))


def _traverse(body: Ops, s: _State) -> None:
    for op in body:
        match op:
            case RolesOp():
                continue
            case ForOp() | TileSchedulerOp():
                _loop(op, s)
            case IfOp():
                _branch(op, s)
            case MmaOp() if op.instr in WGMMA and op.is_async:
                _mma(op, s)
            case WgFence():
                s.dirty, s.fenced = frozenset(), True
            case WgCommit():
                s.committed, s.fenced = s.committed + 1, False
                s.group = {f: g or s.committed for f, g in s.group.items()}
            case WgWait():
                _wait(op, s)
            case _:
                _other(op, s)


def _other(op: MemOp, s: _State) -> None:
    """An op of the threads; a synchronous MMA is one."""
    for name in reads(op) if s.known and (s.group or s.spent) else ():
        _readable(op, name, s)
    new = {f.name for f in defined(op)}
    if new and not isinstance(op, UndefinedOp) and not (isinstance(op, MmaOp) and op.instr in WGMMA):
        s.dirty |= new
    if s.spent:
        s.spent -= new


def _readable(op: MemOp, name: str, s: _State) -> None:
    if s.known and name in s.group:
        reject_op(op, "outstanding results are not read", f"%{name} has not been waited for")
    if s.known and name in s.spent:
        reject_op(op, "outstanding results are not read", f"%{name} was accumulated into")


def _mma(op: MmaOp, s: _State) -> None:
    rule = "a wg.fence stands between a write to a fragment and the MMA that uses it"
    used = [x for x in (op.a, op.acc) if isinstance(x, Frag)]
    for x in used:
        if s.known and x.name in s.dirty:
            reject_op(op, rule, f"%{x.name} was written since the last wg.fence")
    if s.known and not s.fenced:
        reject_op(op, "a group of asynchronous MMAs begins with a wg.fence", "there is none since the last wg.commit")
    if isinstance(op.a, Frag):
        _readable(op, op.a.name, s)
    if op.acc is not None:
        if s.known and op.acc.name in s.spent:
            _readable(op, op.acc.name, s)
        if s.group.pop(op.acc.name, None) is not None:
            s.spent |= {op.acc.name}
    s.group[op.result.name] = 0
    s.spent -= {op.result.name}


def _wait(op: WgWait, s: _State) -> None:
    for x in op.ready:
        if not s.known:
            break
        if x.name not in s.group:
            if x.name in s.carried:
                continue
            reject_op(op, "a wait lists outstanding results", f"%{x.name} is not outstanding")
        group = s.group[x.name]
        if group == 0:
            reject_op(op, "a wait lists outstanding results", f"%{x.name} is in no group")
        if s.committed - group < op.pending:
            young = s.committed - group + 1
            reject_op(op, "a wait covers the results that it lists", f"%{x.name} is in group {young} from the youngest")
    for x in op.ready:
        s.group.pop(x.name, None)
    done = (f for f, group in s.group.items() if group and s.committed - group >= op.pending)
    missing = next((f for f in done if f not in s.accumulators), None)
    if s.known and missing is not None:
        reject_op(op, "a wait lists the results that it completes", f"it completes %{missing} too")


def _branch(op: IfOp, s: _State) -> None:
    inner = s.copy()
    _traverse(op.body, inner)
    if any(isinstance(x, WgCommit | WgWait) or (isinstance(x, MmaOp) and x.is_async) for x in walk_ops(op.body)):
        s.known = False
        s.group.clear()
    s.dirty |= inner.dirty


def _iterations(op: ForOp | TileSchedulerOp) -> int:
    if isinstance(op, ForOp) and isinstance(op.lo, Const) and isinstance(op.hi, Const):
        return min(2, max(0, int(op.hi.value) - int(op.lo.value)))
    return 2


def _loop(op: ForOp | TileSchedulerOp, s: _State) -> None:
    carried = op.carried if isinstance(op, ForOp) else ()
    values = [init.name for _, init in carried]
    for _ in range(_iterations(op)):
        _rename(s, values, [arg.name for arg, _ in carried])
        _traverse(op.body, s)
        values = [y.name for y in op.yields] if isinstance(op, ForOp) else []
    _rename(s, values, [r.name for r in op.results] if isinstance(op, ForOp) else [])


def _rename(s: _State, old: list[str], new: list[str]) -> None:
    """Rename the values ``old`` to ``new``."""
    groups = [s.group.get(o) for o in old]
    dirty = {n for o, n in zip(old, new, strict=True) if o in s.dirty}
    for o in old:
        s.group.pop(o, None)
    s.group.update({n: g for n, g in zip(new, groups, strict=True) if g is not None})
    s.spent -= frozenset(new)
    s.carried |= frozenset(new)
    s.dirty = (s.dirty - frozenset(new)) | dirty

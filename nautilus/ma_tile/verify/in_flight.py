"""What can be told about asynchronous work from the text alone: announced bytes, pending products.

A body is walked in order, loops twice (so that the second round meets what the first left in flight), with

* the results in flight, and in which group each is (0: not yet committed; else counted from the oldest);
* the fragments that threads wrote since the last ``wg.fence``.

Rules: a result in flight is read by nobody but as the accumulator of the next product of its chain; a wait
lists results that are in flight and that it covers; a fence stands before the first pending product of a
role, and between a write to a fragment and the product that uses it.  Behind an ``if`` that issues, commits
or waits, nothing is known and nothing is rejected any more: that is left to the interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NoReturn

from nautilus.core.errors import VerifyError
from nautilus.core.expr.nodes import Const, Expr
from nautilus.core.ops import declaration
from nautilus.ma_tile.ir.async_ops import WGMMA, MbarExpect, TmaLoad, WgCommit, WgFence, WgWait
from nautilus.ma_tile.ir.ops import ForOp, Frag, IfOp, MemKernel, MemOp, MmaOp, RolesOp, UndefinedOp, walk_ops
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.ir.traverse import blocks, defined, reads
from nautilus.ma_tile.text.printer import format_op

Block = tuple[MemOp, ...]


def check_async(k: MemKernel) -> None:
    """Raise VerifyError where straight-line code of ``k`` breaks a rule of the module docstring."""
    for body in blocks(k.body):
        _expected_bytes(k, body)
    if not any(isinstance(op, MmaOp) and op.is_async for op in walk_ops(k.body)):
        return
    top = [r.body for op in k.body if isinstance(op, RolesOp) for r in op.roles]
    for body in (k.body, *top):
        _walk(body, _State())


def _reject(op: MemOp, rule: str, detail: str) -> NoReturn:
    raise VerifyError("ma-tile", rule, format_op(op), detail, op.span)


# -- bytes ------------------------------------------------------------------------------------


def _expected_bytes(k: MemKernel, body: Block) -> None:
    """What straight-line code announces on a stage of a ring is what it loads there."""
    size = {s.name: s.stage_bytes for s in k.smem}
    loads: dict[tuple[str, Expr], int] = {}
    announced: dict[tuple[str, Expr], list[MbarExpect]] = {}
    nested: set[str] = set()
    for op in body:
        match op:
            case TmaLoad(mbar=(name, stage), slot=slot):
                loads[name, stage] = loads.get((name, stage), 0) + size[slot.buffer]
            case MbarExpect(mbar=name, stage=stage):
                announced.setdefault((name, stage), []).append(op)
            case _ if declaration(type(op)).regions:
                nested.update(name for x in walk_ops((op,)) for name in _counted(x))
    for key, ops in announced.items():
        count = sum(op.bytes for op in ops)
        if key in loads and key[0] not in nested and count != loads[key]:
            _reject(ops[0], "a barrier expects the bytes that are loaded", f"{count}, not {loads[key]}")


def _counted(op: MemOp) -> tuple[str, ...]:
    match op:
        case TmaLoad(mbar=(name, _)) | MbarExpect(mbar=name):
            return (name,)
    return ()


# -- pending products -------------------------------------------------------------------------


@dataclass(slots=True)
class _State:
    """``group``: of each result in flight; ``spent``: results that a later product of their chain took over.

    ``carried``: what loops bind, which may be in flight in some rounds only; ``committed``: groups so far;
    ``known``: whether anything can be told.
    """

    group: dict[str, int] = field(default_factory=dict)
    spent: frozenset[str] = frozenset()
    dirty: frozenset[str] = frozenset()
    carried: frozenset[str] = frozenset()
    fenced: bool = False
    committed: int = 0
    known: bool = True

    def copy(self) -> _State:
        return replace(self, group=dict(self.group))


def _walk(body: Block, s: _State) -> None:
    for op in body:
        match op:
            case RolesOp():
                continue
            case ForOp() | TileSchedulerOp():
                _loop(op, s)
            case IfOp():
                _branch(op, s)
            case MmaOp() if op.instr in WGMMA and op.is_async:
                _product(op, s)
            case WgFence():
                s.dirty, s.fenced = frozenset(), True
            case WgCommit():
                s.committed += 1
                s.group = {f: g or s.committed for f, g in s.group.items()}
            case WgWait():
                _wait(op, s)
            case _:
                _other(op, s)


def _other(op: MemOp, s: _State) -> None:
    """An op of the threads (a product that waits for itself is one)."""
    for name in reads(op):
        _readable(op, name, s)
    new = {f.name for f in defined(op)}
    if not isinstance(op, UndefinedOp) and not (isinstance(op, MmaOp) and op.instr in WGMMA):
        s.dirty |= new
    s.spent -= new


def _readable(op: MemOp, name: str, s: _State) -> None:
    if s.known and name in s.group:
        _reject(op, "results in flight are not read", f"%{name} has not been waited for")
    if s.known and name in s.spent:
        _reject(op, "results in flight are not read", f"%{name} was accumulated into")


def _product(op: MmaOp, s: _State) -> None:
    rule = "a fence stands between writes to fragments and products"
    used = [x for x in (op.a, op.acc) if isinstance(x, Frag)]
    for x in used:
        if s.known and x.name in s.dirty:
            _reject(op, rule, f"%{x.name} was written since the last wg.fence")
    if s.known and not s.fenced:
        _reject(op, rule, "no wg.fence stands before the first product")
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
            _reject(op, "waits list results in flight", f"%{x.name} is not in flight")
        group = s.group[x.name]
        if group == 0:
            _reject(op, "waits list results in flight", f"%{x.name} is in no group")
        if s.committed - group < op.pending:
            young = s.committed - group + 1
            _reject(op, "waits cover the results that they list", f"%{x.name} is in group {young} from the youngest")
    for x in op.ready:
        s.group.pop(x.name, None)


def _branch(op: IfOp, s: _State) -> None:
    inner = s.copy()
    _walk(op.body, inner)
    if any(isinstance(x, WgCommit | WgWait) or (isinstance(x, MmaOp) and x.is_async) for x in walk_ops(op.body)):
        s.known = False
        s.group.clear()
    s.dirty |= inner.dirty


def _rounds(op: ForOp | TileSchedulerOp) -> int:
    if isinstance(op, ForOp) and isinstance(op.lo, Const) and isinstance(op.hi, Const):
        return min(2, max(0, int(op.hi.value) - int(op.lo.value)))
    return 2


def _loop(op: ForOp | TileSchedulerOp, s: _State) -> None:
    carried = op.carried if isinstance(op, ForOp) else ()
    values = [init.name for _, init in carried]
    for _ in range(_rounds(op)):
        _rename(s, values, [arg.name for arg, _ in carried])
        _walk(op.body, s)
        values = [y.name for y in op.yields] if isinstance(op, ForOp) else []
    _rename(s, values, [r.name for r in op.results] if isinstance(op, ForOp) else [])


def _rename(s: _State, old: list[str], new: list[str]) -> None:
    """The values called ``old`` go on as ``new``."""
    groups = [s.group.get(o) for o in old]
    dirty = {n for o, n in zip(old, new, strict=True) if o in s.dirty}
    for o in old:
        s.group.pop(o, None)
    s.group.update({n: g for n, g in zip(new, groups, strict=True) if g is not None})
    s.spent -= frozenset(new)
    s.carried |= frozenset(new)
    s.dirty = (s.dirty - frozenset(new)) | dirty

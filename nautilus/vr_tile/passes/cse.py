"""``cse``: common-subexpression elimination.

All ops except stores and loops are pure, but for loads of a buffer that the kernel itself stores.  A value from outside
a loop replaces an equal one inside it, but not vice versa.  Loads of what the blocks of a team exchange are equal
between two stores or loops.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable, MutableMapping
from dataclasses import replace

from nautilus.core.records import dataclass
from nautilus.vr_tile.ir import (
    ConstOp,
    DotOp,
    ForOp,
    IndexOp,
    LoadOp,
    MapOp,
    ParamOp,
    ReduceOp,
    ScanOp,
    StoreOp,
    TileKernel,
    TileModule,
    TileOp,
    Value,
    ValueOp,
    stored_by,
)
from nautilus.vr_tile.rewriting import each_kernel, rename

_COMMUTES = frozenset({"add", "mul", "and", "or", "eq", "ne"})
_Table = MutableMapping[Hashable, Value]


@dataclass(frozen=True, slots=True)
class Cse:
    """Merge equal pure ops."""

    name = "cse"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` without an op that repeats one in scope."""
        return each_kernel(module, _kernel)


def _kernel(k: TileKernel) -> TileKernel:
    body = _block(k.body, {}, {}, stored_by(k.body), k.team > 1)
    return k if body == k.body else replace(k, body=body)


def _block(
    body: tuple[TileOp, ...], seen: _Table, env: dict[str, Value], stored: frozenset[str], team: bool
) -> tuple[TileOp, ...]:  # fmt: skip
    out: list[TileOp] = []
    exchanged: _Table = {}
    for old in body:
        op = rename(old, env)
        exchanged = {} if isinstance(op, StoreOp | ForOp) else exchanged
        match op:
            case ForOp():
                inner = _block(op.body, ChainMap({}, *_maps(seen)), env, stored, team)
                yields = tuple(env.get(y.name, y) for y in op.yields)
                out.append(replace(op, body=inner, yields=yields))
            case StoreOp():
                out.append(op)
            case LoadOp(buffer=buffer) if buffer in stored and not team:
                out.append(op)
            case _:
                known = exchanged if isinstance(op, LoadOp) and op.buffer in stored else seen
                key = _key(op)
                if key in known:
                    env[op.result.name] = known[key]
                else:
                    known[key] = op.result
                    out.append(op)
    return tuple(out)


def _maps(table: _Table) -> list[_Table]:
    return list(table.maps) if isinstance(table, ChainMap) else [table]


def _key(op: ValueOp) -> Hashable:
    """A key that is equal for ops with equal results. Constants are compared as text, because 0.0 == -0.0."""
    t = op.result.type
    match op:
        case ConstOp(value=value):
            return ("const", repr(value), t)
        case IndexOp(expr=expr):
            return ("index", expr, t)
        case ParamOp(param=param):
            return ("param", param, t)
        case LoadOp(buffer=buffer, index=index, mask=mask):
            return ("load", buffer, index, mask, t)
        case MapOp(op=name, args=args):
            names = [a.name for a in args]
            return (name, tuple(sorted(names) if name in _COMMUTES else names), t)
        case ReduceOp(combiner=combiner, arg=arg, axes=axes):
            return ("reduce", combiner, arg.name, frozenset(axes), t)
        case ScanOp(combiner=combiner, arg=arg, axis=axis):
            by = None if op.by is None else op.by.name
            return ("scan", combiner, arg.name, axis, op.reverse, op.exclusive, by, t)
        case DotOp(a=a, b=b, acc=acc, axes=axes, mask=mask, parts=parts, terms=terms):
            names = sorted((a.name, b.name))
            more = [None if v is None else v.name for v in (acc, mask)]
            return ("dot", tuple(names), *more, frozenset(axes), parts, terms, t)

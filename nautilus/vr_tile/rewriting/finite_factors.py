"""Whether the mask of a dot made a difference: a test of the factors that meet structural zeros.

An operand that is 0 where the mask is false meets elements of the other one there, and only an inf or NaN among these
changes the sum.  :func:`met` says which operands those are, and :func:`tests` gives the body of a kernel without its
results that sums products of 0 with them: a sum is NaN where one of them is not finite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Expr, free_vars
from nautilus.core.expr.nodes import refs as refs_of
from nautilus.vr_tile.ir import (
    ConstOp,
    DotOp,
    ForOp,
    IndexOp,
    LoadOp,
    MapOp,
    ParamOp,
    StoreOp,
    TileOp,
    Value,
    expressions,
    operands,
    results,
    walk_ops,
)
from nautilus.vr_tile.lowering.emitter import Emitter

Defs = Mapping[str, TileOp]


def met(op: DotOp, defs: Defs) -> tuple[Value, ...] | None:
    """The operands of ``op`` that may have an inf or NaN where its mask is false; None where that is not known.

    A conjunct of the mask masks the operand that has all of its axes.  One whose axes both have masks the computed one
    alone (``vr_tile.lowering``).
    """
    sides = (op.a, op.b)
    found: set[Value] = set()
    for c in _conjuncts(op.mask, defs):
        if c is None:
            return None
        names = free_vars(c) | {n for r in refs_of(c) for n in _type_names(r, defs)}
        names &= {*op.a.type.names, *op.b.type.names}
        has = [names <= set(v.type.names) for v in sides]
        loaded = [_is_loaded(v, defs) for v in sides]
        if all(has):
            found |= {v for v, x in zip(sides, loaded, strict=True) if x or loaded[0] == loaded[1] or not names}
        else:
            found |= {v for v, x in zip(sides, has, strict=True) if not x}
    return tuple(v for v in sides if v in found)


def _conjuncts(v: Value | None, defs: Defs) -> Iterator[Expr | None]:
    op = None if v is None else defs.get(v.name)
    match op:
        case IndexOp(expr=e):
            yield from conjuncts(e)
        case MapOp(op="and", args=args):
            for a in args:
                yield from _conjuncts(a, defs)
        case _:
            yield None


def _type_names(name: str, defs: Defs) -> tuple[str, ...]:
    op = defs.get(name)
    return () if op is None else results(op)[0].type.names


def _is_loaded(v: Value, defs: Defs) -> bool:
    op = defs.get(v.name)
    while isinstance(op, MapOp) and op.op in ("cast", "narrow"):
        op = defs.get(op.args[0].name)
    return isinstance(op, LoadOp)


def is_plain(v: Value, defs: Defs) -> bool:
    """Whether ``v`` is made from elements of memory without sums."""
    op = defs.get(v.name)
    if not isinstance(op, LoadOp | IndexOp | ConstOp | ParamOp | MapOp):
        return False
    names = {x.name for x in operands(op)}.union(*map(refs_of, expressions(op)))
    return all(n in defs and all(is_plain(x, defs) for x in results(defs[n])) for n in names)


def tests(
    e: Emitter, body: tuple[TileOp, ...], factors: Mapping[str, tuple[Value, ...]]
) -> tuple[tuple[TileOp, ...], tuple[Value, ...]]:
    """``body`` without stores, and sums at its end that are NaN where a factor is not finite.

    ``factors``: the operands to test, by the result of their dot.  ``e`` gives the names of the sums.
    """
    dots = [op for op in walk_ops(body) if isinstance(op, DotOp) and op.result.name in factors]
    zeros = [ConstOp(e.fresh(op.result.type, "tested"), 0.0, op.span) for op in dots for _ in factors[op.result.name]]
    inner, ends = _Tests(e, factors).block(body, tuple(z.result for z in zeros), 0)
    return (*zeros, *inner), ends


class _Tests:
    """``factors`` of dots are tested by sums, one for each, in the order of the dots."""

    def __init__(self, e: Emitter, factors: Mapping[str, tuple[Value, ...]]) -> None:
        self.e, self.factors = e, factors

    def count(self, body: tuple[TileOp, ...]) -> int:
        """The number of sums of the dots in ``body``."""
        return sum(len(self.factors.get(op.result.name, ())) for op in walk_ops(body) if isinstance(op, DotOp))

    def block(
        self, body: tuple[TileOp, ...], sums: tuple[Value, ...], n: int
    ) -> tuple[tuple[TileOp, ...], tuple[Value, ...]]:
        """``body`` with tests, and the sums after it; those of its dots begin with number ``n`` of ``sums``."""
        out: list[TileOp] = []
        now = list(sums)
        for op in body:
            match op:
                case StoreOp():
                    continue
                case ForOp():
                    m = self.count(op.body)
                    before = now[n : n + m]
                    args = tuple(self.e.fresh(v.type, "tested") for v in before)
                    inner, ends = self.block(op.body, (*now[:n], *args, *now[n + m :]), n)
                    after = tuple(self.e.fresh(v.type, "tested") for v in before)
                    now[n : n + m] = after
                    carried = (*op.carried, *zip(args, before, strict=True))
                    yields = (*op.yields, *ends[n : n + m])
                    out.append(replace(op, results=(*op.results, *after), carried=carried, body=inner, yields=yields))
                    n += m
                case DotOp() if op.result.name in self.factors:
                    out.append(replace(op, mask=None))
                    for side in self.factors[op.result.name]:
                        other = op.b if side == op.a else op.a
                        zero, new = self.e.fresh(other.type, "zeros"), self.e.fresh(op.result.type, "tested")
                        a, b = (side, zero) if side == op.a else (zero, side)
                        out.append(ConstOp(zero, 0.0, op.span))
                        out.append(DotOp(new, a, b, now[n], op.axes, None, op.parts, op.terms, op.span))
                        now[n] = new
                        n += 1
                case _:
                    out.append(op)
        return tuple(out), tuple(now)

"""Values that a program computes twice, as definitions of their own.

A value that is computed at two places has the same bits there, because the printed operations are the same.  The model
would give it two errors.  A comparison such as that of an argmax, which looks for the element that equals the largest
one, would then find none.  :func:`shared` makes the elements of an extreme a definition, which both places read.  The
extreme is one too, because an output is rounded before it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nautilus.core.expr.nodes import Expr, Load, Op, Reduce, Var, rewrite, substitute, walk
from nautilus.core.types import DType
from nautilus.frontend.spec import Definition

_EXTREMES = ("max", "min")


def shared(definitions: Sequence[Definition]) -> list[Definition]:
    """``definitions``, in which elements that are compared with their own extreme are read from one definition."""
    known = {d.name: d for d in definitions}
    made: dict[str, tuple[Definition, Definition]] = {}  # by the extreme: its elements, and itself
    for d in definitions:
        for e in walk(d.expr):
            if isinstance(e, Op) and e.op == "eq":
                for element, extreme in (e.args, e.args[::-1]):
                    _share(known, made, d.name, element, extreme)
    out: list[Definition] = []
    for d in definitions:
        out += made.get(d.name, ())
        out.append(known[d.name])
    return out


def _share(
    known: dict[str, Definition], made: dict[str, tuple[Definition, Definition]], reader: str, element: Expr,
    extreme: Expr,
) -> None:  # fmt: skip
    """Let ``reader``, which compares ``element`` with the value ``extreme``, and the definition of that value read the
    element from one definition."""
    if not isinstance(extreme, Load) or extreme.buffer not in known or not isinstance(element, Op):
        return
    d = known[extreme.buffer]
    r = made[d.name][1].expr if d.name in made else d.expr
    if not isinstance(r, Reduce) or r.op not in _EXTREMES or r.cond is not None or not r.dtype.is_float:
        return
    source = made[d.name][0].expr if d.name in made else r.body
    if any(isinstance(n, Reduce) for n in walk(source)) or _canonical(source) != _canonical(element):
        return
    axes = {a.name: a for a in (*d.axes, *r.axes)}
    order, mine, inner = _variables(source), _variables(element), known[reader]
    ranges = {a.name: a.extent for a in inner.axes}
    ranges |= {a.name: a.extent for e in walk(inner.expr) if isinstance(e, Reduce) for a in e.axes}
    if any(ranges.get(b) != axes[a].extent for a, b in zip(order, mine, strict=True)):
        return
    names = f"{d.name}__elements", f"{d.name}__extreme"
    if d.name not in made:
        elements = Definition(names[0], None, tuple(axes[n] for n in order), source, False, d.span)
        itself = Definition(names[1], None, d.axes, replace(r, body=_read(names[0], order, r.dtype)), False, d.span)
        made[d.name] = elements, itself
        known[d.name] = replace(d, expr=_read(names[1], [a.name for a in d.axes], r.dtype))
    wanted: dict[Expr, Expr] = {element: _read(names[0], mine, r.dtype), extreme: replace(extreme, buffer=names[1])}
    known[reader] = replace(inner, expr=rewrite(inner.expr, lambda n: wanted.get(n)))


def _read(name: str, axes: Sequence[str], dtype: DType) -> Load:
    return Load(name, tuple(Var(a, DType.I32) for a in axes), dtype)


def _variables(e: Expr) -> list[str]:
    """The variables of ``e`` in the order in which they occur."""
    return list(dict.fromkeys(n.name for n in walk(e) if isinstance(n, Var)))


def _canonical(e: Expr) -> Expr:
    names: Mapping[str, Expr] = {n: Var(f"%{k}", DType.I32) for k, n in enumerate(_variables(e))}
    return substitute(e, names)

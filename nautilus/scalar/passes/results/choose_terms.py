"""``choose-terms``: a sum over an index that a condition equates with an element of memory is that term.

The expert of each token is often written as a condition on a sum over experts::

    H[t, f] = sum[e | id[t] == e](silu(G[t, f, e]) * U[t, f, e])           G[t, f, e] = sum[d](X[t, d] * W[e, f, d])

The products then have elements for every expert, of which one counts.  Each is computed for that expert alone instead,
and a row whose expert is none has 0::

    G_at[t, f] = sum[d | 0 <= id[t] < E](X[t, d] * W[id[t], f, d])
    H[t, f] = silu(G_at[t, f]) * U_at[t, f] if 0 <= id[t] < E else 0

``sort-rows`` then makes products of matrices of them.  It is done for :data:`LEAST` terms or more, where only products
are read at the index, each of them once and nowhere else.  Each has the axes of the condition: a product without them,
which all tokens share, would be computed once for each token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.expr.build import within
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, free_vars, loads, rewrite, substitute
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.rewriting import find_defs, put_defs, reduction_at

LEAST = 4  # terms of which one is chosen


@dataclass(frozen=True, slots=True)
class ChooseTerms:
    """Compute the only term of each such sum."""

    name = "choose-terms"

    def apply(self, program: Program) -> Program:
        """The program with terms in the place of sums; the same object where there are none."""
        for name in [k.name for k in program.kernels]:
            defs = find_defs(program)
            found = None if name not in defs else _chosen(defs[name], defs)
            if found is not None:
                program = Dead().apply(put_defs(program, name, _term(program, defs[name], found, defs)))
        return program


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A sum over ``axis``, which is ``key``, an i32, under ``rest``; ``products``: what it reads at the axis."""

    axis: str
    key: Expr
    rest: tuple[Expr, ...]
    products: tuple[Load, ...]


def _chosen(d: Def, defs: Mapping[str, Def]) -> _Chosen | None:
    """``d`` as such a sum; None for another definition."""
    if d.op != "sum" or d.at is not None or len(d.red) != 1 or (size(d.red[0]) or 0) < LEAST:
        return None
    axis, parts = d.red[0].name, list(conjuncts(d.guard))
    keys = [(c, key) for c in parts if (key := _key(c, axis)) is not None]
    products = tuple(ld for ld in dict.fromkeys(loads(d.value)) if axis in free_vars(ld))
    if len(keys) != 1 or not products or not all(_multiplies(ld, axis, d, defs) for ld in products):
        return None
    rest = tuple(c for c in parts if c is not keys[0][0])
    left = rewrite(d.value, lambda n: Const(0.0, n.dtype) if n in products else None)
    asked = frozenset[str]().union(*map(free_vars, (keys[0][1], *rest)))
    alone = all(asked <= free_vars(ld) for ld in products)
    return _Chosen(axis, keys[0][1], rest, products) if alone and axis not in free_vars(left) | asked else None


def _key(c: Expr, axis: str) -> Expr | None:
    """The element of memory that the part ``c`` of a condition equates with ``axis``."""
    for a, key in (c.args, c.args[::-1]) if isinstance(c, Op) and c.op == "eq" else ():
        if a == Var(axis) and loads(key) and key.dtype is DType.I32 and axis not in free_vars(key):
            return key
    return None


def _multiplies(ld: Load, axis: str, d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether ``ld`` is an element of a product that ``d`` alone reads, at its own axes, and once."""
    made = defs.get(ld.buffer)
    if made is None or not multiplies_matrices(made) or made.guard is not None or made.at is not None:
        return False
    readers = [x for r in defs.values() for x in r.reads() if x.buffer == ld.buffer]
    own = {a.name: size(a) for a in d.axes}
    places = [e.name if isinstance(e, Var) else "" for e in ld.index]
    alike = [own.get(name) for name in places] == [size(a) for a in made.par] and "" not in places
    return made.buffer.space is Space.TEMP and readers == [ld] and len({*ld.index}) == len(ld.index) and alike


def _term(program: Program, d: Def, c: _Chosen, defs: Mapping[str, Def]) -> tuple[Def, ...]:
    """The products of ``c`` at the chosen index, and ``d`` as a term of them."""
    inside = conjunction([*within(c.key, size(d.red[0]) or 0), *c.rest])
    assert inside is not None
    made: list[Def] = []
    at: dict[Load, Load] = {}
    for ld in c.products:
        chosen = replace(ld, index=tuple(substitute(e, {c.axis: c.key}) for e in ld.index))
        made.append(reduction_at(program, defs[ld.buffer], chosen, d.par, inside, made))
        at[ld] = Load(made[-1].name, made[-1].index, ld.dtype, ld.span)
    value = rewrite(d.value, lambda n: at.get(n) if isinstance(n, Load) else None)
    term = make("select", inside, value, Const(0.0, value.dtype))
    return (*made, replace(d, op=None, red=(), value=term, guard=None))

"""``restrict-products``: products of which rows of segments alone are read have the condition of the segments.

Scores of the edges of a graph, whose edges are sorted by target, are written for all pairs of a target and an edge, and
each reader needs those of the target alone::

    S[n, e] sum= Q[n, d] * K[col[e], d]                     O[n, d] sum= P(S[n, e]) * V[col[e], d]
                                                                    where ptr[n] <= e and e < ptr[n + 1]

No element of ``S`` is read elsewhere, so the sum may have the condition of its readers::

    S[n, e] sum= Q[n, d] * K[col[e], d] where ptr[n] <= e and e < ptr[n + 1]

The planner then sees that no two rows have a column in common: a matrix product of many rows would compute nearly
nothing but elements that have no reader.

It is done for temps that are products of a row for each segment and a column for each position, and that all readers
read at distinct axes under one condition, by which segments follow each other.  The product is then computed in front
of its first reader, behind the definitions that the condition reads.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Expr, Load, Var, free_vars, substitute
from nautilus.core.expr.products import matrix_product
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.disjoint import ends_at, follow
from nautilus.scalar.analysis.contractions.scales import matrix_part
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.rewriting import find_defs, put_defs


@dataclass(frozen=True, slots=True)
class RestrictProducts:
    """No options."""

    name = "restrict-products"

    def apply(self, program: Program) -> Program:
        """The program with conditions on such products; the same object where there are none."""
        if not any(_product(d) for d in find_defs(program).values()):
            return program
        made = live = Dead().apply(program)  # what has no reader needs no elements
        defs = find_defs(live)
        for d in defs.values():
            sides = _product(d)
            reads = [(r, ld) for r in defs.values() for ld in r.reads() if ld.buffer == d.name]
            found = {_condition(d, r, ld, sides) for r, ld in reads} if sides else set()
            condition = found.pop() if len(found) == 1 else None
            if condition is not None and condition not in conjuncts(d.guard):
                guard = conjunction((*conjuncts(d.guard), condition))
                made = put_defs(made, d.name, (replace(d, guard=guard),))
                made = _before_readers(made, d.name, {r.name for r, _ in reads})
        return program if made is live else made


def _before_readers(program: Program, name: str, readers: Collection[str]) -> Program:
    """``program`` with the kernel ``name`` in front of the first one of ``readers``.

    That one reads the condition too, so all that the condition reads is computed before.
    """
    (own,) = (k for k in program.kernels if k.name == name)
    others = [k for k in program.kernels if k is not own]
    first = next(n for n, k in enumerate(others) if k.name in readers)
    return replace(program, kernels=(*others[:first], own, *others[first:]))


def _product(d: Def) -> tuple[str, str] | None:
    """The axes of rows and columns of ``d``, a temp that is a product of matrices; None for any other definition."""
    if d.op != "sum" or d.at is not None or d.buffer.space is not Space.TEMP:
        return None
    found = matrix_product(matrix_part(d), [a.name for a in d.par])
    if found is None:
        return None
    rows, columns = ([a.name for a in d.par if a.name in side] for side in (found.rows, found.columns))
    return (rows[0], columns[0]) if len(rows) == len(columns) == 1 else None


def _condition(d: Def, reader: Def, ld: Load, sides: tuple[str, str]) -> Expr | None:
    """The condition over the axes of ``d`` under which ``reader`` reads ``ld`` in segments that are ``sides`` of it."""
    names = [e.name for e in ld.index if isinstance(e, Var)]
    if len(names) != len(ld.index) or len(set(names)) != len(names):
        return None
    own = dict(zip(names, (a.name for a in d.par), strict=True))
    for c in conjuncts(reader.guard):
        for x in free_vars(c) & own.keys():
            ends = ends_at(c, x)
            if ends is None or not follow(ends) or not free_vars(c) <= own.keys():
                continue
            if isinstance(ends.position, Var) and {own[x], own[ends.position.name]} == {*sides}:
                return substitute(c, {name: Var(a) for name, a in own.items()})
    return None

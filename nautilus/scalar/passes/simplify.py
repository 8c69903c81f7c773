"""``simplify``: indices, guards and values get canonical form, and nothing moves between statements.

Indices and guards are simplified by :mod:`nautilus.core.index.simplify` under the ranges of the loops around (a guard
that always holds is removed), values by ``simplify_value`` (a division by a number becomes a product) and
``bit_fields``.
A value is simplified knowing its guard, and so is the position of a store.  The position of an update keeps the form
of that of the store which initialises it.  A ``select`` with the identity inside an update becomes its
guard (:mod:`nautilus.scalar.analysis.masking`).  Loops are left alone.

A loop of one iteration keeps its variable: indices stay plain variables, which is what definitions
are aligned by.  Only a guard that reads nothing may use that it is a number.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.bit_fields import bit_fields
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Expr, loads, rewrite
from nautilus.core.index.simplify import TRUE, Ranges, conjuncts, simplify, simplify_value
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.masking import absorb_selects
from nautilus.scalar.ir import Loop, Program, Store, Update
from nautilus.scalar.rewriting import loop_assumptions, map_kernels, map_statements, with_body

_ROUNDS = 4  # a simplified value may give a guard, which may simplify the value again


@dataclass(frozen=True, slots=True)
class Simplify:
    """Simplify every statement."""

    name = "simplify"

    def apply(self, program: Program) -> Program:
        """The same program in canonical form; the same object where nothing changed."""

        def rule(loops: tuple[Loop, ...], s: Store | Update) -> Store | Update:
            return simplify_statement(s, *loop_assumptions(loops))

        return map_kernels(program, lambda k: with_body(k, map_statements(k.body, rule)))


def simplify_statement(s: Store | Update, ranges: Ranges, assumptions: tuple[Expr, ...]) -> Store | Update:
    """``s`` simplified, given what holds around it; ``s`` itself where nothing changed."""
    old = s
    for _ in range(_ROUNDS):
        new = _round(s, ranges, assumptions)
        if new == s:
            break
        s = new
    return old if s == old else s


def _round(s: Store | Update, ranges: Ranges, assumptions: tuple[Expr, ...]) -> Store | Update:
    guard, value = s.guard, s.value
    if isinstance(s, Update):
        value, guard = absorb_selects(s.op, value, guard)
    wide = {v: (lo, hi if lo < hi else hi + 1) for v, (lo, hi) in ranges.items()}  # no variable is a number
    if guard is not None:
        parts = [simplify(g, wide if loads(g) else ranges, assumptions) for g in conjuncts(simplify_value(guard))]
        guard = simplify(conjunction(parts) or TRUE, wide, assumptions)
        value = _holding(value, tuple(c for c in conjuncts(guard) if loads(c)))
    given = assumptions if guard is None else (*assumptions, guard)
    place = assumptions if isinstance(s, Update) else given
    return replace(
        s,
        index=tuple(simplify(i, wide, place) for i in s.index),
        value=simplify_value(bit_fields(simplify(value, wide, given), wide)),
        guard=None if guard == TRUE else guard,
    )


def _holding(e: Expr, conditions: tuple[Expr, ...]) -> Expr:
    """``e`` where ``conditions`` hold, of which the simplification of indices uses comparisons of integers alone."""
    return rewrite(e, lambda n: TRUE if n in conditions else None) if conditions else e

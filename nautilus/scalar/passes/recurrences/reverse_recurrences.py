"""``reverse-recurrences``: steps that all readers read from the last one on are stored in that order.

A recurrence over time backwards is written with steps that count from the end, and read so::

    for s: A[s] = d[T - 1 - s] + g * A[s - 1]                  y[t] = f(A[T - 1 - t], x[t])
    for s: A[T - 1 - s] = d[T - 1 - s] + g * A[T - s]          y[t] = f(A[t], x[t])

The second form is that of ``A[t] = d[t] + g * A[t + 1]``.  Its readers follow its steps, so that ``join-recurrences``
computes them there, and its reads and writes are contiguous along the same direction.

Legality.  Positions of temporaries are renamed one by one, in all that reads them; no value changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Load, free_vars, loads, rewrite
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import extent_expr, total
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import is_recurrence, writes_of
from nautilus.scalar.analysis.states.recurrences import Form, form_of
from nautilus.scalar.ir import Kernel, Loop, Program, Store, Update, expressions, statements, with_expressions
from nautilus.scalar.rewriting import map_statements, with_body


@dataclass(frozen=True, slots=True)
class ReverseRecurrences:
    """Reverse every recurrence that all others read from its last step on."""

    name = "reverse-recurrences"
    sees_recurrences = True

    def apply(self, program: Program) -> Program:
        """The program with other positions of such tensors; the same object where there are none."""
        for name in [k.name for k in reversed(program.kernels) if is_recurrence(k)]:
            k = next(x for x in program.kernels if x.name == name)
            places = _places(program, k)
            if places is not None and _read_backwards(program, k, places):
                program = _reversed(program, places)
        return program


def _places(program: Program, k: Kernel) -> Mapping[str, int] | None:
    """The dimension of the steps of each tensor of ``k``; None where one is no temporary or has no such dimension."""
    form: Form | None = form_of(k)
    if form is None or form.reverse or any(program.buffer(n).space is not Space.TEMP for n in writes_of(k)):
        return None
    found = {n: roles.index(form.step.var) for n, roles in form.roles.items() if form.step.var in roles}
    return found if len(found) == len(form.roles) else None


def _read_backwards(program: Program, k: Kernel, places: Mapping[str, int]) -> bool:
    """Whether kernels other than ``k`` read its tensors, at positions that fall along their axes, or fixed ones.

    Recurrences have an order of their own, and follow no steps of others.
    """
    reads = [
        (ld, other)
        for other in program.kernels
        if other is not k
        for _, s in statements(other.body)
        for e in expressions(s)
        for ld in loads(e)
        if ld.buffer in places
    ]
    falls = False
    for ld, other in reads:
        at = ld.index[places[ld.buffer]]
        variables = free_vars(at)
        if loads(at) or any(linear(at).slope(v) != -1 for v in variables):
            return False
        falls |= bool(variables) and not is_recurrence(other)
    return falls


def _reversed(program: Program, places: Mapping[str, int]) -> Program:
    """``program`` with the dimensions ``places`` of tensors in the other direction."""
    last = {n: extent_expr(total(program.buffer(n).shape[p], -1)) for n, p in places.items()}

    def turned(buffer: str, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        p = places[buffer]
        return (*index[:p], simplify(calc("sub", last[buffer], index[p])), *index[p + 1 :])

    def read(e: Expr) -> Expr | None:
        if not (isinstance(e, Load) and e.buffer in places):
            return None
        return replace(e, index=turned(e.buffer, tuple(rewrite(i, read) for i in e.index)))

    def rule(_: tuple[Loop, ...], s: Store | Update) -> Store | Update:
        made = with_expressions(s, lambda e: rewrite(e, read))
        return replace(made, index=turned(s.buffer, s.index)) if s.buffer in places else made

    return replace(program, kernels=tuple(with_body(k, map_statements(k.body, rule)) for k in program.kernels))

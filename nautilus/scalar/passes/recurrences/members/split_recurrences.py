"""``split-recurrences``: members of a recurrence that do not need the others are a recurrence of their own.

The members of a block need each other, but not always all of them.  A running maximum and a sum relative to it need two
recurrences, of which the first one is a running result and the second one has linear states::

    for t: m[t] = max(m[t - 1], x[t])                   for t: m[t] = max(m[t - 1], x[t])
           s[t] = s[t - 1] * exp(m[t - 1] - m[t]) + 1   for t: s[t] = s[t - 1] * exp(m[t - 1] - m[t]) + 1

The first one has a member that reads its own earlier values, and all that its members read.  What is left has such a
member too.  Steps over axes of their own stay together: their states are not in memory, and would be.  Recurrences of
single numbers that gain nothing are merged again later (``merge-recurrences``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.core.expr.nodes import loads
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import is_recurrence
from nautilus.scalar.analysis.states.recurrences import Form, form_of
from nautilus.scalar.ir import Kernel, Program, Store, expressions
from nautilus.scalar.rewriting import nest


@dataclass(frozen=True, slots=True)
class SplitRecurrences:
    """Split every recurrence that has a part which needs no other."""

    name = "split-recurrences"
    sees_recurrences = True

    def apply(self, program: Program) -> Program:
        """The program with more recurrences; the same object where none is split."""
        kernels = tuple(part for k in program.kernels for part in (_parts(k) if is_recurrence(k) else (k,)))
        return program if kernels == program.kernels else replace(program, kernels=kernels)


def _parts(k: Kernel) -> tuple[Kernel, ...]:
    """The recurrences that ``k`` is, each before those that read it."""
    form = form_of(k)
    if form is None or k.locals or not all(isinstance(s, Store) for s in form.step.body):
        return (k,)
    body = [s for s in form.step.body if isinstance(s, Store)]
    made = {s.buffer: n for n, s in enumerate(body)}
    reads = [{made[ld.buffer] for e in expressions(s) for ld in loads(e) if ld.buffer in made} for s in body]
    needs = {n: _closure(reads, n) for n in range(len(body))}
    cyclic = [n for n in needs if any(n in needs[m] for m in reads[n])]
    for n in cyclic:
        first = {n, *needs[n]}
        rest = [m for m in range(len(body)) if m not in first]
        if any(m in rest for m in cyclic):
            parts = ([m for m in range(len(body)) if m in first], rest)
            return tuple(x for part in parts for x in _parts(_kernel(k, form, [body[m] for m in part])))
    return (k,)


def _closure(reads: Sequence[set[int]], n: int) -> set[int]:
    """The stores that store ``n`` needs, through any number of others."""
    found, todo = set[int](), [*reads[n]]
    while todo:
        m = todo.pop()
        if m not in found:
            found.add(m)
            todo += reads[m]
    return found


def _kernel(k: Kernel, form: Form, body: Sequence[Store]) -> Kernel:
    """The steps of ``k`` with the stores ``body`` alone."""
    return replace(k, name=body[-1].buffer, body=nest(form.shared, (replace(form.step, body=tuple(body)),)))

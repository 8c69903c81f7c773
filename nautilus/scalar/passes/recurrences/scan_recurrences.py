"""``scan-recurrences``: a recurrence that only combines its elements is a running result.

The recurrence ``h[t] = h[t - 1] + x[t]`` with ``h[0] = x[0]`` is ``h[t] = sum[u | u <= t](x[u])``, and so with ``max``,
``min``, ``and`` and ``or``, and with ``*`` of integers.  Running results are found in chunks that run at the same time
(``chunk-scans``, ``planner/kernel.py``), where the steps of a recurrence follow each other.  In general::

    for t:  h[t] = c if t == 0 else op(h[t - 1], x[t])      h[t] = op[u | u <= t](c if u == 0 else x[u])

Legality.  The recurrence has one tensor, which is written once a step in the type in which it is computed, so
that no step rounds.  A step reads the element of the step before at its own position, and combines it with a value that
reads no element of the tensor; the first step has a value of its own, or the term ``x[0]``.  Every partial result is
at most the sum of the magnitudes of the terms of ``h[t]``, so that sums overflow only where these do.  A product of
floats may overflow in parts, where the product of all steps does not, so it stays a recurrence; integers wrap in any
order.  The same with the steps from the last one to the first: ``u >= t``.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, loads, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.types import COMPUTE_TYPES
from nautilus.scalar.analysis.definitions import Def, is_recurrence
from nautilus.scalar.analysis.states.recurrences import Form, form_of
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Store, extent, statements
from nautilus.scalar.rewriting import kernel_of

_COMBINERS = {"add": "sum", "mul": "prod", "max": "max", "min": "min", "and": "all", "or": "any"}
LEAST = 3  # steps


@dataclass(frozen=True, slots=True)
class ScanRecurrences:
    """Make running results of the recurrences that are some."""

    name = "scan-recurrences"
    sees_recurrences = True

    def apply(self, program: Program) -> Program:
        """The program with definitions in the place of such recurrences; the same object where there are none."""
        found = [_scan(program, k) if is_recurrence(k) else None for k in program.kernels]
        if not any(found):
            return program
        kernels = tuple(kernel_of(d) if d else k for k, d in zip(program.kernels, found, strict=True))
        return replace(program, kernels=kernels)


def _scan(program: Program, k: Kernel) -> Def | None:
    """The running result that the recurrence ``k`` is; None where it is none."""
    form = form_of(k)
    inner = [] if form is None else list(statements(form.step.body))
    if form is None or len(inner) != 1:
        return None
    own, store = inner[0]
    steps, buffer = extent(form.step), program.buffer(store.buffer)
    loops = [*form.shared, form.step, *own]
    if steps is None or steps < LEAST or not isinstance(store, Store) or store.guard is not None:
        return None
    if any(x.kind not in (Kind.PAR, Kind.SEQ) or extent(x) is None or x.lo != integer(0) for x in loops):
        return None
    if buffer.dtype is not store.value.dtype or buffer.dtype not in COMPUTE_TYPES:
        return None
    if len(store.index) != len(loops) or set(map(simplify, store.index)) != {_place(form, x, steps) for x in loops}:
        return None
    return _definition(program, form, store, loops, steps)


def _place(form: Form, loop: Loop, steps: int) -> Expr:
    """Where the store of a step is along the axis of ``loop``."""
    backwards = loop is form.step and form.reverse
    return simplify(calc("sub", integer(steps - 1), Var(loop.var))) if backwards else Var(loop.var)


def _definition(program: Program, form: Form, store: Store, loops: list[Loop], steps: int) -> Def | None:
    buffer, t = program.buffer(store.buffer), form.step.var
    later = simplify(store.value, {t: (1, steps - 1)})
    first = simplify(substitute(store.value, {t: integer(0)}))
    before = {ld for ld in loads(later) if ld.buffer == store.buffer}
    wanted = tuple(simplify(substitute(e, {t: calc("sub", Var(t), 1)})) for e in store.index)
    if [tuple(map(simplify, ld.index)) for ld in before] != [wanted] or _reads(first, store.buffer):
        return None
    found = _combined(later, *before)
    if found is None:
        return None
    op, term = found
    same = simplify(substitute(term, {t: integer(0)})) == first
    value = term if same else calc("select", calc("eq", Var(t), 0), first, term)
    taken = {b.name for b in program.buffers} | {p.name for p in program.params} | {x.var for x in loops}
    u = unused(f"{t}_before", taken)
    at: Expr = Var(u)
    axes = {x.var: Axis(x.var, extent(x) or 0, x.span) for x in loops}
    order = [next(x.var for x in loops if x.var in free_vars(e)) for e in store.index]
    if form.reverse:  # the axis numbers positions, and the steps run from the last one
        at = simplify(calc("sub", integer(steps - 1), Var(u)))
    guard = calc("ge" if form.reverse else "le", Var(u), Var(t))
    return Def(
        store.buffer, buffer, tuple(axes[x] for x in order), (Axis(u, steps, form.step.span),), _COMBINERS[op],
        simplify(substitute(value, {t: at}), {u: (0, steps - 1)}), guard, store.span,
    )  # fmt: skip


def _reads(e: Expr, name: str) -> bool:
    return any(ld.buffer == name for ld in loads(e))


def _combined(e: Expr, before: Load) -> tuple[str, Expr] | None:
    """The operation of ``op(before, x)`` and ``x``, which does not read the tensor; None where ``e`` is none."""
    if not isinstance(e, Op) or e.op not in _COMBINERS or len(e.args) != 2 or (e.op == "mul" and e.dtype.is_float):
        return None
    rest = [a for a in e.args if a != before]
    return (e.op, rest[0]) if len(rest) == 1 and not _reads(rest[0], before.buffer) else None

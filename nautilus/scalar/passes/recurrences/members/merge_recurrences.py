"""``merge-recurrences``: recurrences over the same axes run in one kernel.

A step of a recurrence of single numbers takes as long as its latency, and each kernel costs a launch.  Two such
recurrences over as many positions and steps share the steps of one kernel::

    par b { seq t { p[b, t] = f(p[b, t - 1], x[b, t]) } }
    par c { seq s { r[c, s] = g(r[c, s - 1], p[c, s]) } }
    par b { seq t { p[b, t] = f(p[b, t - 1], x[b, t]);  r[b, t] = g(r[b, t - 1], p[b, t]) } }

Legality.  The second one reads what the first one writes at its own position alone, in its own step or in earlier ones,
and reads nothing that other kernels make from it; what the first step alone evaluates may name that step.  Kernels
between the two that follow the first one follow both.  Nests are at most :data:`MOST`, so that a thread has registers
for all of them.

Two scans of tiles (``scan-tiles``) are one kernel where they read a tensor in common, or one reads the other, in its
own step alone, or, across contiguous memory, where it reads running extremes, in the step before.  Along it, a thread
has 32 steps after each other in both scans: 256 x 32768 logarithms of running sums take 129 us on an H200 as one
kernel, and 78 as two.  Those of states that need each other stay alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from nautilus.core.expr.build import integer
from nautilus.core.expr.conditions import FALSE, TRUE
from nautilus.core.expr.nodes import Expr, Load, Op, Var, free_vars, loads, rewrite, substitute
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import is_recurrence, reads_of, writes_of
from nautilus.scalar.analysis.states.coupled_states import states_apart
from nautilus.scalar.analysis.states.linear_states import State
from nautilus.scalar.analysis.states.scan_tile import ROW, fits_tile, scan_tile
from nautilus.scalar.ir import (
    Kernel,
    Kind,
    Loop,
    Program,
    Stmt,
    Store,
    expressions,
    extent,
    statements,
    with_expressions,
)
from nautilus.scalar.rewriting import nest, substituted
from nautilus.scalar.rewriting.recurrence_scans import scan_form

MOST = 24


@dataclass(frozen=True, slots=True)
class MergeRecurrences:
    """Merge recurrences without axes of their own."""

    name = "merge-recurrences"
    sees_recurrences = True

    def apply(self, program: Program) -> Program:
        """The program with fewer recurrences."""
        kernels = program.kernels
        while (made := _merged(program, kernels)) is not None:
            kernels = made
        return replace(program, kernels=kernels) if kernels != program.kernels else program


@dataclass(frozen=True, slots=True)
class _Steps:
    """The loops of a recurrence whose nests are stores of single numbers."""

    shared: tuple[Loop, ...]
    step: Loop

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (*self.shared, self.step)


def _steps(k: Kernel) -> _Steps | None:
    """The loops of the recurrence ``k``; None where it has nests over axes of their own."""
    shared, body = list[Loop](), k.body
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind is Kind.PAR:
        shared.append(body[0])
        body = body[0].body
    (step,) = body if len(body) == 1 else (None,)
    if not isinstance(step, Loop) or not step.kind.is_ordered or not all(isinstance(s, Store) for s in step.body):
        return None
    return _Steps(tuple(shared), step)


def _merged(program: Program, kernels: Sequence[Kernel]) -> tuple[Kernel, ...] | None:
    """``kernels`` with the first two recurrences that can be merged as one; None where there are none."""
    found = {n: steps for n, k in enumerate(kernels) if is_recurrence(k) and (steps := _steps(k)) is not None}
    for n, m in combinations(found, 2):
        made = _pair(program, kernels, n, m, (found[n], found[m]))
        if made is not None:
            return made
    return None


def _pair(
    program: Program, kernels: Sequence[Kernel], n: int, m: int, steps: tuple[_Steps, _Steps]
) -> tuple[Kernel, ...] | None:  # fmt: skip
    """``kernels`` with those at ``n`` and ``m`` as one; None where they cannot be merged."""
    a, b = kernels[n], kernels[m]
    first, second = steps
    alike = [(x.lo, x.hi) for x in first.loops] == [(x.lo, x.hi) for x in second.loops]
    if not alike or len(first.step.body) + len(second.step.body) > MOST or first.step.kind is not second.step.kind:
        return None
    scans = first.step.kind.is_scan
    if scans and not (_share(a, b) and _fits(first.step, (*first.step.body, *second.step.body))):
        return None
    if scans and not (_apart(a) and _apart(b)):
        return None
    between, later, made = list[Kernel](), list[Kernel](), set(writes_of(a))
    for k in kernels[n + 1 : m]:
        follows = not made.isdisjoint(reads_of(k))
        (later if follows else between).append(k)
        made |= writes_of(k) if follows else set()
    if not reads_of(b).isdisjoint(made - writes_of(a)):
        return None
    pairs = zip(second.loops, first.loops, strict=True)
    body = substituted(second.step.body, {mine.var: Var(theirs.var) for mine, theirs in pairs})
    if not scans:
        body = _in_own_steps(first, body)
    reads = {ld for _, s in statements(body) for e in expressions(s) for ld in loads(e) if ld.buffer in writes_of(a)}
    across = scans and not _is_contiguous(second)
    extremes = {x.name for x in _apart(a) if x.is_extreme} if across else set[str]()
    if not all(_is_earlier(first, ld, scans, ld.buffer in extremes) for ld in reads):
        return None
    if scans and len(_directions(first.step.var, (*first.step.body, *body))) > 1:
        return None
    step = replace(first.step, body=(*first.step.body, *body))
    whole = replace(b, body=nest(first.shared, (step,)))
    if scans and not _has_tile(program, whole):
        return None
    return (*kernels[:n], *between, whole, *later, *kernels[m + 1 :])


def _in_own_steps(steps: _Steps, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """``body`` where what the first step alone evaluates reads elements of that step as those of its own."""
    t, count = steps.step.var, extent(steps.step) or 0
    places = {s.buffer: s.index for s in steps.step.body if isinstance(s, Store)}
    starts = {n: tuple(simplify(substitute(e, {t: integer(0)})) for e in at) for n, at in places.items()}

    def own(e: Expr) -> Expr | None:
        same = isinstance(e, Load) and starts.get(e.buffer) == tuple(map(simplify, e.index))
        return replace(e, index=places[e.buffer]) if same and isinstance(e, Load) else None

    def rule(e: Expr) -> Expr | None:
        if not (isinstance(e, Op) and e.op == "select" and count > 1):
            return None
        condition, yes, no = (rewrite(x, rule) for x in e.args)
        later = simplify(condition, {t: (1, count - 1)})
        if later == TRUE:
            no = rewrite(no, own)
        elif later == FALSE:
            yes = rewrite(yes, own)
        return replace(e, args=(condition, yes, no))

    return tuple(with_expressions(s, lambda e: rewrite(e, rule)) if isinstance(s, Store) else s for s in body)


def _fits(step: Loop, body: Sequence[Stmt]) -> bool:
    """Whether a block has registers for the tensors of ``body``: those of a tile of as many steps as fit, or of all."""
    return (extent(step) or 0) > ROW or fits_tile(step, body)


def _has_tile(program: Program, scan: Kernel) -> bool:
    """Whether ``scan`` has tiles, for which its tensors have one order in memory."""
    form = scan_form(scan)
    return form is not None and scan_tile(program, form) is not None


def _directions(step: str, body: Sequence[Stmt]) -> set[int]:
    """How positions in memory move from step to step."""
    found = (linear(e).slope(step) for s in body if isinstance(s, Store) for e in s.index)
    return {slope for slope in found if slope}


def _is_contiguous(steps: _Steps) -> bool:
    """Whether what the steps write is contiguous along them."""
    writes = (s for _, s in statements(steps.step.body))
    return any(steps.step.var in free_vars(s.index[-1]) for s in writes if s.index)


def _apart(scan: Kernel) -> tuple[State, ...]:
    """The states of ``scan``, where they do not need each other: the steps of others are one scan of all of them."""
    form = scan_form(scan)
    return () if form is None else states_apart(form) or ()


def _share(a: Kernel, b: Kernel) -> bool:
    """Whether ``b`` reads a tensor that ``a`` reads or writes."""
    return not reads_of(b).isdisjoint(reads_of(a) | writes_of(a))


def _is_earlier(steps: _Steps, ld: Load, same: bool, extreme: bool) -> bool:
    """Whether ``ld`` reads what every step writes, at its own position, in its own step or in an earlier one.

    ``same``: in its own step alone, or, of an ``extreme``, in the step before.
    """
    (s,) = (s for _, s in statements(steps.step.body) if s.buffer == ld.buffer)
    for at, read in zip(map(linear, s.index), map(linear, ld.index), strict=True):
        ahead = (read - at).const * at.slope(steps.step.var)
        moves = read == at or at.slope(steps.step.var)
        if (at - read).terms or ahead > 0 or (same and ahead < -extreme) or not moves:
            return False
    return s.guard is None

"""``scan-recurrences``: a recurrence that only combines its elements is a running result, and the other way round.

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

A running sum that would be found in chunks (``chunk-scans``), which read memory twice, is a recurrence where its steps
are faster as tiles that follow each other (``scan-tiles``)::

    y[t] = sum[u | u <= t](x[u])            y[t] = y[t - 1] + x[t] if t > 0 else x[t]

The sum is in the type in which it is computed, and ``y`` is rounded from it.  The same holds of running maxima and
minima, and a recurrence that is faster as such tiles stays one.  Running maxima and minima become recurrences, too,
where the tiles of another recurrence read them in their own steps.

A recurrence that reads another one, whose steps follow each other in any case, stays one as well: the highest value of
a path so far costs nothing in the steps of the path (``merge-recurrences``), and would read the path from memory
otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import TRUE
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, identity, loads, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import extent_expr
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.types import COMPUTE_TYPES
from nautilus.scalar.analysis.contractions.promises import Promises
from nautilus.scalar.analysis.definitions import Def, is_recurrence, reads_of, writes_of
from nautilus.scalar.analysis.domains import prefix_of, running
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Store, extent, statements
from nautilus.scalar.passes.axes.chunk_scans import chunk_length
from nautilus.scalar.rewriting import find_defs, fresh_name, kernel_of, nest, put_defs
from nautilus.scalar.rewriting.states.running import own_term

if TYPE_CHECKING:
    from nautilus.scalar.analysis.states.recurrences import Form

_STEPS = {"sum": "add", "max": "max", "min": "min"}  # reductions whose running results may be recurrences
_COMBINERS = {"add": "sum", "mul": "prod", "max": "max", "min": "min", "and": "all", "or": "any"}
LEAST = 3  # steps


@dataclass(frozen=True, slots=True)
class ScanRecurrences(CertifyingPass[Program]):
    """Make running results of the recurrences that are some, and recurrences of running sums in chunks.

    ``always``: also recurrences of sums whose tiles are not predicted to be faster.  ``spec``: the Spec, whose facts
    bound the factors of other recurrences.
    """

    spec: Promises | None = None
    always: bool = False

    name = "scan-recurrences"
    sees_recurrences = True

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with each in its faster form; the same object where all are."""
        found = self._found(program)
        if any(found):
            kernels = tuple(kernel_of(d) if d else k for k, d in zip(program.kernels, found, strict=True))
            program = replace(program, kernels=kernels)
        certificates: list[Certificate] = []
        made = {d.name for d in found if d is not None}
        for d in (d for d in find_defs(program).values() if d.name not in made):
            scan = prefix_of(d) if d.op in _STEPS and len(d.red) == 1 and d.at is None else None
            lag = 0 if scan is None or scan.bound.shift == 0 else 1
            bound = None if scan is None else running(d.guard, d.red[0], d.par, lag)
            if scan is None or bound is None:
                continue
            cut = not lag and (self.always or chunk_length(d, scan, d.red[0].extent) > 0)
            read = d.op in ("max", "min") and _is_read(program, d.name)
            new = _recurrence(program, d, *bound, lag) if cut or read else None
            if new is not None and ((cut and self._follows(*new)) or (read and self._feeds(*new))):
                program = new[0]
                certificates.append(_certificate(d, *bound, lag))
        return program, tuple(certificates)

    def _found(self, program: Program) -> list[Def | None]:
        """For each kernel the running result that it becomes."""
        found: list[Def | None] = []
        others = list[Kernel]()  # the recurrences so far that stay ones
        joined = set[str]()  # those of them that run in the steps of another one
        for k in program.kernels:
            d = _scan(program, k) if self._scans(program, k) else None
            if d is not None and any(self._joins(program, r, k, r.name in joined) for r in others):
                d = None
                joined.add(k.name)
            if d is None and is_recurrence(k):
                others.append(k)
            found.append(d)
        return found

    def _joins(self, program: Program, r: Kernel, k: Kernel, joined: bool) -> bool:
        """Whether ``k`` can run in the steps of recurrence ``r``, which run one after another.

        ``joined``: ``r`` runs in those of a third one, so that its steps do.
        """
        if reads_of(k).isdisjoint(writes_of(r)):
            return False
        from nautilus.scalar.passes.recurrences.members.merge_recurrences import MergeRecurrences

        pair = MergeRecurrences().apply(replace(program, kernels=(r, k)))
        return len(pair.kernels) == 1 and (joined or self._is_ordered(program, r))

    def _is_ordered(self, program: Program, r: Kernel) -> bool:
        """Whether no later pass runs steps of recurrence ``r`` at the same time."""
        from nautilus.scalar.passes.recurrences.chunk_filters import ChunkFilters
        from nautilus.scalar.passes.recurrences.chunk_recurrences import ChunkRecurrences
        from nautilus.scalar.passes.recurrences.scan_tiles import ScanTiles

        alone = replace(program, kernels=(r,))
        parallel = (ScanTiles(self.spec, always=self.always), ChunkRecurrences(self.spec), ChunkFilters())
        return all(p.apply(alone).kernels == (r,) for p in parallel)

    def _feeds(self, program: Program, k: Kernel) -> bool:
        """Whether the tiles of another recurrence read the extremes of ``k`` in their own steps."""
        from nautilus.scalar.passes.recurrences.scan_tiles import ScanTiles

        return ScanTiles(always=self.always).feeds(program, k)

    def _scans(self, program: Program, k: Kernel) -> bool:
        return is_recurrence(k) and not self._follows(program, k) and not self._feeds(program, k)

    def _follows(self, program: Program, k: Kernel) -> bool:
        """Whether the steps of ``k`` are fastest as tiles that follow each other."""
        # most programs have no recurrences and no long running sums, and load nothing of this
        from nautilus.scalar.analysis.states.linear_states import after_first
        from nautilus.scalar.analysis.states.recurrences import form_of
        from nautilus.scalar.analysis.states.scan_tile import scan_tile
        from nautilus.scalar.passes.recurrences.scan_tiles import LEAST as TILES
        from nautilus.scalar.passes.recurrences.scan_tiles import ScanTiles, scan_states

        form = form_of(k)
        tile = None if form is None or (extent(form.step) or 0) < TILES else scan_tile(program, form)
        if form is None or tile is None or (tile.count == 1 and tile.across is None):
            return False
        states, later = scan_states(form), {form.step.var: (1, (extent(form.step) or 0) - 1)}
        ones = [s.is_extreme or after_first(s.factor(s.unit), later) == s.unit for s in states or ()]
        sums = bool(ones) and all(ones)
        return sums and ScanTiles(always=self.always).pays(program, form)


def _is_read(program: Program, name: str) -> bool:
    """Whether a recurrence reads the tensor ``name``."""
    return any(is_recurrence(k) and name in reads_of(k) for k in program.kernels)


def _recurrence(program: Program, d: Def, t: Axis, reverse: bool, lag: int) -> tuple[Program, Kernel] | None:
    """``program`` with the steps of ``d``, running along ``t``, and their kernel; None for unknown sizes.

    ``lag``: 1 where the term of a step is that of the position before it.
    """
    (u,) = d.red
    steps = u.extent
    if not isinstance(steps, int) or any(not isinstance(a.extent, int) for a in d.par) or t.name in free_vars(d.value):
        return None
    same = d.buffer.dtype is d.value.dtype
    name = d.name if same else fresh_name(program, f"{d.name}_running")
    own = replace(d.buffer, name=name, dtype=d.value.dtype, space=Space.TEMP, view_of=None, strides=None)
    place = calc("sub", steps - 1, Var(t.name)) if reverse else Var(t.name)

    def at(position: Expr) -> Load:
        return Load(name, tuple(position if a is t else Var(a.name) for a in d.par), d.value.dtype, d.span)

    earlier = calc("add" if reverse else "sub", place, 1)
    term = substitute(d.value, {u.name: earlier if lag else place})
    later = Op(_STEPS[d.op or ""], (at(earlier), term), term.dtype)
    first = identity(d.op or "", term.dtype) if lag else term
    value = calc("select", calc("lt", integer(0), Var(t.name)), later, first)
    loops = [Loop(a.name, integer(0), extent_expr(a.extent), Kind.PAR, (), d.span) for a in d.par if a is not t]
    loops.append(Loop(t.name, integer(0), extent_expr(t.extent), Kind.SEQ, (), d.span))
    kernel = Kernel(name, (), nest(loops, (Store(name, at(place).index, value, None, d.span),)), d.span)
    mine = next(n for n, k in enumerate(program.kernels) if k.name == d.name)
    if same:
        kernels = (*program.kernels[:mine], kernel, *program.kernels[mine + 1 :])
        return replace(program, kernels=kernels), kernel
    rounded = replace(d, red=(), op=None, guard=None, value=at(Var(t.name)))
    program = put_defs(program, d.name, (rounded,))
    kernels = (*program.kernels[:mine], kernel, *program.kernels[mine:])
    return replace(program, kernels=kernels, buffers=(*program.buffers, own)), kernel


def _certificate(d: Def, t: Axis, reverse: bool, lag: int) -> Certificate:
    """A running result is that of the steps before, and the term of its own."""
    last = calc("add" if reverse else "sub", Var(t.name), lag) if lag else Var(t.name)
    return own_term("scan-recurrences", d, d.red[0], last, d.guard or TRUE, reverse=reverse)


def _scan(program: Program, k: Kernel) -> Def | None:
    """The running result that the recurrence ``k`` is; None where it is none."""
    from nautilus.scalar.analysis.states.recurrences import form_of

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

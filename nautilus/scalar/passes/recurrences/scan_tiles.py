"""``scan-tiles``: linear recurrences along contiguous rows, each of which fits in a tile, become scans of tiles.

The steps of a recurrence run one after another, and each lane reads a row of its own, so that neighbouring lanes read
memory a row apart.  Where all states are linear (:mod:`nautilus.scalar.analysis.states.linear_states`),
``h = a * h' + b``, steps are linear maps, which are combined in any order, as a running sum is.  This pass makes the
loop over the steps a ``tile.seq`` loop, and ``tile-recurrences`` gives a block a tile of whole rows, whose tensors are
read once.

A few states that need each other (:mod:`nautilus.scalar.analysis.states.coupled_states`) are elements of one vector,
``h = A * h' + b``: filters of several steps, rotations, a level and its trend.

Legality.  ``|a| <= 1`` is proved, as in ``chunk-recurrences``, so that no product of factors overflows.  A step that
leaves the state out by a condition forgets inf and NaN (:class:`nautilus.core.common_ops.CommonScan`).  What else a
step computes is elementwise, and it reads states of the same step alone.  Products of constant matrices are computed
here, and have elements of at most ``LARGEST_FACTOR``; of other matrices nothing is known before the launch, and a block
that finds a larger element, or what is not finite, computes one step after another.

Profitability.  A row takes the time of its memory, where steps one after another take at least that of their latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Expr, Op, Var, free_vars, loads
from nautilus.core.index.linear import linear
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.promises import Promises, promised_ranges
from nautilus.scalar.analysis.definitions import is_recurrence
from nautilus.scalar.analysis.states.coupled_states import MOST as MOST_STATES
from nautilus.scalar.analysis.states.coupled_states import CoupledStates, Row, coupled_states, may_combine, states_apart
from nautilus.scalar.analysis.states.linear_states import State, steps_back
from nautilus.scalar.analysis.states.recurrences import Form, form_of
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, expressions, extent, statements
from nautilus.scalar.passes.recurrences.chunk_recurrences import bounded
from nautilus.scalar.rewriting import map_kernels, nest, with_body

LEAST, MOST = 64, 8192  # elements of a row
HELD = 1 << 16  # elements of all tiles of a block: 128 registers of each of 512 threads


@dataclass(frozen=True, slots=True)
class ScanTiles(CertifyingPass[Program]):
    """Make scans of tiles; ``spec``: the Spec, whose facts bound inputs and scalars; ``least``: elements of a row."""

    spec: Promises | None = None
    least: int = LEAST

    name = "scan-tiles"
    sees_recurrences = True

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with scans in the place of such recurrences, and a certificate for each state."""
        certificates: list[Certificate] = []
        given = promised_ranges(self.spec)

        def scanned(k: Kernel) -> Kernel:
            form = form_of(k) if is_recurrence(k) else None
            if form is None or not self.least <= (extent(form.step) or 0) <= MOST or not along_rows(form):
                return k
            states, coupled = scan_states(form), coupled_scan(form)
            if states is not None and all(bounded(program, form, s, given) for s in states):
                certificates.extend(map(_certificate, states))
            elif states is None and coupled is not None:
                certificates.extend(_of_row(r) for r in coupled.rows if r.store is not None)
            else:
                return k
            step: tuple[Stmt, ...] = (replace(form.step, kind=Kind.TILE_SEQ),)
            return with_body(k, nest(form.shared, step))

        return map_kernels(program, scanned), tuple(certificates)


def scan_states(form: Form) -> tuple[State, ...] | None:
    """The states of a recurrence whose steps are stores; None where it is no scan."""
    found = list(statements(form.step.body))
    if not fits_tile(form.step, form.step.body) or any(
        loops or not isinstance(s, Store) or s.guard is not None for loops, s in found
    ):
        return None
    names = [s.buffer for _, s in found]
    return states_apart(form) if len(set(names)) == len(names) else None


def coupled_scan(form: Form) -> CoupledStates | None:
    """The states of a recurrence that need each other, if its steps are a scan of them; None where they are none."""
    found = coupled_states(form) if fits_tile(form.step, form.step.body, MOST_STATES) else None
    if found is None or not may_combine(found, form):
        return None
    own, steps = {r.store.buffer for r in found.rows if r.store}, [s for _, s in statements(form.step.body)]
    written = {s.buffer: s.index for s in steps}
    others = (e for s in steps if s.buffer not in own for e in expressions(s))
    reads = (ld for e in others for ld in loads(e) if ld.buffer in written)
    return found if all(steps_back(form, written, ld) == 0 for ld in reads) else None


def fits_tile(step: Loop, body: Sequence[Stmt], more: int = 0) -> bool:
    """Whether the registers of a block hold a row of each tensor that ``body``, in the loop ``step``, accesses.

    ``more``: rows besides.
    """
    found = [s for _, s in statements(tuple(body))]
    read = {ld for s in found for e in expressions(s) for ld in loads(e) if step.var in free_vars(ld)}
    tensors = {ld.buffer for ld in read} | {s.buffer for s in found}
    return (extent(step) or 0) * (len(tensors) + more) <= HELD


def along_rows(form: Form) -> bool:
    """Whether the elements of neighbouring steps are neighbours in every tensor that has steps."""
    name = form.step.var
    places = [s.index for _, s in statements(form.step.body)]
    places += [ld.index for _, s in statements(form.step.body) for e in expressions(s) for ld in loads(e)]
    having = [index for index in places if any(name in free_vars(e) for e in index)]
    return all(_is_row(index, name) for index in having)


def _is_row(index: tuple[Expr, ...], name: str) -> bool:
    *others, last = index
    found = linear(last)
    alone = all(atom == Var(name) or name not in free_vars(atom) for atom in found.terms)
    return alone and abs(found.slope(name)) == 1 and not any(name in free_vars(e) for e in others)


def _of_row(row: Row) -> Certificate:
    """The sum of the terms of ``row`` and its rest is its value."""
    assert row.store is not None and row.value is not None
    dtype, after = row.value.dtype, row.rest
    for before, factor in zip(row.befores, row.terms, strict=True):
        if before is not None and factor is not None:
            after = Op("add", (Op("mul", (factor, before), dtype), after), dtype)
    proof = "a step is a linear map of its states, and steps that follow each other are the map that they make together"
    return Certificate("scan-tiles", row.store.buffer, row.value, after, (), (), (), proof, row.store.span)


def _certificate(state: State) -> Certificate:
    dtype = state.value.dtype
    after = Op("add", (state.factor(state.before), state.rest), dtype)
    proof = "a step is a linear map of its state, and steps that follow each other are the map that they make together"
    return Certificate("scan-tiles", state.name, state.value, after, (), (), (), proof, state.store.span)

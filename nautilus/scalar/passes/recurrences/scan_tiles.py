"""``scan-tiles``: linear recurrences whose steps or positions are contiguous in memory become scans of tiles.

The steps of a recurrence run one after another, and each lane has a position of its own: few positions leave the GPU
idle, and along contiguous rows neighbouring lanes read memory a row apart.  Where all states are linear
(:mod:`nautilus.scalar.analysis.states.linear_states`), ``h = a * h' + b``, steps are linear maps, which are combined in
any order, as a running sum is.  This pass makes the loop over the steps a ``tile.seq`` loop, and ``tile-recurrences``
gives a block tiles of steps (:mod:`nautilus.scalar.analysis.states.scan_tile`), whose tensors are read once.

A running maximum or minimum, ``h = max(h', x)``, is combined in any order as well.

A few states that need each other (:mod:`nautilus.scalar.analysis.states.coupled_states`) are elements of one vector,
``h = A * h' + b``: filters of several steps, rotations, a level and its trend.

Legality.  ``|a| <= 1`` is proved, as in ``chunk-recurrences``, so that no product of factors overflows.  A step that
leaves the state out by a condition forgets inf and NaN (:class:`nautilus.core.common_ops.CommonScan`).  What else a
step computes is elementwise, and it reads states of the same step alone.  Products of constant matrices are computed
here, and have elements of at most :func:`.largest_factor`; of other matrices nothing is known before the launch, and a
block that finds a larger element, or what is not finite, computes one step after another.

Profitability.  A row in one tile takes the time of its memory, where steps one after another take at least that of
their latency.  Tiles one after another are taken where they are predicted to be faster than the steps and than chunks
of steps: each takes :data:`TURN` at least, and all of them read and write memory once.  Running extremes
that such tiles read are tiles as well, so that both are one kernel.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Op, loads
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.promises import Promises, promised_ranges
from nautilus.scalar.analysis.definitions import is_recurrence, reads_of, writes_of
from nautilus.scalar.analysis.states.coupled_states import MOST as MOST_STATES
from nautilus.scalar.analysis.states.coupled_states import CoupledStates, Row, coupled_states, may_combine, states_apart
from nautilus.scalar.analysis.states.linear_states import State, linear_states, steps_back
from nautilus.scalar.analysis.states.recurrences import Form, form_of
from nautilus.scalar.analysis.states.scan_tile import BLOCKS, ROW, along_rows, fits_tile, scan_tile
from nautilus.scalar.ir import Kernel, Kind, Program, Stmt, Store, expressions, extent, statements
from nautilus.scalar.passes.recurrences.chunk_recurrences import GAIN, bounded, times
from nautilus.scalar.rewriting import map_kernels, nest, with_body
from nautilus.targets.limits import WORD
from nautilus.targets.memory_rates import LAUNCH, SECTOR

LEAST = 64  # steps
TURN = 1.5  # microseconds of a tile that follows another one, judged: its barriers, and the latency of memory
#: the same where rows of a tile are a sector: H200, 16384 steps of 256 channels in 16 tiles of 1024 steps take 100 us
NARROW = 6.2
MASKED = 2.0  # the time of a tile of which each element has a mask, relative to another one; judged too


@dataclass(frozen=True, slots=True)
class ScanTiles(CertifyingPass[Program]):
    """Make scans of tiles; ``spec``: the Spec, whose facts bound inputs and scalars; ``least``: the fewest steps.

    ``always``: also where tiles are not predicted to be faster.
    """

    spec: Promises | None = None
    least: int = LEAST
    always: bool = False

    name = "scan-tiles"
    sees_recurrences = True

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with scans in the place of such recurrences, and a certificate for each state."""
        certificates: list[Certificate] = []
        given = promised_ranges(self.spec)

        def scanned(k: Kernel) -> Kernel:
            form = form_of(k) if is_recurrence(k) else None
            if form is None or not (self.takes(program, form) or self.feeds(program, k)):
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

    def takes(self, program: Program, form: Form) -> bool:
        """Whether the recurrence is long enough, and tiles pay."""
        return (extent(form.step) or 0) >= self.least and self.pays(program, form)

    def feeds(self, program: Program, k: Kernel) -> bool:
        """Whether ``k`` only runs extremes, which a recurrence reads whose tiles they join (``merge-recurrences``)."""
        form = form_of(k)
        if form is None or scan_tile(program, form) is None:
            return False
        states, own = scan_states(form), writes_of(k)
        readers = [x for x in program.kernels if x is not k and is_recurrence(x) and not own.isdisjoint(reads_of(x))]
        if states is None or not all(x.is_extreme for x in states):
            return False
        sizes = [(x.lo, x.hi) for x in (*form.shared, form.step)]
        for other in map(form_of, readers):
            same = other is not None and [(x.lo, x.hi) for x in (*other.shared, other.step)] == sizes
            if same and other is not None and scan_states(other) is not None and self.takes(program, other):
                return True
        return False

    def pays(self, program: Program, form: Form) -> bool:
        """Whether tiles are predicted to be faster than the steps as they are, and than chunks of them."""
        tile = scan_tile(program, form)
        if tile is None:
            return False
        if self.always or (tile.count == 1 and tile.across is None):
            return True
        states = linear_states(form, extremes=True)
        found = times(program, form, states or ())
        blocks, turn = prod(extent(x) or 1 for x in form.shared if x is not tile.across), TURN
        if tile.across is not None:
            columns = extent(tile.across) or 1
            blocks *= -(-columns // tile.columns)
            if tile.columns <= SECTOR // WORD:
                turn = NARROW
            turn *= 1.0 if columns % tile.columns == 0 else MASKED
        turns = tile.count * -(-blocks // BLOCKS)
        cut = inf if states is None or not found.length else found.cut
        return LAUNCH + max(turns * turn, found.memory) < min(GAIN * found.whole, cut)


def scan_states(form: Form) -> tuple[State, ...] | None:
    """The states of a recurrence whose steps are stores; None where it is no scan."""
    found = list(statements(form.step.body))
    if any(loops or not isinstance(s, Store) or s.guard is not None for loops, s in found):
        return None
    names = [s.buffer for _, s in found]
    return states_apart(form) if len(set(names)) == len(names) else None


def coupled_scan(form: Form) -> CoupledStates | None:
    """The states of a recurrence that need each other, if its steps are a scan of them; None where they are none."""
    long = (extent(form.step) or 0) > ROW
    fits = long or not along_rows(form) or fits_tile(form.step, form.step.body, MOST_STATES)
    found = coupled_states(form) if fits else None
    if found is None or not may_combine(found, form):
        return None
    own, steps = {r.store.buffer for r in found.rows if r.store}, [s for _, s in statements(form.step.body)]
    written = {s.buffer: s.index for s in steps}
    others = (e for s in steps if s.buffer not in own for e in expressions(s))
    reads = (ld for e in others for ld in loads(e) if ld.buffer in written)
    return found if all(steps_back(form, written, ld) == 0 for ld in reads) else None


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
    after = Op(state.joins, (state.factor(state.before), state.rest), dtype)
    proof = "a step is a linear map of its state, and steps that follow each other are the map that they make together"
    return Certificate("scan-tiles", state.name, state.value, after, (), (), (), proof, state.store.span)

"""``chunk-filters``: the steps of a linear filter with constant coefficients run in chunks at the same time.

A recursive filter, ``y[t] = a1 * y[t - 1] + .. + ak * y[t - k] + rest[t]``, reads several steps before, so that the
state after a chunk is its last ``k`` results.  As in :mod:`.chunk_recurrences`, a chunk is a linear map of the state
before it, whose matrix ``G`` is known when the coefficients are::

    r[n, m]           each chunk by itself: what its steps give from no state, m steps before its end
    Y[n, m] = r[n, m] + sum_j(G[m, j] * Y[n - 1, j])       the states at the ends of chunks, one after another
    y[n * C + c]      each chunk by itself, from Y[n - 1]: the steps as they were

Legality.  Elements of ``G`` and of the matrices of all steps of a chunk are at most
:func:`nautilus.core.common_ops.largest_factor` in magnitude, so that results are at most a little larger than those of
the steps, and states at the ends of chunks about as exact.  What an infinite state becomes is found by running the
steps (:func:`from_infinity`): an element of ``G`` that keeps it infinite has that sign and is ``LEAST`` at least, and a
state of which the steps make NaN is subtracted from itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import copysign, inf, isnan

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.common_ops import largest_factor
from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, rewrite, substitute
from nautilus.core.index.sizes import Extent, at_most
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import is_recurrence
from nautilus.scalar.analysis.states.exponents import LEAST
from nautilus.scalar.analysis.states.linear_states import Filter, filter_state
from nautilus.scalar.analysis.states.recurrences import Form, form_of
from nautilus.scalar.ir import Kernel, Kind, Program, Stmt, Store
from nautilus.scalar.passes.recurrences.chunk_recurrences import ChunkKernels, chunk_length, may_cut, sized, times
from nautilus.scalar.rewriting import fresh_name


@dataclass(frozen=True, slots=True)
class ChunkFilters(CertifyingPass[Program]):
    """Cut linear filters into chunks of ``length`` steps, of any filter that is longer (for tests); 0: by the rule.

    ``always``: the shortest chunks where the rule says none.
    """

    length: int = 0
    always: bool = False

    name = "chunk-filters"
    sees_recurrences = True

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with filters in chunks, and a certificate for each."""
        certificates: list[Certificate] = []
        for k in program.kernels:
            form = form_of(k) if is_recurrence(k) else None
            found = None if form is None else filter_state(form)
            if form is None or found is None:
                continue
            shortest = found.order + 1 if self.always else 0
            length = self.length or chunk_length(program, form, (found,)) or shortest
            if not found.order < length < at_most(sized(form.step)) or not may_cut(form, length):
                continue
            if (made := responses(found.coefficients, length)) is None:
                continue
            program = _FilterKernels(program, k, form, found, length, made).program()
            certificates.append(_certificate(found))
        return program, tuple(certificates)


def responses(coefficients: Sequence[float], steps: int) -> tuple[tuple[float, ...], ...] | None:
    """``G[m][j]``: what the step ``m`` before the end of a chunk of ``steps`` adds for each unit of state ``j``.

    None where an element, also of an earlier step, is above :func:`.largest_factor`.
    """
    order, most = len(coefficients), largest_factor(steps)
    rows = [[float(j == order - 1 - n) for j in range(order)] for n in range(order)]  # the oldest state first
    for _ in range(steps):
        new = [sum(a * rows[-1 - i][j] for i, a in enumerate(coefficients)) for j in range(order)]
        if not all(abs(x) <= most for x in new):
            return None
        rows.append(new)
    return tuple(tuple(rows[-1 - m]) for m in range(order))


def from_infinity(coefficients: Sequence[float], steps: int) -> tuple[tuple[float, ...], ...]:
    """As :func:`responses`, for an infinite state ``j``: 0, an infinity, or NaN."""
    order = len(coefficients)
    columns = []
    for j in range(order):
        states = [inf if j == n else 0.0 for n in range(order)]  # the newest state first
        for _ in range(steps):
            states = [sum((a * y for a, y in zip(coefficients, states, strict=True) if a and y), 0.0), *states[:-1]]
        columns.append(states)
    return tuple(tuple(columns[j][m] for j in range(order)) for m in range(order))


def may_chunk(program: Program, form: Form, found: Filter) -> bool:
    """Whether chunks of the filter ``found`` are exact enough, whether or not they are faster than its steps."""
    length = times(program, form, (found,)).length
    return length > 0 and responses(found.coefficients, length) is not None


def _certificate(f: Filter) -> Certificate:
    after = f.rest
    for term in f.terms:
        after = Op("add", (term, after), f.value.dtype)
    proof = "a step is a linear map of the states before it, and a chunk is the map of its steps one after another"
    return Certificate("chunk-filters", f.name, f.value, after, (), (), (), proof, f.store.span)


class _FilterKernels(ChunkKernels):
    """The kernels of the filter ``found`` in chunks of ``length`` steps; ``made``: its responses."""

    def __init__(
        self, program: Program, k: Kernel, form: Form, found: Filter, length: int, made: Sequence[Sequence[float]]
    ) -> None:
        super().__init__(program, k, form, (found,), length)
        self.found, self.made = found, made
        self.states_at: list[Buffer] = []

    # -- one chunk after another ------------------------------------------------------------------
    def prepare(self) -> None:
        """What chunks give from no state, and the states at their ends."""
        s, f = self.found, self.form
        dtype, span = s.value.dtype, s.store.span
        index = self.place_of(s, Var(self.chunk), s.own)
        extents: dict[str, Extent] = {x.var: sized(x) for x in (*f.shared, *s.own)}
        extents[self.chunk] = self.earlier_chunks
        sizes = tuple(extents[e.name] for e in index if isinstance(e, Var))
        running = self.made_buffer("rest", dtype, (*sizes, self.length))
        rests = [self.made_buffer("rests", dtype, sizes) for _ in self.made]
        self.states_at = [self.made_buffer("end", dtype, sizes) for _ in self.made]
        here = self.made_buffer(
            "here", dtype,
            (*(extents[x.var] for x in f.shared), self.count, *(extents[x.var] for x in s.own), self.length),
        )  # fmt: skip
        self.ends[s.name], self.running[s.name] = self.states_at[0], here.name
        place = Var(self.place)
        found = {ld: n for n, ld in enumerate(s.befores, 1)}

        def before(e: Expr) -> Expr | None:
            if not isinstance(e, Load) or e not in found:
                return None
            n = found[e]
            read = Load(running.name, (*index, calc("sub", place, n)), dtype, e.span)
            return calc("select", calc("le", n, place), read, number(0, dtype))

        value = substitute(rewrite(s.value, before), {f.step.var: self.at})
        body: list[Stmt] = [Store(running.name, (*index, place), value, None, span)]
        for m, b in enumerate(rests):
            past = calc("sub", place, self.length - 1 - m)  # 0: the position of a write depends on every loop around it
            at = tuple(calc("add", e, past) if e == Var(self.chunk) else e for e in index)
            result = Load(running.name, (*index, place), dtype, span)
            body.append(Store(b.name, at, result, calc("eq", place, self.length - 1 - m), span))
        outer = [
            replace(x, kind=Kind.PAR) for x in (*f.shared, self.loop(self.chunk, self.earlier_chunks, Kind.PAR), *s.own)
        ]
        whole = self.nest(outer, self.place, self.length, tuple(body))
        self.kernels.append(Kernel(rests[-1].name, (), whole, span))
        self.carried(rests)

    def carried(self, rests: Sequence[Buffer]) -> None:
        """The kernel of the states at the ends of chunks, from the ``rests`` of chunks."""
        s, chunk = self.found, Var(self.chunk)
        dtype, span = s.value.dtype, s.store.span
        body: list[Stmt] = []
        special = from_infinity(s.coefficients, self.length)
        for rest, end, row, infinite in zip(rests, self.states_at, self.made, special, strict=True):
            made: Expr = Load(rest.name, self.place_of(s, chunk, s.own), dtype, span)
            alone = made
            for b, g, limit in zip(self.states_at, row, infinite, strict=True):
                state = Load(b.name, self.place_of(s, calc("sub", chunk, 1), s.own), dtype, span)
                if isnan(limit):
                    made = Op("add", (Op("sub", (state, state), dtype), made), dtype)
                if g or limit:
                    sign = g or 1.0 if isnan(limit) else limit
                    kept = Const(g if abs(g) > LEAST and not limit * g < 0 else copysign(LEAST, sign), dtype)
                    made = Op("add", (Op("mul", (kept, state), dtype), made), dtype)
            value = calc("select", calc("lt", integer(0), chunk), made, alone)
            body.append(Store(end.name, self.place_of(s, chunk, s.own), value, None, span))
        outer = [replace(x, kind=Kind.PAR) for x in (*self.form.shared, *s.own)]
        whole = self.nest(outer, self.chunk, self.earlier_chunks, tuple(body))
        self.kernels.append(Kernel(self.states_at[-1].name, (), whole, span))

    def made_buffer(self, suffix: str, dtype: DType, shape: tuple[Extent, ...]) -> Buffer:
        """A tensor of its own name, which stays in memory or on chip."""
        taken = {b.name for b in self.buffers} | {k.name for k in self.given.kernels}
        name = fresh_name(self.given, f"{self.found.name}_{suffix}", taken)
        self.buffers.append(Buffer(name, dtype, shape, Space.TEMP, self.found.store.span))
        return self.buffers[-1]

    # -- the steps as they were -------------------------------------------------------------------
    def earlier(self, e: Load, back: int) -> Expr:
        """The result ``e`` of ``back`` steps before: one of this chunk, or of the end of the chunk before."""
        place, chunk = Var(self.place), Var(self.chunk)
        chosen: Expr = number(0, e.dtype)
        for m, b in enumerate(self.states_at[:back]):
            at = self.place_of(self.found, calc("sub", chunk, 1), self.found.own)
            here = calc("eq", place, back - 1 - m)
            chosen = calc("select", here, Load(b.name, at, e.dtype, e.span), chosen)
        outside = calc("select", calc("lt", integer(0), chunk), chosen, number(0, e.dtype))
        return calc("select", calc("le", back, place), self.running_at(e, calc("sub", place, back)), outside)

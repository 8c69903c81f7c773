"""``chunk-recurrences``: the steps of a linear recurrence run in chunks at the same time.

The steps of a recurrence run one after another, so that few independent positions leave the GPU idle.  Where all states
are linear (:mod:`nautilus.scalar.analysis.states.linear_states`), ``h = a * h' + b``, chunks of ``C`` steps are linear
maps ``h -> f * h + r`` of the state before them::

    f[n], r[n]        each chunk by itself: the factor, and what its steps give from no state
    H[n] = f[n] * H[n - 1] + r[n]             the states at the ends of chunks, one after another
    h[n * C + c]      each chunk by itself, from H[n - 1]: the steps as they were

Only the states at the ends of chunks are computed in another order.

Legality.  ``|a| <= 1`` has to be proved, from the value ranges of expressions, from facts of the spec
(``assume 0 <= gamma <= 1``), or because ``a`` is relative to a running maximum
(:mod:`nautilus.scalar.analysis.states.references`).  Then ``|f| <= 1``, and every intermediate is at most the sum of
the magnitudes of the terms of ``h``, so that nothing overflows that did not before, and errors are not amplified.  A
factor that is not 0 is kept at a least magnitude
(:data:`~nautilus.scalar.analysis.states.exponents.LEAST`): it does not underflow, so an infinite state stays infinite,
and what the change adds is too small to matter beside the state.  A step that leaves the state out by a condition
forgets inf and NaN: a flag says that a chunk has such a step.  Integers have none of that: they wrap, with the same
result in any order.
Extreme states (:mod:`nautilus.scalar.analysis.states.extreme_states`) are cut in the same way.

The states at the ends of many chunks are a linear recurrence themselves, with factors of at most 1, and run in
chunks too (:mod:`nautilus.scalar.analysis.states.chunk_steps`).

Profitability.  A step costs :data:`STEP` microseconds and the time of its instructions in one warp at least, whatever
the number of positions.  In chunks all tensors are read twice and all work is done twice, but states are written once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, free_vars, loads, rewrite, substitute
from nautilus.core.index.divisors import divisor
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import Extent, as_extent, at_most, before_last, blocks, extent_expr, large, nominal
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.promises import FencedSteps, Promises, promised_ranges
from nautilus.scalar.analysis.definitions import is_recurrence, reads_of, writes_of
from nautilus.scalar.analysis.states.chunk_steps import AGAIN, Times, kept, steps_in_a_row
from nautilus.scalar.analysis.states.linear_states import Filter, State, linear_states, reductions, steps_back
from nautilus.scalar.analysis.states.recurrences import ISSUES, RATE, Form, form_of, read_slots, step_slots
from nautilus.scalar.analysis.states.references import below_reference
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update, extent, statements
from nautilus.scalar.rewriting import find_defs, fresh_name, map_statements
from nautilus.targets.memory_rates import LAUNCH

STEP = 0.05  # least microseconds of a step of a recurrence
ISSUE = 1.3e-3  # microseconds of an instruction of a step in a warp that is alone on its scheduler
GAIN = 0.8  # chunks are taken if their predicted time is less than this share of that of the steps
FEWEST = 2  # steps of a chunk
VECTOR = 8  # steps whose elements are vectors in memory; chunks of whole vectors that divide the steps have no masks
LINES = 64  # steps whose elements are whole lines of memory
END = 4  # steps of a chunk in the time of a step over the ends of chunks, whose few positions hide no latency
MANY = 1 << 16  # most steps for which chunks have their length, where the number of steps is known only at launch
_ENDS = 6  # factors, rests and states of chunks: written and read
ROUNDED = 1.0 + 1e-6  # the end of a range is rounded outwards


@dataclass(frozen=True, slots=True)
class ChunkRecurrences(CertifyingPass[Program]):
    """Cut recurrences with linear states into chunks of steps.

    ``spec``: the Spec, whose facts bound inputs and scalars.  ``length``: the steps of a chunk of any recurrence that
    is longer (for tests); 0: what the rule says.  ``always``: chunks of :data:`FEWEST` steps where that says none.
    """

    spec: Promises | None = None
    length: int = 0
    always: bool = False

    name = "chunk-recurrences"
    sees_recurrences = True

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with recurrences in chunks, and a certificate for each state."""
        certificates: list[Certificate] = []
        given, again = dict(promised_ranges(self.spec)), set[str]()
        todo, start = list(program.kernels), program
        while todo:
            k = todo.pop(0)
            form = form_of(k) if is_recurrence(k) else None
            states = None if form is None else linear_states(form, extremes=True)
            whole = program if k.name in again else start  # what bounds a factor may be in chunks by now
            if form is None or states is None or not all(bounded(whole, form, s, given) for s in states):
                continue
            steps = sized(form.step)
            fewest = FEWEST if self.always and isinstance(steps, int) else 0
            chosen = chunk_length(program, form, states)
            length = chosen if k.name in again else self.length or chosen or fewest
            if not 0 < length < at_most(steps) or not may_cut(form, length):
                continue
            made = ChunkKernels(program, k, form, states, length)
            program = made.program()
            certificates += [_certificate(s) for s in states]
            if isinstance(steps, int):
                again |= {b.name for b in made.ends.values()}
                given |= made.factors
                todo += [x for x in made.kernels if x.name in again]
        return program, tuple(certificates)


def fenced(program: Program, spec: Promises | None) -> tuple[FencedSteps, ...]:
    """The recurrences that a promise about inputs and scalars would cut into chunks."""
    out = []
    for k in program.kernels:
        form = form_of(k) if is_recurrence(k) else None
        states = None if form is None else linear_states(form)
        if form is None or states is None or not (length := chunk_length(program, form, states)):
            continue
        given = promised_ranges(spec)
        open_ = [s for s in states if not bounded(program, form, s, given)]
        known = {b.name for b in program.buffers if b.space is Space.INPUT} | {p.name for p in program.params}
        names = {n for s in open_ for n in s.names} & known
        unit = given | dict.fromkeys(names, (-1.0, 1.0))
        if open_ and all(bounded(program, form, s, unit) for s in open_):
            (first, *_) = open_
            steps = extent(form.step) or 0
            out.append(FencedSteps(first.name, tuple(sorted(names)), first.store.span, steps, length))
    return tuple(out)


def bounded(program: Program, form: Form, state: State, given: Mapping[str, tuple[float, float]]) -> bool:
    """Whether the factor of a step is proved to be at most 1 in magnitude, where ``given`` bounds inputs.

    An integer wraps, in any order.  A factor of an extreme state is not negative; what is added to it has no bound.
    """
    if state.moves == "add" or state.value.dtype.is_int:
        return True
    one = state.unit
    loops = [*form.shared, form.step, *state.own]
    axes = tuple(Axis(x.var, sized(x)) for x in loops)
    factor, defs = state.factor(one), find_defs(program)
    lo, hi = Ranges(defs, axes, given=given).of(factor)
    if state.is_extreme:
        return 0 <= lo <= hi <= ROUNDED
    near = lo >= -ROUNDED and hi <= ROUNDED
    return near or below_reference(program, form, factor, at_most(sized(form.step)))


def _certificate(state: State) -> Certificate:
    dtype = state.value.dtype
    after = Op(state.joins, (state.factor(state.before), state.rest), dtype)
    proof = "a step is a linear map of its state, and a chunk is the map that its steps make one after another"
    return Certificate("chunk-recurrences", state.name, state.value, after, (), (), (), proof, state.store.span)


# -- the cost -------------------------------------------------------------------------------------


def chunk_length(program: Program, form: Form, states: Sequence[State | Filter]) -> int:
    """The steps of a chunk; 0 where the recurrence is faster as it is, or sizes are not known."""
    found = times(program, form, states)
    return found.length if found.cut < GAIN * found.whole else 0


def times(program: Program, form: Form, states: Sequence[State | Filter]) -> Times:
    """The predicted times of a recurrence with ``states``."""
    size = sized(form.step)
    steps = size if isinstance(size, int) else min(large(size), MANY)
    if steps < 4:
        return Times(0.0, 0.0, 0.0, 0)
    volume = {
        b.name: b.dtype.bytes * prod(steps if n == size else nominal(n) for n in b.shape) for b in program.buffers
    }
    others = [reads_of(k) for k in program.kernels if form.roles.keys().isdisjoint(writes_of(k))]
    held = {s.name for s in states if not _is_stored(program, s.name) and not any(s.name in r for r in others)}
    bytes_ = sum(volume[n] for n in _tensors(form) - held)
    again = sum(volume[n] for n in {ld.buffer for s in states for ld in loads(s.value)} - form.roles.keys())
    wanted = 1 << max(1, (steps // 2).bit_length() // 2)
    whole_chunks = (n for n in range(wanted, wanted // 4, -1) if steps % n == 0)
    even = [n for n in range(wanted // 2, 8 * wanted + 1) if steps % n == 0 and n % VECTOR == 0]
    even = [n for n in even if n % LINES == 0] or even
    even += [LINES] if steps % LINES == 0 else []
    in_a_row = steps_in_a_row if isinstance(size, int) and all(isinstance(s, State) for s in states) else int
    best = min(even, key=lambda n: n + END * in_a_row(steps // n), default=wanted)
    length = next(whole_chunks, best) if reductions(form) else best
    chunks = -(-steps // length)
    alone, step = step_slots(form)
    places = steps * prod(nominal(sized(x)) for x in form.shared) / ISSUES
    latency, work = STEP + ISSUE * alone, places * (step + read_slots(form))
    whole = max(steps * latency, work, bytes_ / RATE)
    ends = sum(volume[s.name] // steps for s in states) * chunks * _ENDS
    cut = (2 * length + in_a_row(chunks)) * latency + 2 * LAUNCH + max(2 * work, (bytes_ + again + ends) / RATE)
    return Times(whole, bytes_ / RATE, cut, length)


def sized(loop: Loop) -> Extent:
    """The number of iterations of ``loop``, which begins at 0."""
    return as_extent(loop.hi)


def _is_whole(steps: Extent, length: int) -> bool:
    """Whether all chunks have ``length`` steps."""
    return divisor(extent_expr(steps)) % length == 0


def may_cut(form: Form, length: int) -> bool:
    """Whether all chunks have ``length`` steps, or each reduction of a step is read in the same step alone."""
    if _is_whole(sized(form.step), length):
        return True
    sums, written = reductions(form), {s.buffer: s.index for _, s in statements(form.step.body)}
    reads = (ld for _, s in statements(form.step.body) for ld in (*loads(s.value), *_guarded(s)) if ld.buffer in sums)
    return all(steps_back(form, written, ld) == 0 for ld in reads)


def _tensors(form: Form) -> frozenset[str]:
    """The tensors that the steps read and write."""
    found = {ld.buffer for _, s in statements(form.step.body) for ld in (*loads(s.value), *_guarded(s))}
    return frozenset(found | set(form.roles))


def _guarded(s: Store | Update) -> tuple[Load, ...]:
    return () if s.guard is None else loads(s.guard)


def _is_stored(program: Program, name: str) -> bool:
    return program.buffer(name).space is not Space.TEMP


# -- the kernels ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """``value`` of the tensor ``running`` at each step of a chunk, of which ``end`` has the last one at ``index``."""

    running: str
    end: Buffer
    index: tuple[Expr, ...]
    value: Expr
    span: Span


class ChunkKernels:
    """The kernels of a recurrence in chunks of ``length`` steps."""

    def __init__(self, program: Program, k: Kernel, form: Form, states: Sequence[State | Filter], length: int) -> None:
        self.given, self.kernel, self.form, self.states, self.length = program, k, form, states, length
        self.steps = sized(form.step)
        self.count = blocks(self.steps, length)
        self.whole = _is_whole(self.steps, length)
        self.earlier_chunks = before_last(self.steps, length)
        if self.whole and isinstance(self.count, int) and self.count >= AGAIN:
            self.earlier_chunks = self.count  # whole chunks of chunks, too, whose elements are vectors
        taken = {loop.var for loops, _ in statements(k.body) for loop in loops}
        self.chunk = unused(f"{form.step.var}_chunk", taken)
        self.place = unused(f"{form.step.var}_step", taken | {self.chunk})
        self.at: Expr = calc("add", calc("mul", Var(self.chunk), length), Var(self.place))
        self.buffers: list[Buffer] = []
        self.kernels: list[Kernel] = []
        self.parts: dict[tuple[Loop, ...], list[_Part]] = {}
        self.ends: dict[str, Buffer] = {}
        self.factors: dict[str, tuple[float, float]] = {}  # of floats, with their ranges
        self.running: dict[str, str] = {}
        others = frozenset[str]().union(*(reads_of(x) for x in program.kernels if x is not k))
        sums = frozenset[str]() if self.whole else reductions(form)
        self.sums = {n: self.sum_here(program.buffer(n)) for n in sorted(sums)}
        self.buffers += self.sums.values()
        self.seen = {n for n in (*(s.name for s in states), *sums) if _is_stored(program, n) or n in others}

    def prepare(self) -> None:
        """The kernels before the one that runs the steps as they were."""
        for s in self.states:
            assert isinstance(s, State), "the steps of a filter have kernels of their own"
            self.state(s)
        self.kernels[:0] = [self.inner(own, parts) for own, parts in self.parts.items()]

    def program(self) -> Program:
        """The program with the kernels of chunks in place of that of the steps."""
        self.prepare()
        order: list[Kernel] = []
        for k in self.given.kernels:
            order += [*self.kernels, self.last()] if k is self.kernel else [k]
        held = {*(s.name for s in self.states), *self.sums} - self.seen
        known = tuple(b for b in self.given.buffers if b.name not in held)
        return replace(self.given, buffers=(*known, *self.buffers), kernels=tuple(order))

    # -- one chunk after another ------------------------------------------------------------------
    def state(self, s: State) -> None:
        """The factors and the rests of the chunks of ``s``, and its states at their ends."""
        one = s.unit
        factor = s.factor(one)
        ranges = {self.form.step.var: (1, at_most(self.steps) - 1)}
        forgets = None if s.forgets is None else simplify(s.forgets, ranges)
        exact = s.value.dtype.is_int and not s.is_extreme
        never = forgets is None or forgets == Const(False, DType.BOOL) or exact
        some = None if never else forgets
        rest = self.ended(s, "rest", s.own, lambda x: _stepped(s, x), s.rest)
        varying = self.needed(s, factor)

        def further(x: Expr) -> Expr:
            return Op("add", (factor, x), x.dtype) if s.moves == "add" else kept(factor, x)

        factors = self.ended(s, "factor", varying, further, factor)
        if s.value.dtype.is_float and s.moves == "mul":
            self.factors[factors.name] = (0.0 if s.is_extreme else -1.0, 1.0)
        flags = None
        if some is not None:
            none, own = number(0, s.value.dtype), self.needed(s, some)
            start = calc("select", some, none, number(1, s.value.dtype))
            flags = self.ended(s, "kept", own, lambda x: calc("select", some, none, x), start)
        self.carry(s, rest, factors, flags)

    def needed(self, s: State, e: Expr) -> tuple[Loop, ...]:
        """The own loops of ``s`` on which ``e`` depends."""
        return tuple(x for x in s.own if x.var in free_vars(e))

    def ended(self, s: State, suffix: str, own: Sequence[Loop], step: Callable[[Expr], Expr], first: Expr) -> Buffer:
        """What a recurrence inside of each chunk gives at its end: ``first``, and ``step`` of the value before."""
        taken = {b.name for b in self.buffers} | {k.name for k in self.given.kernels}
        dtype = s.value.dtype
        index = self.place_of(s, Var(self.chunk), own)
        extents: dict[str, Extent] = {x.var: sized(x) for x in (*self.form.shared, *own)}
        extents[self.chunk] = self.earlier_chunks
        sizes = tuple(extents[e.name] for e in index if isinstance(e, Var))
        name = fresh_name(self.given, f"{s.name}_{suffix}", taken)
        running = Buffer(name, dtype, (*sizes, self.length), Space.TEMP, s.store.span)
        end = Buffer(fresh_name(self.given, f"{name}s", {*taken, name}), dtype, sizes, Space.TEMP, s.store.span)
        self.buffers += [running, end]
        place = Var(self.place)
        before = Load(name, (*index, calc("sub", place, 1)), dtype, s.store.span)
        env: dict[str, Expr] = {self.form.step.var: self.at}
        value = calc("select", calc("lt", integer(0), place), substitute(step(before), env), substitute(first, env))
        self.parts.setdefault(tuple(own), []).append(_Part(name, end, index, value, s.store.span))
        return end

    def place_of(self, s: State | Filter, chunk: Expr, own: Sequence[Loop]) -> tuple[Expr, ...]:
        """The position of a chunk of ``s`` at its loops ``own``: the order of axes is that of the state in memory."""
        known = {x.var for x in (*self.form.shared, *own)}
        roles = zip(self.form.roles[s.name], s.store.index, strict=True)
        found = [chunk if role == self.form.step.var else e for role, e in roles]
        return tuple(e for e in found if e is chunk or (isinstance(e, Var) and e.name in known))

    def inner(self, own: tuple[Loop, ...], parts: Sequence[_Part]) -> Kernel:
        """The kernel of ``parts``, which depend on the loops ``own``: the steps of each chunk but the last one."""
        shared = [*self.form.shared, self.loop(self.chunk, self.earlier_chunks, Kind.PAR)]
        outer = tuple(replace(x, kind=Kind.PAR) for x in (*shared, *own))
        place = Var(self.place)
        last = calc("sub", place, self.length - 1)  # 0: the position of a write depends on every loop around it
        body: list[Stmt] = []
        for x in parts:
            target = tuple(calc("add", e, last) if e == Var(self.chunk) else e for e in x.index)
            here = Load(x.running, (*x.index, place), x.value.dtype, x.span)
            body.append(Store(x.running, (*x.index, place), x.value, None, x.span))
            body.append(Store(x.end.name, target, here, calc("eq", place, self.length - 1), x.span))
        return Kernel(parts[-1].end.name, (), self.nest(outer, self.place, self.length, tuple(body)), parts[-1].span)

    def carry(self, s: State, rest: Buffer, factors: Buffer, flags: Buffer | None) -> None:
        """The states of ``s`` at the ends of chunks, one after another."""
        dtype, span = s.value.dtype, s.store.span
        taken = {b.name for b in self.buffers} | {k.name for k in self.given.kernels}
        end = replace(rest, name=fresh_name(self.given, f"{s.name}_end", taken))
        self.buffers.append(end)
        self.ends[s.name] = end
        sizes = tuple(map(sized, self.form.shared)), tuple(map(sized, s.own))
        name = fresh_name(self.given, f"{s.name}_here", {*taken, end.name})
        self.buffers.append(Buffer(name, dtype, (*sizes[0], self.count, *sizes[1], self.length), Space.TEMP, span))
        self.running[s.name] = name

        def at(b: Buffer, chunk: Expr) -> Load:
            varying = s.own if b is rest or b is end else self.varying(s, b)
            return Load(b.name, self.place_of(s, chunk, varying), dtype, span)

        here, place = at(rest, Var(self.chunk)), Var(self.chunk)
        moved = Op(s.moves, (at(factors, place), at(end, calc("sub", place, 1))), dtype)
        made: Expr = Op(s.joins, (moved, here), dtype)
        if flags is not None:
            dropped = Op("eq", (at(flags, place), number(0, dtype)), DType.BOOL)
            made = calc("select", dropped, here, made)
        value = calc("select", calc("lt", integer(0), place), made, here)
        body = (Store(end.name, at(end, place).index, value, None, span),)
        outer = tuple(replace(x, kind=Kind.PAR) for x in (*self.form.shared, *s.own))
        self.kernels.append(Kernel(end.name, (), self.nest(outer, self.chunk, self.earlier_chunks, body), span))

    def varying(self, s: State, b: Buffer) -> tuple[Loop, ...]:
        """The own loops of ``s`` along which ``b`` was made."""
        found = next(own for own, parts in self.parts.items() if any(x.end is b for x in parts))
        return tuple(x for x in s.own if x in found)

    # -- the steps as they were -------------------------------------------------------------------
    def last(self) -> Kernel:
        """The steps of each chunk, from the state at the end of the chunk before."""
        form = self.form
        written = {s.buffer: s.index for _, s in statements(form.step.body)}
        inside = None if self.whole else calc("lt", self.at, extent_expr(self.steps))

        def rule(e: Expr) -> Expr | None:
            if isinstance(e, Load) and e.buffer in self.sums:
                return self.sum_at(e.buffer, e.index)
            if not (isinstance(e, Load) and e.buffer in self.ends):
                return None
            back = steps_back(form, written, e)
            return self.earlier(e, back) if back else self.running_at(e, Var(self.place))

        def put(e: Expr) -> Expr:
            return substitute(rewrite(e, rule), {form.step.var: self.at})

        def moved(_: tuple[Loop, ...], s: Store | Update) -> Store | Update:
            guard = conjunction(c for c in (inside, None if s.guard is None else put(s.guard)) if c is not None)
            value = put(s.value)
            if s.buffer in self.sums:
                guard = guard if isinstance(s, Update) else None if s.guard is None else put(s.guard)
                here = self.sum_at(s.buffer, tuple(map(put, s.index)))
                return replace(s, buffer=here.buffer, index=here.index, value=value, guard=guard)
            if s.buffer not in self.ends:
                return replace(s, index=tuple(map(put, s.index)), value=value, guard=guard)
            target = self.running_at(Load(s.buffer, s.index, value.dtype), Var(self.place))
            return replace(s, buffer=target.buffer, index=target.index, value=value, guard=guard)

        body = list(map_statements(form.step.body, moved))
        inits = {s.buffer: (loops, s) for loops, s in statements(form.step.body) if isinstance(s, Store)}
        for name in (n for n in inits if n in self.seen):
            loops, s = inits[name]
            value = put(Load(name, s.index, s.value.dtype, s.span))
            nest: tuple[Stmt, ...] = (replace(s, index=tuple(map(put, s.index)), value=value, guard=inside),)
            for x in reversed(loops):
                nest = (replace(x, body=nest),)
            body += nest
        outer = (*form.shared, self.loop(self.chunk, self.count, Kind.PAR))
        return replace(self.kernel, body=self.nest(outer, self.place, self.length, tuple(body)))

    def earlier(self, e: Load, _: int) -> Expr:
        """The state ``e`` of the step before."""
        before = self.running_at(e, calc("sub", Var(self.place), 1))
        return calc("select", calc("lt", integer(0), Var(self.place)), before, self.entry(e))

    def running_at(self, e: Load, place: Expr) -> Load:
        """The state ``e`` at step ``place`` of the chunk."""
        shared, own = self.positions(e)
        return Load(self.running[e.buffer], (*shared, Var(self.chunk), *own, place), e.dtype, e.span)

    def sum_here(self, b: Buffer) -> Buffer:
        """The tensor of the reduction ``b`` at the places of all chunks, those after the last step too."""
        at = self.form.roles[b.name].index(self.form.step.var)
        shape = (*b.shape[:at], self.count, *b.shape[at + 1 :], self.length)
        name = fresh_name(self.given, f"{b.name}_here", {x.name for x in self.buffers})
        return replace(b, name=name, shape=shape, space=Space.TEMP, view_of=None, strides=None)

    def sum_at(self, name: str, index: tuple[Expr, ...]) -> Load:
        """The reduction ``name`` of this step, whose element is at ``index``."""
        at = self.form.roles[name].index(self.form.step.var)
        here = self.sums[name]
        return Load(here.name, (*index[:at], Var(self.chunk), *index[at + 1 :], Var(self.place)), here.dtype)

    def entry(self, e: Load) -> Expr:
        """The state ``e`` at the end of the chunk before."""
        before = calc("sub", Var(self.chunk), 1)
        roles = zip(self.form.roles[e.buffer], e.index, strict=True)
        index = tuple(before if role == self.form.step.var else x for role, x in roles)
        read = Load(self.ends[e.buffer].name, index, e.dtype, e.span)
        return calc("select", calc("lt", integer(0), Var(self.chunk)), read, number(0, e.dtype))

    def positions(self, e: Load) -> tuple[list[Expr], list[Expr]]:
        """The positions of ``e``, a state, along the independent axes and along its own."""
        s = next(s for s in self.states if s.name == e.buffer)
        roles = self.form.roles[e.buffer]
        return (
            [e.index[roles.index(x.var)] for x in self.form.shared],
            [e.index[s.store.index.index(Var(x.var))] for x in s.own],
        )

    # -- loops ------------------------------------------------------------------------------------
    def loop(self, name: str, count: Extent, kind: Kind) -> Loop:
        """A loop over ``count`` iterations without a body."""
        return Loop(name, integer(0), extent_expr(count), kind, (), self.form.step.span)

    def nest(self, outer: Sequence[Loop], step: str, count: Extent, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """``body`` in ``count`` steps that run in order, under the loops ``outer``."""
        whole: tuple[Stmt, ...] = (replace(self.loop(step, count, Kind.SEQ), body=body),)
        for x in reversed(outer):
            whole = (replace(x, body=whole),)
        return whole


def _stepped(state: State, x: Expr) -> Expr:
    """The value of a step of ``state`` from the state ``x``."""
    return rewrite(state.value, lambda e: x if e == state.before else None)

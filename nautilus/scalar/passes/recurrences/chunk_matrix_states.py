"""``chunk-matrix-states``: recurrences with a matrix state are products of matrices in chunks of steps.

A recurrence with a matrix state (:mod:`nautilus.scalar.analysis.states.matrix_states`)::

    S[p, t, d, e] = a[p, t] * S[p, t - 1, d, e] + x[p, t, d] * u[p, t, e]
    y[p, t, e]    = sum[d](q[p, t, d] * S[p, t, d, e])

runs its steps one after another on whole states.  In chunks of ``C`` steps, with ``G(s, t)`` the product of ``a`` over
the steps after ``s`` up to ``t``, the same numbers are::

    Z[p, n, d, e]  = sum[s in chunk n](G(s, end of n) * x[s, d] * u[s, e])              a product of matrices
    S0[p, n, d, e] = G(chunk n - 1) * S0[p, n - 1, d, e] + Z[p, n - 1, d, e]            a recurrence over chunks
    y[p, t, e]     = G(start of n, t) * sum[d](q[t, d] * S0[n, d, e])                   a product of matrices
                   + sum[s in chunk n, s <= t](G(s, t) * sum[d](q[t, d] * x[s, d]) * u[s, e])     a chain of two

Other kernels may read the state after the last step (:mod:`nautilus.scalar.rewriting.states.last`).  Where the first
step reads a state before it, the first chunk does.

``n`` is the chunk of ``t``.  A reader of ``S[t - 1]`` has the products up to the step before, and the sum over
``s < t``.  One chunk alone has the last sum only.  Steps that run downwards have the chunks in the other order.

Where rows decay by different factors ``a[p, t, d]``, ``G`` is in the sums over ``d``::

    y[p, t, e]     = sum[d](q[t, d] * G(start of n, t)[d] * S0[n, d, e])
                   + sum[s in chunk n, s <= t](sum[d](q[t, d] * G(s, t)[d] * x[s, d]) * u[s, e])

The inner one of the last sums is stored for the pairs of steps of each chunk.  It is a product of matrices for pairs
that are apart (:mod:`nautilus.scalar.rewriting.states.pairs`).  Without different factors it is stored too where there
are more columns than a kernel of two products has.

Where columns decay by different factors ``c[p, t, e]``, alone or beside those of rows, ``y`` has the product of ``c``
after each of the steps, and sums over pairs of steps that are apart are products of matrices
(:mod:`nautilus.scalar.rewriting.states.fading_columns`), with the products ``W`` of pairs::

    y[p, t, e]     = C(start of n, t)[e] * sum[d](q[t, d] * S0[n, d, e])
                   + sum[s in chunk n, s <= t](W[t, s] * C(s, t)[e] * u[s, e])

Numbers of steps in ``x``, ``q`` and ``k``, as where these are normalised, are outside of the products
(:mod:`nautilus.scalar.analysis.states.row_scales`).

What a step adds may read the state before it, as in the delta rule: ``u`` is then the correction
``w[t, e] = u[t, e] + f[t] * sum[d](k[t, d] * S[t - 1, d, e])``.  The corrections of a chunk solve a system of equations
(:mod:`nautilus.scalar.rewriting.states.corrections`), which is triangular, and one chunk after another finds its
corrections and the state after it by products of matrices.  Everything else is the same with ``w`` in place of ``u``.

Legality.

* ``|a| <= 1`` is proved, as in ``chunk-recurrences``, and ``a = exp(w)`` by its form, or ``w = log(abs(a))``
  (:mod:`nautilus.scalar.analysis.states.exponents`).  ``G`` is the exponential of a difference of running sums of ``w``
  inside a chunk, of which each term is at least -:data:`MOST`.  A sum may be much larger than the difference, so that
  its roundings would be errors of ``G`` that a product of the factors has not.  So the sums are those of two parts: of
  multiples of ``1 / UNIT``, whose sums are exact, and of what they leave, which is at most ``0.5 / UNIT``.  Where all
  operands have 16 bits and computed ones are rounded to 16 bits, ``G`` among them, the sums are those of ``w`` itself.
* ``G`` is at least ``LEAST``, so that an infinite state stays infinite, and what that adds is too small to matter
  beside the state.  Where ``a`` may be 0 or negative, such factors are counted, for the sign of ``G`` and its zeros.
* Of a decay with factors for rows and for columns, each is at most 1 in magnitude, and that for columns is positive.
* inf and NaN in ``x``, ``u`` and ``a`` reach the same results as before: a step after ``t`` is left out of the sum by
  its condition.  An infinite ``u`` leaves the sums over ``d``, so that it gives an infinity where terms of both signs
  would give NaN, as any factor that leaves a sum does.
* ``q`` enters the sum over ``s``, which an infinite number must not.  Where it may be infinite, a row ``q[p, t]`` with
  such an element is replaced: by the sign of infinite elements, and by the others times 0, so that NaN stays.  The
  result times inf is what the infinite elements make of the state; it is NaN where the others meet an infinite state.
  A small factor in place of 0 would keep such an infinity, but not the sign of every result: the finite state that the
  others meet may be larger than that of the infinite elements by more than the inverse of the factor.
* No step leaves the state out by a condition.
* ``f``, ``k`` and ``x`` are never infinite where there are corrections, so that no element of the system is.

``S0`` is stored as bf16 where ``q`` is, as ``narrow`` would round it in the product.

Operands that are computed from tensors of bf16 have 16 bits too where only outputs of at most 16 bits depend on them
(:mod:`nautilus.scalar.analysis.states.computed_operands`).

Profitability.  The rule compares the time of the kernels, by their bytes and products, with that of the steps.
Where rows or columns decay by different factors, operands are those of bf16: with others the planner would compute the
sums for pairs of steps again for each tile of columns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Reduce, Var, substitute
from nautilus.core.expr.products import factors, product_of
from nautilus.core.index.sizes import at_most, large
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.promises import FencedSteps, Promises, finite_inputs, promised_ranges
from nautilus.scalar.analysis.contractions.terms import never_infinite
from nautilus.scalar.analysis.definitions import Def, is_recurrence, reads_of
from nautilus.scalar.analysis.states.computed_operands import computed_operands
from nautilus.scalar.analysis.states.exponents import exponent, logarithm
from nautilus.scalar.analysis.states.linear_states import linear_states, reductions
from nautilus.scalar.analysis.states.matrix_states import MatrixState, Reader, matrix_state
from nautilus.scalar.analysis.states.recurrences import RATE, form_of
from nautilus.scalar.analysis.states.references import below_reference, expanded
from nautilus.scalar.analysis.states.row_scales import without_row_scales
from nautilus.scalar.analysis.states.step_products import LEAST, fits
from nautilus.scalar.analysis.symbolic import multiplied
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.ir import Kernel, Program
from nautilus.scalar.passes.recurrences.chunk_recurrences import (
    FEWEST,
    ROUNDED,
    STEP,
    bounded,
    chunk_length,
    sized,
)
from nautilus.scalar.rewriting import find_defs
from nautilus.scalar.rewriting.states.chunks import (
    Found,
    StateChunks,
    short_type,
    short_types,
    volume,
)
from nautilus.scalar.rewriting.states.decays import ZERO
from nautilus.scalar.rewriting.states.last import reads_last
from nautilus.scalar.rewriting.states.pairs import BLOCK
from nautilus.targets.memory_rates import LAUNCH

MOST: Final = 128.0  # largest magnitude of an exponent: exp(-128) is 0 in f32
LENGTHS: Final = (64, 128, 256)  # steps of a chunk, of which the rule takes the best
GAIN: Final = 0.6  # chunks are taken if their predicted time is less than this share of that of the steps
ELEMENT: Final = 2.3e-6  # microseconds of a step of an element of a state, where all multiprocessors have steps (H200)
_LEAST_AXIS = 16  # elements of the shortest axis of rows or columns
_MOST_AXIS = 512  # elements of the longest axis: a kernel of two products has them in a tile
_MOST_COLUMNS = 256  # columns beside sums for pairs of steps, which the loop of a wider product would compute again
_SHORT_FLOPS, _LONG_FLOPS = 4.0e8, 4.0e7  # operations in a microsecond, of 16 bits and of f32
_EXPONENTIALS = 2.1e6  # exponentials in a microsecond, each with its sum and product
_KERNELS = 7  # approximate number of launches
_BLOCKS = 132  # blocks that run at the same time, each with 64 columns of a state
_CHUNK, _LONG_CHUNK = 1.0, 4.0  # microseconds of the products of a chunk in a block, of 16 bits and of f32


@dataclass(frozen=True, slots=True)
class ChunkMatrixStates(CertifyingPass[Program]):
    """Compute recurrences with a matrix state by products of matrices.

    ``spec``: the Spec, whose facts bound inputs and scalars.  ``length``: the steps of a chunk of every recurrence (for
    tests); 0: what the rule says.  ``always``: chunks of ``FEWEST`` steps where the rule says none.
    ``strict``, or ``schedule.narrow`` False: states are not rounded.
    """

    spec: Promises | None = None
    schedule: Schedule | None = None
    strict: bool = False
    length: int = 0
    always: bool = False

    name = "chunk-matrix-states"
    sees_recurrences = True

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with products in place of recurrences, and a certificate for each of them."""
        certificates: list[Certificate] = []
        rounds = not self.strict and (self.schedule is None or self.schedule.narrow)
        for k in [k for k in program.kernels if is_recurrence(k)]:
            found = matrix_recurrence(program, k, self.spec)
            if found is None:
                continue
            length = self.length or chosen_length(program, k, found) or (FEWEST if self.always else 0)
            if not length:
                continue
            chunks = StateChunks(program, k, found, length, rounds)
            program = chunks.program()
            certificates += [_certificate(found, r) for r in chunks.needed() if isinstance(r, Reader)]
        return program, tuple(certificates)


def fenced(program: Program, spec: Promises | None) -> tuple[FencedSteps, ...]:
    """The recurrences that would run in chunks if no element of some inputs were infinite."""
    out = []
    inputs = {b.name for b in program.buffers if b.space is Space.INPUT}
    for k in program.kernels:
        if not is_recurrence(k) or matrix_recurrence(program, k, spec) is not None:
            continue
        needed = {n for n in inputs & reads_of(k) if n not in finite_inputs(spec)}
        found = matrix_recurrence(program, k, spec, needed)
        if found is None or not (length := chosen_length(program, k, found)):
            continue
        for n in sorted(needed):
            needed -= {n} if matrix_recurrence(program, k, spec, needed - {n}) is not None else set()
        m = found.state
        out.append(FencedSteps(m.name, tuple(sorted(needed)), m.span, large(m.time.extent), length))
    return tuple(out)


def matrix_recurrence(program: Program, k: Kernel, spec: Promises | None, more: Collection[str] = ()) -> Found | None:
    """The matrix state of the recurrence ``k`` that may be computed in chunks; None where there is none.

    ``more``: inputs that are taken as finite, beside those of which ``spec`` promises it.
    """
    form = form_of(k)
    states = None if form is None else linear_states(form, reductions(form))
    if form is None or states is None or len(states) != 1:
        return None
    finite = {*finite_inputs(spec), *more}
    m = matrix_state(program, form, states[0], finite)
    given = promised_ranges(spec)
    if m is None or not reads_last(program, k, m) or not bounded(program, form, states[0], given):
        return None
    if m.correction is not None and not _finite_correction(program, m, spec, finite):
        return None
    if not short_type(m) and short_type(scaled := without_row_scales(find_defs(program), m)):
        m = scaled
    one, shown = number(1, DType.F32), m.decay is not None and exponent(m.decay) is not None
    m = replace(m, decay=_exponential(program, m.decay), column_decay=_exponential(program, m.column_decay))
    loops = (*form.shared, form.step, *states[0].own)
    ranges = Ranges(find_defs(program), tuple(Axis(x.var, sized(x)) for x in loops), given=given)
    columns = None
    if m.column_decay is not None:
        columns = _positive_exponent(ranges, m.column_decay)
        if columns is None or not all(_is_at_most_one(ranges, x) for x in (m.decay, m.column_decay) if x is not None):
            return None
    m = replace(m, members=tuple(_never_infinite(program, m, spec, x) for x in m.members))
    found = Found(m, None, None, columns, short_type(m), short_types(m))
    if found.short is None and (computed := computed_operands(program, k, m)):
        found = replace(found, short=DType.BF16, types=frozenset({DType.BF16}), computed=computed)
    if m.decay is None:
        return found
    w = exponent(m.decay)
    if w is not None and not shown and below_reference(program, form, states[0].factor(one), at_most(m.time.extent)):
        w = Op("min", (w, number(0, w.dtype)), w.dtype)  # the first step may have any factor
    w = _positive_exponent(ranges, m.decay) if w is None else _above_least(w)
    if w is not None:
        return replace(found, exponent=w)
    zero = number(0, m.decay.dtype)
    negative = calc("select", Op("lt", (m.decay, zero), DType.BOOL), integer(1), integer(0))
    marks = calc("select", Op("eq", (m.decay, zero), DType.BOOL), integer(ZERO), negative)
    return replace(found, exponent=_above_least(logarithm(Op("abs", (m.decay,), m.decay.dtype))), marks=marks)


def _exponential(program: Program, decay: Expr | None) -> Expr | None:
    """``decay`` with the values of the tensors that it reads, where these show that it is an exponential."""
    if decay is None or exponent(decay) is not None:
        return decay
    value = expanded(program, decay)
    return decay if exponent(value) is None else value


def _positive_exponent(ranges: Ranges, decay: Expr) -> Expr | None:
    """The exponent of ``decay``, at least -:data:`MOST`; None where ``decay`` is not proved to be positive."""
    w = exponent(decay)
    if w is None and ranges.of(decay)[0] > 0:
        w = logarithm(decay)
    return None if w is None else _above_least(w)


def _above_least(w: Expr) -> Expr:
    return Op("max", (w, Const(-MOST, w.dtype)), w.dtype)


def _is_at_most_one(ranges: Ranges, factor: Expr) -> bool:
    """Whether the magnitude of a part of the decay is proved to be at most 1."""
    lo, hi = ranges.of(factor)
    return lo >= -ROUNDED and hi <= ROUNDED


def _never_infinite(program: Program, m: MatrixState, spec: Promises | None, x: Reader | Def) -> Reader | Def:
    """``x``, which is known to be finite where the range of its operand is, as that of probabilities."""
    if not isinstance(x, Reader) or x.finite or x.rest is not None:
        return x
    ranges = Ranges(find_defs(program), (m.time, *m.outer, *m.rows), given=promised_ranges(spec), infinite=True)
    return replace(x, finite=all(map(math.isfinite, ranges.of(x.inside))))


def _finite_correction(program: Program, m: MatrixState, spec: Promises | None, finite: Collection[str]) -> bool:
    """Whether no factor of the system of equations is infinite."""
    assert m.correction is not None
    axes = (m.time, *m.outer, *m.rows)
    ranges = Ranges(find_defs(program), axes, given=promised_ranges(spec), infinite=True)
    parts = (f for e in (m.correction.factor, m.correction.inside, m.x) for f in factors(e))
    return all(never_infinite(f, finite) or all(map(math.isfinite, ranges.of(f))) for f in parts)


@dataclass(frozen=True, slots=True)
class RoundedState:
    """A state that is computed in chunks from operands of 16 bits.

    ``dtype``: the type to which others are rounded; it is tf32 for f16, which operands fit under a scale.
    ``corrected``: what a step adds reads the state.  ``computed``: the number of roundings of a term in addition to
    those of what each step adds and of the state, of operands that are computed and of decays of columns.
    """

    dtype: DType
    corrected: bool
    computed: int = 0


def rounded_states(program: Program, spec: Promises | None) -> dict[str, RoundedState]:
    """The states that are computed in chunks from operands of 16 bits."""
    out: dict[str, RoundedState] = {}
    for k in [k for k in program.kernels if is_recurrence(k)]:
        found = matrix_recurrence(program, k, spec)
        if found is not None and found.types and chosen_length(program, k, found):
            dtype = DType.BF16 if DType.BF16 in found.types else DType.TF32
            more = found.computed + (found.by_column and found.by_row)
            out[found.state.name] = RoundedState(dtype, found.state.correction is not None, more)
    return out


# -- the cost -------------------------------------------------------------------------------------


def chosen_length(program: Program, k: Kernel, found: Found) -> int:
    """The steps of a chunk; 0 where the recurrence is faster as it is."""
    m = found.state
    form = form_of(k)
    states = None if form is None else linear_states(form, reductions(form))
    assert form is not None and states is not None
    steps, p, d, e = _sizes(m)
    if not (_LEAST_AXIS <= d <= _MOST_AXIS and _LEAST_AXIS <= e <= _MOST_AXIS):
        return 0
    if m.correction is not None and (not fits(d) or e % LEAST):  # one chunk after another would not use matrix units
        return 0
    if (found.by_row or found.by_column) and (found.short is not DType.BF16 or e > _MOST_COLUMNS):
        return 0
    least = p * steps * d * e * ELEMENT
    whole = max(steps * STEP, least)
    if m.correction is not None:
        whole = max(2 * steps * STEP, least)  # two sums of a step need each other
    elif cut := chunk_length(program, form, states):
        whole = min(whole, max(2 * least, (2 * cut + steps / cut) * STEP))
    of_pairs = found.by_row or found.by_column or m.correction is not None
    lengths = LENGTHS[:1] if of_pairs else LENGTHS
    times = {n: _time(found, n) for n in lengths if n < 2 * steps}
    best = min(times, key=lambda n: times[n], default=0)
    return best if best and times[best] < GAIN * whole else 0


def _sizes(m: MatrixState) -> tuple[int, int, int, int]:
    """The steps, the positions, the rows and the columns of ``m``.

    Steps whose number is known only at launch may be many, and positions few: the GPU is idle then.
    """
    return large(m.time.extent), volume(m.outer), volume(m.rows), volume(m.columns)


def _time(found: Found, length: int) -> float:
    """The predicted time in microseconds with chunks of ``length`` steps."""
    m = found.state
    steps, p, d, e = _sizes(m)
    chunks = -(-steps // length)
    short = found.short is not None
    size = 2 if short else 4
    states = p * chunks * d * e if chunks > 1 else 0
    readers = len(m.readers)
    bytes_ = size * p * steps * (d + e) * (2 + readers) + states * (8 + 2 * size)
    flops = readers * p * steps * (d + e) * (length + 128) + (4 * p * steps * d * e if chunks > 1 else 0)
    if found.by_row or found.by_column:
        return _pairs(found, length) + bytes_ / RATE + LAUNCH * _KERNELS + (length + chunks) * STEP
    work = bytes_ / RATE + flops / (_SHORT_FLOPS if short else _LONG_FLOPS)
    launches = LAUNCH * (_KERNELS if chunks > 1 else 3)
    more = 0.0 if m.correction is None else _corrections(found, length)
    return work + launches + (length + chunks) * STEP + more


def _corrections(found: Found, length: int) -> float:
    """The time of the systems of equations, and of one chunk after another."""
    m = found.state
    steps, p, d, e = _sizes(m)
    chunks, short = -(-steps // length), found.short is DType.BF16
    bytes_ = p * steps * (4 * 6 * length + (2 if short else 4) * (5 * d + 3 * e))
    flops = p * steps * length * (2 * d + 2 * e + 6 * length) * (1 if short else 3)
    blocks = -(-p * -(-e // 64) // _BLOCKS)
    passing = blocks * chunks * (_CHUNK if short else _LONG_CHUNK) if chunks > 1 else 0.0
    return bytes_ / RATE + flops / (_SHORT_FLOPS if short else _LONG_FLOPS) + LAUNCH * 4 + passing


def _pairs(found: Found, length: int) -> float:
    """The time of the factors of rows and of columns between pairs of steps, and of what the pairs give."""
    m = found.state
    steps, p, d, e = _sizes(m)
    cuts = (length // BLOCK).bit_length() - 1
    work = 4 * (length + 2 * e) / RATE
    work += BLOCK * d / _EXPONENTIALS + 4 * 3 * (1 + cuts) * d / RATE if found.by_row else 4 * d / RATE
    work += BLOCK * e / _EXPONENTIALS + 4 * 3 * (1 + cuts) * e / RATE if found.by_column else 0.0
    return len(m.readers) * p * steps * work


# -- the certificate ------------------------------------------------------------------------------


def _certificate(found: Found, r: Reader) -> Certificate:
    """Two steps from any state, contracted: what they are one after another, and by products."""
    m = found.state
    own = tuple(Var(a.name) for a in (*m.outer, *m.rows, *m.columns))
    state = Load(m.name, own, DType.F32, m.span)
    one, two = ({m.time.name: integer(n)} for n in (1, 2))
    right = m.u if m.scale is None else multiplied(m.scale, m.u)
    steps = [(substitute(m.x, at), substitute(right, at)) for at in (one, two)]
    whole = [x for x in (m.decay, m.column_decay) if x is not None]
    decays = [product_of([substitute(x, at) for x in whole]) if whole else None for at in (one, two)]
    powers = [None if found.exponent is None else substitute(found.exponent, at) for at in (one, two)]
    faded = [None if found.column_exponent is None else substitute(found.column_exponent, at) for at in (one, two)]
    q = substitute(r.inside, two)

    def summed(e: Expr) -> Expr:
        return Reduce("sum", m.rows, None, e, DType.F32, m.span)

    stepped: Expr = state
    (x1, u1), (x2, u2) = steps
    if m.correction is not None:
        u1, u2, stepped = _corrected(found, state, steps, decays)
    else:
        for a, (x, u) in zip(decays, steps, strict=True):
            moved = stepped if a is None else multiplied(a, stepped)
            stepped = Op("add", (moved, multiplied(x, u)), DType.F32)
    old, new = q, q
    if powers[0] is not None and powers[1] is not None:
        old = multiplied(q, Op("exp", (Op("add", (powers[0], powers[1]), DType.F32),), DType.F32))
        new = multiplied(q, Op("exp", (powers[1],), DType.F32))
    carried, first = summed(multiplied(old, state)), multiplied(summed(multiplied(new, x1)), u1)
    if faded[0] is not None and faded[1] is not None:
        carried = multiplied(Op("exp", (Op("add", (faded[0], faded[1]), DType.F32),), DType.F32), carried)
        first = multiplied(Op("exp", (faded[1],), DType.F32), first)
    inside = Op("add", (first, multiplied(summed(multiplied(q, x2)), u2)), DType.F32)
    after = Op("add", (carried, inside), DType.F32)
    proof = "sums of products are bilinear, and the product of exponentials is that of the sum of their exponents"
    least = number(0, DType.F32)
    positive = [Op("lt", (least, a), DType.BOOL) for a in decays if a is not None] if found.marks is not None else []
    before = summed(multiplied(q, stepped))
    return Certificate("chunk-matrix-states", r.target.name, before, after, (), tuple(positive), (), proof, m.span)


def _corrected(
    found: Found, state: Expr, steps: Sequence[tuple[Expr, Expr]], decays: Sequence[Expr | None]
) -> tuple[Expr, Expr, Expr]:
    """The corrections of two steps by the system of equations, and the state after them, one after another."""
    m = found.state
    assert m.correction is not None
    times = [{m.time.name: integer(n)} for n in (1, 2)]
    f1, f2 = (substitute(m.correction.factor, at) for at in times)
    k1, k2 = (substitute(m.correction.inside, at) for at in times)
    (x1, u1), (x2, u2) = steps

    def summed(e: Expr, name: str) -> Expr:
        """The sum of ``e`` over rows whose axes have other names."""
        axes = tuple(replace(a, name=f"{a.name}_{name}") for a in m.rows)
        own = {a.name: Var(b.name) for a, b in zip(m.rows, axes, strict=True)}
        return Reduce("sum", axes, None, substitute(e, own), DType.F32, m.span)

    def plus(a: Expr, b: Expr) -> Expr:
        return Op("add", (a, b), DType.F32)

    def stepped(a: Expr | None, before: Expr, x: Expr, w: Expr) -> Expr:
        return plus(before if a is None else multiplied(a, before), multiplied(x, w))

    first = plus(u1, multiplied(f1, summed(multiplied(k1, state), "a")))
    between = stepped(decays[0], state, x1, first)
    second = plus(u2, multiplied(f2, summed(multiplied(k2, between), "b")))
    old = k2 if decays[0] is None else multiplied(k2, decays[0])
    both = plus(summed(multiplied(old, state), "a"), multiplied(summed(multiplied(k2, x1), "b"), first))
    return first, plus(u2, multiplied(f2, both)), stepped(decays[1], between, x2, second)

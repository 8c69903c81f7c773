"""The bound that the compiler states for a spec; the docstring of the package has the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf, prod, sqrt

import numpy as np

from nautilus.check.bound.errors import Probe, Roundings, inexact, roundings, rounds_at_store, run, unit
from nautilus.check.bound.program import rounded
from nautilus.check.compare import norm
from nautilus.check.inputs import generate, integer_ranges
from nautilus.core.expr.nodes import COMPARISONS, Const, Expr, Load, Op, Param, Reduce, Var, walk
from nautilus.core.expr.products import indexed_factors
from nautilus.core.functions import FUNCTIONS
from nautilus.core.numerics import Array, round_to
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.frontend.fixed import at_sizes
from nautilus.frontend.interp import run_spec
from nautilus.frontend.restrict import restrict, sampled
from nautilus.frontend.spec import Spec, Tensor

#: Every bound is of three choices of independent errors of up to 2 units of roundoff, and of two of common errors of
#: up to 1.25 units, of which one has errors that cancel least.
PROBES = (*(Probe(n, False, 2.0) for n in range(3)), *(Probe(n, True, 1.25, opposed=n == 1) for n in range(2)))
#: Those of an output of few elements on given inputs: three errors of a single number may all be small by chance.
_MORE_PROBES = tuple(Probe(n, False, 2.0) for n in range(3, 12))
_BUDGET = 1 << 18  # points of the sampled evaluation
_ELEMENTS = ((8, 16), (4, 8))  # sampled indices of the last axis but one of an output, and of the last one
_FAR = 16  # the excess over the budget at which sums are shortened by two steps at once
_NODES = 16  # operations of a definition that count as one
_GATHERED = 1 << 17  # elements of an input, where it is read at computed indices only
_LONGEST = 1 << 14  # terms of a sum in the sampled evaluation
_RUNTIME = 1024  # the size of a dim that is known only at launch and has no smaller bound
_STEPS = 64  # of a recurrence in the sampled evaluation
_FEW = 64  # outputs of fewer elements are sampled on several inputs
_INPUTS = 6
_TO_INTEGERS = frozenset({"floor", "ceil", "round"})
_LAST = _TO_INTEGERS | {"cast", "min", "max"}  # what a rounded integer goes through
_INEXACT = frozenset(f.name for f in FUNCTIONS.values() for a in f.approximations if a.form_error)


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of an output; ``relative`` is 0 for an exact output.

    ``ties``: the output has integers or bools that depend on computed floats.  ``one_off``: these are small integers
    that a float is rounded to at the end, so that a tie makes a difference of 1.  ``form``: an approximation of the
    hardware in it differs from the function over the reals.
    """

    relative: float
    ties: bool = False
    form: bool = False
    one_off: bool = False

    @property
    def step(self) -> float:
        """The largest difference that a tie makes in an integer."""
        return 1.0 if self.one_off else inf

    @property
    def text(self) -> str:
        if self.relative == 0.0:
            off = "1 off" if self.one_off else "another one"
            return "exact" + (f", but {off} where computed numbers tie" if self.ties else "")
        return f"{self.relative:.1e}"


def stated(spec: Spec, precision: str = "fast", schedule: Schedule | None = None) -> dict[str, Bound]:
    """The bound of every output of ``spec`` on standard normal inputs at its declared sizes."""
    options = Schedule() if schedule is None else schedule
    choices = Schedule(
        inline=options.inline, factor=options.factor, narrow=options.narrow,
        decompose_operands=options.decompose_operands,
    )  # fmt: skip
    return dict(_stated(spec, precision, choices))


@lru_cache(maxsize=64)
def _stated(spec: Spec, precision: str, schedule: Schedule) -> Mapping[str, Bound]:
    program = rounded(spec, precision, schedule)
    computed = roundings(program, precision).computed
    exact = {d.name: _is_exact(program, d.name, computed) for d in program.definitions}
    wanted = [t for t in spec.outputs if t.dtype.is_float and not exact[t.name]]
    found = _sampled(program, precision, wanted, schedule.decompose_operands) if wanted else {}
    out: dict[str, Bound] = {}
    for t in spec.outputs:
        if not t.dtype.is_float:
            ties = not exact[t.name]
            out[t.name] = Bound(0.0, ties, one_off=ties and _rounds_last(program, t.name, computed))
        else:
            form = precision == "fast" and t.name in found and any(_has_form(d.expr) for d in spec.definitions)
            out[t.name] = Bound(found.get(t.name, 0.0), form=form)
    return out


def _is_exact(program: Spec, name: str, computed: frozenset[str]) -> bool:
    """Whether no rounding lies between the inputs and the values of ``name``."""
    d = program.definition(name)
    loads = {e.buffer for e in walk(d.expr) if isinstance(e, Load)}
    return not (loads & computed or any(inexact(e) for e in walk(d.expr)) or rounds_at_store(program, d))


def _rounds_last(program: Spec, name: str, computed: frozenset[str]) -> bool:
    """Whether ``name`` has integers of at most 16 bits, each a computed float that is rounded once, at the end."""
    d = program.definition(name)
    e, last = d.expr, False
    while isinstance(e, Op) and e.op in _LAST:
        last = last or (e.dtype.is_int and e.args[0].dtype.is_float) or e.op in _TO_INTEGERS
        rest = e.args[1:]
        if any(not isinstance(x, Const) for x in rest):
            break
        e = e.args[0]
    return last and d.stored.is_int and d.stored.bits <= 16 and not _decides(program, e, computed)


def _decides(program: Spec, e: Expr, computed: frozenset[str]) -> bool:
    """Whether computed floats decide about the value of ``e`` or of what it reads, by a comparison or by a rounding."""
    operations = [n for n in walk(e) if isinstance(n, Op)]
    discrete = [n for n in operations if n.op in COMPARISONS | _TO_INTEGERS or not n.dtype.is_float]
    if any(inexact(x) or (isinstance(x, Load) and x.buffer in computed) for n in discrete for x in walk(n)):
        return True
    read = {n.buffer for n in walk(e) if isinstance(n, Load) and n.buffer in computed}
    return any(_decides(program, program.definition(x).expr, computed) for x in read)


def _has_form(e: Expr) -> bool:
    return any(isinstance(n, Op) and n.op in _INEXACT for n in walk(e))


# -- the figure of the header -------------------------------------------------------------------


def _sampled(program: Spec, precision: str, wanted: Sequence[Tensor], parts: bool) -> dict[str, float]:
    """Relative errors of the outputs ``wanted`` on standard normal inputs, at sampled elements."""
    fixed = at_sizes(program, program.samples(_RUNTIME))
    elements = {t.name: _volume(t.shape) for t in fixed.outputs}
    terms = {(name, tuple(a.name for a in e.axes)): _count(e) for name, e in _reductions(fixed)}
    few = min(prod(n for n in t.shape if isinstance(n, int)) for t in wanted) < _FEW
    count = _INPUTS if few else 1
    whole, rows = _cut(fixed, _BUDGET // count)
    cut, ranges = _shortened(whole, integer_ranges(fixed))
    how = roundings(cut, precision, terms, parts)
    counts = [d.axes[d.recurrence.axis].extent for d in cut.definitions if d.recurrence is not None]
    longer = max(1.0, *((n / _STEPS) ** 0.5 for n in counts if isinstance(n, int)), 1.0)
    errors = {t.name: 0.0 for t in wanted}
    sizes = dict(errors)
    for seed in range(count):
        given = generate(cut, "random", seed, ranges=ranges)
        arrays = {**given.arrays, **rows}
        values = run_spec(wide(cut), arrays, given.scalars, steps=_STEPS)
        moved = disturbed(wide(cut), arrays, given.scalars, {}, how, values, steps=_STEPS)
        for t in wanted:
            elements[t.name] = min(elements[t.name], values[t.name].size)
            errors[t.name] += moved[t.name] ** 2
            sizes[t.name] += norm(values[t.name]) ** 2
    out = {}
    for t in wanted:
        relative = (errors[t.name] / sizes[t.name]) ** 0.5 if sizes[t.name] > 0.0 else 0.0
        out[t.name] = margin(elements[t.name]) * relative * longer + unit(t.dtype)
    return out


def probes(elements: int) -> tuple[Probe, ...]:
    """The choices of errors for given inputs, where the smallest output has so many elements."""
    return PROBES + _MORE_PROBES if elements < _FEW else PROBES


def margin(elements: int) -> float:
    """What the error of an output of so few elements may exceed its expectation by: one number has a normal error."""
    return 1.0 + 1.0 / sqrt(max(1, elements))


def disturbed(
    program: Spec, arrays: Mapping[str, Array], scalars: Mapping[str, int | float | bool], sizes: Mapping[str, int],
    how: Roundings, values: Mapping[str, Array], probes: Sequence[Probe] = PROBES, steps: int | None = None,
) -> dict[str, float]:  # fmt: skip
    """For each output, the largest norm of its error under ``probes``; ``steps``: of recurrences, at most.

    It is inf where an element is a number, inf, -inf or NaN in one of them only.
    """
    worst = dict.fromkeys(values, 0.0)
    types = {t.name: t.dtype for t in program.outputs}
    kinds = {n: _kinds(x, types[n]) for n, x in values.items() if x.dtype.kind == "f"}
    for probe in probes:
        moved = run(program, arrays, scalars, sizes, how, probe, steps)
        for name, x in values.items():
            if x.dtype.kind != "f":
                continue
            same = np.array_equal(_kinds(moved[name], types[name]), kinds[name])
            with np.errstate(all="ignore"):
                worst[name] = max(worst[name], norm(moved[name] - x) if same else float("inf"))
    return worst


def _kinds(x: Array, dtype: DType) -> Array:
    """Whether each element is a number (0), inf (1), -inf (-1) or NaN (2), and what it is in its type."""
    both = np.stack([x, round_to(x, dtype)])
    return np.where(np.isnan(both), 2, np.where(np.isinf(both), np.sign(both), 0))


def _reductions(program: Spec) -> Iterator[tuple[str, Reduce]]:
    for d in program.definitions:
        yield from ((d.name, e) for e in walk(d.expr) if isinstance(e, Reduce))


def _count(e: Reduce) -> int:
    return prod(a.extent for a in e.axes if isinstance(a.extent, int))


def _cut(program: Spec, budget: int) -> tuple[Spec, Mapping[str, Array]]:
    """``program`` at sampled elements of its outputs, and its new inputs.

    Where that is too much work, there are fewer elements, because a sum of fewer terms cancels less.  After that,
    long sums are shortened, and the outputs are taken at the same indices as the sums are.
    """
    extents = {a.extent for _, e in _reductions(program) for a in e.axes if isinstance(a.extent, int)}
    for inner, last in _ELEMENTS:
        chosen = sampled(program, 0, inner=inner, last=last)
        few = restrict(program, chosen, {})
        if _points(few.spec) <= budget:
            return few.spec, few.rows
    chosen = sampled(program, 0, inner=_ELEMENTS[0][0], last=_ELEMENTS[0][1])
    most = min(max(extents, default=1), _LONGEST)
    while True:
        kept = {n: _terms(program, chosen, n, most) for n in sorted(extents) if n > most}
        same = {t.name: _same_indices(t, chosen.get(t.name, {}), kept) for t in program.outputs}
        cut = min((restrict(program, c, kept) for c in (chosen, same)), key=lambda r: _points(r.spec))
        points = _points(cut.spec)
        if most <= 32 or points <= budget:
            return cut.spec, cut.rows
        most //= 2 if points < _FAR * budget else 4


def _terms(program: Spec, chosen: Mapping[str, Mapping[int, Array]], extent: int, most: int) -> Array:
    """The terms of sums over ``extent`` indices: ``most`` of them, and those at which outputs are ``chosen``.

    A condition such as ``j <= i and key[j] == key[i]`` then keeps a term for each index ``i``.
    """
    spaced = np.linspace(0, extent - 1, most).astype(np.int64)
    shared = (chosen.get(t.name, {}).get(p) for t in program.outputs for p, n in enumerate(t.shape) if n == extent)
    return np.unique(np.concatenate([spaced, *(x for x in shared if x is not None)]))


def _same_indices(t: Tensor, chosen: Mapping[int, Array], kept: Mapping[int, Array]) -> dict[int, Array]:
    """``chosen``, with the indices of ``kept`` along the axes of these extents."""
    return dict(chosen) | {p: kept[n] for p, n in enumerate(t.shape) if isinstance(n, int) and n in kept}


def _shortened(spec: Spec, ranges: Mapping[str, tuple[int, int]]) -> tuple[Spec, dict[str, tuple[int, int]]]:
    """``spec`` with large inputs shortened along dimensions of gathers, and the ranges of the positions in them."""
    loads = [e for d in spec.definitions for e in walk(d.expr) if isinstance(e, Load)]
    known = dict(ranges)
    made = []
    for t in spec.inputs:
        shape = list(t.shape)
        mine = [e for e in loads if e.buffer == t.name]
        for p, n in enumerate(t.shape):
            size = _volume(shape)
            gathers = all(any(isinstance(x, Load) for x in walk(e.index[p])) for e in mine)
            if isinstance(n, int) and size > _GATHERED and gathers:
                shape[p] = length = max(16, n * _GATHERED // size)
                names = {x.buffer for e in mine for x in walk(e.index[p]) if isinstance(x, Load)}
                known |= {x: (0, min(known[x][1], length - 1)) for x in names if x in known}
        made.append(replace(t, shape=tuple(shape), strides=None))
    return replace(spec, inputs=tuple(made)), known


def wide(program: Spec) -> Spec:
    """``program`` with float inputs taken as they are, because rounding what is rounded takes time."""
    inputs = tuple(replace(t, dtype=DType.F64) if t.dtype.is_float else t for t in program.inputs)
    return replace(program, inputs=inputs)


def _points(spec: Spec) -> int:
    """The work of an evaluation: elements of inputs and of all grids; a product of matrices counts an eighth."""
    total = sum(_volume(t.shape) for t in spec.inputs)
    for d in spec.definitions:
        outer = {a.name: a for a in d.axes}
        nodes = list(walk(d.expr))
        total += _volume([a.extent for a in d.axes]) * max(1, len(nodes) // _NODES)
        for e in nodes:
            if isinstance(e, Reduce):
                used = [a for n, a in outer.items() if n in _names(e)]
                many = _volume([a.extent for a in (*used, *e.axes)])
                total += many // 8 if e.op == "sum" and e.cond is None and len(indexed_factors(e.body)) > 1 else many
    return total


def _names(e: Expr) -> set[str]:
    return {n.name for n in walk(e) if isinstance(n, Var)}


def _volume(shape: Sequence[int | Param]) -> int:
    return prod(n for n in shape if isinstance(n, int))

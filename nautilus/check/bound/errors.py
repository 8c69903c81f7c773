"""The evaluation of a program with an error at every rounding; the package's docstring has the model."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from itertools import pairwise
from math import prod, sqrt
from typing import Any

import numpy as np

from nautilus.check.bound.cancelling.arguments import Arguments
from nautilus.check.bound.cancelling.positions import exactly, is_marked
from nautilus.check.bound.cancelling.ties import (
    Step,
    anywhere,
    at_ties,
    is_whole,
    move_few,
    of_nodes,
    ordered,
    orders_of,
    part_of_all,
)
from nautilus.check.bound.choices import Probe, Roundings
from nautilus.check.bound.exactness import (
    U32,
    U64,
    Common,
    hardware_error,
    is_inexact_number,
    is_rounded,
    keeps,
    operation_error,
    scales,
    selects,
    unit,
)
from nautilus.check.bound.operands import AROUND, engine_of, is_strided, multiplies
from nautilus.check.bound.recurrences.combined import APART
from nautilus.check.bound.roundings.alike import alike, alike_in_binades, names_of, of_values
from nautilus.check.bound.roundings.approximations import HIDDEN, exact_nodes, smaller
from nautilus.check.bound.roundings.exponents import argument_errors, names_of_arguments
from nautilus.check.bound.roundings.in_steps import number, of_single, of_steps
from nautilus.check.bound.roundings.unchanged import is_running_sum, unchanged
from nautilus.check.bound.sums.matrix_units import in_few_bits, in_parts, largest_others
from nautilus.check.bound.sums.orders import (
    LANES,
    LARGEST,
    LARGEST_STORED,
    accumulations,
    additions,
    apart,
    are_whole,
    in_binades,
    in_every_order,
    in_range,
    lanes_of,
    multiplications,
    partial_sums,
    with_signs_of,
)
from nautilus.check.compare import add_relative, spacing
from nautilus.core.expr.nodes import COMPARISONS, Const, Expr, Op, Reduce
from nautilus.core.expr.products import factors
from nautilus.core.functions import FUNCTIONS
from nautilus.core.functions.record import Steps
from nautilus.core.numerics import Array, eval_op, reduce_array, round_to
from nautilus.core.schedule import SplitPlan
from nautilus.core.types import FORMATS, DType
from nautilus.frontend.interp import STEP, Evaluator, run_spec
from nautilus.frontend.spec import Definition, Spec
from nautilus.frontend.values import Unchanged, Value, line_up
from nautilus.scalar.analysis.ranges.precision import significant_bits

_CUT = 1.0  # what a tensor core cuts off the sum so far at each accumulation, in units of u
_MEAN = 3.0  # the largest error of an approximation divided by what many elements have in common
#: The mean error of an addition in a sum of equal terms, in units of u: all are rounded in one direction for a while.
_REGULAR = 0.25
_RUN = 4  # neighbours among equal or ordered elements that have one error
_PARTS = 8  # prefixes of a sum that are evaluated
_OWN = nullcontext()  # of an operation with errors of its own


def run(
    program: Spec, inputs: Mapping[str, Any], scalars: Mapping[str, Any], sizes: Mapping[str, int], how: Roundings,
    probe: Probe, steps: int | None = None, exact: Arguments | None = None, shared: dict[int, Unchanged] | None = None,
) -> dict[str, Array]:  # fmt: skip
    """The outputs of ``program``, unrounded, with the errors of ``probe``; ``steps``: of recurrences, at most."""
    common = Common(recurs=any(d.recurrence is not None for d in program.definitions))
    known = None if exact is None else exact.again()

    def evaluate(d: Definition, buffers: Mapping[str, Array], params: Mapping[str, Any]) -> tuple[Array, Array]:
        evaluator = Rounding(d, buffers, params, how, probe, common)
        evaluator.exact = known
        made = evaluator.run()
        if d.name in how.combined and params.get(STEP, 0) % APART == APART - 1 and probe.tries_ties:
            made = evaluator.moved(made, how.combined[d.name])
        if probe.tie and d.name in how.ties.tensors and d.stored.is_float:
            made = evaluator.at_ties(made, how.ties.tensors[d.name], d.name, d.stored)
        if not d.is_output:
            return made, made
        return made, evaluator.stored(made) if d.stored.is_float else round_to(made, d.stored)

    rng = np.random.default_rng(probe.seed)
    shown = {n: u * probe.size for n, u in how.shown.items() if u}
    near = {n: inputs[n] * (1.0 + u * rng.uniform(-1.0, 1.0, inputs[n].shape)) for n, u in shown.items()}
    with np.errstate(all="ignore"):
        return run_spec(program, {**inputs, **near}, scalars, sizes, evaluate, steps, None if near else shared)


class Rounding(Evaluator):
    """The evaluation of one definition with an error at every rounding; ``exact``: the arguments of steps."""

    exact: Arguments | None = None
    last: Array | None = None  # the last error that all elements have
    key: int | None = None  # of an operation that other definitions have
    drawn = 0  # roundings of a step so far

    def __init__(
        self, d: Definition, buffers: Mapping[str, Array], params: Mapping[str, Any], how: Roundings, probe: Probe,
        common: Common,
    ) -> None:  # fmt: skip
        super().__init__(d, buffers, params)
        self.how, self.probe = how, probe
        self.coherent = probe.coherent and (probe.regular or STEP not in params or not is_running_sum(d))
        self.shared = common
        self.ties, self.orders = of_nodes(d.expr, how.ties) if probe.tie else {}, orders_of(d.expr, how.ties)
        self.shares = not (self.ties or self.orders)
        own = STEP in params or probe.regular
        self.repeated = {} if own else {**names_of(d.expr, how.repeated), **names_of_arguments(d.expr, how.arguments)}
        self.library = exact_nodes(d.expr) if d.name in how.exact else frozenset[int]()

    @cached_property
    def rng(self) -> np.random.Generator:
        """The source of the errors; to make one takes as long as several operations, and many definitions need none."""
        step = 0 if self.coherent else self.params.get(STEP, 0)  # independent errors differ from step to step
        return np.random.default_rng([self.probe.seed, zlib.crc32(self.d.name.encode()), step])

    def drawing(self, e: Expr) -> AbstractContextManager[None]:
        """Errors of ``e`` that are the same in all definitions which have this operation."""
        return self._drawing(name) if (name := self.repeated.get(id(e))) else _OWN

    @contextmanager
    def _drawing(self, name: str) -> Iterator[None]:
        others, self.key = self.rng, zlib.crc32(name.encode()) + self.probe.seed
        self.rng = np.random.default_rng(self.key)
        yield
        self.rng, self.key = others, None

    # ---- errors
    def signs(self, shape: tuple[int, ...]) -> Array:
        """Relative errors in units of the largest one, times the size of the probe."""
        if self.coherent:
            self.last = np.asarray(self.probe.size * (-1.0, 1.0)[self.rng.integers(2)])
            return self.last
        if STEP in self.params and not (shape or self.probe.regular):  # one number in all steps
            return self.signs_of(np.ones(()))
        if self.probe.regular and shape:  # neighbours that differ little are rounded in one direction
            runs = self.rng.random((*shape[:-1], -(-shape[-1] // _RUN)), dtype=np.float32)
            return (2.0 * np.repeat(runs, _RUN, axis=-1)[..., : shape[-1]] - 1.0) * self.probe.size
        drawn: Array = np.asarray(self.rng.random(shape, dtype=np.float32))
        drawn *= 2.0  # in place: new arrays take longer than products
        drawn -= 1.0
        drawn = of_single(drawn) if self.shared.recurs else drawn
        if self.probe.size != 1.0:
            drawn *= self.probe.size
        return drawn

    def signs_of(self, x: Array) -> Array:
        """The same of the elements ``x``, equal for equal elements of an operation that several definitions have."""
        if STEP in self.params and not (self.coherent or self.probe.regular):
            self.drawn += 1
            return of_steps(x, self.drawn + self.probe.seed + zlib.crc32(self.d.name.encode())) * self.probe.size
        if self.key is None or self.coherent:
            return self.signs(x.shape)
        return of_values(x, self.key) * self.probe.size

    def alike(self, x: Array, dtype: DType) -> float:
        """The part of the errors of roundings of ``x`` to ``dtype`` that all elements have, where errors are alike.

        Of equal and ordered elements it is not known, because a few of their errors say nothing about others.
        """
        probe = self.probe
        if not (self.coherent and dtype.is_float) or probe.regular or probe.reals:
            return 1.0
        if STEP in self.params:
            self.drawn += 1
            return self.shared.steps.alike((self.d.name, self.drawn), x, dtype.mantissa + 1)
        return alike(x, dtype.mantissa + 1)

    def moved(
        self, x: Array, relative: float, least: float = 0.0, limit: float = LARGEST, signs: Array | None = None
    ) -> Array:  # fmt: skip
        """``x`` with errors of up to ``relative``, of at least ``least`` where not 0, infinite beyond ``limit``.

        ``signs``: the errors in units of the largest one; None: new ones.
        """
        signs = self.signs_of(x) if signs is None else signs
        xi = np.asarray(signs, np.float64 if relative < U32 else None)  # in f32, 1 + U64 is 1
        if not (least and x.size):
            return add_relative(x, relative, xi)
        most = float((small := np.abs(x)).max())
        if not most <= limit:
            x = np.where(small > limit, np.copysign(np.inf, x), x)
        if float(np.fmin.reduce(small, axis=None)) * relative < least:  # of numbers, where some are NaN
            if self.probe.coherent:  # such a number may be 0, whose product with inf is NaN
                x = np.where(small < least, 0.0, x)
            if most <= limit and small.shape and small.dtype == np.float64:  # in place
                np.maximum(np.multiply(small, relative, out=small), least, out=small)
                small[x == 0.0] = 0.0
                small *= xi
                small += x
                return np.asarray(small)
            size = np.where(x == 0.0, 0.0, np.maximum(relative * small, least))
            return np.where(np.isfinite(x), x + np.where(np.isfinite(size), size, 0.0) * xi, x)
        return add_relative(x, relative, xi)

    def flipped(self, x: Array, step: Array, dtype: DType | None = None) -> Array:
        """``x`` with a few elements moved by ``step`` up or down: what lies close to a tie may round either way."""
        if self.probe.coherent or self.probe.reals or not x.size:
            return x
        flat = np.array(x, np.float64).reshape(-1)
        move_few(self.rng, flat, np.broadcast_to(step, x.shape).reshape(-1), self.whole, dtype)
        return flat.reshape(x.shape)

    def at_ties(self, x: Array, step: Step, name: str, dtype: DType) -> Array:
        """``x``, called ``name``, with a few elements next to their ties, as far apart from them as roundings are."""
        known = None if self.exact is None else self.exact.take(self.d.name, name, self.params, x)
        if self.exact is not None and x.size:
            part = 1.0 if known is None or not self.how.elements else part_of_all(x, known, step, self.whole)
            self.exact.parts.append(part)
        return at_ties(x, step, name, self.probe.seed, 2.0 * unit(dtype) * (self.probe.tie or 0), known)

    @property
    def whole(self) -> float:
        """How many times as many elements the definition has as are evaluated."""
        own = prod(n for n in self.d.shape if isinstance(n, int))
        return max(1.0, self.how.elements.get(self.d.name, 1) / max(1, own))

    def unit(self, dtype: DType) -> float:
        """The unit roundoff of operations on ``dtype``; that of f64 for an interpreter over the reals."""
        return U64 if self.probe.reals else unit(dtype.compute)

    def floor(self, dtype: DType) -> float:
        """The magnitude below which results of ``dtype`` may become 0."""
        return 0.0 if self.probe.reals or dtype.compute is not DType.F32 else 2.0**-126

    def stored(self, made: Array) -> Array:
        """``made`` as the readers of the definition see it."""
        dtype = self.d.stored
        if dtype in (DType.F32, DType.F64):  # an interpreter over the reals may or may not round to a compute type
            rounds = self.d.expr.dtype is not dtype or self.computed(self.d.expr)
            part = self.alike(made, dtype) * max(unit(dtype), U64)
            return self.moved(made, part, self.floor(dtype), LARGEST_STORED) if rounds else made
        out = round_to(made, dtype)
        return self.flipped(out, spacing(out, dtype), dtype) if self.computed(self.d.expr) else out

    def computed(self, e: Expr) -> bool:
        """Whether the value of ``e`` is rounded anywhere on its way from the inputs."""
        return is_rounded(e, self.how.computed)

    # ---- operations
    def compute(self, e: Expr) -> Value:
        """The value of ``e`` with the error of its own rounding."""
        if is_marked(e):
            return exactly(self, e)
        value = self.rounded(e, super().compute(e))
        if id(e) in self.ties:
            step, name = self.ties[id(e)]
            return Value(self.at_ties(value.array, step, name, e.dtype), value.names)
        return Value(self.at_equal(e, value), value.names) if id(e) in self.orders and isinstance(e, Op) else value

    def at_equal(self, e: Op, value: Value) -> Array:
        """The comparison ``e``, of which rounded numbers that are equal over the reals are all on one side."""
        if self.exact is None or self.probe.tie is None:
            return value.array
        tied = self.exact.take(self.d.name, self.orders[id(e)], self.params, value.array)
        a, b = (line_up(self.value(x), value.names) for x in e.args)
        self.exact.parts.append(1.0)
        return value.array if tied is None else ordered(e.op, value.array, tied & (a != b), self.probe.tie)

    def rounded(self, e: Expr, value: Value) -> Value:
        """``value`` with the error of the rounding of ``e``."""
        if is_inexact_number(e, e.dtype.compute) and not self.resizes(e):  # the same number wherever it is written
            made = number(self, e, value.array)
            return Value(self.shared.written.setdefault((value.array.item(), e.dtype), made), value.names)
        if not isinstance(e, Op):
            return value
        made = self.operation(e, value)
        return value if made is value.array else Value(made, value.names)

    def operation(self, e: Op, value: Value) -> Array:
        """The result ``value`` of the operation ``e`` with its error."""
        x, dtype = value.array, e.dtype
        if e.op in ("cast", "narrow"):
            return self.converted(e, x)
        if not dtype.is_float or e.op in COMPARISONS:
            return x
        u = self.unit(dtype)
        if (f := FUNCTIONS[e.op]).scales_argument:
            argument = line_up(self.value(e.args[0]), value.names)
            with self.drawing(e.args[0]):
                argument = argument + argument_errors(self, e.args[0], value.names, argument, u)
            x = eval_op(e.op, [argument], dtype)
        if f.steps is not None:
            x = self.step(e, value, f.steps)
            if f.steps.whole:
                return x
        if e.op == "mul" and (are_whole(1, x) or any(map(self.resizes, e.args))):  # nothing is rounded
            return x
        fast = self.how.fast and id(e) not in self.library
        error, own = operation_error(e, u, fast, self.shared.recurs and not self.probe.reals), u
        if fast != self.how.fast:  # of a base that the code has
            error += 2.0 * u * HIDDEN[e.op]
        if self.coherent and error > 0.0 and not scales(e):
            own = u * self.alike(x, dtype.compute)
            error = min(error, own) if error <= u else error
        if error > u:  # a stated maximum: nothing is added to it, and the mean of all elements is smaller
            error = max(own, error / abs(self.probe.size) / (_MEAN if self.probe.coherent else 1.0))
        if self.how.fast and self.d.name in self.how.hardware and not self.probe.reals:
            error = max(error, hardware_error(e.op) / abs(self.probe.size))
        if self.probe.opposed and e.op in ("add", "sub") and self.has_common(e, value):
            known = not (self.probe.regular or STEP in self.params)
            part = alike_in_binades(x, dtype.compute.mantissa + 1) if known else 1.0
            return in_binades(x, part * u * self.signs(()))
        with self.drawing(e):
            made = self.moved(x, error, self.floor(dtype)) if error > 0.0 and not scales(e) else x
        if fast and u == U32 and (parts := smaller(e.op, x)) is not None:
            made = np.where(np.isfinite(made) & np.isfinite(x), x + (made - x) * parts, made)
        return unchanged(e.op, [self.value(a) for a in e.args], value, made) if STEP in self.params else made

    def resizes(self, e: Expr) -> bool:
        """Whether ``e`` stands for terms that are not evaluated."""
        return isinstance(e, Const) and e.value in self.how.resized

    def step(self, e: Op, value: Value, steps: Steps) -> Array:
        """The result ``value`` of a step, of which a few elements are another one where no numbers are at ties.

        A quotient is rounded before it becomes an integer; a remainder of exact numbers is not.  Where errors of the
        argument are not small beside the period, a remainder may be any: choices of errors take it to both ends.
        """
        known = self.probe.tie is not None and (steps.period is not None or isinstance(e.args[1], Const))
        decided = any(map(self.computed, [e] if steps.whole else e.args)) or is_inexact_number(e.args[-1], e.dtype)
        if not decided or is_whole(e.args[0], self.how.ties.whole):
            return value.array
        sides = [] if steps.whole else [np.abs(line_up(self.value(a), value.names)) for a in e.args]
        x, by = sides or [np.ones(()), np.ones(())]
        if not steps.whole and (self.probe.coherent or self.probe.reals):
            end = 0.0 if self.probe.opposed or self.probe.size < 0.0 else by
            return anywhere(value.array, by, x * self.unit(e.dtype), end)
        return value.array if known else self.flipped(value.array, by)

    def has_common(self, e: Op, value: Value) -> bool:
        """Whether many elements of the sum ``e`` have one term in common."""
        return any(set(self.value(a).names) < set(value.names) for a in e.args)

    def converted(self, e: Op, x: Array) -> Array:
        """The result ``x`` of a conversion: casts have rounded, ``narrow`` has not."""
        source, target = e.args[0].dtype, e.dtype
        if not source.is_float:
            exact = not target.is_float or keeps(target, source) or are_whole(1, x)  # integers wrap
            return x if exact else self.moved(x, self.alike(x, target) * unit(target))
        if not target.is_float:
            kept = target is DType.BOOL or self.probe.tie is not None or is_whole(e.args[0], self.how.ties.whole)
            return x if kept or not self.computed(e) else round_to(self.flipped(x, np.ones(())), target)
        if e.op == "narrow":
            kept = significant_bits(e.args[0]) <= target.mantissa + 1  # by all numbers that are not too small
            if self.probe.reals or selects({}, e.args[0], target) or (target is DType.BF16 and kept):
                return x
            f = FORMATS[target]
            least = 2.0 ** (f.least - f.mantissa - 1)  # what is below it becomes 0, whose product with inf is NaN
            made = self.moved(x, 0.0 if kept else self.alike(x, target) * unit(target), max(least, 2.0**-126))
            made = np.where(np.abs(x) < least, 0.0, made)
            return np.where(np.abs(made) > f.largest, np.copysign(np.inf, made), made)
        if keeps(target, source):
            return x
        if target is DType.F32:
            return self.moved(x, self.alike(x, target) * U32, self.floor(target), LARGEST_STORED)
        return self.flipped(x, spacing(x, target), target) if self.computed(e.args[0]) else x

    # ---- reductions
    def terms(self, e: Reduce, found: int) -> int:
        """The terms of the sum ``e`` at full size, of which ``found`` are evaluated."""
        return self.how.terms.get((self.d.name, tuple(a.name for a in e.axes)), found)

    def combined(self, e: Reduce, terms: Array, axes: tuple[int, ...]) -> Array:
        """The reduction ``e`` of ``terms`` over ``axes`` with the errors of its additions or products."""
        if not e.dtype.is_float or e.op not in ("sum", "prod"):
            return super().combined(e, terms, axes)
        count = self.terms(e, int(np.prod([terms.shape[a] for a in axes], dtype=np.int64)))
        if e.op == "sum" and are_whole(count, terms):
            return super().combined(e, terms, axes)
        if e.op == "prod":
            value = super().combined(e, terms, axes)
            error = self.unit(e.dtype) * sqrt(multiplications(terms, count)) * self.alike(value, e.dtype.compute)
            same = self.last if self.coherent else None  # equal factors may all be rounded the way the product is
            value = self.moved(value, error, self.floor(e.dtype), signs=same)
            return in_every_order(value, terms, axes) if self.floor(e.dtype) else value
        parts = partial_sums(terms, axes, _PARTS)
        cut = self.how.cuts.get(self.d.name)
        lanes = self.parallel(cut)
        size = apart(terms, axes, parts, count, *lanes) if lanes is not None and count > 1 else None
        chain = additions(count, is_strided(e))
        value = self.summed(e, parts, count, chain, accumulations(self.engine(e), count, cut), size)
        if self.parted(e) and self.engine(e) is None:
            squares = reduce_array("sum", terms * terms, axes, DType.F64)
            errors = self.of_sums(value)
            value = in_parts(value, squares, count, self.others(e), errors, self.loss(), self.probe.regular)

        def sums() -> tuple[Array, Array]:
            signed, sizes = (reduce_array("sum", x, axes, DType.F64) for x in (terms, np.abs(terms)))
            return signed, sizes

        return in_range(value, sums, terms) if self.floor(e.dtype) else value

    def product(self, e: Reduce, left: Array, right: Array) -> Array:
        """The sum of products ``e`` of two batches of matrices with the errors of its additions."""
        if not e.dtype.is_float:
            return super().product(e, left, right)
        depth, engine = left.shape[2], self.engine(e)
        count = self.terms(e, depth)
        is_short = engine is not None and engine.is_float8 and self.how.fast and not self.probe.reals
        if not is_short and are_whole(count, left, right):
            return super().product(e, left, right)
        cuts = np.linspace(0, depth, min(_PARTS, max(depth, 1)) + 1).astype(int)
        parts = (left[:, :, a:b] @ right[:, a:b] for a, b in pairwise(cuts))
        cut_off = accumulations(engine, count)
        value = self.summed(e, parts, count, cut_off or count, cut_off)
        if is_short or (engine is None and self.parted(e)):
            squares, errors = (left * left) @ (right * right), self.of_sums(value)
            if is_short:
                value = in_few_bits(value, squares, count, errors, self.probe.coherent)
            else:
                value = in_parts(value, squares, count, self.others(e), errors, self.loss(), self.probe.regular)
        if not self.floor(e.dtype):
            return value
        return in_range(value, lambda: (left @ right, np.abs(left) @ np.abs(right)), left, right)

    def parallel(self, cut: SplitPlan | None) -> tuple[int, int] | None:
        """The parts of a sum with this ``cut``, and the partial sums of each at the same time; None: not known."""
        if cut is not None:
            return cut.splits, lanes_of(cut)
        return (1, LANES) if self.d.name in self.how.in_lanes else None

    def of_sums(self, total: Array) -> Array:
        """The errors of the sums ``total`` in units of the largest one."""
        drawn = self.signs_of(total)
        return with_signs_of(total, drawn) if self.probe.coherent else drawn

    def loss(self) -> float:
        """How much of the largest error sums lose together; below 0: they gain it."""
        side = -1.0 if self.probe.opposed and next(self.shared.sums) % 2 else 1.0
        return side * self.probe.size if self.probe.coherent else 0.0

    def engine(self, e: Reduce) -> DType | None:
        """See :func:`engine_of`."""
        return None if self.d.name in self.how.lanes else engine_of(e)

    def parted(self, e: Reduce) -> bool:
        """Whether the sum of products ``e`` may be one of f32 matrices in parts."""
        return self.how.parts and e.dtype is DType.F32 and not self.probe.reals and multiplies(e)

    def others(self, e: Reduce) -> float:
        """The largest factor of an error of one factor of the products ``e``: the product of the others, for each."""
        return largest_others([self.value(f).array for f in factors(e.body, AROUND)])

    def summed(
        self, e: Reduce, parts: Any, count: int, chain: float, cuts: float = 0.0, size: Array | None = None
    ) -> Array:
        """The sum of ``parts`` with the errors of a chain of ``chain`` additions, or of ``size`` in units of roundoff;
        ``cuts``: accumulations of a tensor core that follow each other."""
        total: Array | None = None
        prefixes, squares, number = np.zeros(()), np.zeros(()), 0
        for p in parts:
            total = p if total is None else total + p
            prefixes, squares, number = prefixes + total, squares + total * total, number + 1
        if total is None:
            return np.zeros(())
        if count <= 1:  # exact, unless the one term is beyond f32
            overflows = (np.abs(total) > LARGEST) & (self.floor(e.dtype) > 0.0)
            return np.where(overflows, np.copysign(np.inf, total), total)
        u = self.unit(e.dtype)
        whole = sqrt(max(chain, 1.0)) * np.sqrt(squares / number)
        size = u * (whole if size is None else np.minimum(size, whole))
        if self.probe.regular:  # in any order, so the chain may be as long as the sum
            size = size + _REGULAR * u * count * np.abs(total)
        least = self.floor(e.dtype)
        if least and not float(np.max(np.abs(total), initial=0.0)) <= LARGEST:
            total = np.where(np.abs(total) > LARGEST, np.copysign(np.inf, total), total)
        size = np.maximum(np.where(np.isfinite(size), size, 0.0), least * (total != 0.0))
        if cuts and self.probe.coherent:  # every partial sum loses magnitude
            lost = _CUT * u * cuts * prefixes / number
            moved = total - self.loss() * np.copysign(np.hypot(size, lost), lost)
        else:
            moved = total + size * self.of_sums(total) * self.alike(total, e.dtype.compute)
        return np.where(np.isfinite(total), moved, total)

"""Random and adversarial inputs for a Spec, rounded to the declared types.

The inputs depend only on ``(spec, kind, seed)``: the generator of a tensor is seeded with the seed, the kind and the
name of the tensor, so these three reproduce a failure.

Integer tensors in index positions of a spec hold positions in range, and those that are compared with an index variable
hold values of its range (:func:`nautilus.frontend.promises.integer_ranges`); others hold small numbers.

==================== =========================================================================
random               standard normal; integers over their range; uniform bools
large-logits         random times 50
one-hot              one element of each row is 1, the others are 0
equal                every element is the same
zeros                0
tiny                 from denormals up to the square root of the least normal number
huge                 near the largest number of the type (times ``scale``)
constant-columns     a value depends on the last position only
ascending            grows along the last two axes: a running maximum changes at every step
descending           falls along them: a running maximum never changes
masked, unmasked     bool inputs all false, all true (only where a spec has one)
garbage              random, but NaN, inf and the largest number at all elements that no result needs, and at a few
                     that some rows leave out by a condition (:mod:`nautilus.frontend.needed`; only with conditions)
==================== =========================================================================
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import field
from math import prod
from typing import Any

import numpy as np

from nautilus.core.errors import InputError
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Param, Reduce, walk
from nautilus.core.index.strides import pad
from nautilus.core.numerics import Array, round_to
from nautilus.core.records import dataclass
from nautilus.core.types import FORMATS, DType, integer_limits
from nautilus.frontend.fixed import at_sizes
from nautilus.frontend.needed import with_garbage
from nautilus.frontend.promises import Interface, integer_ranges, keep
from nautilus.frontend.spec import Definition, Dim, Scalar, Spec, Tensor

KINDS = (
    "random", "large-logits", "one-hot", "equal", "zeros", "tiny", "huge", "constant-columns",
    "ascending", "descending", "masked", "unmasked", "garbage",
)  # fmt: skip

#: kinds whose values are drawn one by one
RANDOM = frozenset({"random", "large-logits", "tiny", "huge", "masked", "unmasked", "garbage"})

_SATURATING = frozenset({"tanh", "sigmoid", "erf"})  # functions with the same value for all large arguments
MOST_POINTS = 1 << 24  # points of a definition that are all looked at for the elements that it needs
_SMALL = 100  # bound of integers in arithmetic alone; 8-bit integers use their whole range


def without_ties(spec: Spec) -> frozenset[str]:
    """The kinds without exact ties, on which discrete outputs of computed floats (an argmax of sums) are compared."""
    ops = {n.op for d in spec.definitions for n in walk(d.expr) if isinstance(n, Op)}
    return frozenset({"random"}) if ops & _SATURATING else frozenset({"random", "large-logits"})


@dataclass(frozen=True)
class InputSet:
    """Arrays (float64, int64 or bool values) by input name; ``scalars`` includes runtime sizes."""

    kind: str
    seed: int
    arrays: Mapping[str, Array]
    scalars: Mapping[str, int | float | bool] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def regular(self) -> bool:
        """Whether the elements follow a rule, so that roundings of neighbours may be alike."""
        return self.kind not in RANDOM

    @property
    def name(self) -> str:
        """The name in a report, such as ``random, seed 3``."""
        return f"{self.kind}, seed {self.seed}"


def kinds(spec: Spec) -> tuple[str, ...]:
    """The kinds of inputs that differ for ``spec``; where a size is 0, one stands for all."""
    if 0 in spec.samples(1).values():
        return ("random",)
    has_bool = any(t.dtype is DType.BOOL for t in spec.inputs)
    has_float = any(t.dtype.is_float for t in spec.inputs)
    skipped = set() if has_bool else {"masked", "unmasked"}
    if not has_float:
        skipped |= {"large-logits", "tiny"}
    conditions = any(_is_condition(e) for d in spec.definitions for e in walk(d.expr))
    if not has_float or not conditions or points(spec, spec.samples(77)) > MOST_POINTS:
        skipped.add("garbage")
    return tuple(k for k in KINDS if k not in skipped)


def generate(
    spec: Spec,
    kind: str = "random",
    seed: int = 0,
    *,
    sizes: Mapping[str, int] | None = None,
    scalars: Mapping[str, int | float | bool] | None = None,
    scale: float = 1.0,
    ranges: Mapping[str, tuple[int, int]] | None = None,
) -> InputSet:
    """Inputs of ``kind``.  ``sizes`` gives runtime dims (default 77, or the bound or sample of the spec).

    ``scale`` applies to ``huge``.

    ``ranges`` None: those of :func:`~nautilus.frontend.promises.integer_ranges`.

    Tensors of which no values of ``kind`` are found that keep the promises of the spec have random values.

    Raises KeyError for an unknown kind, InputError where no values keep the promises.
    """
    if kind not in KINDS:
        raise KeyError(kind)
    known = spec.samples(77) | dict(sizes or {})
    for t in spec.tensors.values():
        if t.strides is not None:
            pad(t.shape, t.strides, known)
    ranges = integer_ranges(spec, known) if ranges is None else ranges
    arrays = {}
    for t in spec.inputs:
        shape = tuple(known[s.name] if isinstance(s, Param) else s for s in t.shape)
        rng = np.random.default_rng([seed, zlib.crc32(kind.encode()), zlib.crc32(t.name.encode())])
        arrays[t.name] = round_to(_tensor(t, shape, kind, rng, ranges, scale), t.dtype)
    numbers: dict[str, int | float | bool] = {}
    for s in spec.scalars:
        given = (scalars or {}).get(s.name, s.default)
        value = given if given is not None else _number(s.dtype)
        numbers[s.name] = float(round_to(np.asarray(value), s.dtype)) if s.dtype.is_float else value  # as launched
    if kind == "garbage":
        arrays = with_garbage(spec, arrays, {**numbers, **known}, np.random.default_rng(seed))
    params = {**numbers, **known}
    if kind == "random":
        return InputSet(kind, seed, keep(spec, arrays, params), numbers, known)

    def drawn() -> Mapping[str, Array]:
        return generate(spec, "random", seed, sizes=known, scalars=numbers, ranges=ranges).arrays

    arrays = _kept(spec, arrays, params, drawn)
    return InputSet(kind, seed, arrays, numbers, known)


def _kept(
    spec: Spec, arrays: Mapping[str, Array], params: Mapping[str, Any], drawn: Callable[[], Mapping[str, Array]]
) -> dict[str, Array]:  # fmt: skip
    """``arrays``, moved so that they keep the promises of ``spec``; else the tensors of promises are ``drawn``."""
    try:
        return keep(spec, arrays, params)
    except InputError:
        promised = {n.buffer for f in spec.facts for n in walk(f.condition) if isinstance(n, Load)}
        return {**arrays, **{name: drawn()[name] for name in promised}}


def points(spec: Spec, sizes: Mapping[str, int]) -> int:
    """Points of the largest index space of a definition of ``spec`` with its reductions."""
    return max(map(_points, at_sizes(spec, sizes).definitions), default=0)


def _points(d: Definition) -> int:
    return prod(_extent(a) for a in (*d.axes, *(a for e in walk(d.expr) if isinstance(e, Reduce) for a in e.axes)))


def _extent(axis: Axis) -> int:
    return axis.extent if isinstance(axis.extent, int) else 1


def _is_condition(e: Expr) -> bool:
    return (isinstance(e, Reduce) and e.cond is not None) or (isinstance(e, Op) and e.op == "select")


def interface(module: Any, integers: Mapping[str, tuple[int, int]] | None = None) -> Spec:
    """The interface of a module from a dump as a Spec without definitions, with the ranges of ``integers``."""

    def tensors(space: str) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(b.name, b.dtype, b.array_shape, strides=b.array_strides)
            for b in module.buffers
            if b.space.value == space
        )

    given = [b for b in module.buffers if b.space.value in ("input", "output")]
    sized = {n.name for b in given for n in b.array_shape if isinstance(n, Param)}
    late = sized | {n.name for b in given for n in b.strides or () if isinstance(n, Param)}
    scalars = tuple(Scalar(p.name, p.dtype, p.default) for p in module.params if p.name not in late)
    sizes = [p for p in module.params if p.name in sized]
    dims = tuple(Dim(p.name, None, p.most, p.span, None, p.least, p.multiple, p.device) for p in sizes)
    return Interface(module.name, tensors("input"), scalars, tensors("output"), dims, (), integers=dict(integers or {}))


def validation_inputs(spec: Spec, seed: int = 0) -> list[Mapping[str, Array]]:
    """A set of inputs for each kind of point of the validator (:mod:`nautilus.check.validate.points`)."""
    found = [generate(spec, kind, seed).arrays for kind in ("random", "equal", "descending", "ascending")]
    found[0] = _with_ends(spec, generate(spec, "random", seed))
    found.append(_beyond_reals(spec, generate(spec, "random", seed)))
    ranges = integer_ranges(spec)
    free = [t for t in spec.inputs if t.dtype.is_int and t.name not in ranges]
    if free:  # integers in arithmetic alone, of which no element is a position
        ends = {t.name: 1 << (t.dtype.bits - 1) for t in free if t.dtype.bits >= 16}
        whole = {name: (-end, end - 1) for name, end in ends.items()}
        found.append(generate(spec, "random", seed, ranges={**ranges, **whole}).arrays)
    return found


_SPECIALS = (0.0, -0.0, np.inf, -np.inf, np.nan)
_FEW = 3  # special elements of a tensor with rows: most rows and columns have none and are compared as numbers
_SHARE = 1 / 6  # the share of elements that are special, of a tensor with one axis, or at an end, of integers


def _with_ends(spec: Spec, given: InputSet) -> Mapping[str, Array]:
    """The arrays of ``given`` with the ends of their ranges among integers: lengths of nothing, of one and of all."""
    arrays, ranges = dict(given.arrays), integer_ranges(spec, given.sizes)
    for t in (t for t in spec.inputs if t.name in ranges):
        rng = np.random.default_rng([given.seed, zlib.crc32(t.name.encode())])
        x = np.array(arrays[t.name])
        chosen = rng.permutation(x.size)[: 2 * int(_SHARE * x.size)]
        low, high = ranges[t.name]
        x.flat[chosen] = np.resize((low, high, min(low + 1, high), max(high - 1, low)), chosen.size)
        arrays[t.name] = round_to(x, t.dtype)
    return _kept(spec, arrays, {**given.scalars, **given.sizes}, lambda: given.arrays)


def _beyond_reals(spec: Spec, given: InputSet) -> Mapping[str, Array]:
    """The arrays of ``given`` with inf, -inf, NaN, 0 and the lowest number among their floats, but for promises."""
    arrays = dict(given.arrays)
    for t in (t for t in spec.inputs if t.dtype.is_float and arrays[t.name].size > 1):
        rng = np.random.default_rng([given.seed, zlib.crc32(t.name.encode())])
        x = np.array(arrays[t.name])
        few = min(_FEW, x.size)
        chosen = rng.permutation(x.size)[: few if x.ndim > 1 else max(few, int(_SHARE * x.size))]
        values = (np.inf, -np.inf, np.nan, 0.0, -FORMATS[t.dtype].largest)
        x.flat[chosen] = np.resize(np.roll(values, int(rng.integers(len(values)))), chosen.size)
        arrays[t.name] = round_to(x, t.dtype)
    return _kept(spec, arrays, {**given.scalars, **given.sizes}, lambda: given.arrays)


def with_specials(spec: Spec, given: InputSet) -> InputSet:
    """``given`` with zeros of both signs, inf, -inf and NaN among the elements of its float tensors, and in a part of
    the sets for its float scalars."""
    arrays, scalars = dict(given.arrays), dict(given.scalars)
    for t in spec.inputs:
        if t.dtype.is_float:
            x = np.array(arrays[t.name])
            at = np.random.default_rng([given.seed, zlib.crc32(t.name.encode())]).random(x.shape)
            for n, special in enumerate(_SPECIALS):
                x[(at >= 0.01 * n) & (at < 0.01 * (n + 1))] = special
            arrays[t.name] = round_to(x, t.dtype)
    for s in spec.scalars:
        chosen = np.random.default_rng([given.seed, zlib.crc32(s.name.encode())]).integers(0, 4 * len(_SPECIALS))
        if s.dtype.is_float and chosen < len(_SPECIALS):
            scalars[s.name] = _SPECIALS[chosen]
    return InputSet(f"{given.kind} with inf and NaN", given.seed, arrays, scalars, given.sizes)


def _number(dtype: DType) -> int | float | bool:
    """The value of a scalar without a default."""
    if dtype is DType.BOOL:
        return True
    return 0.5 if dtype.is_float else 1


def _tensor(
    t: Tensor, shape: tuple[int, ...], kind: str, rng: np.random.Generator,
    ranges: Mapping[str, tuple[int, int]], scale: float,
) -> Array:  # fmt: skip
    if t.dtype is DType.BOOL:
        if kind in ("masked", "unmasked"):
            return np.full(shape, kind == "unmasked")
        return rng.random(shape) < 0.5
    if t.dtype.is_int:
        return _integers(t, shape, kind, rng, ranges)
    form = FORMATS[t.dtype]
    match kind:
        case "large-logits":
            return np.clip(50.0 * rng.standard_normal(shape), -form.largest, form.largest)
        case "one-hot":
            return _one_hot(shape, rng)
        case "equal":
            return np.full(shape, 0.7)
        case "zeros":
            return np.zeros(shape)
        case "tiny":
            low, high = form.least - form.mantissa, form.least / 2
            return rng.choice([-1.0, 1.0], shape) * np.exp2(rng.uniform(low, high, shape))
        case "huge":
            return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.0, shape) * max(form.largest * scale, 1.0)
        case "constant-columns":
            return np.broadcast_to(rng.standard_normal(shape[-1:]), shape)
        case "ascending" | "descending":
            return _ramp(shape) if kind == "ascending" else -_ramp(shape)
        case _:
            return rng.standard_normal(shape)


def _one_hot(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if not shape:
        return np.ones(())
    if 0 in shape:
        return np.zeros(shape)
    rows = prod(shape[:-1])
    out = np.zeros((rows, shape[-1]))
    out[np.arange(rows), rng.integers(0, shape[-1], rows)] = 1.0
    return out.reshape(shape)


def _ramp(shape: tuple[int, ...]) -> Array:
    """Values from -3 to 3 along the last two axes, row-major."""
    flat = np.linspace(-3.0, 3.0, prod(shape[-2:]))
    return np.broadcast_to(flat.reshape(shape[-2:]), shape)


def _integers(
    t: Tensor, shape: tuple[int, ...], kind: str, rng: np.random.Generator,
    ranges: Mapping[str, tuple[int, int]],
) -> Array:  # fmt: skip
    if t.name in ranges:
        low, high = ranges[t.name]
    else:
        low, high = integer_limits(t.dtype)
        low, high = (low, high) if t.dtype.bits == 8 else (max(low, -_SMALL), min(high, _SMALL))
    match kind:
        case "zeros":
            return np.full(shape, min(max(0, low), high), np.int64)
        case "equal":
            return np.full(shape, (low + high) // 2, np.int64)
        case "huge":
            return rng.choice(np.array([low, high]), shape)
        case "ascending" | "descending":
            ramp = _ramp(shape) if kind == "ascending" else -_ramp(shape)
            return low + np.rint((ramp + 3.0) / 6.0 * (high - low)).astype(np.int64)
        case _:
            return rng.integers(low, high, shape, endpoint=True)

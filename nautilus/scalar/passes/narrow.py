"""``narrow``: a computed f32 factor of a matrix product is rounded to the 16-bit type of the other factor.

The contract (``grammar/README.md``, "Numbers") permits this for tensor cores; ``strict`` forbids it. A factor of a
sum's product qualifies where each of the two factors has a parallel axis of its own (so it *is* a matrix product), and
the spec has not rounded the factor to the type of the other one.  The other factor is a loaded f16, bf16 or 8-bit
tensor, or an element of a definition to which the spec gives a type of 16 bits.  A bf16 tensor beside an f16 tensor
counts as a computed factor, because f16 holds its mantissa, and so does an 8-bit tensor beside one of 16 bits, which
holds its numbers exactly.  What it becomes:

* beside bf16: ``narrow<bf16>``, which has f32's range; beside 8 bits too, where bf16 holds the factor exactly, or where
  the 8 bits are bf16 for another product and only outputs of bf16 or 8 bits need the sum;
* beside f16 (or 8 bits, which f16 holds exactly): ``narrow<f16>``, where :mod:`nautilus.scalar.analysis.value_range`
  proves that it cannot overflow f16;
* else ``narrow<f16>`` of the factor times a power of two, which the sum is divided by.  The power is a constant where
  the proved range is little larger than that of f16.  Otherwise it comes from the largest finite magnitude ``m`` of
  the factor over the summed axes, a reduction of its own: ``x * (2^14 / binade(m))`` is below 2^15 where x is finite.
  ``m`` leaves out what is proved to be small, such as probabilities, beside which it is that of the scales alone;
* else, where a reduction of the factor would need complete results of other reductions over the same elements, unless
  the sum has a loop after these anyway, whose elements of a product of matrices the reduction shares, or where few
  results use an element of it: both factors become ``narrow<tf32>``, f16's mantissa with f32's range.  The tensor loses
  nothing, because tf32 holds every f16 and 8-bit number, and MMAs of tf32 have half the rate of f16.

Beside a tensor of 8-bit floats, ``schedule.narrow_to_bytes`` makes it ``narrow<f8e4m3>`` instead, which has half
the bytes and twice the rate, if

* its range is proved to fit f8e4m3, which ends at 448, as that of a softmax does: ``exp`` of a number minus the largest
  one is at most 1;
* it is made from 8-bit floats alone, so that the spec has chosen their precision for all matrices of the computation;
* only outputs of at most 16 bits depend on it.

The relative error is 2^-4 above 2^-6, and the error is 2^-10 below that.  ``raise-exponents`` moves exponentials to the
upper end of the range, where these are 2^-13 and 2^-17 of the largest element of a row.

Where both factors are computed, both become narrow if each of them is made from a 16-bit or 8-bit tensor over all of
its axes, and only outputs of at most 16 bits depend on the sum: such outputs are rounded in the same place anyway. The
type is bf16 if all these tensors are, if it holds both factors exactly, or if one of them is rounded to bf16 for
another product and only outputs of bf16 or 8 bits depend on the sum, else f16; a factor that needs tf32 has it if few
results use an element of it, and nothing is done otherwise.

A product of 8-bit tensors over a short axis becomes one of 16 bits if it is part of a factor that becomes narrow: the
two products can then share a kernel.  Where ``strict`` forbids MMAs of 8-bit floats, because their sums have few bits,
a matrix product of two 8-bit tensors becomes one of f16, which holds both exactly.

A factor that the spec rounds to the 8-bit float that it meets stays as it is, if it is made of no other product.

Over the reals nothing happens.  A factor that is too small for f16 becomes 0, whose product with inf is NaN: where a
condition leaves out terms, ``recompute-masked`` computes the tile again; else such inputs are outside the stated range.
A finite factor stays finite: the proof for f16 leaves room for rounding errors of f32 (65520 is the first number that
f16 rounds to inf), and bf16 and tf32 have the exponents of f32.  inf and NaN stay.  The numbers beside inf have the
scale that they would have without it, because ``m`` leaves out inf.  The relative error is the unit roundoff of the
type, for f16 only above 2^-14; below that the error is 2^-25.  Under a scale from ``m`` these two are between 2^-29 and
2^-28, and between 2^-40 and 2^-39, of ``m``.  Every rounding that the pass inserts is a ``narrow`` in the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Expr, Load, Op, Reduce, Var, free_vars, loads, substitute, walk
from nautilus.core.expr.products import MOST_FACTORS, factors, product_of, strip_conversions, two_sides
from nautilus.core.functions.intervals import magnitude
from nautilus.core.index.groups import in_groups, named_group, shared_group
from nautilus.core.index.sizes import nominal
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.contractions.scales import scaled_product
from nautilus.scalar.analysis.definitions import Def, points, size
from nautilus.scalar.analysis.ranges.byte_factors import with_byte_factors
from nautilus.scalar.analysis.ranges.factor_scales import FITS_F16, Scale, scale_of
from nautilus.scalar.analysis.ranges.precision import (
    SHORT,
    feeding,
    feeding_wide_outputs,
    in_bf16,
    is_streamed,
    significant_bits,
    sources,
)
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.factor import inner_sum, with_inner_sum
from nautilus.scalar.rewriting import find_defs, fresh_name, kernel_of

_TARGET: Mapping[DType, DType] = {d: d if d.is_half else DType.F16 for d in DType if d.is_half or d.is_float8}

_FITS_F8 = 448.0 * (1 + 2.0**-13)  # 448 with errors of its computation; f8e4m3 has NaN from 464 on
_ROUNDS_F16 = 65519.75  # a number of 4 bits and the largest one of f16 are 65519, which f16 rounds to 65504
_SHORT_BITS = 16

_SHORT_AXIS = 256  # elements of the longest axis that a kernel of two products sums over within a tile


@dataclass(frozen=True, slots=True)
class Narrow(CertifyingPass[Program]):
    """Narrow computed factors; ``strict``: only products of 8-bit floats; ``schedule.narrow`` False: none.

    ``to_bytes`` overrides the schedule's ``narrow_to_bytes``.
    """

    schedule: Schedule | None = None
    strict: bool = False
    to_bytes: bool | None = None

    name = "narrow"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with computed factors narrowed, and a certificate for each factor."""
        if self.schedule is not None and not self.schedule.narrow:
            return program, ()
        program = with_byte_factors(program)
        certificates: list[Certificate] = []
        planned = self.schedule is not None and bool(self.schedule.narrow_to_bytes)
        to_bytes = planned if self.to_bytes is None else self.to_bytes
        fast = (partial(narrowed, to_bytes=to_bytes), widened)  # 8 bits after those that they are a factor of
        for look in (exact,) if self.strict else fast:
            for name in [k.name for k in program.kernels]:
                defs = find_defs(program)
                d = defs.get(name)
                found = None if d is None or d.op != "sum" else look(d, defs)
                if found is not None:
                    program, certificate = found.applied(program)
                    certificates.append(certificate)
        return program, tuple(certificates)


@dataclass(frozen=True, slots=True)
class Side:
    """A factor of a product that becomes ``dtype`` (None: it stays as it is), divided by ``scale``."""

    factor: Expr
    dtype: DType | None = None
    scale: Scale | None = None

    def value(self, name: str) -> Expr:
        """The factor in f32; ``name``: of the maximum that gives the scale."""
        x, span = self.factor, self.factor.span
        if self.scale is not None:
            x = self.scale.divided(x, name)
        return x if self.dtype is None else Op("cast", (Op("narrow", (x,), self.dtype, span),), DType.F32, span)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The sum of the product of two sides; ``computed``: which of them are rounded.

    ``meets``: the bindings of the certificate, which are the tensor that the computed side meets, or the elements that
    two computed sides are made from.
    """

    subject: Def
    sides: tuple[Side, Side]
    computed: tuple[int, ...]
    meets: tuple[tuple[str, Expr], ...]
    note: str

    def element(self, names: Sequence[str] = ("", "")) -> Expr:
        """The element of the sum; ``names``: of the maxima that give the scales."""
        pair = tuple(side.value(name) for side, name in zip(self.sides, names, strict=True))
        return Op("mul", pair, DType.F32, self.subject.value.span)

    def applied(self, program: Program) -> tuple[Program, Certificate]:
        """``program`` with this sum in the place of its subject, and the certificate."""
        d = self.subject
        scaled = [n for n, side in enumerate(self.sides) if side.scale is not None]
        if not scaled:
            made = kernel_of(replace(d, value=self.element()))
            kernels = tuple(made if k.name == d.name else k for k in program.kernels)
            return replace(program, kernels=kernels), self._unscaled()
        added: list[Def] = []
        names = ["", ""]
        for n in scaled:
            scale = self.sides[n].scale
            if scale is not None and (m := scale.largest) is not None:
                names[n] = fresh_name(program, f"{d.name}_largest", names)
                added.append(replace(m, name=names[n], buffer=replace(m.buffer, name=names[n])))
        raw = inner_sum(program, d, self.element(names))
        whole = self._whole(Load(raw.name, tuple(Var(a.name) for a in raw.par), raw.buffer.dtype, d.span), names)
        before, after = (Reduce("sum", d.red, d.guard, e, e.dtype, d.span) for e in (d.value, raw.value))
        proof = "the scale is a power of two, and f16 holds the factor divided by it"
        certificate = self._certificate(before, self._whole(after, names), proof)
        return with_inner_sum(program, d, raw, whole, added), certificate

    def _whole(self, total: Expr, names: Sequence[str]) -> Expr:
        """``total`` times all scales."""
        for side, name in zip(self.sides, names, strict=True):
            if side.scale is not None:
                total = Op("mul", (total, side.scale.value(name)), total.dtype, self.subject.span)
        return total

    def _unscaled(self) -> Certificate:
        types = {t for n in self.computed if (t := self.sides[n].dtype) is not None}
        proof = "the range of the factor fits"
        if DType.F16 not in types:
            proof = f"{next(iter(types))} keeps the exponent range of f32"
        d, side = self.subject, self.sides[self.computed[0]]
        if len(self.computed) > 1:
            return self._certificate(d.value, self.element(), proof)
        if side.factor in walk(d.value):
            return self._certificate(side.factor, side.value(""), proof)
        before, after = (Reduce("sum", d.red, d.guard, e, e.dtype, d.span) for e in (d.value, self.element()))
        return self._certificate(before, after, proof)  # its parts are apart in the product

    def _certificate(self, before: Expr, after: Expr, proof: str) -> Certificate:
        d = self.subject
        return Certificate("narrow", d.name, before, after, self.meets, (), (self.note,), proof, d.span)


def narrowed(d: Def, defs: Mapping[str, Def], to_bytes: bool = False) -> Narrowed | None:
    """How factors of ``d`` become narrow; None where ``d`` has no factor that does.

    ``to_bytes``: a factor that is made from 8-bit floats may have 8 bits.  Long axes are rows and columns first.
    """
    parts, par, red = factors(d.value), [a.name for a in d.par], [a.name for a in d.red]
    if d.op != "sum" or d.value.dtype is not DType.F32 or scaled_product(d) is not None or len(parts) > MOST_FACTORS:
        return None
    if _are_bytes(parts, defs):
        return None
    pairs = list(two_sides(parts, [a.name for a in sorted(d.par, key=lambda a: -nominal(a.extent))], red))
    groups = [] if pairs else [x for a in par for x in two_sides(parts, par, red, in_groups(parts, a))]
    split = next((pair for pair in pairs if _beside(d, pair, defs, to_bytes) is not None), None)
    sides = [k for k, p in enumerate(parts) if not groups or any(p in pair for pair in groups)]  # a scale is none
    sides = [k for k in sides if split is None or any(parts[k] in pair for pair in pairs)]
    if (found := next((k for k in reversed(sides) if _qualifies(d, parts, k, not pairs)), None)) is not None:
        rest = product_of([p for k, p in enumerate(parts) if k != found])
        split = (parts[found], rest) if found == 0 else (rest, parts[found])
    beside = None if split is None else _beside(d, split, defs, to_bytes)
    if beside is not None and beside.sides[0].dtype is not DType.TF32:
        return beside
    return _of_two(d, pairs or groups, defs) or beside


def _are_bytes(parts: Sequence[Expr], defs: Mapping[str, Def]) -> bool:
    """Whether both factors are 8-bit floats of one type, to which the spec rounds what it makes of no other product."""
    types = [_byte_type(e) for e in parts]
    made = (defs[ld.buffer] for e in parts for ld in loads(e) if ld.buffer in defs)
    return len(types) == 2 and None not in types and len({*types}) == 1 and not any(map(multiplies_matrices, made))


def _byte_type(e: Expr) -> DType | None:
    """The type of 8 bits that ``e`` has in memory, or to which the spec rounds it."""
    match e:
        case Op(op="cast", args=(Load(dtype=dtype) | Op(op="cast", dtype=dtype),)):
            return dtype if dtype.is_float8 else None
    return None


def _beside(d: Def, pair: tuple[Expr, Expr], defs: Mapping[str, Def], to_bytes: bool) -> Narrowed | None:
    """The product of a tensor and a computed factor, which becomes narrow; None where ``pair`` is something else."""
    for n in (1, 0):
        tensor, factor = pair[n], pair[1 - n]
        met = tensor_type(tensor) or rounded_type(tensor)
        if met is None or not _computed(factor, met):
            continue
        short = to_bytes and met.is_float8 and _is_of_bytes(d, factor, tensor, defs)
        short_bf16 = met in SHORT and (in_bf16(factor) or _is_rounded_elsewhere(d, tensor, defs))
        target = DType.BF16 if short_bf16 else _TARGET[met]
        side, note = _side(d, factor, DType.F8E4M3 if short else target, defs)
        wider = side.dtype is DType.TF32 or (met in SHORT and not short)
        kept = Side(tensor, side.dtype if wider else None)
        return Narrowed(d, (side, kept) if n else (kept, side), (1 - n,), (("meets", tensor),), note)
    return None


def _side(d: Def, factor: Expr, target: DType, defs: Mapping[str, Def]) -> tuple[Side, str]:
    """``factor`` as ``target``, with a scale where it needs one, or as tf32; and its range in words."""
    lo, hi = Ranges(defs, d.axes, d.guard).of(factor)
    scale = None
    most = _ROUNDS_F16 if _is_difference(factor) else FITS_F16
    if target is DType.F16 and not (lo >= -most and hi <= most):
        scale = scale_of(d, factor, magnitude((lo, hi))[1], defs)
        target = DType.TF32 if scale is None else target
    return Side(factor, target, scale), f"the factor is in [{lo:.6g}, {hi:.6g}]"


def _is_difference(e: Expr) -> bool:
    """Whether ``e`` is the sum or the difference of two numbers of few bits, so that nothing is rounded before it."""
    return isinstance(e, Op) and e.op in ("add", "sub") and all(significant_bits(x) <= _SHORT_BITS for x in e.args)


def _is_of_bytes(d: Def, factor: Expr, tensor: Expr, defs: Mapping[str, Def]) -> bool:
    """Whether ``factor`` is proved to fit f8e4m3, is made from 8-bit floats, and feeds short outputs only."""
    lo, hi = Ranges(defs, d.axes, d.guard).of(factor)
    if not (lo >= -_FITS_F8 and hi <= _FITS_F8) or d.name in feeding_wide_outputs(defs):
        return False
    used, other = free_vars(factor), free_vars(tensor)
    own = frozenset((used - other) & {a.name for a in d.par} | used & {a.name for a in d.red})
    made_from = sources(factor, own, defs)
    return bool(made_from) and all(ld.dtype.is_float8 for ld in made_from)


def _of_two(d: Def, pairs: Sequence[tuple[Expr, Expr]], defs: Mapping[str, Def]) -> Narrowed | None:
    """The product of two computed factors, which both become narrow (module docstring).

    Of several forms of the product, one without a reduction for a scale is first, then one without tf32, then one of
    which a side is a tensor, which needs no arithmetic for each of its elements.
    """
    if not pairs or d.name in feeding_wide_outputs(defs):
        return None

    def order(x: Narrowed) -> tuple[bool, bool, bool]:
        largest = any(s.scale is not None and s.scale.largest is not None for s in x.sides)
        plain = any(isinstance(strip_conversions(s.factor), Load) for s in x.sides)
        return largest, x.sides[0].dtype is DType.TF32, not plain

    return min((x for pair in pairs if (x := _both(d, pair, defs)) is not None), key=order, default=None)


def _both(d: Def, pair: tuple[Expr, Expr], defs: Mapping[str, Def]) -> Narrowed | None:
    par, red = {a.name for a in d.par}, {a.name for a in d.red}
    used = [free_vars(side) for side in pair]
    own = [frozenset((x - y) & par | x & red) for x, y in (used, used[::-1])]
    made_from = [sources(side, tile, defs) for side, tile in zip(pair, own, strict=True)]
    types = {ld.dtype for found in made_from for ld in found}
    plain = in_bf16(*pair) or (DType.BF16 in types and DType.F16 not in types)
    again = any(_is_rounded_elsewhere(d, side, defs) for side in pair)
    target = DType.BF16 if plain or again else DType.F16
    if not all(made_from) or any(tensor_type(side) is not None or rounded_type(side) is not None for side in pair):
        return None
    (left, one), (right, other) = (_side(d, side, target, defs) for side in pair)
    if wide := [side for side in (left, right) if side.dtype is DType.TF32]:
        if not all(is_streamed(d, side.factor) for side in wide):
            return None
        left, right = (Side(side, DType.TF32) for side in pair)
    return Narrowed(d, (left, right), (0, 1), tuple(("from", found[0]) for found in made_from), f"{one}; {other}")


def _is_rounded_elsewhere(d: Def, factor: Expr, defs: Mapping[str, Def]) -> bool:
    """Whether ``factor`` is rounded to bf16 for another product, and only outputs of bf16 or 8 bits depend on ``d``.

    Both products then read one tensor, such as latent vectors that are keys and values.
    """
    if d.name in feeding(defs, lambda dtype: dtype is not DType.BF16 and not dtype.is_float8):
        return False
    return any(_in_order(e) == _in_order(factor) for x in defs.values() if x.op == "sum" for e in _in_bf16(x))


def _in_bf16(d: Def) -> Iterator[Expr]:
    """The factors of the terms of ``d`` that are rounded to bf16."""
    for e in factors(d.value):
        match e:
            case Op(op="cast", args=(Op(op="narrow", dtype=DType.BF16, args=(x,)),)):
                yield x


def _in_order(e: Expr) -> Expr:
    """``e`` with its axes named in the order in which they occur."""
    names = dict.fromkeys(n.name for n in walk(e) if isinstance(n, Var))
    return substitute(e, {name: Var(f"axis {n}") for n, name in enumerate(names)})


def widened(d: Def, defs: Mapping[str, Def]) -> Narrowed | None:
    """The product of two 8-bit factors, which become 16-bit ones (module docstring); None for another sum."""
    parts = factors(d.value)
    short = None not in map(size, d.red) and points(d.red) <= _SHORT_AXIS
    if len(parts) != 2 or not short or not all(tensor_type(p) in SHORT for p in parts):
        return None
    for e in (e for r in defs.values() if r.op == "sum" for e in factors(r.value)):
        target = tensor_type(e)
        if target is not None and target.is_half and any(ld.buffer == d.name for ld in loads(e)):
            return _wider(d, parts, target)
    return None


def exact(d: Def, defs: Mapping[str, Def]) -> Narrowed | None:
    """The matrix product of two 8-bit floats as one of f16; None for another sum."""
    parts = factors(d.value)
    if d.value.dtype is not DType.F32 or len(parts) != 2 or not all(tensor_type(p) in SHORT for p in parts):
        return None
    sides = two_sides(parts, [a.name for a in d.par], [a.name for a in d.red])
    return _wider(d, parts, DType.F16) if any(sides) else None


def _wider(d: Def, parts: Sequence[Expr], target: DType) -> Narrowed:
    bindings = tuple(("from", ld) for p in parts for ld in loads(p))
    sides = (Side(parts[0], target), Side(parts[1], target))
    return Narrowed(d, sides, (0, 1), bindings, "the wider type holds both factors exactly")


def tensor_type(e: Expr) -> DType | None:
    """The 16-bit or 8-bit float type of a loaded element, or of a narrowed factor, under a widening cast."""
    match e:
        case Op(op="cast", args=(Op(op="narrow", dtype=dtype),)) if dtype.is_half:
            return dtype
        case Op(op="cast", args=(Load(dtype=dtype),)) if dtype in _TARGET:
            return dtype
    return None


def rounded_type(e: Expr) -> DType | None:
    """The 16-bit type to which the spec rounds ``e``, an element of a typed definition."""
    match e:
        case Op(op="cast", args=(Op(op="cast", dtype=dtype),)) if dtype.is_half:
            return dtype
    return None


def _qualifies(d: Def, parts: Sequence[Expr], k: int, grouped: bool) -> bool:
    """Whether factor ``k`` is a tensor, the others are computed, and together they make a matrix product.

    They do where both sides have a parallel axis of their own, or one has and the other one is shared by groups of
    points (``grouped``) or by those whose index names it (``W[expert[t], k, n]``), and they share a reduced one.
    """
    met, others = tensor_type(parts[k]), [p for n, p in enumerate(parts) if n != k]
    if met is None or not others or (len(others) == 1 and not _computed(others[0], met)):
        return False
    left, right = frozenset[str]().union(*map(free_vars, others)), free_vars(parts[k])
    par, red = {a.name for a in d.par}, {a.name for a in d.red}
    own = [par & (left - right), par & (right - left)]
    rest, one, shared = product_of(others), parts[k], par & left & right
    grouped = any((grouped and shared_group(rest, one, a)) or named_group(rest, one, a, par) for a in shared)
    return any(own) and (all(own) or grouped) and bool(red & left & right)


def _computed(e: Expr, met: DType) -> bool:
    """Whether ``e`` is computed and not narrowed yet, or a tensor of bf16 that meets f16, or of 8 bits that meets 16.

    What the spec rounds to the type that it meets stays as it is, as a tensor of that type does.
    """
    if isinstance(e, Op) and e.op == "cast" and isinstance(e.args[0], Op) and e.args[0].op == "narrow":
        return False
    if rounded_type(e) is met:
        return False
    own = tensor_type(e)
    return own is None or (own is DType.BF16 and met is DType.F16) or (own in SHORT and met.is_half)

"""``narrow``: a computed f32 factor of a matrix product is rounded to the 16-bit type it meets.

The contract (``grammar/README.md``, "Numbers") permits this for tensor cores; ``strict`` forbids it.
A factor of a sum's product qualifies where the other factor is a loaded f16, bf16 or 8-bit tensor and
each of the two has a parallel axis of its own (so it *is* a matrix product).  A bf16 tensor beside an f16 tensor
counts as a computed factor, because f16 has room for its mantissa.  What it becomes:

* beside bf16: ``narrow<bf16>``, which has f32's range;
* beside f16 (or 8 bits, which f16 holds exactly): ``narrow<f16>``, where :mod:`nautilus.scalar.analysis.value_range`
  proves that it cannot overflow f16;
* else ``narrow<f16>`` of the factor times a power of two, which the sum is divided by.  The power is a constant where
  the proved range is little larger than that of f16.  Otherwise it comes from the largest magnitude ``m`` of the
  factor over the summed axes, a reduction of its own: ``x * (2^14 / binade(m))`` is below 2^15;
* else, where a reduction of the factor would need complete results of other reductions along the same axis: both
  factors become ``narrow<tf32>``, f16's mantissa with f32's range.  The tensor loses nothing, because tf32
  holds every f16 and 8-bit number, and MMAs of tf32 have half the rate of f16, 7 times that of ``fmaf``.

Over the reals nothing happens.  A finite factor stays finite: the proof for f16 leaves room for rounding errors of f32
(65520 is the first number that f16 rounds to inf), and bf16 and tf32 have the exponents of f32.  inf and NaN stay, and
beside inf the finite numbers stay finite, because ``binade`` is at most 2^127.  The relative error is the unit
roundoff of the type, for f16 only above 2^-14; below that the error is 2^-25.  Under a scale from ``m`` these two
are between 2^-29 and 2^-28, and between 2^-40 and 2^-39, of ``m``.  Every rounding that the pass inserts is a
``narrow`` in the program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Reduce, Var, free_vars, loads
from nautilus.core.expr.products import factors
from nautilus.core.functions.intervals import magnitude
from nautilus.core.index.groups import shared_group
from nautilus.core.passes import CertifyingPass
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.factor import inner_sum, with_inner_sum
from nautilus.scalar.rewriting import find_defs, fresh_name, kernel_of

_TARGET: Mapping[DType, DType] = {
    d: d if d.is_half else DType.F16 for d in DType if d.is_half or d.is_float8
}  # fmt: skip


_FITS_F16 = 65504.0 * (1 + 2.0**-13)  # rounding errors of f32 below 2^-13 do not reach 65520

_MOST_FACTORS = 64  # a product of more is no matrix product, and looking at each against the others is quadratic
_MOST_SHIFT = 4  # bits of a constant scale: a small factor loses as many
_TOP = 2.0**14  # a scaled factor of f16 is below twice this


@dataclass(frozen=True, slots=True)
class Narrow(CertifyingPass[Program]):
    """Narrow computed factors; ``strict``, or ``schedule.narrow`` False: none."""

    schedule: Schedule | None = None
    strict: bool = False

    name = "narrow"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with computed factors narrowed, and a certificate for each factor."""
        if self.strict or (self.schedule is not None and not self.schedule.narrow):
            return program, ()
        certificates: list[Certificate] = []
        for name in [k.name for k in program.kernels]:
            defs = find_defs(program)
            d = defs.get(name)
            found = None if d is None else narrowed(d, defs)
            if found is not None:
                program, certificate = found.applied(program)
                certificates.append(certificate)
        return program, tuple(certificates)


@dataclass(frozen=True, slots=True)
class Scale:
    """A power of two that the factor is divided by.

    ``constant``: the power itself; or, where it is None, ``binade(m) / 2^14`` of the maximum ``m`` of the factor's
    magnitudes, a reduction ``largest`` with the name ``''``.
    """

    constant: float | None
    largest: Def | None = None

    def value(self, name: str, inverse: bool = False) -> Expr:
        """The power, or its inverse, as an expression over the axes of the maximum, which is called ``name``."""
        if self.constant is not None:
            return Const(1.0 / self.constant if inverse else self.constant, DType.F32)
        assert self.largest is not None
        m = Load(name, tuple(Var(a.name) for a in self.largest.par), DType.F32)
        pair = (Const(_TOP, DType.F32), Op("binade", (m,), DType.F32))
        return Op("div", pair if inverse else pair[::-1], DType.F32)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The sum of ``tensor`` times ``factor``, which becomes ``target``; ``first``: the tensor stands first."""

    subject: Def
    tensor: Expr
    factor: Expr
    target: DType
    first: bool
    scale: Scale | None
    note: str

    def element(self, name: str) -> Expr:
        """The element of the sum; ``name``: of the maximum that gives the scale."""
        tensor, small = self.tensor, self.small(name)
        if self.target is DType.TF32:
            tensor = Op("cast", (Op("narrow", (tensor,), self.target, tensor.span),), DType.F32, tensor.span)
        pair = (tensor, small) if self.first else (small, tensor)
        return Op("mul", pair, DType.F32, self.subject.value.span)

    def small(self, name: str) -> Expr:
        """The narrowed factor, in f32."""
        x, span = self.factor, self.factor.span
        if self.scale is not None:
            x = Op("mul", (x, self.scale.value(name, inverse=True)), DType.F32, span)
        return Op("cast", (Op("narrow", (x,), self.target, span),), DType.F32, span)

    def applied(self, program: Program) -> tuple[Program, Certificate]:
        """``program`` with this sum in the place of its subject, and the certificate."""
        d = self.subject
        if self.scale is None:
            made = kernel_of(replace(d, value=self.element("")))
            proof = "the range of the factor fits"
            if self.target is not DType.F16:
                proof = f"{self.target} keeps the exponent range of f32"
            kernels = tuple(made if k.name == d.name else k for k in program.kernels)
            return replace(program, kernels=kernels), self._certificate(self.factor, self.small(""), proof)
        added: list[Def] = []
        name = ""
        if (m := self.scale.largest) is not None:
            name = fresh_name(program, f"{d.name}_largest")
            added.append(replace(m, name=name, buffer=replace(m.buffer, name=name)))
        raw = inner_sum(program, d, self.element(name))
        total = Load(raw.name, tuple(Var(a.name) for a in raw.par), raw.buffer.dtype, d.span)
        whole = Op("mul", (total, self.scale.value(name)), total.dtype, d.span)
        before, after = (Reduce("sum", d.red, d.guard, e, e.dtype, d.span) for e in (d.value, raw.value))
        product = Op("mul", (after, self.scale.value(name)), after.dtype, d.span)
        proof = "the scale is a power of two, and f16 holds the factor divided by it"
        return with_inner_sum(program, d, raw, whole, added), self._certificate(before, product, proof)

    def _certificate(self, before: Expr, after: Expr, proof: str) -> Certificate:
        meets, d = (("meets", self.tensor),), self.subject
        return Certificate("narrow", d.name, before, after, meets, (), (self.note,), proof, d.span)


def narrowed(d: Def, defs: Mapping[str, Def]) -> Narrowed | None:
    """How the factor of ``d`` becomes narrow; None where ``d`` has no factor that does."""
    if d.op != "sum" or d.value.dtype is not DType.F32:
        return None
    parts = factors(d.value)
    if len(parts) > _MOST_FACTORS:
        return None
    found = next((k for k, p in reversed(list(enumerate(parts))) if _qualifies(d, parts, k)), None)
    if found is None:
        return None
    tensor, others = parts[found], [p for k, p in enumerate(parts) if k != found]
    met = _tensor(tensor)
    assert met is not None
    factor = _product(others)
    lo, hi = Ranges(defs, d.axes, d.guard).of(factor)
    note = f"the factor is in [{lo:.6g}, {hi:.6g}]"
    target, scale = _TARGET[met], None
    if target is DType.F16 and not (lo >= -_FITS_F16 and hi <= _FITS_F16):
        scale = _scale(d, factor, magnitude((lo, hi))[1], defs)
        target = DType.TF32 if scale is None else target
    return Narrowed(d, tensor, factor, target, found == 0, scale, note)


def _scale(d: Def, factor: Expr, top: float, defs: Mapping[str, Def]) -> Scale | None:
    """The scale of ``factor``, which is at most ``top``; None where its maximum has no loop of its own."""
    shift = math.ceil(math.log2(top / _FITS_F16)) if math.isfinite(top) else math.inf
    if shift <= _MOST_SHIFT:
        return Scale(2.0**shift)
    used = free_vars(factor) | (frozenset() if d.guard is None else free_vars(d.guard))
    par, red = (tuple(a for a in axes if a.name in used) for axes in (d.par, d.red))
    complete = any(_along(ld, d, defs) for ld in loads(factor))
    if complete or len(red) != len(d.red) or len(par) == len(d.par):
        return None
    size = Op("abs", (factor,), DType.F32, factor.span)
    shape = tuple(a.extent for a in par)
    largest = Def("", Buffer("", DType.F32, shape, Space.TEMP, d.span), par, red, "max", size, d.guard, d.span)
    return Scale(None, largest)


def _along(ld: Load, d: Def, defs: Mapping[str, Def], depth: int = 16) -> bool:
    """Whether ``ld`` reads a computed value that is the same for all terms of ``d``, as a reduction over them is."""
    made = defs.get(ld.buffer)
    varies = any(free_vars(e) & {a.name for a in d.red} for e in ld.index)
    if made is None:
        return False
    return not varies or depth == 0 or any(_reduced_with(x, made, defs, depth - 1) for x in made.reads())


def _reduced_with(ld: Load, reader: Def, defs: Mapping[str, Def], depth: int) -> bool:
    """Whether ``ld``, which the elementwise definition ``reader`` reads, is a reduction over an axis of ``reader``."""
    made = defs.get(ld.buffer)
    if made is None or reader.op is not None:
        return False
    missing = {a.name for a in reader.par} - frozenset[str]().union(*map(free_vars, ld.index))
    return (made.is_reduction and bool(missing)) or depth == 0


def _product(parts: Sequence[Expr]) -> Expr:
    total = parts[0]
    for f in parts[1:]:
        total = Op("mul", (total, f), f.dtype)
    return total


def _tensor(e: Expr) -> DType | None:
    """The 16-bit or 8-bit float type of a loaded element under a widening cast."""
    match e:
        case Op(op="cast", args=(Load(dtype=dtype),)) if dtype in _TARGET:
            return dtype
    return None


def _qualifies(d: Def, parts: Sequence[Expr], k: int) -> bool:
    """Factor ``k`` is a tensor, the others are computed, and together they make a matrix product.

    That is: both sides have a parallel axis of their own, or one of them has and the other one is shared by groups of
    points, and they share a reduced one.
    """
    met, others = _tensor(parts[k]), [p for n, p in enumerate(parts) if n != k]
    if met is None or not others or (len(others) == 1 and not _computed(others[0], met)):
        return False
    left = frozenset[str]().union(*(free_vars(o) for o in others))
    right = free_vars(parts[k])
    par, red = {a.name for a in d.par}, {a.name for a in d.red}
    own = [par & (left - right), par & (right - left)]
    grouped = any(shared_group(_product(others), parts[k], a) for a in par & left & right)
    return any(own) and (all(own) or grouped) and bool(red & left & right)


def _computed(e: Expr, met: DType) -> bool:
    """Not narrowed already, and no tensor but one of bf16 that meets f16."""
    if isinstance(e, Op) and e.op == "cast" and isinstance(e.args[0], Op) and e.args[0].op == "narrow":
        return False
    own = _tensor(e)
    return own is None or (own is DType.BF16 and met is DType.F16)

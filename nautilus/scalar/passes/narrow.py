"""``narrow``: a computed f32 factor of a matrix product is rounded to the 16-bit type it meets.

The contract (``grammar/README.md``, "Numbers") permits this for tensor cores; ``strict`` forbids it.
A factor of a sum's product qualifies where the other factor is a loaded f16, bf16 or 8-bit tensor and
each of the two has a parallel axis of its own (so it *is* a matrix product).  What it becomes:

* beside bf16: ``narrow<bf16>``, which has f32's range;
* beside f16 (or 8 bits, which f16 holds exactly): ``narrow<f16>``, where :mod:`nautilus.scalar.analysis.value_range`
  proves that it cannot overflow f16;
* else both factors become ``narrow<tf32>``: f16's mantissa with f32's range.  The tensor loses nothing, because tf32
  holds every f16 and 8-bit number, and MMAs of tf32 have half the rate of f16, 7 times that of ``fmaf``.

Over the reals nothing happens.  A finite factor stays finite: the proof for f16 leaves room for rounding errors of f32
(65520 is the first number that f16 rounds to inf), and bf16 and tf32 have the exponents of f32.  inf and NaN stay.
The relative error is the unit roundoff of the type, for f16 only above 2^-14; below that the error is 2^-25.  Every
rounding that the pass inserts is a ``narrow`` in the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Expr, Load, Op, free_vars
from nautilus.core.passes import CertifyingPass
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, kernel_of

_TARGET: Mapping[DType, DType] = {
    d: d if d.is_half else DType.F16 for d in DType if d.is_half or d.is_float8
}  # fmt: skip


_FITS_F16 = 65504.0 * (1 + 2.0**-13)  # rounding errors of f32 below 2^-13 do not reach 65520

_MOST_FACTORS = 64  # a product of more is no matrix product, and looking at each against the others is quadratic


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
        defs = find_defs(program)
        certificates: list[Certificate] = []
        kernels = []
        for k in program.kernels:
            d = defs.get(k.name)
            value = None if d is None else narrowed(d, defs, certificates)
            kernels.append(k if d is None or value is None else kernel_of(replace(d, value=value)))
        return (replace(program, kernels=tuple(kernels)) if certificates else program), tuple(certificates)


def narrowed(d: Def, defs: Mapping[str, Def], certificates: list[Certificate]) -> Expr | None:
    """The element of ``d`` with its computed factor narrowed, or None."""
    if d.op != "sum" or d.value.dtype is not DType.F32:
        return None
    parts = _factors(d.value)
    if len(parts) > _MOST_FACTORS:
        return None
    found = next((k for k, p in reversed(list(enumerate(parts))) if _qualifies(d, parts, k)), None)
    if found is None:
        return None
    tensor, others = parts[found], [p for k, p in enumerate(parts) if k != found]
    met = _tensor(tensor)
    assert met is not None
    factor = _product(others)
    target, note = _choose(Ranges(defs, d.axes, d.guard), factor, _TARGET[met])
    small = Op("narrow", (factor,), target, factor.span)
    wide = Op("cast", (small,), DType.F32, factor.span)
    proof = f"{target} keeps the exponent range of f32" if target is not DType.F16 else "the range of the factor fits"
    certificates.append(Certificate("narrow", d.name, factor, wide, (("meets", tensor),), (), (note,), proof, d.span))
    if target is DType.TF32:
        tensor = Op("cast", (Op("narrow", (tensor,), target, tensor.span),), DType.F32, tensor.span)
    pair = (tensor, wide) if found == 0 else (wide, tensor)
    return Op("mul", pair, d.value.dtype, d.value.span)


def _choose(ranges: Ranges, factor: Expr, target: DType) -> tuple[DType, str]:
    """The type that holds ``factor``, and the range as a note."""
    lo, hi = ranges.of(factor)
    note = f"the factor is in [{lo:.6g}, {hi:.6g}]"
    fits = lo >= -_FITS_F16 and hi <= _FITS_F16
    return (DType.TF32 if target is DType.F16 and not fits else target), note


def _factors(e: Expr) -> list[Expr]:
    if isinstance(e, Op) and e.op == "mul":
        return _factors(e.args[0]) + _factors(e.args[1])
    return [e]


def _product(factors: Sequence[Expr]) -> Expr:
    total = factors[0]
    for f in factors[1:]:
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

    That is: both sides have a parallel axis of their own, and share a reduced one.
    """
    others = [p for n, p in enumerate(parts) if n != k]
    if _tensor(parts[k]) is None or not others or (len(others) == 1 and not _computed(others[0])):
        return False
    left = frozenset[str]().union(*(free_vars(o) for o in others))
    right = free_vars(parts[k])
    par, red = {a.name for a in d.par}, {a.name for a in d.red}
    return bool(par & (left - right)) and bool(par & (right - left)) and bool(red & left & right)


def _computed(e: Expr) -> bool:
    """Neither a tensor nor narrowed already."""
    narrow = isinstance(e, Op) and e.op == "cast" and isinstance(e.args[0], Op) and e.args[0].op == "narrow"
    return _tensor(e) is None and not narrow

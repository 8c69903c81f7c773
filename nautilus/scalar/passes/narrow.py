"""``narrow``: a computed f32 factor of a matrix product is rounded to the 16-bit type it meets.

The contract (``language.md``, "Numbers") permits it, for the matrix units' sake; ``strict`` forbids it.
A factor of a sum's product qualifies where the other factor is a loaded f16, bf16 or 8-bit tensor and
each of the two has a parallel axis of its own (so it *is* a matrix product).  What it becomes:

* beside bf16: ``narrow<bf16>``, which has f32's range;
* beside f16 (or 8 bits, which f16 holds exactly): ``narrow<f16>``, where :mod:`nautilus.scalar.value_range`
  proves that it cannot overflow f16; else ``narrow<tf32>``: f16's mantissa with f32's range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nautilus.core.expr import Expr, Load, Op, free_vars
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.scalar.certificate import Certificate
from nautilus.scalar.defs import Def
from nautilus.scalar.ops import Program
from nautilus.scalar.rewriting import find_defs, kernel_of
from nautilus.scalar.value_range import LARGEST, Ranges

_TARGET: Mapping[DType, DType] = {
    DType.F16: DType.F16, DType.BF16: DType.BF16, DType.F8E4M3: DType.F16, DType.F8E5M2: DType.F16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Narrow:
    """Narrow computed factors; ``strict``, or ``schedule.narrow`` False: none."""

    schedule: Schedule | None = None
    strict: bool = False

    name = "narrow"

    def apply(self, program: Program) -> Program:
        """The program with computed factors narrowed."""
        return self.derive(program)[0]

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program, and a certificate for each factor."""
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
    tensors = [p for p in parts if _tensor(p) is not None]
    computed = [p for p in parts if _tensor(p) is None]
    if len(tensors) != 1 or not computed or not _is_matrix_product(d, computed, tensors[0]):
        return None
    met = _tensor(tensors[0])
    assert met is not None
    factor = _product(computed)
    target, note = _choose(Ranges(defs, d.axes, d.guard), factor, _TARGET[met])
    small = Op("narrow", (factor,), target, factor.span)
    wide = Op("cast", (small,), DType.F32, factor.span)
    proof = f"{target} keeps the exponent range of f32" if target is not DType.F16 else "the range of the factor fits"
    certificates.append(
        Certificate("narrow", d.name, factor, wide, (("meets", tensors[0]),), (), (note,), proof, d.span)
    )
    pair = (wide, tensors[0]) if parts[0] is not tensors[0] else (tensors[0], wide)
    return Op("mul", pair, d.value.dtype, d.value.span)


def _choose(ranges: Ranges, factor: Expr, target: DType) -> tuple[DType, str]:
    """The type that holds ``factor``, and the range as a note."""
    lo, hi = ranges.of(factor)
    note = f"the factor is in [{lo:.6g}, {hi:.6g}]"
    if target is DType.F16 and max(-lo, hi) > LARGEST[DType.F16]:
        return DType.TF32, note
    return target, note


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


def _is_matrix_product(d: Def, computed: Sequence[Expr], tensor: Expr) -> bool:
    """Both sides have a parallel axis of their own, and share a reduced one."""
    left = frozenset[str]().union(*(free_vars(c) for c in computed))
    right = free_vars(tensor)
    par = {a.name for a in d.par}
    red = {a.name for a in d.red}
    narrow_already = any(isinstance(c, Op) and c.op == "cast" and _is_narrow(c.args[0]) for c in computed)
    return bool(par & (left - right)) and bool(par & (right - left)) and bool(red & left & right) and not narrow_already


def _is_narrow(e: Expr) -> bool:
    return isinstance(e, Op) and e.op == "narrow"

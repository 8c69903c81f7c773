"""``defer-roundings``: a factor is rounded to 16 bits before it is divided, where the spec rounds the quotient.

Probabilities that the spec stores in 16 bits, ``P: f16[i, j] = softmax[j](S[i, j])``, are rounded quotients::

    sum[j](f16(exp(S[i, j] - m[i]) / z[i]) * V[j, d])

No sum can take the divisor out of the rounding, and no loop can repair a rounded number when ``m`` changes, so that the
row would be visited twice: for ``m`` and ``z``, and for the product.  This becomes::

    sum[j](narrow<f16>(exp(S[i, j] - m[i])) / z[i] * V[j, d])

Both round the same factor once, with a relative error of at most the unit roundoff, where the contract allows
the compiler to round a factor of a product to the type of the tensor beside it (``grammar/README.md``, "Numbers").  The
stated error has the rounding of the spec and that of the kernel.

A rounded factor of a sum qualifies where

* the other factors have a tensor of the same type, or another number that is rounded to it;
* it depends on a complete reduction over elements that the sum visits, as ``m`` and ``z`` are: otherwise
  nothing is gained;
* what is rounded before and after is proved to be in the range of the type.

``strict`` keeps the roundings of the spec, and so does a schedule that does not narrow factors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Const, Expr, Op, free_vars, loads
from nautilus.core.expr.products import MOST_FACTORS, factors, product_of
from nautilus.core.functions.intervals import magnitude
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.ranges.factor_scales import FITS_F16
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.factor import divides, quotient
from nautilus.scalar.passes.narrow import rounded_type, tensor_type
from nautilus.scalar.rewriting import find_defs, kernel_of

#: A factor close to 1 that no type of 16 bits has.
_ABOUT_ONE = 1.0 + 2.0**-30


@dataclass(frozen=True, slots=True)
class DeferRoundings(CertifyingPass[Program]):
    """Round factors of products before their divisors; ``strict``, or ``schedule.narrow`` False: none.

    ``again``: the factor has a second rounding, as the model of errors needs it (``check.bound.program``).
    """

    schedule: Schedule | None = None
    strict: bool = False
    again: bool = False

    name = "defer-roundings"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with roundings of dividends, and a certificate for each of them."""
        if self.strict or (self.schedule is not None and not self.schedule.narrow):
            return program, ()
        defs = find_defs(program)
        certificates: list[Certificate] = []
        made: dict[str, Def] = {}
        for d in defs.values():
            parts = factors(d.value)
            if d.op != "sum" or d.value.dtype is not DType.F32 or len(parts) > MOST_FACTORS:
                continue
            for k in range(len(parts)):
                before, after = parts[k], self._deferred(d, parts, k, defs)
                if after is not None:
                    parts[k] = after
                    made[d.name] = replace(d, value=product_of(parts))
                    meets = next(p for n, p in enumerate(parts) if n != k and _type_of(p) is rounded_type(before))
                    proof = "the dividend and the quotient are in the range of the type"
                    span = d.span
                    certificates.append(
                        Certificate(self.name, d.name, before, after, (("meets", meets),), (), (), proof, span)
                    )
        kernels = tuple(kernel_of(made[k.name]) if k.name in made else k for k in program.kernels)
        return replace(program, kernels=kernels) if made else program, tuple(certificates)

    def _deferred(self, d: Def, parts: Sequence[Expr], k: int, defs: Mapping[str, Def]) -> Expr | None:
        """Factor ``k`` of the element of ``d`` with its rounding before the division; None where it stays."""
        dtype = rounded_type(parts[k])
        if dtype is None or not any(_type_of(p) is dtype for n, p in enumerate(parts) if n != k):
            return None
        whole = _rounded(parts[k])
        names = {a.name for a in d.red}
        up, down = quotient(whole)
        inside = [f for f in up if free_vars(f) & names]
        if not inside or any(free_vars(g) & names for g in down) or not _needs_whole(d, whole, defs):
            return None
        outside = [f for f in up if f not in inside and f != Const(1.0, f.dtype)]
        x = product_of(inside)
        ranges = Ranges(defs, d.axes, d.guard)
        if any(magnitude(ranges.of(e))[1] > FITS_F16 for e in (x, _around(x, outside, down))):
            return None
        if not all(divides(g, inside, ranges) for g in down):
            return None  # it would stay in the sum, between the rounding and the product
        made = _narrowed(x, dtype)
        if self.again:
            made = _narrowed(Op("mul", (made, Const(_ABOUT_ONE, x.dtype)), x.dtype), dtype)
        return _around(made, outside, down)


def _around(e: Expr, up: Sequence[Expr], down: Sequence[Expr]) -> Expr:
    """``e`` divided by ``down``, then times ``up``."""
    for g in down:
        e = Op("div", (e, g), e.dtype)
    for f in up:
        e = Op("mul", (e, f), e.dtype)
    return e


def _type_of(e: Expr) -> DType | None:
    return tensor_type(e) or rounded_type(e)


def _rounded(e: Expr) -> Expr:
    """What ``e``, a number that the spec rounds, is before that."""
    assert isinstance(e, Op) and isinstance(e.args[0], Op)
    return e.args[0].args[0]


def _narrowed(e: Expr, dtype: DType) -> Expr:
    return Op("cast", (Op("narrow", (e,), dtype, e.span),), e.dtype, e.span)


def _needs_whole(d: Def, e: Expr, defs: Mapping[str, Def]) -> bool:
    """Whether ``e``, a factor of the element of ``d``, reads one value of a reduction in all terms."""
    names = {a.name for a in d.red}
    found = (defs.get(ld.buffer) for ld in loads(e) if not free_vars(ld) & names)
    return any(made is not None and made.op is not None for made in found)

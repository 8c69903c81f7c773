"""``scale-products``: separates the scales that groups of terms share from products of matrices.

Products of 8-bit floats get the form ``(a * b) * scale``.  The planner then gives the reduction loop steps that lie
within a group, and VR-tile IR multiplies the sum of a step by the scale (``scalar.analysis.contractions.scales``).
``narrow`` leaves such a product alone, because its operands are tensors as they are.  Over the reals, multiplication is
commutative and associative.

A factor of few bits beside a tensor of 16 bits is one of that type, which holds it exactly.  The scales of its groups
are those of sums then, where few results use an element
(:mod:`nautilus.scalar.analysis.contractions.scales`)::

    sum[k](X[i, k] * ((Q[k, j] - 8) * s[k // 128, j]))
        = sum[k](X[i, k] * narrow<f16>(Q[k, j] - 8) * s[k // 128, j])

A large computed factor may be a difference, such as that of a number of few bits and the zero point of its group.  If
few results use an element of it, the sum becomes one sum for each group::

    sum[d](q[d] * (K[j, d] - z[j, d // 32]) * s[j, d // 32])
        = s[j, 0] * sum[d: 32](q[d] * (K[j, d] - z[j, 0])) + s[j, 1] * sum[d: 32](q[32 + d] * ..) + ..

The difference is rounded to 16 bits, whose range it does not leave, in the registers to which it is unpacked.  The
product of the difference and the scale may leave that range, and takes several instructions of f32 for each element.

A product of 8-bit integers that are converted to f32, as scales of rows and columns leave it, becomes one of integers:
``sum[k](f32(X[i, k]) * f32(W[j, k]))`` is ``f32(sum[k](i32(X[i, k]) * i32(W[j, k])))`` where the sum stays within i32.
So do integers to which the spec rounds what it makes of no other product, ``f32(i8(round(X[i, k] / s[i])))``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import gcd, prod

from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Reduce, Var, free_vars, loads, substitute
from nautilus.core.expr.products import (
    BYTE_TERMS,
    MOST_FACTORS,
    factors,
    matrix_product,
    product_of,
    strip_conversions,
    strip_lossless_conversions,
    two_sides,
)
from nautilus.core.index.groups import in_groups, quotients
from nautilus.core.index.simplify import simplify
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import BYTES, DType
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.contractions.scales import ScaledProduct, operand_type, scaled_product
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.ranges.precision import is_held, is_streamed
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.factor import inner_sum, with_inner_sum
from nautilus.scalar.passes.inline import replace_reads
from nautilus.scalar.rewriting import find_defs, fresh_name, kernel_of


@dataclass(frozen=True, slots=True)
class ScaleProducts(CertifyingPass[Program]):
    """Separate the scales of every such product from its tensors."""

    name = "scale-products"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with products in that form, and a certificate for each one that changed."""
        program, certificates = _with_groups(program)
        program = _with_integers(program, certificates)
        defs = find_defs(program)
        made = {name: value for name, d in defs.items() if (value := _separated(d)) is not None}
        if not made:
            return program, tuple(certificates)
        certificates += [
            Certificate(self.name, name, defs[name].value, value, (), (), (), _PROOF, defs[name].span)
            for name, value in made.items()
        ]
        kernels = (
            kernel_of(replace(defs[k.name], value=made[k.name])) if k.name in made else k for k in program.kernels
        )
        return replace(program, kernels=tuple(kernels)), tuple(certificates)


_PROOF = "multiplication is commutative and associative"


def _separated(d: Def) -> Expr | None:
    """The element of ``d`` in that form, the tensor with the last axis of the result second; None where it has it."""
    found = scaled_product(d) or _of_few_bits(d)
    if found is None:
        return None
    last, (a, b) = d.par[-1].name, found.product.args
    if last in free_vars(a) and last not in free_vars(b):
        found = replace(found, product=replace(found.product, args=(b, a)))
    return None if found.element == d.value else found.element


def _of_few_bits(d: Def) -> ScaledProduct | None:
    """``d`` as a product of a 16-bit tensor, a computed factor that has this type, and scales; None for another sum."""
    parts = factors(d.value)
    if d.op != "sum" or d.value.dtype is not DType.F32 or len(d.red) != 1 or len(parts) > MOST_FACTORS:
        return None
    (axis,) = d.red
    scales = [p for p in parts if (q := quotients(p, axis.name)) and 0 not in q]
    rest = [p for p in parts if p not in scales]
    for pair in two_sides(rest, [a.name for a in d.par], [axis.name]) if scales else ():
        for n in (0, 1):
            tensor, factor = pair[n], pair[1 - n]
            dtype = operand_type(tensor)
            if dtype is None or not dtype.is_half or not is_held(factor, dtype):
                continue
            made = Op("cast", (Op("narrow", (factor,), dtype, factor.span),), DType.F32, factor.span)
            found = scaled_product(replace(d, value=product_of([tensor, made, *scales])))
            if found is not None:
                return found
    return None


MOST_GROUPS, LEAST_GROUP = 4, 32  # groups of a sum, each of which becomes a product, and terms of one of them


@dataclass(frozen=True, slots=True)
class _Grouped:
    """A sum over ``axis`` of the product of ``terms`` and ``scale``, which ``group`` neighbours share."""

    axis: Axis
    terms: Expr
    scale: Expr
    group: int

    @property
    def count(self) -> int:
        """The number of groups."""
        return (size(self.axis) or 0) // self.group

    def at(self, e: Expr, n: int) -> Expr:
        """``e`` in group ``n``, where the axis counts the terms of the group."""
        place = calc("add", Var(self.axis.name), n * self.group)
        return simplify(substitute(e, {self.axis.name: place}), {self.axis.name: (0, self.group - 1)})


def _with_groups(program: Program) -> tuple[Program, list[Certificate]]:
    """``program`` with a sum for each group of terms of every such product, and the certificates."""
    certificates: list[Certificate] = []
    for name in [k.name for k in program.kernels]:
        d = find_defs(program).get(name)
        found = None if d is None else _grouped(d)
        if d is not None and found is not None:
            program = _split(program, d, found, certificates)
    return program, certificates


def _grouped(d: Def) -> _Grouped | None:
    """``d`` as such a sum; None for another definition."""
    parts = factors(d.value)
    if d.op != "sum" or d.value.dtype is not DType.F32 or len(d.red) != 1 or len(parts) > MOST_FACTORS:
        return None
    (axis,) = d.red
    if not isinstance(axis.extent, int) or (d.guard is not None and axis.name in free_vars(d.guard)):
        return None
    groups = {k: gcd(*q) for k, p in enumerate(parts) if (q := quotients(p, axis.name)) and 0 not in q}
    group = gcd(*groups.values())
    rest = [p for k, p in enumerate(parts) if k not in groups]
    if not groups or group < LEAST_GROUP or axis.extent % group or not 1 < axis.extent // group <= MOST_GROUPS:
        return None
    par = [a.name for a in d.par]
    pairs = [*two_sides(rest, par, [axis.name])]
    pairs = pairs or [x for a in par for x in two_sides(rest, par, [axis.name], in_groups(rest, a))]
    for pair in pairs:
        made = [e for e in pair if not isinstance(strip_conversions(e), Load)]
        if len(made) == 1 and _is_difference(made[0]) and is_streamed(d, made[0]):
            scale = product_of([parts[k] for k in groups])
            return _Grouped(axis, product_of(pair), scale, group) if free_vars(scale) <= free_vars(made[0]) else None
    return None


def _with_integers(program: Program, certificates: list[Certificate]) -> Program:
    """``program`` with integers in every product of converted 8-bit integers."""
    defs = find_defs(program)
    for d in defs.values():
        value = _integers(d, defs)
        if value is None:
            continue
        name = fresh_name(program, f"{d.name}_integers")
        buffer = replace(d.buffer, name=name, dtype=DType.I32, space=Space.TEMP)
        raw = replace(d, name=name, buffer=buffer, value=value)
        read: Expr = Load(name, tuple(Var(a.name) for a in raw.par), DType.I32, d.span)
        whole = replace(d, red=(), op=None, value=Op("cast", (read,), DType.F32), guard=None)
        sums = [Reduce("sum", d.red, d.guard, e, e.dtype, d.span) for e in (d.value, value)]
        after = Op("cast", (sums[1],), DType.F32)
        proof = "sums of integers below 2^31 are exact"
        certificates.append(Certificate("scale-products", d.name, sums[0], after, (), (), (), proof, d.span))
        program = with_inner_sum(program, d, raw, whole.value, ())
        if d.buffer.space is Space.TEMP:
            program = Dead().apply(replace_reads(program, whole, skip=()))
    return program


def _integers(d: Def, defs: Mapping[str, Def]) -> Expr | None:
    """The element of ``d`` as a product of i32; None unless it is a matrix product of converted 8-bit integers."""
    parts = factors(d.value)
    inner = [_quantised(p, defs) or strip_lossless_conversions(p) for p in parts]
    bytes_ = all(isinstance(x, Load | Op) and x.dtype in BYTES for x in inner)
    if d.op != "sum" or d.value.dtype is not DType.F32 or len(parts) != 2 or not bytes_:
        return None
    terms = prod(n if (n := size(a)) is not None else BYTE_TERMS for a in d.red)
    if terms >= BYTE_TERMS or matrix_product(d.value, [a.name for a in d.par]) is None:
        return None
    return product_of([Op("cast", (x,), DType.I32) for x in inner])


def _quantised(e: Expr, defs: Mapping[str, Def]) -> Expr | None:
    """The number in the converted ``e`` that the spec rounds, which it makes of no other product; None for another."""
    made = (defs[ld.buffer] for ld in loads(e) if ld.buffer in defs)
    match e:
        case Op(op="cast", args=(Op(op="cast") as inner,)) if not any(map(multiplies_matrices, made)):
            return inner
    return None


def _is_difference(e: Expr) -> bool:
    inner = strip_conversions(e)
    return isinstance(inner, Op) and inner.op in ("add", "sub")


def _split(program: Program, d: Def, found: _Grouped, certificates: list[Certificate]) -> Program:
    red = (replace(found.axis, extent=found.group),)
    terms, scales = ([found.at(e, n) for n in range(found.count)] for e in (found.terms, found.scale))
    raw = replace(inner_sum(program, d, terms[0]), red=red)
    added: list[Def] = []
    for e in terms[1:]:
        name = fresh_name(program, f"{d.name}_group", [x.name for x in (*added, raw)])
        added.append(replace(raw, name=name, buffer=replace(raw.buffer, name=name), value=e))
    reads = [Load(x.name, tuple(Var(a.name) for a in x.par), x.buffer.dtype, d.span) for x in (raw, *added)]
    group = calc("floordiv", Var(found.axis.name), found.group)
    inside = [conjunction([*conjuncts(d.guard), calc("eq", group, n)]) for n in range(found.count)]
    sums = [Reduce("sum", d.red, c, found.terms, DType.F32, d.span) for c in inside]
    before = Reduce("sum", d.red, d.guard, d.value, d.value.dtype, d.span)
    proof = "a factor of a sum is one of each term, and a sum is that of the sums of its groups"
    after = _total(sums, scales)
    certificates.append(Certificate("scale-products", d.name, before, after, (), (), (), proof, d.span))
    return with_inner_sum(program, d, raw, _total(reads, scales), added)


def _total(sums: Sequence[Expr], scales: Sequence[Expr]) -> Expr:
    """The sum of ``sums``, each times its scale."""
    scaled: list[Expr] = [Op("mul", pair, DType.F32) for pair in zip(sums, scales, strict=True)]
    total = scaled[0]
    for e in scaled[1:]:
        total = Op("add", (total, e), DType.F32)
    return total

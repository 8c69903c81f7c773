"""``store-digits``: a product of wide integers becomes products of their digits to the base 256.

Matrix instructions multiply integers of 8 bits.  An integer of 16 bits is ``256 * high + low``, where ``high`` has a
sign and ``low`` has none, so that a product of such matrices is a sum of four products of 8-bit integers::

    C[i, j] sum= A[i, k] * B[k, j]

    C_left[i, k] = A[i, k] & 255          C_left_2[i, k] = A[i, k] >> 8
    C_right[j, k] = B[k, j] & 255         C_right_2[j, k] = B[k, j] >> 8
    C_acc[i, j] sum= C_left[i, k] * C_right[j, k]  ...
    C[i, j] = C_acc[i, j] + C_acc_2[i, j] * 256 + C_acc_3[i, j] * 256 + C_acc_4[i, j] * 65536

Integers wrap, so that both forms are equal, and a product of digits whose weight is a multiple of 2^32 is absent from a
sum of 32 bits.  Sums of 64 bits have digits where no sum of 32 bits of their products can wrap.  An operand has as many
digits as its range needs, which types, arithmetic and the promises of the spec give: one for elements of i32 that are
below 128, which is a conversion.  Digits are temps whose contiguous axis is the contracted one, as matrix units need
it; an operand of 8 bits stays as it is.

The pass applies to sums without a condition of products of two factors, one for rows and one for columns, each made
from tensors without windows, where one of them at least has more than 8 bits.  There are at least :data:`ROWS` rows
and columns and :data:`TERMS` terms, and at most :data:`PRODUCTS` products of digits: as many take less time than
multiplications without matrix units.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Reduce, Var, free_vars, loads, substitute
from nautilus.core.index.sizes import nominal
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import BYTES, DType
from nautilus.scalar.analysis.contractions.dense import dense_product
from nautilus.scalar.analysis.contractions.promises import Promises, promised_ranges
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.factor import inner_sum, with_inner_sum
from nautilus.scalar.rewriting import equal_temp, find_defs, fresh_name, kernel_of

BASE = 256
ROWS = 32  # beside fewer, what is read takes longer than the products
TERMS = 1 << 27  # multiplications that take 12 microseconds on an H200, as long as the kernels of digits and products
PRODUCTS = 10  # of i32 by i32
_WIDE = (DType.I32, DType.I64)


@dataclass(frozen=True, slots=True)
class StoreDigits(CertifyingPass[Program]):
    """Store digits of wide integers.  ``spec``: the Spec, whose promises bound the elements of inputs."""

    spec: Promises | None = None

    name = "store-digits"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with sums of products of digits, and certificates for each operand and each sum."""
        certificates: list[Certificate] = []
        for name, d in find_defs(program).items():
            digits = self._digits(program, d)
            if digits is not None:
                program = _stored(program, find_defs(program)[name], digits, certificates)
        return program, tuple(certificates)

    def _digits(self, program: Program, d: Def) -> tuple[_Digits, _Digits] | None:
        """The digits of both factors of ``d``; None where the pass does not apply."""
        product = dense_product(d, sized=False)
        if product is None or d.guard is not None or d.value.dtype not in _WIDE or d.buffer.dtype is not d.value.dtype:
            return None
        assert isinstance(d.value, Op)
        extents = {a.name: nominal(a.extent) for a in d.axes}
        fewest = min(prod(extents[x] for x in side) for side in (product.rows, product.columns))
        if fewest < ROWS or prod(extents.values()) < TERMS or all(map(_is_byte, d.value.args)):
            return None
        if not all(map(_is_of_tensors, d.value.args)):
            return None
        ranges = Ranges(find_defs(program), d.axes, given=promised_ranges(self.spec))
        left, right = (_Digits(e, *ranges.of(e)) for e in d.value.args)
        if not left.count or not right.count or len(_pairs(left, right, d.value.dtype)) > PRODUCTS:
            return None
        terms = [size(a) for a in d.red]
        largest = prod(n or 1 << 31 for n in terms) * left.largest * right.largest
        return None if d.value.dtype is DType.I64 and largest >= 1 << 31 else (left, right)


@dataclass(frozen=True, slots=True)
class _Digits:
    """The integer ``value`` between ``low`` and ``high`` in digits of 8 bits."""

    value: Expr
    low: float
    high: float

    @property
    def count(self) -> int:
        """The number of digits, of which the last one has the sign; 0 where 32 bits do not hold the value."""
        return next((n for n in (1, 2, 3, 4) if self._fits(n)), 0)

    @property
    def largest(self) -> int:
        """The largest magnitude of a digit."""
        return BASE - 1 if self.count > 1 or not self.signed else BASE // 2

    @property
    def signed(self) -> bool:
        """Whether the last digit has a sign."""
        half: int = BASE**self.count // 2
        return self.low < 0 or self.high < half

    def _fits(self, n: int) -> bool:
        whole: int = BASE**n
        return -whole // 2 <= self.low and self.high < (whole // 2 if self.low < 0 else whole)

    def digit(self, n: int) -> Expr:
        """Digit ``n``, counted from the lowest one, as the compute type of the value holds it."""
        e, dtype, last = self.value, self.value.dtype, n == self.count - 1
        if n:
            e = Op("shift_right", (e, Const(8 * n, dtype)), dtype, e.span)
        return e if last else Op("bit_and", (e, Const(BASE - 1, dtype)), dtype, e.span)

    def dtype(self, n: int) -> DType:
        """The element type of digit ``n``."""
        return DType.I8 if n == self.count - 1 and self.signed else DType.U8


def _is_byte(e: Expr) -> bool:
    """Whether ``e`` is an element of 8 bits, or rounded to one, which matrix units read as it is."""
    dtype: DType = _byte(e).dtype
    return dtype in BYTES


def _byte(e: Expr) -> Expr:
    """What ``e`` converts, down to an element of 8 bits."""
    while isinstance(e, Op) and e.op == "cast" and e.dtype not in BYTES:
        e = e.args[0]
    return e


def _is_of_tensors(e: Expr) -> bool:
    """Whether ``e`` is made from integers of tensors, and of no windows, whose elements are in several terms."""
    read = loads(e)
    along = (free_vars(x) for ld in read for x in ld.index)
    return bool(read) and all(ld.dtype.is_int for ld in read) and all(len(names) < 2 for names in along)


def _pairs(left: _Digits, right: _Digits, dtype: DType) -> list[tuple[int, int]]:
    """The digits whose products have a weight in a sum of ``dtype``, those of the smallest weight first.

    Each but the first product has an operand in common with an earlier one, beside which the planner puts it.
    """
    pairs = ((m, n) for m in range(left.count) for n in range(right.count) if 8 * (m + n) < dtype.bits)
    return sorted(pairs, key=lambda x: (x[0] + x[1], x))


def _stored(
    program: Program, d: Def, digits: tuple[_Digits, _Digits], certificates: list[Certificate]
) -> Program:  # fmt: skip
    """``program`` with the digits of the factors of ``d`` as temps, and a sum for each product of two."""
    temps: list[Def] = []
    sides: list[list[Expr]] = []
    for side, found in zip(("left", "right"), digits, strict=True):
        if _is_byte(found.value):
            sides.append([Op("cast", (_byte(found.value),), DType.I32, found.value.span)])
            continue
        sides.append([_temp(program, d, side, found, n, temps) for n in range(found.count)])
        subject = loads(sides[-1][0])[0].buffer
        if all(c.subject != subject for c in certificates):  # the operands may be one matrix
            certificates.append(_of_operand(subject, found))
    dtype = d.value.dtype
    raw = inner_sum(program, d, d.value)
    sums: list[Def] = []
    for m, n in _pairs(*digits, dtype):
        name = raw.name if not sums else fresh_name(program, f"{raw.name}_{len(sums) + 1}")
        buffer = replace(raw.buffer, name=name, dtype=DType.I32)
        value = Op("mul", (sides[0][m], sides[1][n]), DType.I32, d.value.span)
        sums.append(replace(raw, name=name, buffer=buffer, value=value))
    weights = [BASE ** (m + n) for m, n in _pairs(*digits, dtype)]
    certificates.append(_of_sum(d, digits, sides, sums, weights))
    read = [Load(s.name, tuple(Var(a.name) for a in s.par), DType.I32, d.span) for s in sums]
    first, *others = sums
    if raw.name == d.name:  # readers take the value of a temp, whose buffer holds the first sum
        program = replace(program, buffers=tuple(first.buffer if b.name == d.name else b for b in program.buffers))
    made = with_inner_sum(program, d, first, _total(read, weights, dtype), others[::-1])
    return _with_temps(made, temps, {d.name, *(s.name for s in sums)})


def _with_temps(program: Program, temps: Sequence[Def], readers: Collection[str]) -> Program:
    """``program`` with the kernels of ``temps`` in front of those of ``readers``."""
    made = tuple(map(kernel_of, temps))
    at = min(n for n, k in enumerate(program.kernels) if k.name in readers)
    kernels = (*program.kernels[:at], *made, *program.kernels[at:])
    return replace(program, buffers=(*program.buffers, *(t.buffer for t in temps)), kernels=kernels)


def _temp(program: Program, d: Def, side: str, found: _Digits, n: int, temps: list[Def]) -> Expr:
    """The element of the temp of digit ``n``, which may be an earlier one; else it is added to ``temps``."""
    used, deep = free_vars(found.value), {a.name for a in d.red}
    axes = tuple(sorted((a for a in d.axes if a.name in used), key=lambda a: a.name in deep))
    dtype, span = found.dtype(n), found.value.span
    name = fresh_name(program, f"{d.name}_{side}", [t.name for t in temps])
    buffer = Buffer(name, dtype, tuple(a.extent for a in axes), Space.TEMP, span)
    temp = Def(name, buffer, axes, (), None, _as_byte(found.digit(n), dtype), None, span)
    known = equal_temp(program, temp, d.name) or next((t.name for t in temps if _are_equal(t, temp)), None)
    if known is None:
        temps.append(temp)
    index = tuple(Var(a.name) for a in axes)
    return Op("cast", (Load(known or name, index, dtype, span),), DType.I32, span)


def _are_equal(a: Def, b: Def) -> bool:
    """Whether the temps have the same elements, as those of a matrix and of its transposed one have."""
    shape = a.buffer.shape, a.buffer.dtype
    names = {x.name: Var(y.name) for x, y in zip(a.par, b.par, strict=False)}
    return shape == (b.buffer.shape, b.buffer.dtype) and substitute(a.value, names) == b.value


def _as_byte(e: Expr, dtype: DType) -> Expr:
    return Op("cast", (Op("cast", (e,), dtype, e.span),), DType.I32, e.span)


def _total(parts: Sequence[Expr], weights: Sequence[int], dtype: DType) -> Expr:
    """The sum of ``parts`` times ``weights`` in ``dtype``."""
    total: Expr | None = None
    for e, weight in zip(parts, weights, strict=True):
        whole = e if e.dtype is dtype else Op("cast", (e,), dtype)
        term = whole if weight == 1 else Op("mul", (whole, Const(weight, dtype)), dtype)
        total = term if total is None else Op("add", (total, term), dtype)
    assert total is not None
    return total


def _of_operand(subject: str, found: _Digits) -> Certificate:
    """The certificate that an operand is the sum of its digits, each times its weight."""
    e, dtype = found.value, found.value.dtype
    digits = [_as_byte(found.digit(n), found.dtype(n)) for n in range(found.count)]
    after = _total(digits, [BASE**n for n in range(found.count)], dtype)
    low, high = int(found.low), int(found.high)
    inside = calc("le", Const(low, dtype), e), calc("le", e, Const(high, dtype))
    proof = "an integer is the sum of its digits, each times its weight"
    return Certificate("store-digits", subject, e, after, (), inside, (), proof, e.span)


def _of_sum(
    d: Def, digits: tuple[_Digits, _Digits], sides: Sequence[Sequence[Expr]], sums: Sequence[Def],
    weights: Sequence[int],
) -> Certificate:  # fmt: skip
    """The certificate that the product of two sums of digits is the sum of the products of digits."""
    dtype = d.value.dtype
    factors = [_total(side, [BASE**n for n in range(x.count)], dtype) for side, x in zip(sides, digits, strict=True)]
    value = Op("mul", tuple(factors), dtype)
    before = Reduce("sum", d.red, None, value, dtype, d.span)
    parts = [Reduce("sum", d.red, None, s.value, DType.I32, d.span) for s in sums]
    after = _total(parts, weights, dtype)
    proof = "a product of sums is the sum of the products, in any order, and integers wrap"
    return Certificate("store-digits", d.name, before, after, (), (), (), proof, d.span)

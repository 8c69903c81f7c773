"""The op ``unpack``: numbers of four bits, two to a byte, as 16-bit floats or as integers of 8 bits.

Meaning.  Element ``2 p + h`` of the result along its axis ``into`` is ``((n - bias) * factor - zero) * scale`` where
``n`` is the number of half ``h`` of byte ``p`` of the operand along ``axis``, the low half first.  Every
``(n - bias) * factor`` is exact in the type of the result; the difference and the product are each rounded once to it.
Without ``zero`` or ``scale`` that step is left out, as it is for integers.  A thread has the bytes of its elements, in
one of two layouts of the operand:

* that of the result with half as many positions (:func:`packed_layout`);
* where four lanes have neighbouring bytes, as in fragments of matrix instructions: each of the four has all of these
  bytes, which are one word, so that words are loaded and each lane takes its own byte (:func:`word_layout`).

A half has one of three *forms*: ``u4`` (0 .. 15), ``i4`` (-8 .. 7, two's complement), ``f4e2m1`` (OCP MX, section
5.3.3).  Two elements are made by the same instructions (:class:`PairSteps`):

* an integer becomes the low bits of a float with one exponent, ``1024 + n`` in f16 and ``128 + n`` in bf16, from which
  a multiply-add makes the result; i4 is shifted to 0 .. 15 by an exclusive or with 8;
* the sign and the other bits of f4e2m1 become sign, and last exponent and first mantissa bits, of a very small float,
  subnormal numbers included, which a multiplication by a power of two brings to its size.

Four integers of 8 bits are made at once: two bytes are spread over a register, from whose bytes a number is subtracted.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.numerics import round_to
from nautilus.core.op_fields import AXIS, LITERAL, OPERAND
from nautilus.core.ops import RESULT, SPAN, FieldRole, Kind, declare, op
from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.core.text import syntax
from nautilus.core.types import DType
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.values import MA, Frag

_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
#: form -> the number of each code 0 .. 15
FORMS: dict[str, tuple[float, ...]] = {
    "u4": tuple(float(n) for n in range(16)),
    "i4": tuple(float((n ^ 8) - 8) for n in range(16)),
    "f4e2m1": (*_MAGNITUDES, *(-x for x in _MAGNITUDES)),
}
FORM = FieldRole(Kind.ATTRIBUTE, syntax.choice("form", FORMS))
_INTEGER_BASE = {DType.F16: 1024.0, DType.BF16: 128.0}  # floats whose last place is 1
_MOST_LESS = 128  # what may be subtracted from codes in bytes: the least of them becomes -128
_SMALL_ONE = {DType.F16: 2.0**-14, DType.BF16: 2.0**-126}  # the bits of 1.0 in f4e2m1 become this number


@op(MA, "unpack $form $arg over $axis into $into( less $bias)?( by $factor)?( minus $zero)?( times $scale)?")
class UnpackOp:
    """Numbers from the halves of bytes (module docstring)."""

    result: Frag = declare(RESULT)
    form: str = declare(FORM)
    arg: Frag = declare(OPERAND)
    axis: str = declare(AXIS)
    into: str = declare(AXIS)
    bias: float = declare(LITERAL, default=0.0)
    factor: float = declare(LITERAL, default=1.0)
    zero: Frag | None = declare(OPERAND, default=None)
    scale: Frag | None = declare(OPERAND, default=None)
    span: Span = SPAN

    @property
    def slots(self) -> float:
        """Instructions for one element: two elements take a permutation, bit operations and the multiply-adds.

        Four integers take eight.
        """
        if self.result.type.dtype is DType.I8:
            return 2.0
        return 1.5 + sum(a is not None for a in (self.zero, self.scale)) / 2


@dataclass(frozen=True, slots=True)
class PairSteps:
    """How two elements are made: ``x * times + plus``, where ``x`` is a float that the bits of a half are put in.

    ``flip``: bits of a code that are inverted before.
    """

    times: float
    plus: float
    flip: int = 0


def byte_steps(form: str, bias: float, factor: float) -> tuple[int, int] | None:
    """For integers of 8 bits: the bits of a code to invert, and what is then subtracted; None for other numbers."""
    flip = 8 if form == "i4" else 0
    less = bias + flip
    if form not in ("u4", "i4") or factor != 1.0 or less != round(less) or not 0 <= less <= _MOST_LESS:
        return None
    return flip, int(less)


def is_exact(form: str, bias: float, factor: float, dtype: DType) -> bool:
    """Whether the numbers of ``form``, less ``bias`` and times ``factor``, are unpacked to ``dtype`` without error."""
    if dtype is DType.I8:
        return byte_steps(form, bias, factor) is not None
    return pair_steps(form, bias, factor, dtype) is not None


def pair_steps(form: str, bias: float, factor: float, dtype: DType) -> PairSteps | None:
    """The steps for numbers of ``form``; None where a number or a constant is not exact in ``dtype``."""
    if dtype not in _INTEGER_BASE or not all(_exact((n - bias) * factor, dtype) for n in FORMS[form]):
        return None
    if form == "f4e2m1":
        steps = PairSteps(factor / _SMALL_ONE[dtype], -0.0)
        return steps if bias == 0.0 and _exact(steps.times, dtype) else None
    lowest = FORMS[form][8] if form == "i4" else 0.0
    steps = PairSteps(factor, (lowest - bias - _INTEGER_BASE[dtype]) * factor, 8 if form == "i4" else 0)
    return steps if _exact(steps.times, dtype) and _exact(steps.plus, dtype) else None


def _exact(x: float, dtype: DType) -> bool:
    return bool(round_to(x, dtype) == x)  # type: ignore[arg-type]


def packed_layout(layout: FragLayout, axis: str, into: str) -> FragLayout | None:
    """The layout of the bytes, along ``into``, of elements in ``layout`` along ``axis``.

    None where the two elements of a byte are not neighbours in the registers of one thread.
    """
    first, *rest = layout.reg or (Mode(1, None),)
    others = [m for m in (*rest, *layout.lane, *layout.warp) if m.axis == axis and m.size > 1]
    if first.axis != axis or first.stride != 1 or first.size % 2 or any(m.stride % 2 for m in others):
        return None

    def halved(m: Mode) -> Mode:
        return m if m.axis != axis else replace(m, axis=into, stride=m.stride // 2)

    head = () if first.size == 2 else (Mode(first.size // 2, into, 1),)
    return FragLayout((*head, *map(halved, rest)), tuple(map(halved, layout.lane)), tuple(map(halved, layout.warp)))


def word_layout(bytes_: FragLayout, into: str) -> FragLayout | None:
    """The layout in which each of four lanes has the bytes of all of them; None where ``bytes_`` has no such lanes."""
    first, *rest = bytes_.lane or (Mode(1, None),)
    if (first.size, first.axis, first.stride) != (4, into, 1):
        return None
    return FragLayout((Mode(4, into, 1), *bytes_.reg), (Mode(4, None), *rest), bytes_.warp)

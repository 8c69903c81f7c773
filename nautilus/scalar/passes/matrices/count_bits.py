"""``count-bits``: a sum over the bits of integers is the number of bits that are set, a few instructions for each word.

Distances of packed codes compare one bit after another as they are written::

    h[q, n] = sum[w, s: 32](((a[q, w] ^ b[n, w]) >> s) & 1)      h[q, n] = sum[w](ones(a[q, w] ^ b[n, w]))

``ones`` adds neighbouring bits, then the numbers of pairs, of nibbles and of bytes (Warren, Hacker's Delight, 5-1)::

    x -= x >> 1 & 0x55555555;   x = (x & 0x33333333) + (x >> 2 & 0x33333333);   x = x + (x >> 4) & 0x0f0f0f0f
    ones = x * 0x01010101 >> 24

A term may be any function of the bits at position ``s`` of up to :data:`WORDS` integers, and read nothing else along
``s``, as long as it has two values.  A truth table says for which bits it has the second one, and these are the bits of
one word that is computed from all of them: bits that differ, ``a ^ b``, those that both have, and products of signs
``(2 * (a >> s & 1) - 1) * (2 * (b >> s & 1) - 1)``.  A condition on ``s`` is part of the term.  A bit is
``x >> s & 1``, ``(x >> s) % 2`` or ``x & 1 << s != 0``.

Bits after the last position are cleared, and a word of 64 bits is two of 32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import product
from math import isfinite

from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Axis, Const, Expr, Op, Reduce, Var, free_vars, identity, rewrite, walk
from nautilus.core.expr.simplify import simplify_value
from nautilus.core.index.simplify import simplify
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, put_defs

WORDS = 3  # integers whose bits a term combines
LEAST = 4  # bits of a word: fewer are added as they are
_WORD, _LONG = 32, 64  # bits of words
_PROOF = "each of two values is added as often as the bits of a word say"


@dataclass(frozen=True, slots=True)
class CountBits(CertifyingPass[Program]):
    """Count the bits of every such sum."""

    name = "count-bits"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program without sums over bits, and a certificate for each of them."""
        certificates: list[Certificate] = []
        for name, d in find_defs(program).items():
            found = _counted(d)
            if found is not None:
                certificates.append(found[1])
                program = put_defs(program, name, (found[0],))
        return program, tuple(certificates)


def _counted(d: Def) -> tuple[Def, Certificate] | None:
    """``d`` without an axis of bits, and the proof of the sum over it; None where it has none."""
    if d.op != "sum" or d.scatter is not None or d.at is not None or d.value.dtype not in (DType.I32, DType.F32):
        return None
    for axis in d.red:
        n, over = size(axis) or 0, axis.name
        mine = [c for c in conjuncts(d.guard) if over in free_vars(c)]
        guard = conjunction(c for c in conjuncts(d.guard) if c not in mine)
        condition = conjunction(mine)
        value = d.value if condition is None else make("select", condition, d.value, identity("sum", d.value.dtype))
        before = Reduce("sum", (axis,), condition, d.value, d.value.dtype, d.span)
        total = _total(value, axis) if LEAST <= n <= _LONG else None
        red = tuple(a for a in d.red if a is not axis)
        if total is not None and (red or guard is None):
            made = replace(d, red=red, op="sum" if red else None, value=total, guard=guard)
            return made, Certificate("count-bits", d.name, before, total, (), (), (), _PROOF, d.span)
    return None


def _total(value: Expr, axis: Axis) -> Expr | None:
    """The sum of ``value`` over ``axis``; None where it is not made of bits, or has more than two values."""
    bits, n = dict.fromkeys(_bits(value, axis.name)), size(axis) or 0
    words = tuple(dict.fromkeys(word for _, word in bits))
    if not 0 < len(words) <= WORDS or any(w.dtype is not words[0].dtype for w in words):
        return None
    if n > (_LONG if words[0].dtype is DType.I64 else _WORD):
        return None
    cases = tuple(product((0, 1), repeat=len(words)))
    values = [_value(value, dict(zip(words, case, strict=True)), axis.name) for case in cases]
    found = list(dict.fromkeys(v.value for v in values if v is not None))
    if None in values or len(found) != 2 or not all(map(isfinite, found)):  # 0 times inf would be NaN
        return None
    rare = [c for c, v in zip(cases, values, strict=True) if v is not None and v.value == found[1]]
    count = _ones(_word(words, rare), n)
    total = count if value.dtype is DType.I32 else make("cast", count, dtype=value.dtype)
    low, step = found[0], found[1] - found[0]
    total = total if step == 1 else make("mul", total, Const(step, value.dtype))
    return total if low == 0 else make("add", total, Const(low * n, value.dtype))


def _simple(e: Expr) -> Expr:
    return simplify_value(simplify(e))


def _bits(e: Expr, s: str) -> Iterator[tuple[Expr, Expr]]:
    """The bits at position ``s`` in ``e``, each with its word."""
    for x in walk(e):
        word = _bit(x, s)
        if word is not None:
            yield x, word


def _bit(e: Expr, s: str) -> Expr | None:
    """The word of which ``e`` is bit ``s``, or says whether it is set; None for another expression."""
    match e:
        case Op(op="bit_and", args=(Op(op="shift_right", args=(word, at)), Const(value=1))) if _is(at, s):
            found = word
        case Op(op="mod", args=(Op(op="shift_right", args=(word, at)), Const(value=2))) if _is(at, s):
            found = word
        case Op(op="ne", args=(Op(op="bit_and", args=(word, Op(op="shift_left", args=(one, at)))), none)) if _is(at, s):
            if not (isinstance(one, Const) and one.value == 1 and isinstance(none, Const) and none.value == 0):
                return None
            found = word
        case _:
            return None
    return found if s not in free_vars(found) else None


def _is(e: Expr, s: str) -> bool:
    """Whether ``e`` is the variable ``s``, maybe in 64 bits."""
    return e == Var(s) or (isinstance(e, Op) and e.op == "cast" and e.dtype is DType.I64 and e.args == (Var(s),))


def _value(e: Expr, bits: dict[Expr, int], s: str) -> Const | None:
    """``e`` where the words ``bits`` have these bits at position ``s``; None where it depends on more."""

    def rule(x: Expr) -> Expr | None:
        word = _bit(x, s)
        if word is None or word not in bits:
            return None
        return Const(bool(bits[word]) if x.dtype is DType.BOOL else bits[word], x.dtype)

    found = _simple(rewrite(_simple(rewrite(e, rule)), _converted))
    return found if isinstance(found, Const) else None


def _converted(e: Expr) -> Const | None:
    """A small integer, which ``e`` converts to another type of integers."""
    match e:
        case Op(op="cast", args=(Const(value=int(value)),)) if e.dtype.is_int and abs(value) < 1 << 7:
            return Const(int(value), e.dtype, e.span)
    return None


def _word(words: Sequence[Expr], rare: Sequence[Sequence[int]]) -> Expr:
    """A word whose bits are set where those of ``words`` are one of ``rare``."""
    first, *more = words
    if len(words) == 1:
        return first if list(rare) == [(1,)] else make("bit_not", first)
    if len(words) == 2 and len(rare) == 2 and {sum(case) % 2 for case in rare} in ({0}, {1}):
        differ = make("bit_xor", first, *more)
        return differ if sum(rare[0]) % 2 else make("bit_not", differ)
    alternatives: list[Expr] = []
    for case in rare:
        bits = [w if b else make("bit_not", w) for w, b in zip(words, case, strict=True)]
        alternatives.append(reduce(lambda a, b: make("bit_and", a, b), bits))
    return reduce(lambda a, b: make("bit_or", a, b), alternatives)


def _ones(word: Expr, n: int) -> Expr:
    """The number of the first ``n`` bits of ``word`` that are set."""
    if word.dtype is DType.I64:
        low = make("cast", word, dtype=DType.I32)
        high = make("cast", make("shift_right", word, number(_WORD, DType.I64)), dtype=DType.I32)
        return _ones(low, min(n, _WORD)) if n <= _WORD else calc("add", _ones(low, _WORD), _ones(high, n - _WORD))
    x = word if n == _WORD else calc("bit_and", word, (1 << n) - 1)
    x = calc("sub", x, calc("bit_and", calc("shift_right", x, 1), 0x55555555))
    x = calc("add", calc("bit_and", x, 0x33333333), calc("bit_and", calc("shift_right", x, 2), 0x33333333))
    x = calc("bit_and", calc("add", x, calc("shift_right", x, 4)), 0x0F0F0F0F)
    return calc("shift_right", calc("mul", x, integer(0x01010101)), 24)

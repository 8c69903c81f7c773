"""Products of the decays of a matrix state over the steps of a chunk, for ``chunk-matrix-states``.

A decay is ``exp(w)``, so that ``G(s, t)``, its product over the steps after ``s`` up to ``t``, is the exponential of a
difference of running sums of ``w`` inside a chunk.  Its positions are those of the axes on which ``w`` depends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, free_vars, substitute
from nautilus.core.types import DType
from nautilus.scalar.analysis.states.exponents import LEAST
from nautilus.scalar.analysis.symbolic import multiplied

if TYPE_CHECKING:
    from nautilus.scalar.rewriting.states.chunks import StateChunks

ZERO: Final = 4096  # the mark of a factor that is 0, more than there are steps in a chunk
UNIT: Final = 256.0  # coarse parts of exponents are multiples of 1 / UNIT; sums of 512 of at most 128 are exact in f32


class Decays:
    """The products of ``exp(w)``, times the signs and zeros of ``marks``, over the steps of the chunks ``c``.

    ``marks``: :data:`ZERO` where the decay is 0, 1 where it is negative, and 0 elsewhere; None where it is positive.
    ``prefix``: of the names of tensors.
    """

    def __init__(self, c: StateChunks, w: Expr, marks: Expr | None, prefix: str = "") -> None:
        self.c, self.m, self.w, self.marks, self.prefix, self.dtype = c, c.m, w, marks, prefix, c.dtype
        used = free_vars(w)
        self.varies = c.t in used
        self.outer = tuple(a for a in c.m.outer if a.name in used)
        self.inner = tuple(a for a in (*c.m.rows, *c.m.columns) if a.name in used)
        self.sums: tuple[str, ...] = ()  # of exponents, in parts
        self.counts = ""  # the running sums of marks
        if self.varies:
            self._running()

    def _running(self) -> None:
        """The running sums of exponents in each chunk, in parts (``chunk-matrix-states``)."""
        c, m = self.c, self.m
        u, place = Var(c.source), Var(c.place)
        at = calc("add", calc("mul", Var(c.chunk), c.length), u)
        inside = c.inside_of(at)
        guard = conjunction((calc("le", *((place, u) if m.reverse else (u, place))), inside))
        par = (*self.outer, c.axis(c.chunk, c.count), c.axis(c.place, c.length), *self.inner)
        red = (c.axis(c.source, c.length),)
        w = substitute(self.w, {c.t: at})
        if self.marks is not None:
            self.counts = c.define(f"{self.prefix}marks", par, substitute(self.marks, {c.t: at}), red, guard).name
        if c.short is not None:
            self.sums = (c.define(f"{self.prefix}exponent", par, w, red, guard).name,)
            return
        scaled = Op("round", (Op("mul", (w, Const(UNIT, self.dtype)), self.dtype),), self.dtype)
        coarse = Op("mul", (scaled, Const(1.0 / UNIT, self.dtype)), self.dtype)
        fine = Op("sub", (w, coarse), self.dtype)
        parts = (("exponent_coarse", coarse), ("exponent_fine", fine))
        self.sums = tuple(c.define(f"{self.prefix}{name}", par, part, red, guard).name for name, part in parts)

    def power(self, e: Expr, marks: Expr | None) -> Expr:
        """The product of factors whose exponents add to ``e`` and whose marks add to ``marks``."""
        least = Op("max", (e, Const(math.log(LEAST), self.dtype)), self.dtype)
        made = Op("exp", (least,), self.dtype)
        if marks is None:
            return made
        sign = calc("sub", 1, calc("mul", 2, calc("mod", marks, 2)))
        kept = Op("cast", (calc("lt", marks, ZERO),), DType.I32)
        return multiplied(made, Op("cast", (calc("mul", kept, sign),), self.dtype))

    def until(self, t: Expr, before: bool = False) -> tuple[Expr, ...]:
        """The parts of the sum of exponents in the chunk of ``t``, to its step; ``before``: to the step before it."""
        return self.sums_until(self.sums, self.dtype, t, before)

    def marks_until(self, t: Expr, before: bool = False) -> Expr:
        """The sum of the marks of decays in the chunk of ``t``, as :meth:`until`."""
        return self.sums_until([self.counts], DType.I32, t, before)[0]

    def sums_until(self, names: Sequence[str], dtype: DType, t: Expr, before: bool) -> tuple[Expr, ...]:
        """The elements of the running sums ``names``, as :meth:`until`."""
        c = self.c
        place: Expr = calc("mod", t, c.length)
        far = 0 if not before else 1 if self.m.reverse else -1
        outer, inner = ([Var(a.name) for a in axes] for axes in (self.outer, self.inner))
        index = (*outer, calc("floordiv", t, c.length), calc("add", place, far) if far else place, *inner)
        found = [Load(name, index, dtype, self.m.span) for name in names]
        if not before:
            return tuple(found)
        inside = calc("lt", place, c.length - 1) if self.m.reverse else calc("lt", integer(0), place)
        if self.m.reverse and c.ragged:
            inside = calc("and", inside, calc("lt", calc("add", t, 1), c.steps))
        return tuple(calc("select", inside, x, number(0, dtype)) for x in found)

    def repeated(self, steps: Expr) -> Expr:
        """The product of ``steps`` decays that do not depend on the step."""
        marks = None if self.marks is None else calc("mul", self.marks, steps)
        return self.power(Op("mul", (Op("cast", (steps,), self.dtype), self.w), self.dtype), marks)

    def behind(self, s: Expr, t: Expr, before: bool = False) -> Expr:
        """``G(s, t)``; ``before``: up to the step before ``t``."""
        if not self.varies:
            far = calc("sub", s, t) if self.m.reverse else calc("sub", t, s)
            return self.repeated(calc("sub", far, 1) if before else far)
        both = zip(self.until(t, before), self.until(s), strict=True)
        total = _total([Op("sub", pair, self.dtype) for pair in both])
        marks = None if self.marks is None else calc("sub", self.marks_until(t, before), self.marks_until(s))
        return self.power(total, marks)

    def entering(self, t: Expr, before: bool) -> Expr:
        """The product of the factors from the first step of the chunk to ``t``; ``before``: to the step before it."""
        if not self.varies:
            within = calc("mod", t, self.c.length)
            done = calc("sub", self.c.length - 1, within) if self.m.reverse else within
            return self.repeated(done if before else calc("add", done, 1))
        marks = None if self.marks is None else self.marks_until(t, before)
        return self.power(_total(self.until(t, before)), marks)

    def whole(self, chunk: Expr) -> Expr:
        """The product of all factors of a chunk that another one follows."""
        if self.varies:
            return self.entering(self.c.last(chunk), before=False)
        return self.repeated(integer(self.c.length))


def _total(parts: Sequence[Expr]) -> Expr:
    total, *others = parts
    for x in others:
        total = Op("add", (total, x), total.dtype)
    return total

"""Shift and scale invariance: a dataflow analysis of how values change with a running reference.

A rolling update keeps ``A = sum f(x, r)`` under a running reference ``r`` and repairs ``A`` when ``r`` changes.  If
``r`` changes by ``d``, every value of the kernel either stays, changes by ``w * d`` (*shift*: ``r`` itself, the
logarithm of a sum) or is multiplied by ``2^(w * d)`` (*scale*: ``A``, the exponentials).  :class:`Forms` computes the
weights ``w`` op by op, one for each independent ``d``.  The loop of the reference has two: ``old`` for the carried
reference and ``new`` for the next one.  The forms of carried values follow from the yielded values, with ``new``
replaced by ``old``.

If the form of every store is *invariant*, the outputs do not depend on the references: by induction over the
iterations, any sequence of references gives the same outputs as the true one.  Two cases need separate arguments: the
identity of the reference (-inf), which neither replaces nor is replaced by another reference, and rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field

from nautilus.core.expr.nodes import COMPARISONS, refs
from nautilus.core.numerics import LOG2E
from nautilus.core.records import dataclass
from nautilus.vr_tile.ir import (
    ConstOp,
    DotOp,
    ForOp,
    IndexOp,
    LoadOp,
    MapOp,
    ParamOp,
    ReduceOp,
    ScanOp,
    StoreOp,
    TileOp,
    Value,
    ValueOp,
    expressions,
)


@dataclass(frozen=True, slots=True)
class Form:
    """``kind`` is shift, scale, fixed (invariant), open (not known yet) or broken (none of these)."""

    kind: str
    weights: tuple[tuple[str, float], ...] = ()

    def weight(self, name: str) -> float:
        """The weight of reference ``name``; 0 for one that has no effect."""
        return dict(self.weights).get(name, 0.0)

    def times(self, k: float) -> Form:
        """The form of ``k`` times the value."""
        return made(self.kind, {n: w * k for n, w in self.weights})

    def renamed(self, old: str, new: str) -> Form:
        """The form with the reference ``new`` in place of ``old``."""
        return Form(self.kind, tuple(sorted((new if n == old else n, w) for n, w in self.weights)))


FIXED, OPEN, BROKEN = Form("fixed"), Form("open"), Form("broken")


def made(kind: str, weights: Mapping[str, float]) -> Form:
    """A form without weights of 0; invariant where none is left."""
    kept = tuple(sorted((n, w) for n, w in weights.items() if abs(w) > 1e-9))
    return Form(kind, kept) if kept else FIXED


def moved(name: str, weight: float = 1.0) -> Form:
    """The form of the reference itself."""
    return made("shift", {name: weight})


def same(a: Form, b: Form) -> bool:
    """Whether two forms are equal up to rounding of the weights."""
    x, y = dict(a.weights), dict(b.weights)
    return a.kind == b.kind and x.keys() == y.keys() and all(abs(x[n] - y[n]) <= 1e-6 * abs(x[n]) for n in x)


def _sum(a: Form, b: Form, kind: str, sign: float = 1.0) -> Form:
    """Weights added, where both are of ``kind`` or invariant."""
    if OPEN in (a, b):
        return OPEN
    if a.kind not in (kind, "fixed") or b.kind not in (kind, "fixed"):
        return BROKEN
    names = dict(a.weights).keys() | dict(b.weights).keys()
    return made(kind, {n: a.weight(n) + sign * b.weight(n) for n in names})


@dataclass(frozen=True, slots=True)
class _Reference:
    """Names of a loop's reference: carried, next, at the entry (None: a fixed value) and after the loop."""

    old: str | None
    new: str | None
    before: str | None
    after: str | None

    def at(self, f: Form, this: str | None, other: str | None) -> Form:
        """``f`` with ``other`` in the place of ``this``; as it is where the loop has no reference."""
        return f if this is None or other is None else f.renamed(this, other)


@dataclass(slots=True)
class Forms:
    """Forms of the values of one kernel; ``references``: a loop's first result -> the slot that it carries it in."""

    references: Mapping[str, int]
    forms: dict[str, Form] = field(default_factory=dict)
    defs: dict[str, TileOp] = field(default_factory=dict)
    free: dict[str, Form] = field(default_factory=dict)  # values that stand for a reference chosen at will
    above: Mapping[str, str] = field(default_factory=dict)  # maximum that stands for a reference -> the number in it
    problems: list[str] = field(default_factory=list)

    def of(self, v: Value) -> Form:
        """The form of ``v``."""
        return self.forms.get(v.name, FIXED)

    def number(self, v: Value) -> float | None:
        """The number that ``v`` is, if it is a constant."""
        op = self.defs.get(v.name)
        return float(op.value) if isinstance(op, ConstOp) else None

    def block(self, body: Iterable[TileOp], final: bool = True) -> None:
        """Forms of a block's values; ``final``: what is carried into it is known, so problems are real."""
        for op in body:
            if isinstance(op, ForOp):
                self._loop(op, final)
            elif isinstance(op, StoreOp):
                if final and (self.of(op.value).kind != "fixed" or not self._fixed_refs(op)):
                    self.problems.append(f"{op.buffer} stores a value that depends on the reference")
            else:
                self.defs[op.result.name] = op
                known = self.free.get(op.result.name)
                self.forms[op.result.name] = self._form(op) if known is None else known

    def _fixed_refs(self, op: TileOp) -> bool:
        return all(self.forms.get(r, FIXED) == FIXED for e in expressions(op) for r in refs(e))

    def _form(self, op: ValueOp) -> Form:
        match op:
            case ConstOp() | ParamOp():
                return FIXED
            case IndexOp() | LoadOp():
                return FIXED if self._fixed_refs(op) else BROKEN
            case MapOp():
                return self.mapped(op)
            case ReduceOp(combiner=combiner, arg=arg):
                f = self.of(arg)
                kept = combiner in ("max", "min") or (combiner == "sum" and f.kind == "scale")
                return f if kept or f.kind in ("fixed", "open") else BROKEN
            case ScanOp(arg=arg, by=by, factors=factors):
                f = self.of(arg)
                fixed = all(self.of(x) == FIXED for x in (*factors, *(() if by is None else (by,))))
                kept = f.kind in ("fixed", "open") and fixed
                return f if kept else BROKEN
            case DotOp(a=a, b=b, acc=acc):
                product = _sum(self.of(a), self.of(b), "scale")
                return product if acc is None else self._joined(product, self.of(acc), None, self.number(acc))

    def _joined(self, a: Form, b: Form, x: float | None = None, y: float | None = None) -> Form:
        """One form for both; constants ``x`` and ``y`` that any factor (shift) keeps take the other's."""
        if a == OPEN or b == OPEN:
            return b if a == OPEN else a
        if same(a, b):
            return a
        for f, c in ((a, y), (b, x)):
            keeps = c is not None and ((f.kind == "scale" and c == 0.0) or (f.kind == "shift" and math.isinf(c)))
            if keeps:
                return f
        return BROKEN

    def mapped(self, op: MapOp) -> Form:
        """The form of an elementwise op's result."""
        args = [self.of(a) for a in op.args]
        if all(f == FIXED for f in args):
            return FIXED
        if BROKEN in args:
            return BROKEN
        numbers = [self.number(a) for a in op.args]
        match op.op:
            case "neg":
                return args[0].times(-1.0) if args[0].kind == "shift" else args[0]
            case "cast" | "narrow":
                return args[0] if op.result.type.dtype.is_float else BROKEN
            case "add" | "sub" as name:
                return self._added(args[0], args[1], numbers, 1.0 if name == "add" else -1.0)
            case "mul" | "mul_unless_one":
                return self._product(args[0], args[1], numbers)
            case "fma":
                product = self._product(args[0], args[1], numbers[:2])
                return self._added(product, args[2], [None, numbers[2]], 1.0)
            case "div" | "rcp" | "sqrt" | "rsqrt":
                return self._quotient(op.op, args, numbers)
            case "exp" | "exp2" | "log" | "log2" as name:
                return _transcendental(name, args[0])
            case "max" if op.result.name in self.above:
                return self._larger(op, self.above[op.result.name])
            case "max" | "min":
                return self._joined(args[0], args[1], numbers[0], numbers[1])
            case "select":
                return self._select(op, args, numbers)
        return self._compared(args, numbers) if op.op in COMPARISONS else BROKEN

    def _larger(self, op: MapOp, number: str) -> Form:
        """The form of the reference of which ``op`` is the larger one beside the invariant ``number``."""
        others = [self.of(a) for a in op.args if a.name != number]
        return others[0] if len(others) == 1 and self.forms.get(number, FIXED) == FIXED else BROKEN

    def _added(self, a: Form, b: Form, numbers: list[float | None], sign: float) -> Form:
        if "scale" in (a.kind, b.kind):
            return self._joined(a, b, *numbers)
        if OPEN in (a, b):
            return b if a == OPEN else a
        return _sum(a, b, "shift", sign)

    def _product(self, a: Form, b: Form, numbers: list[float | None]) -> Form:
        for f, k in ((a, numbers[1]), (b, numbers[0])):
            if f.kind == "shift" and k is not None:
                return f.times(k)
        return _sum(a, b, "scale")

    def _quotient(self, name: str, args: list[Form], numbers: list[float | None]) -> Form:
        if OPEN in args:
            return OPEN
        if name == "div":
            a, b = args
            if a.kind == "shift" and numbers[1]:
                return a.times(1.0 / numbers[1])
            return _sum(a, b, "scale", -1.0)
        power = {"rcp": -1.0, "sqrt": 0.5, "rsqrt": -0.5}[name]
        return args[0].times(power) if args[0].kind == "scale" else BROKEN

    def _select(self, op: MapOp, args: list[Form], numbers: list[float | None]) -> Form:
        if numbers[1] is not None and self.is_identity_test(op.args[0], op.args[2]):
            return args[2]  # select(r == identity, c, r): a finite stand-in, see the module docstring
        if self.is_undefined(op.args[0], op.args[1]):
            return args[2]  # NaN, which any factor or shift keeps
        return self._joined(args[1], args[2], numbers[1], numbers[2]) if args[0] == FIXED else BROKEN

    def is_identity_test(self, cond: Value, r: Value) -> bool:
        """``cond`` is ``r == -inf`` (or inf)."""
        test = self.defs.get(cond.name)
        if not (isinstance(test, MapOp) and test.op == "eq" and test.args[0] == r):
            return False
        value = self.number(test.args[1])
        return value is not None and math.isinf(value)

    def is_undefined(self, cond: Value, v: Value) -> bool:
        """``v`` is NaN wherever ``cond`` holds: ``r - r``, where ``cond`` implies that ``r`` is infinite."""
        made = self.defs.get(v.name)
        while isinstance(made, MapOp) and made.op == "cast" and made.result.type.dtype.is_float:
            made = self.defs.get(made.args[0].name)
        if not (isinstance(made, MapOp) and made.op == "sub" and made.args[0] == made.args[1]):
            return False
        test = self.defs.get(cond.name)
        if isinstance(test, MapOp) and test.op == "and":
            return any(self.is_undefined(c, v) for c in test.args)
        return self.is_identity_test(cond, made.args[0])

    def _compared(self, args: list[Form], numbers: list[float | None]) -> Form:
        if OPEN in args:
            return OPEN
        return BROKEN if self._joined(args[0], args[1], numbers[0], numbers[1]) == BROKEN else FIXED

    # -- loops ----------------------------------------------------------------------------------
    def _loop(self, op: ForOp, final: bool) -> None:
        slot = self.references.get(op.results[0].name) if op.results else None
        if slot is None:
            ref = _Reference(None, None, None, None)
        else:
            old, new, after = op.carried[slot][0].name, op.yields[slot].name, op.results[slot].name
            ref = _Reference(old, new, self._entry(op, slot), after)
            self.free[new] = moved(new)
        carried = [moved(op.carried[n][0].name) if n == slot else OPEN for n in range(len(op.carried))]
        self._enter(op, carried)
        self.block(op.body, False)
        for n, y in enumerate(op.yields):
            if n != slot:
                f = self.of(y)
                carried[n] = FIXED if f == OPEN else ref.at(f, ref.new, ref.old)
        self._enter(op, carried)
        self.block(op.body, final)
        for n, (f, y, (arg, init)) in enumerate(zip(carried, op.yields, op.carried, strict=True)):
            repaired = self._starts(init, f, ref) and same(self.of(y), ref.at(f, ref.old, ref.new))
            if final and n != slot and not repaired:
                self.problems.append(f"%{arg.name} is not repaired from one reference to the next")
            self.forms[op.results[n].name] = ref.at(f, ref.old, ref.after)

    def _entry(self, op: ForOp, slot: int) -> str | None:
        """The reference of an earlier loop that this one goes on with; None: it starts with a fixed value."""
        init = self.of(op.carried[slot][1])
        if init.kind == "shift" and same(init, moved(init.weights[0][0])):
            return init.weights[0][0]
        if init != FIXED:
            self.problems.append(f"%{op.carried[slot][1].name} is not a reference")
        return None

    def _starts(self, init: Value, f: Form, ref: _Reference) -> bool:
        """What enters the loop has form ``f`` under the reference that enters it."""
        if ref.before is not None:
            return same(self.of(init), ref.at(f, ref.old, ref.before))
        return same(self._joined(self.of(init), f, self.number(init)), f)

    def _enter(self, op: ForOp, carried: list[Form]) -> None:
        for (arg, _), f in zip(op.carried, carried, strict=True):
            self.forms[arg.name] = f


def _transcendental(name: str, f: Form) -> Form:
    if f == OPEN:
        return OPEN
    if name in ("exp", "exp2") and f.kind == "shift":
        return made("scale", dict(f.times(LOG2E if name == "exp" else 1.0).weights))
    if name in ("log", "log2") and f.kind == "scale":
        return made("shift", dict(f.times(1.0 / LOG2E if name == "log" else 1.0).weights))
    return BROKEN

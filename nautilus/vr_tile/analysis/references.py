"""Groups of exponentials under one reference, and whether the rounding of the reference cancels in the outputs.

An *element* is ``exp2(fma(x, k, b))`` with ``b = r * -k + n``: a tile ``x`` under the reference ``r`` of its rows, and
a constant ``n`` (``raise-exponents``) or 0.  Where the factor of ``r`` is another one, as in ``(x * s - r) * k``, the
element has the *scale* ``s``, unless ``r * k`` is exact.  A *repair* is ``exp2((u - r) * k)`` with the shape of ``r``.
Values are copies of one reference if selections, maxima, and the initial, carried, yielded and final values of loops
connect them.  A *term* is ``exp2(fma(r, -k, y * (s k)))`` with the shape of ``r``, where ``s`` is a power of two and
``r`` the larger one of ``s y`` and another value: the exponential of a number beside the elements.

A group whose scales are powers of two, or 1, is *closed* under two conditions.

* No output depends on the reference (``analysis.invariance``).  Then elements and repairs can have ``t = round(r * k)``
  instead of ``r * k`` as their reference: all sums of a row have the factor ``2^(r * k - t)`` in common.
* Nothing reads the copies except its elements, its repairs, its terms, comparisons, and sums with a logarithm, which
  differ by at most half a unit in the last place of the reference.

Where one number ``v`` is below all references, as in ``max(v, m)`` for a running maximum ``m``, the reference is a
function of ``m``.  Outputs that are the same for all references are the same for these if ``v`` is the same number in
all iterations, and if an ``m`` without it is only copied or compared with a constant.

A group that stores its reference is open: another kernel compares it with the references of other sums.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field, replace

from nautilus.core.expr.nodes import COMPARISONS
from nautilus.core.expr.quotients import is_power_of_two
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.vr_tile.analysis.invariance import Forms, moved
from nautilus.vr_tile.ir import (
    ConstOp,
    DotOp,
    ForOp,
    LoadOp,
    MapOp,
    TileKernel,
    TileOp,
    Value,
    operands,
    results,
    walk_ops,
)


@dataclass(frozen=True, slots=True)
class Element:
    """The exponential of ``(x * scale - reference) * factor + raised``; ``sum`` is the multiply-add, ``below`` its
    addend."""

    result: Value
    x: Value
    reference: Value
    factor: float
    raised: float
    sum: Value
    below: Value
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Repair:
    """The exponential of ``(old - reference) * factor``."""

    result: Value
    old: Value
    reference: Value
    factor: float
    difference: Value


@dataclass(frozen=True, slots=True)
class Group:
    """Elements, repairs and terms whose references are copies of one."""

    elements: tuple[Element, ...]
    repairs: tuple[Repair, ...]
    terms: tuple[Element, ...]
    closed: bool

    @property
    def is_uniform(self) -> bool:
        """Whether all elements have one factor and one constant."""
        first = self.elements[0]
        return all(_same(e.factor, first.factor) and e.raised == first.raised for e in self.elements)


def _without(group: Group, terms: set[str]) -> Group:
    """``group`` without the elements that are terms of another one; what they read opens it."""
    kept = tuple(e for e in group.elements if e.result.name not in terms)
    return group if kept == group.elements else replace(group, elements=kept, closed=False)


@dataclass(slots=True)
class References:
    """The groups of a kernel, and what its values are computed from."""

    kernel: TileKernel
    defs: dict[str, TileOp] = field(default_factory=dict)
    readers: dict[str, list[TileOp]] = field(default_factory=lambda: defaultdict(list))
    _copy_of: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for op in walk_ops(self.kernel.body):
            self.defs |= {r.name: op for r in results(op)}
            for v in operands(op):
                self.readers[v.name].append(op)
            if isinstance(op, ForOp):
                for (arg, init), y, end in zip(op.carried, op.yields, op.results, strict=True):
                    self.readers[y.name].append(op)
                    for v in (init, y, end):
                        self._join(arg, v)
            elif isinstance(op, MapOp) and op.op in ("select", "max", "min"):
                for v in op.args[1:] if op.op == "select" else op.args:
                    self._join(op.result, v)

    def groups(self) -> tuple[Group, ...]:
        """The groups of the kernel's exponentials, in program order."""
        elements: dict[str, list[Element]] = {}
        for op in walk_ops(self.kernel.body):
            if (e := self.element(op)) is not None:
                elements.setdefault(self._root(e.reference.name), []).append(e)
        groups = [self._group(root, tuple(found)) for root, found in elements.items()]
        terms = {t.result.name for g in groups if g.closed for t in g.terms}
        return tuple(_without(g, terms) for g in groups if not {e.result.name for e in g.elements} <= terms)

    def is_rounded_sum(self, v: Value) -> bool:
        """Whether every element of ``v`` is a constant or depends on a sum of products that is rounded to f32."""
        return self._rounded(v, set()) is True

    def loaded(self, v: Value) -> str | None:
        """The buffer of which ``v`` is an element."""
        op = self.defs.get(v.name)
        return op.buffer if isinstance(op, LoadOp) else None

    def is_logarithm(self, v: Value) -> bool:
        """Whether ``v`` is a logarithm, maybe times a constant."""
        op = self.defs.get(self.scaled(v)[0].name)
        return isinstance(op, MapOp) and op.op in ("log", "log2")

    def _rounded(self, v: Value, seen: set[str]) -> bool | None:
        """None for a constant and for a value that is being computed."""
        if v.name in seen:
            return None
        op = self.defs.get(v.name)
        match op:
            case DotOp():
                return v.type.dtype is DType.F32
            case ForOp():
                slot = [r.name for r in op.results].index(v.name)
                arg, init = op.carried[slot]
                seen = seen | {v.name, arg.name}
                return _every([self._rounded(x, seen) for x in (init, op.yields[slot])])
            case MapOp(op="select" | "max" | "min", args=args):
                return _every([self._rounded(a, seen) for a in (args[1:] if op.op == "select" else args)])
            case MapOp(args=args):
                return any(self._rounded(a, seen) for a in args)
            case ConstOp():
                return None
        return False

    # -- copies ---------------------------------------------------------------------------------
    def _root(self, name: str) -> str:
        while (above := self._copy_of.get(name, name)) != name:
            name = above
        return name

    def _join(self, a: Value, b: Value) -> None:
        if a.type == b.type and not isinstance(self.defs.get(b.name), ConstOp):
            self._copy_of[self._root(a.name)] = self._root(b.name)

    # -- exponentials ---------------------------------------------------------------------------
    def _number(self, v: Value) -> float | None:
        op = self.defs.get(v.name)
        return float(op.value) if isinstance(op, ConstOp) and not v.type.axes else None

    def scaled(self, v: Value) -> tuple[Value, float]:
        """``(x, c)`` where ``v`` is ``x * c``."""
        op = self.defs.get(v.name)
        if isinstance(op, MapOp) and op.op == "neg":
            return op.args[0], -1.0
        if isinstance(op, MapOp) and op.op == "mul":
            for x, c in (op.args, op.args[::-1]):
                n = self._number(c)
                if n is not None:
                    return x, n
        return v, 1.0

    def element(self, op: TileOp) -> Element | None:
        """``op`` as an element, if it is one in f32."""
        made = self.defs.get(op.args[0].name) if isinstance(op, MapOp) and op.op == "exp2" else None
        if not (isinstance(op, MapOp) and isinstance(made, MapOp) and made.op == "fma"):
            return None
        x, k, below = made.args
        c = self._number(k)
        r, factor, raised = self._below(below)
        same_tile = x.type == made.result.type and x.type.dtype is DType.F32
        if c is None or r == below or not same_tile or len(r.type.axes) >= len(x.type.axes):
            return None
        if _same(factor, -c):
            return Element(op.result, x, r, c, raised, made.result, below)
        if is_power_of_two(factor):
            return None
        return Element(op.result, x, r, -factor, raised, made.result, below, c / -factor)

    def _term(self, op: TileOp) -> Element | None:
        """``op`` as a term, if it is one in f32 under a reference that is at least its number."""
        made = self.defs.get(op.args[0].name) if isinstance(op, MapOp) and op.op == "exp2" else None
        if not (isinstance(op, MapOp) and isinstance(made, MapOp) and made.op == "fma"):
            return None
        r, k, below = made.args
        c = self._number(k)
        y, factor = self.scaled(below)
        if c is None or c >= 0.0 or made.result.type != r.type or r.type.dtype is not DType.F32:
            return None
        scale = factor / -c
        above = self.defs.get(r.name)
        if scale <= 0.0 or not is_power_of_two(scale) or not (isinstance(above, MapOp) and above.op == "max"):
            return None
        known = any(self._multiple(v) == (y, scale) for v in above.args)
        return Element(op.result, y, r, -c, 0.0, made.result, below, scale) if known else None

    def _multiple(self, v: Value) -> tuple[Value, float]:
        """``(y, s)`` where ``v`` is ``y * s`` or ``y / (1 / s)``."""
        op = self.defs.get(v.name)
        divisor = self._number(op.args[1]) if isinstance(op, MapOp) and op.op == "div" else None
        return (op.args[0], 1.0 / divisor) if isinstance(op, MapOp) and divisor else self.scaled(v)

    def _below(self, v: Value) -> tuple[Value, float, float]:
        """``(r, c, n)`` where ``v`` is ``r * c + n``."""
        op = self.defs.get(v.name)
        if isinstance(op, MapOp) and op.op == "fma":
            c, n = self._number(op.args[1]), self._number(op.args[2])
            return (v, 1.0, 0.0) if c is None or n is None else (op.args[0], c, n)
        return *self.scaled(v), 0.0

    def _repairs(self, elements: tuple[Element, ...]) -> Iterator[Repair]:
        for name, e in {e.reference.name: e for e in elements}.items():
            for difference in self.readers[name]:
                if not (isinstance(difference, MapOp) and difference.op == "sub" and difference.args[1] == e.reference):
                    continue
                for op in self.elementwise_readers(difference):
                    _, factor = self.scaled(op.args[0])
                    old = difference.args[0]
                    if op.op == "exp2" and _same(factor, e.factor) and old.type == e.reference.type:
                        yield Repair(op.result, old, e.reference, e.factor, difference.result)

    def elementwise_readers(self, op: MapOp) -> Iterator[MapOp]:
        """The elementwise readers of ``op``, with a product by a constant replaced by its readers."""
        for reader in self.readers[op.result.name]:
            if isinstance(reader, MapOp):
                x, _ = self.scaled(reader.result)
                yield from self._maps(reader.result) if x == op.result else (reader,)

    def _maps(self, v: Value) -> Iterator[MapOp]:
        yield from (op for op in self.readers[v.name] if isinstance(op, MapOp))

    # -- readers --------------------------------------------------------------------------------
    def _group(self, root: str, elements: tuple[Element, ...]) -> Group:
        names = {*self.defs, *self._copy_of, *self._copy_of.values()}
        copies = {n for n in names if self._root(n) == root}
        repairs = tuple(self._repairs(elements))
        terms = tuple(self._terms(elements[0], copies))
        closing = _Readers(self, {*elements}, {*repairs}, {*terms})
        known = all(closing.allowed(op, n, copies) for n in copies for op in self.readers[n])
        exact = all(is_power_of_two(e.scale) for e in elements)
        return Group(elements, repairs, terms, exact and known and self._is_invariant(copies))

    def _terms(self, e: Element, copies: set[str]) -> Iterator[Element]:
        """The terms under ``copies`` that have the factor of ``e``, which is not raised."""
        sums = (made for n in sorted(copies) for made in self.readers[n] if isinstance(made, MapOp))
        for op in (op for made in sums for op in self._maps(made.result)):
            term = self._term(op)
            if term is not None and term.reference.name in copies and _same(term.factor, e.factor) and e.raised == 0.0:
                yield term

    def _above_number(self, copies: set[str]) -> dict[str, str] | None:
        """The copies that are the larger one of another copy and of a number, by name, with the name of the number.

        None if the number is not the same one everywhere, or if something depends on a copy without it.
        """
        found: dict[str, str] = {}
        for op in (self.defs.get(n) for n in copies):
            if isinstance(op, MapOp) and op.op == "max":
                others = [a for a in op.args if a.name not in copies]
                if len(others) == 1 and not isinstance(self.defs.get(others[0].name), ConstOp):
                    found[op.result.name] = others[0].name
        plain = copies - found.keys()
        known = all(self._keeps(op, n, copies) for n in plain for op in self.readers[n])
        several = len({*found.values()}) > 1 or any(self._changes(v, copies) for v in {*found.values()})
        return None if found and (several or not known) else found

    def _keeps(self, op: TileOp, name: str, copies: set[str]) -> bool:
        """Whether ``op`` makes another copy of the copy ``name``, or compares it with a constant."""
        if isinstance(op, MapOp) and op.op in COMPARISONS:
            return all(a.name == name or self._number(a) is not None for a in op.args)
        return isinstance(op, ForOp) or (isinstance(op, MapOp) and op.result.name in copies)

    def _changes(self, name: str, copies: set[str]) -> bool:
        """Whether ``name`` is computed in a loop that carries a copy."""
        loops = (op for op in walk_ops(self.kernel.body) if isinstance(op, ForOp))
        carrying = (op for op in loops if any(arg.name in copies for arg, _ in op.carried))
        return any(
            name in {arg.name for arg, _ in loop.carried}
            or name in {r.name for op in walk_ops(loop.body) for r in results(op)}
            for loop in carrying
        )

    def _is_invariant(self, copies: set[str]) -> bool:
        """Whether the outputs are the same for all values of the reference."""
        above = self._above_number(copies)
        if above is None:
            return False
        loops: dict[str, int] = {}
        for op in walk_ops(self.kernel.body):
            if isinstance(op, ForOp):
                for slot in (n for n, (arg, _) in enumerate(op.carried) if arg.name in copies):
                    loops[op.results[0].name] = slot
        made_here = {n for n in copies if not isinstance(self.defs.get(n), MapOp)}
        forms = Forms(loops, free={} if loops else {n: moved("reference") for n in made_here}, above=above)
        forms.block(self.kernel.body)
        return not forms.problems


@dataclass(frozen=True, slots=True)
class _Readers:
    """The readers that a closed group permits."""

    of: References
    elements: set[Element]
    repairs: set[Repair]
    terms: set[Element]

    def allowed(self, op: TileOp, name: str, copies: set[str]) -> bool:
        """Whether ``op`` may read the copy ``name``."""
        if isinstance(op, ForOp):
            return True
        if not isinstance(op, MapOp):
            return False
        if op.op in COMPARISONS or op.result.name in copies:
            return True
        if any(e.below == op.result for e in self.elements):
            return self._only(op.result, {e.sum.name for e in self.elements}, {e.result.name for e in self.elements})
        if any(t.sum == op.result for t in self.terms):
            return self._only(op.result, {t.result.name for t in self.terms})
        if op.op == "sub" and {a.name for a in op.args} <= copies:
            return self._is_distance(op)
        return self._meets_logarithm(op, name)

    def _only(self, v: Value, *names: set[str]) -> bool:
        """Whether all readers of ``v`` are in the first set, their readers in the second one, and so on."""
        if not names:
            return True
        made = [op.result if isinstance(op, MapOp) else None for op in self.of.readers[v.name]]
        return all(r is not None and r.name in names[0] and self._only(r, *names[1:]) for r in made)

    def _is_distance(self, op: MapOp) -> bool:
        exponentials = {r.result.name for r in self.repairs if r.difference == op.result}
        readers = [*self.of.elementwise_readers(op)]
        known = all(isinstance(x, MapOp) for x in self.of.readers[op.result.name])
        return known and all(x.op in COMPARISONS or x.result.name in exponentials for x in readers)

    def _meets_logarithm(self, op: MapOp, name: str) -> bool:
        """Whether ``op`` adds a logarithm to the copy, or scales it for readers that do."""
        if op.op in ("add", "sub", "fma"):
            terms = [op.args[2]] if op.op == "fma" else [a for a in op.args if a.name != name]
            return any(self.of.is_logarithm(t) for t in terms)
        x, _ = self.of.scaled(op.result)
        readers = self.of.readers[op.result.name]
        meet = all(isinstance(r, MapOp) and self._meets_logarithm(r, op.result.name) for r in readers)
        return x.name == name and meet


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-12)


def _every(parts: list[bool | None]) -> bool | None:
    """False where a part is, else True where a part is."""
    return False if False in parts else True if True in parts else None

"""Groups of exponentials under one reference, and whether the rounding of the reference cancels in the outputs.

An *element* is ``exp2(fma(x, k, b))`` with ``b = r * -k + n``: a tile ``x`` under the reference ``r`` of its rows, and
a constant ``n`` (``raise-exponents``) or 0.  Where the factor of ``r`` is another one, as in ``(x * s - r) * k``, the
element has the *scale* ``s``, unless ``r * k`` is exact.  A *repair* is ``exp2((u - r) * k)`` with the shape of ``r``.
Values are copies of one reference if selections, maxima, and the initial, carried, yielded and final values of loops
connect them.

A group without scales is *closed* under two conditions.

* No output depends on the reference (``analysis.invariance``).  Then elements and repairs can have ``t = round(r * k)``
  instead of ``r * k`` as their reference: all sums of a row have the factor ``2^(r * k - t)`` in common.
* Nothing reads the copies except its elements, its repairs, comparisons, and sums with a logarithm, which differ by at
  most half a unit in the last place of the reference.

A group that stores its reference is open: another kernel compares it with the references of other sums.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field

from nautilus.core.expr.nodes import COMPARISONS
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
    """Elements and repairs whose references are copies of one."""

    elements: tuple[Element, ...]
    repairs: tuple[Repair, ...]
    closed: bool

    @property
    def is_uniform(self) -> bool:
        """Whether all elements have one factor and one constant."""
        first = self.elements[0]
        return all(_same(e.factor, first.factor) and e.raised == first.raised for e in self.elements)


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
        return tuple(self._group(root, tuple(found)) for root, found in elements.items())

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
        exact = abs(math.frexp(factor)[0]) == 0.5
        return None if exact else Element(op.result, x, r, -factor, raised, made.result, below, c / -factor)

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
        repairs = tuple(self._repairs(elements))
        closing = _Readers(self, {*elements}, {*repairs})
        names = {*self.defs, *self._copy_of, *self._copy_of.values()}
        copies = {n for n in names if self._root(n) == root}
        known = all(closing.allowed(op, n, copies) for n in copies for op in self.readers[n])
        unscaled = all(e.scale == 1.0 for e in elements)
        return Group(elements, repairs, unscaled and known and self._is_invariant(copies))

    def _is_invariant(self, copies: set[str]) -> bool:
        """Whether the outputs are the same for all values of the reference."""
        loops: dict[str, int] = {}
        for op in walk_ops(self.kernel.body):
            if isinstance(op, ForOp):
                for slot in (n for n, (arg, _) in enumerate(op.carried) if arg.name in copies):
                    loops[op.results[0].name] = slot
        made_here = {n for n in copies if not isinstance(self.defs.get(n), MapOp)}
        forms = Forms(loops, free={} if loops else {n: moved("reference") for n in made_here})
        forms.block(self.kernel.body)
        return not forms.problems


@dataclass(frozen=True, slots=True)
class _Readers:
    """The readers that a closed group permits."""

    of: References
    elements: set[Element]
    repairs: set[Repair]

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

"""Arithmetic on infinite constants is left out where its result is known.

A running maximum starts from -inf.  In an iteration that ``pipeline-mma`` has moved in front of its loop this start is
a constant, and much of the work on it is known::

    max(-inf, x)                x
    x - -inf <= c               false: the difference is inf or NaN
    select(false, a, b)         b
    fma(-inf, x, c)             -inf, where x is positive and c below inf
    exp2(-inf - x)              NaN where x is NaN, else 0, where x is above -inf
    0 * exp2(-inf - x)          the same
    binade(-inf)                2^-100

What is known of a value (:mod:`nautilus.core.functions.specials`) includes its infinities and where it is NaN, so the
results keep every bit.  A result that is a constant except where another value is NaN becomes a ``select`` of the two.
Where an operand is chosen by a comparison (``select``), both cases are judged by what the comparison says.

``dead-fragments`` removes what nothing reads afterwards.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from nautilus.core.expr.nodes import COMPARISONS
from nautilus.core.functions import FUNCTIONS
from nautilus.core.functions.specials import (
    ANYTHING,
    RULES,
    Fact,
    below,
    compared,
    constant,
    either,
    joined,
    unequal,
    within,
)
from nautilus.core.ops import map_regions
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.ma_tile.ir.ops import ConstOp, Frag, MapOp, MemKernel, MemModule, MemOp, ReduceOp, walk_ops
from nautilus.ma_tile.ir.traverse import each_kernel, reads
from nautilus.ma_tile.rewriting.renaming import Names, Renaming

_LEAST = {"max": -math.inf, "min": math.inf}


@dataclass(frozen=True, slots=True)
class FoldInfinities:
    """The pass ``fold-infinities``, which has no options."""

    name = "fold-infinities"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` without arithmetic on infinite constants."""
        return each_kernel(module, fold)


def fold(kernel: MemKernel) -> MemKernel:
    """``kernel`` without arithmetic on infinite constants whose result is known."""
    infinite = {op.result.name for op in walk_ops(kernel.body) if isinstance(op, ConstOp) and _infinite(op.value)}
    folded = (*_LEAST, *RULES)
    if not any(isinstance(op, MapOp) and op.op in folded and _reads(op, infinite) for op in walk_ops(kernel.body)):
        return kernel
    readers: defaultdict[str, list[MemOp]] = defaultdict(list)
    for op in walk_ops(kernel.body):
        for name in reads(op):
            readers[name].append(op)
    work = _Fold(Names(kernel), readers)
    body = work.block(kernel.body)
    return replace(kernel, body=body) if work.aliases or work.folded else kernel


def _infinite(value: float | bool) -> bool:
    return isinstance(value, float) and math.isinf(value)


def _reads(op: MapOp, names: set[str]) -> bool:
    return any(x.name in names for x in op.args)


@dataclass(slots=True)
class _Fold:
    """``facts`` and ``made``: of the values and ops so far; ``unordered``: whether a value is NaN, by its name."""

    names: Names
    readers: Mapping[str, list[MemOp]]
    facts: dict[str, Fact] = field(init=False, default_factory=dict)
    decided: dict[str, bool] = field(init=False, default_factory=dict)
    made: dict[str, MapOp] = field(init=False, default_factory=dict)
    unordered: dict[str, Frag] = field(init=False, default_factory=dict)
    aliases: dict[str, Frag] = field(init=False, default_factory=dict)
    folded: bool = field(init=False, default=False)

    def block(self, body: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
        known = self.unordered
        self.unordered = dict(known)  # what a region defines ends with it
        out: list[MemOp] = []
        for op in body:
            renamed = Renaming(self.aliases).op(op) if self.aliases else op
            out += self._op(renamed)
        self.unordered = known
        return tuple(out)

    def _op(self, op: MemOp) -> Iterator[MemOp]:
        match op:
            case ConstOp(result=r, value=v) if r.type.dtype is DType.F32:
                self.facts[r.name] = constant(float(v))
            case ReduceOp(result=r, arg=x, combiner="max" | "min"):
                f = self._fact(x)
                self.facts[r.name] = Fact(f.low, f.high, f.nan)
            case MapOp():
                yield from self._map(op)
                return
            case _:
                op = map_regions(op, self.block)
        yield op

    def _map(self, op: MapOp) -> Iterator[MemOp]:
        self.made[op.result.name] = op
        if op.op in COMPARISONS:
            found = compared(op.op, *map(self._fact, op.args)) if self._arithmetic_on_infinity(op) else None
            if found is not None:
                self.decided[op.result.name] = found
        same = self._operand(op)
        if same is not None and self._serves(same, op.result):
            self.aliases[op.result.name] = same
            return
        fact = self._result(op) if op.result.type.dtype is DType.F32 else ANYTHING
        self.facts[op.result.name] = fact
        value = fact.value
        if value is None or not self._special(op):
            yield op
            return
        self.folded = True
        if fact.unless is None:
            yield ConstOp(op.result, value, op.span)
            return
        yield from self._unless(op, value, fact.unless)

    def _unless(self, op: MapOp, value: float, name: str) -> Iterator[MemOp]:
        """The result of ``op`` as ``value``, but NaN where the value called ``name`` is."""
        other = self.made[name].result
        if name not in self.unordered:
            like = replace(other, name=op.result.name, type=replace(other.type, dtype=DType.BOOL))
            self.unordered[name] = self.names.frag(like, "is_nan")
            yield MapOp(self.unordered[name], "ne", (other, other), op.span)
        number = self.names.frag(replace(other, name=op.result.name), "number")
        yield ConstOp(number, value, op.span)
        yield MapOp(op.result, "select", (self.unordered[name], other, number), op.span)

    def _serves(self, same: Frag, result: Frag) -> bool:
        """Whether ``same`` can stand for ``result``, with fewer axes only as an operand of elementwise ops."""
        alike = (same.type, same.layout) == (result.type, result.layout)
        return alike or all(isinstance(x, MapOp) and FUNCTIONS[x.op].skips is None for x in self.readers[result.name])

    # -- what is known --------------------------------------------------------------------------
    def _fact(self, x: Frag) -> Fact:
        return self.facts.get(x.name, ANYTHING)

    def _special(self, op: MapOp) -> bool:
        """Whether an operand is an infinite constant, or one but where it is NaN."""
        return op.op in RULES and any(
            f.value is not None and (f.nan or math.isinf(f.value)) for f in map(self._fact, op.args)
        )

    def _arithmetic_on_infinity(self, op: MapOp) -> bool:
        """Whether an operand of a comparison is the result of arithmetic that is infinite or NaN everywhere."""
        return any(self._fact(x).is_infinite and x.name in self.made for x in op.args)

    def _operand(self, op: MapOp) -> Frag | None:
        """The operand that is the result of ``op``."""
        if op.op == "select" and op.args[0].name in self.decided:
            return op.args[1] if self.decided[op.args[0].name] else op.args[2]
        if op.op in _LEAST and op.result.type.dtype is DType.F32:
            for one, other in (op.args, op.args[::-1]):
                if self._fact(one).value == _LEAST[op.op] and not self._fact(one).nan:
                    return other
        return None

    def _result(self, op: MapOp) -> Fact:
        """What is known of the result of ``op``, in both cases of an operand that a comparison chooses."""
        if op.op == "select":
            return joined(
                *(here.get(x.name, self._fact(x)) for here, x in zip(self._cases(op), op.args[1:], strict=True))
            )
        rule = RULES.get(op.op)
        if rule is None:
            return ANYTHING
        chosen = next((c for x in op.args if (c := self.made.get(x.name)) is not None and c.op == "select"), None)
        if chosen is None:
            return rule(*((x.name, self._fact(x)) for x in op.args))
        found = []
        for here, own in zip(self._cases(chosen), chosen.args[1:], strict=True):
            f = here.get(own.name, self._fact(own))
            known = here | {chosen.result.name: replace(f, unless=chosen.result.name if f.unless else None)}
            found.append(rule(*((x.name, known.get(x.name, self._fact(x))) for x in op.args)))
        return either(*found)

    def _cases(self, choice: MapOp) -> tuple[dict[str, Fact], dict[str, Fact]]:
        """What is known besides where the condition of a ``select`` holds, and where it does not."""
        made = self.made.get(choice.args[0].name)
        if made is None or made.op not in COMPARISONS:
            return {}, {}
        left, limit = made.args[0], self._fact(made.args[1]).value
        if limit is None:
            return {}, {}
        known = self._fact(left)
        if made.op == "eq":
            return {left.name: constant(limit)}, {left.name: unequal(known, limit)}
        if made.op not in ("lt", "le"):
            return {}, {}
        found = {left.name: below(known, limit)}
        inner = self.made.get(left.name)
        if inner is not None and inner.op == "abs":
            found[inner.args[0].name] = within(self._fact(inner.args[0]), limit)
        return found, {}

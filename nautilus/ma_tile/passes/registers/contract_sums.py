"""Adds the results of multiplications to sums with one rounding, by multiply-adds, where that is permitted.

A reduction whose terms are multiplied for it alone, such as squares of differences or the weighted elements of a
window, takes a multiplication and an addition for each term.  A sum with factors takes one multiply-add::

    %p = mul %a, %b : f32[i, k]                     %s = reduce sum %a times %b where %c over k
    %t = select %c, %p, %zero
    %s = reduce sum %t over k

A condition of the terms becomes one of the sum, whose multiply-adds are then predicated.  A sum without factors keeps
its condition in the same way.  So does a number of cases, whose terms are 1 where a condition holds: two instructions
for each term in place of three.  No rounding changes there.

The rounded terms have one register each, and factors have to live until the sum reads them.  Where that takes more
registers, saving an instruction is worth them only in short terms (:data:`SHORT`): a divergence that weighs
differences of logarithms by exponentials takes longer with multiply-adds, because it and the masks of its tail then
need 165 registers instead of 120.

Domain.  The sum of the rounded terms and the sum of the exact ones are equal over the reals.  The sum rounds less
often, so that bounds of its error hold.  A reduction is not changed if

* its terms are not f32, or none of the factors has all axes of the terms in their layout;
* the module compares computed floats with each other, because equal values must then have equal rounding
  (:mod:`nautilus.vr_tile.passes.contract`).  Numbers of cases have no rounding.

No change under ``precision`` strict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from nautilus.core.expr.nodes import COMPARISONS
from nautilus.core.functions import FUNCTIONS
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.ma_tile.ir.ops import ConstOp, Frag, MapOp, MemKernel, MemModule, MemOp, ReduceOp, walk_ops
from nautilus.ma_tile.ir.traverse import each_kernel, reads, rebuild

SHORT = 8.0  # instructions for each term, below which factors may have more registers than the terms


@dataclass(frozen=True, slots=True)
class ContractSums:
    """No change under ``precision`` strict."""

    precision: str = "fast"

    name = "contract-sums"
    reorders = True  # its sums round less often

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with multiply-adds in sums whose terms are multiplied."""
        if self.precision != "fast":
            return module
        alike = any(_compares(k) for k in module.kernels)
        return each_kernel(module, lambda k: _contracted(k, alike))


def _compares(k: MemKernel) -> bool:
    """Whether an op of ``k`` compares two computed floats."""
    constants = {op.result.name for op in walk_ops(k.body) if isinstance(op, ConstOp)}
    return any(
        isinstance(op, MapOp) and op.op in COMPARISONS
        and all(a.type.dtype.is_float and a.name not in constants for a in op.args)
        for op in walk_ops(k.body)
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of ``kernel``: ``maps`` and ``constants`` make them, and ``uses`` counts their readers."""

    kernel: MemKernel
    maps: Mapping[str, MapOp]
    uses: Mapping[str, int]
    constants: Mapping[str, ConstOp]

    def once(self, value: Frag) -> MapOp | None:
        """The operation that makes ``value`` for one reader; None for other values."""
        return self.maps.get(value.name) if self.uses[value.name] == 1 else None

    def is_zero(self, value: Frag) -> bool:
        """Whether ``value`` is the constant 0."""
        return value.name in self.constants and self.constants[value.name].value == 0

    def registers(self, value: Frag) -> int:
        """The registers that ``value`` has in a thread."""
        return self.kernel.layouts[value.layout].registers

    def are_worth(self, factors: tuple[Frag, ...], term: Frag) -> bool:
        """Whether a multiply-add of ``factors`` saves more than their registers cost."""
        ended = {a.name: a for a in factors if self.uses[a.name] == 1 and a.name not in self.constants}
        if sum(self.registers(a) for a in ended.values()) <= self.registers(term):
            return True
        return self._instructions(ended.values(), term) < SHORT

    def _instructions(self, values: Iterable[Frag], term: Frag) -> float:
        """The instructions for each term that make ``values`` from what has fewer elements or was loaded."""
        found, todo = dict[str, MapOp](), list(values)
        while todo:
            op = self.maps.get(todo.pop().name)
            if op is not None and op.result.name not in found and self.registers(op.result) >= self.registers(term):
                found[op.result.name] = op
                todo += op.args
        return sum(FUNCTIONS[op.op].instructions for op in found.values())


def _contracted(kernel: MemKernel, alike: bool) -> MemKernel:
    """``kernel`` whose sums are made of multiply-adds; ``alike``: all roundings stay, so that only counts change."""
    ops = list(walk_ops(kernel.body))
    maps = {op.result.name: op for op in ops if isinstance(op, MapOp)}
    constants = {op.result.name: op for op in ops if isinstance(op, ConstOp)}
    values = _Values(kernel, maps, Counter(name for op in ops for name in reads(op)), constants)
    new: dict[str, ReduceOp] = {}
    gone = set[str]()
    ones: dict[str, ConstOp] = {}
    for op in ops:
        if isinstance(op, ReduceOp) and op.combiner == "sum" and op.result.type.dtype is DType.F32:
            if (case := _case(op, values)) is not None:
                new[op.result.name] = replace(op, where=case.args[0])
                ones[op.arg.name] = ConstOp(op.arg, values.constants[case.args[1].name].value, span=case.span)
                continue
            if alike:
                continue
            made, names = _with_factors(op, values)
            if names:
                new[op.result.name] = made
                gone |= names
    if not new:
        return kernel

    def rule(op: MemOp) -> tuple[MemOp, ...]:
        if isinstance(op, ReduceOp):
            return (new.get(op.result.name, op),)
        if isinstance(op, MapOp) and op.result.name in ones:
            return (ones[op.result.name],)
        return () if isinstance(op, MapOp) and op.result.name in gone else (op,)

    return replace(kernel, body=rebuild(kernel.body, rule))


def _case(op: ReduceOp, values: _Values) -> MapOp | None:
    """The choice between a number and 0 that makes the terms of ``op``; None for other terms."""
    term = values.once(op.arg)
    if term is None or term.op != "select" or op.where is not None or op.times is not None:
        return None
    _, kept, other = term.args
    return term if kept.name in values.constants and values.is_zero(other) else None


def _with_factors(op: ReduceOp, values: _Values) -> tuple[ReduceOp, frozenset[str]]:
    """``op`` with its factors and its condition apart, and the values that are then not needed."""
    names = set[str]()
    term = values.once(op.arg)
    made = op
    if term is not None and term.op == "select" and values.is_zero(term.args[2]) and _is_whole(term.args[1], op.arg):
        inner = values.once(term.args[1])
        if inner is not None and inner.op == "mul" and not values.are_worth(inner.args, op.arg):
            return op, frozenset()
        names.add(term.result.name)
        made = replace(made, arg=term.args[1], where=term.args[0])
        term = inner
    if term is not None and term.op == "mul" and values.are_worth(term.args, made.arg):
        whole = next((n for n, a in enumerate(term.args) if _is_whole(a, made.arg)), None)
        if whole is not None:
            names.add(term.result.name)
            made = replace(made, arg=term.args[whole], times=term.args[1 - whole])
    return made, frozenset(names)


def _is_whole(a: Frag, like: Frag) -> bool:
    """Whether ``a`` has the axes and the layout of ``like``."""
    return a.layout == like.layout and a.type == like.type

"""Adds the results of multiplications to sums with one rounding, by multiply-adds, where that is permitted.

A reduction whose terms are multiplied for it alone, such as squares of differences or the weighted elements of a
window, takes a multiplication and an addition for each term.  A sum with factors takes one multiply-add::

    %p = mul %a, %b : f32[i, k]                     %s = reduce sum %a times %b where %c over k
    %t = select %c, %p, %zero
    %s = reduce sum %t over k

A condition of the terms becomes one of the sum, whose multiply-adds are then predicated.  A sum without factors keeps
its condition in the same way.

Domain.  The sum of the rounded terms and the sum of the exact ones are equal over the reals.  The sum rounds less
often, so that bounds of its error hold.  A reduction is not changed if

* its terms are no f32, or none of the factors has all axes of the terms in their layout;
* the module compares computed floats with each other, because equal values must then have equal rounding
  (:mod:`nautilus.vr_tile.passes.contract`).

No change under ``precision`` strict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.expr.nodes import COMPARISONS
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.ma_tile.ir.ops import ConstOp, Frag, MapOp, MemKernel, MemModule, MemOp, ReduceOp, walk_ops
from nautilus.ma_tile.ir.traverse import each_kernel, reads, rebuild


@dataclass(frozen=True, slots=True)
class ContractSums:
    """No change under ``precision`` strict."""

    precision: str = "fast"

    name = "contract-sums"
    reorders = True  # its sums round less often

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with multiply-adds in sums whose terms are multiplied."""
        if self.precision != "fast" or any(_compares(k) for k in module.kernels):
            return module
        return each_kernel(module, _contracted)


def _compares(k: MemKernel) -> bool:
    """Whether an op of ``k`` compares two computed floats."""
    constants = {op.result.name for op in walk_ops(k.body) if isinstance(op, ConstOp)}
    return any(
        isinstance(op, MapOp) and op.op in COMPARISONS
        and all(a.type.dtype.is_float and a.name not in constants for a in op.args)
        for op in walk_ops(k.body)
    )  # fmt: skip


def _contracted(kernel: MemKernel) -> MemKernel:
    """``kernel`` whose sums are made of multiply-adds."""
    ops = list(walk_ops(kernel.body))
    uses = Counter(name for op in ops for name in reads(op))
    maps = {op.result.name: op for op in ops if isinstance(op, MapOp) and uses[op.result.name] == 1}
    zeros = frozenset(op.result.name for op in ops if isinstance(op, ConstOp) and op.value == 0)
    new: dict[str, ReduceOp] = {}
    gone = set[str]()
    for op in ops:
        if isinstance(op, ReduceOp) and op.combiner == "sum" and op.result.type.dtype is DType.F32:
            made, names = _with_factors(op, maps, zeros)
            if names:
                new[op.result.name] = made
                gone |= names
    if not new:
        return kernel

    def rule(op: MemOp) -> tuple[MemOp, ...]:
        if isinstance(op, ReduceOp):
            return (new.get(op.result.name, op),)
        return () if isinstance(op, MapOp) and op.result.name in gone else (op,)

    return replace(kernel, body=rebuild(kernel.body, rule))


def _with_factors(op: ReduceOp, maps: Mapping[str, MapOp], zeros: frozenset[str]) -> tuple[ReduceOp, frozenset[str]]:
    """``op`` with its factors and its condition apart, and the values that are then not needed."""
    names = set[str]()
    term = maps.get(op.arg.name)
    made = op
    if term is not None and term.op == "select" and term.args[2].name in zeros and _is_whole(term.args[1], op.arg):
        names.add(term.result.name)
        made = replace(made, arg=term.args[1], where=term.args[0])
        term = maps.get(made.arg.name)
    if term is not None and term.op == "mul":
        whole = next((n for n, a in enumerate(term.args) if _is_whole(a, made.arg)), None)
        if whole is not None:
            names.add(term.result.name)
            made = replace(made, arg=term.args[whole], times=term.args[1 - whole])
    return made, frozenset(names)


def _is_whole(a: Frag, like: Frag) -> bool:
    """Whether ``a`` has the axes and the layout of ``like``."""
    return a.layout == like.layout and a.type == like.type

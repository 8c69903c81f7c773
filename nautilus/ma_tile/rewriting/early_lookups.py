"""Lookups of a pipeline: what copies need loaded for their addresses is loaded an iteration before them.

A gathered copy (a page of a cache, rows that an index chooses) waits for the load of its index.  Where that load is in
the iteration that issues the copy, every iteration waits for memory, whatever the pipeline has under way.  The loops of
the chain carry these numbers instead::

    next = page[lo + S - 1]
    for j carry(now = next): copies of iteration j + S - 1 by now;  next = page[j + S];  ...;  yield next

Only loads move whose own addresses depend on the iteration alone.  All loops of the chain need the same ones, and they
have :data:`MOST` registers of a thread at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import short_circuit
from nautilus.core.expr.nodes import Expr, refs
from nautilus.core.index.simplify import TRUE, simplify
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.ops import ForOp, Frag, GlobalLoad, MemKernel, MemOp
from nautilus.ma_tile.rewriting.address_slices import AddressSlices, Issue

MOST = 32

Issued: TypeAlias = Callable[[int, Expr, Issue], None]  # adds the copies of an iteration, from a loop of the chain on


@dataclass(frozen=True, slots=True)
class Lookups:
    """The lookups of a chain of loops. ``values``: by their order, what a loop is given."""

    slices: AddressSlices
    issued: Issued
    hi: Expr
    values: tuple[Frag, ...] = ()

    def loads(self, first: int, at: Expr) -> list[GlobalLoad]:
        """The lookups of iteration ``at``, which reads nothing beyond the end of the chain."""
        issue = self.slices.issue()
        self.issued(first, at, issue)
        inside = simplify(calc("lt", at, self.hi))
        return [_where(op, inside) for op in issue.ops if isinstance(op, GlobalLoad)]

    def known(self, first: int, at: Expr, values: tuple[Frag, ...]) -> Mapping[MemOp, Frag]:
        """The lookups of iteration ``at`` as ``values``, which are carried."""
        issue = self.slices.issue()
        self.issued(first, at, issue)
        return dict(zip(issue.keys, values, strict=True))

    def carried(self, loop: ForOp, first: int, at: Expr, later: Expr) -> tuple[ForOp, Mapping[MemOp, Frag], Lookups]:
        """``loop``, whose copies are those of ``at``, with the lookups of ``later`` in front of its body.

        The other two results are what the copies know, and the lookups with what the loop gives to the next one.
        """
        arguments = tuple(map(self.slices.argument, self.values))
        results = tuple(map(self.slices.argument, self.values))
        loads = self.loads(first, later)
        loop = replace(
            loop,
            results=(*loop.results, *results),
            carried=(*loop.carried, *zip(arguments, self.values, strict=True)),
            body=(*loads, *loop.body),
            yields=(*loop.yields, *(op.result for op in loads)),
        )
        return loop, self.known(first, at, arguments), replace(self, values=results)


def lookups(kernel: MemKernel, slices: AddressSlices, loops: int, at: Expr, hi: Expr, issued: Issued) -> Lookups | None:
    """The lookups of a chain of ``loops`` loops that ends at ``hi``; None where nothing qualifies.

    ``at``: any iteration.
    """
    needed = []
    for first in range(loops):
        issue = slices.issue()
        issued(first, at, issue)
        needed.append(issue.keys)
    if not needed[0] or any(keys != needed[0] for keys in needed):
        return None
    made = {op.result.name for op in issue.ops if isinstance(op, GlobalLoad)}
    loads = [op for op in issue.ops if isinstance(op, GlobalLoad) and not _mentioned(op) & made]
    registers = sum(kernel.layouts[op.result.layout].registers * op.result.type.dtype.bytes for op in loads) / 4
    return Lookups(slices, issued, hi) if len(loads) == len(issue.ops) and registers <= MOST else None


def _mentioned(op: GlobalLoad) -> frozenset[str]:
    return frozenset[str]().union(*map(refs, (*op.index, *(() if op.mask is None else (op.mask,)))))


def _where(op: GlobalLoad, inside: Expr) -> GlobalLoad:
    """``op`` where ``inside`` holds."""
    if inside == TRUE:
        return op
    return replace(op, mask=inside if op.mask is None else short_circuit(inside, op.mask))

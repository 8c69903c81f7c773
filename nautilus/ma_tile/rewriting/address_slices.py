"""Address slices: the ops in a loop that the address and the mask of an asynchronous copy depend on.

A gathered copy (rows of a table that an index tensor chooses, pages of a cache) reads its index in the loop body.  To
issue such a copy in an earlier iteration, its slice is computed there too.  A slice has only ops that compute results
from other fragments, or load from tensors that the kernel does not write; none touches shared memory.

Copies that are issued together share equal ops: two loops of a chain that load one index have one load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from nautilus.core.expr.nodes import Expr
from nautilus.core.ops import declaration
from nautilus.ma_tile.ir.ops import AsyncCopy, ForOp, Frag, GlobalLoad, MemKernel, MemOp, MmaOp
from nautilus.ma_tile.ir.traverse import buffers_of, defined, exchanged, reads, refs, substitute_copy
from nautilus.ma_tile.rewriting.renaming import Names, Renaming

LONGEST = 12  # ops of a slice, which every early copy repeats
_NAMELESS = "?"


class AddressSlices:
    """The slices of copies in the loops of ``kernel``."""

    def __init__(self, kernel: MemKernel) -> None:
        self._names = Names(kernel)
        self._written = exchanged(kernel.body)

    def movable(self, op: MemOp) -> bool:
        """Whether ``op`` gives the same results wherever its operands exist."""
        if isinstance(op, GlobalLoad):
            return not op.volatile and op.buffer not in self._written
        return declaration(type(op)).pure and not isinstance(op, MmaOp) and not any(buffers_of(op))

    def of(self, copy: AsyncCopy, body: Sequence[MemOp], known: frozenset[str]) -> tuple[MemOp, ...] | None:
        """The ops of ``body`` that ``copy`` needs besides the fragments ``known``; None where one cannot move."""
        makers = {f.name: op for op in body for f in defined(op)}
        needed: set[str] = set()
        queue = [*refs(copy)]
        while queue:
            name = queue.pop()
            if name in known or name in needed:
                continue
            op = makers.get(name)
            if op is None or not self.movable(op):
                return None
            needed.add(name)
            queue += reads(op)
        found = tuple(op for op in body if any(f.name in needed for f in defined(op)))
        return found if len(found) <= LONGEST else None

    def issue(self, known: Mapping[MemOp, Frag] = MappingProxyType({})) -> Issue:
        """An empty group of copies that are issued together; ``known``: the results of ops that ran before."""
        return Issue(self._names, known)

    def argument(self, like: Frag) -> Frag:
        """A fragment as ``like`` under a name of its own, for a loop that carries it."""
        return self._names.frag(like, "next")


class Issue:
    """Copies that are issued together, at one iteration, after ``ops``."""

    def __init__(self, names: Names, known: Mapping[MemOp, Frag]) -> None:
        self._names = names
        self._made: dict[MemOp, Frag] = dict(known)
        self.ops: list[MemOp] = []

    @property
    def keys(self) -> tuple[MemOp, ...]:
        """The ops of all slices, without the names of their results."""
        return tuple(self._made)

    def copy(self, copy: AsyncCopy, loop: ForOp, at: Expr, needed: Iterable[MemOp]) -> AsyncCopy:
        """``copy`` of ``loop`` in iteration ``at``; ``needed`` is its slice."""
        frags: dict[str, Frag] = {}
        for op in needed:
            self._clone(op, {loop.var: at}, frags)
        moved = substitute_copy(copy, {loop.var: at})
        new = Renaming(frags).op(moved) if frags else moved
        assert isinstance(new, AsyncCopy)
        return new

    def _clone(self, op: MemOp, variables: Mapping[str, Expr], frags: dict[str, Frag]) -> None:
        (result,) = defined(op)
        key = Renaming({**frags, result.name: replace(result, name=_NAMELESS)}, variables).op(op)
        if key not in self._made:
            self._made[key] = self._names.frag(result, "ahead")
            self.ops.append(Renaming({**frags, result.name: self._made[key]}, variables).op(op))
        frags[result.name] = self._made[key]

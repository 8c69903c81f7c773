"""Loop bounds and positions that read tensors: each read becomes a variable, defined once where it is known.

The parts of bounds that read are replaced by variables.  A part is as large as can be while it is a choice (``min``,
``max``, ``select``) with known bounds, so the range of its variable is known, and loops that adjoin name one variable
where they meet.  A variable that depends on grid variables alone stands beside these at the head of the kernel
(``MemKernel.decode``), so every role and every tile of a persistent kernel computes it for itself.  Any other one is a
``let`` in front of the first loop of a body that needs it, or of the first one of its chain, in which copies for the
later ones are issued.

A loop over several ranges of blocks chooses the block of an iteration by the ends of these ranges.  Every copy that the
loop issues has that choice in its position, so a choice of numbers that inputs hold at grid variables is a variable
there too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.buffers import Buffer
from nautilus.core.expr.nodes import Expr, Load, Op, Ref, Var, children, free_vars, loads, refs, rewrite, with_children
from nautilus.core.index.simplify import Ranges, bounds
from nautilus.core.ops import Kind, map_fields, map_regions
from nautilus.core.text.names import unused
from nautilus.ma_tile.ir.async_ops import CONSUMER, LetOp
from nautilus.ma_tile.ir.ops import ForOp, GlobalLoad, MemKernel, MemOp, walk_ops
from nautilus.ma_tile.ir.traverse import stored
from nautilus.ma_tile.rewriting.renaming import known_ranges

_CHOICES = frozenset({"min", "max", "select"})


def with_lets(kernel: MemKernel, buffers: Mapping[str, Buffer], grid: Ranges) -> MemKernel:
    """``kernel`` without reads in loop bounds, nor choices of them in positions (module docstring).

    ``grid``: the ranges of its grid variables.
    """
    if not any(isinstance(op, ForOp) and (loads(op.lo) or loads(op.hi)) for op in walk_ops(kernel.body)):
        return kernel
    work = _Reads(kernel, buffers, grid)
    body = work.block(kernel.body, {})
    return replace(kernel, decode=(*kernel.decode, *((name, e) for e, name in work.first.items())), body=body)


class _Reads:
    """The variables of one kernel; ``first``: those at its head."""

    def __init__(self, kernel: MemKernel, buffers: Mapping[str, Buffer], grid: Ranges) -> None:
        self.ranges = {**known_ranges(kernel), **grid}
        self.grid = {name for name, _ in kernel.decode}
        self.taken = {*self.grid, "block", CONSUMER, *(x for f in kernel.layouts.values() for x in f.axes)}
        self.taken |= {op.var for op in walk_ops(kernel.body) if isinstance(op, ForOp | LetOp)}
        self.first: dict[Expr, str] = {}
        self.stored = stored(walk_ops(kernel.body))
        self.numbers = {
            op.result.name: Load(op.buffer, op.index, op.result.type.dtype)
            for op in kernel.body
            if isinstance(op, GlobalLoad) and self.is_number(op, buffers[op.buffer])
        }  # fragment of one number -> the number

    def is_number(self, op: GlobalLoad, buffer: Buffer) -> bool:
        """Whether ``op`` loads one integer, which stands there before the kernel, at grid variables."""
        plain = not op.result.type.axes and op.mask is None and buffer.name not in self.stored and buffer.dtype.is_int
        return plain and all(not refs(e) and free_vars(e) <= self.grid for e in op.index)

    def block(self, body: tuple[MemOp, ...], outer: dict[Expr, str]) -> tuple[MemOp, ...]:
        """``body`` with variables in its bounds; ``outer``: those defined around it."""
        out: list[MemOp] = []
        known = dict(outer)
        for n, op in enumerate(body):
            if isinstance(op, ForOp):
                fresh: dict[Expr, str] = {}
                for e in (e for x in _chain(body[n:], op) for e in (x.lo, x.hi)):
                    self.named(e, known, fresh)
                known_now = known | fresh
                lo, hi = self.named(op.lo, known_now, {}), self.named(op.hi, known_now, {})
                out += [LetOp(name, e, op.span) for e, name in fresh.items()]
                known |= fresh
                op = replace(op, lo=lo, hi=hi)
            elif self.numbers:
                op = map_fields(op, {Kind.EXPR: self.position})
            out.append(map_regions(op, lambda inner, known=known: self.block(inner, known)))  # type: ignore[misc]
        return tuple(out)

    def named(self, e: Expr, known: dict[Expr, str], fresh: dict[Expr, str]) -> Expr:
        """``e`` with variables for the parts that read; one that is not ``known`` is ``fresh``, or at the head."""
        if not loads(e):
            return e
        whole = isinstance(e, Op) and e.op in _CHOICES and None not in bounds(e, self.ranges)
        if not whole and not isinstance(e, Load):
            return with_children(e, tuple(self.named(c, known, fresh) for c in children(e)))
        at_head = free_vars(e) <= self.grid
        found = self.first if at_head else known if e in known else fresh
        if e not in found:
            found[e] = unused(f"{loads(e)[0].buffer}_end", self.taken)
            self.taken.add(found[e])
        return Var(found[e], e.dtype)

    def position(self, e: Expr) -> Expr:
        """``e`` with variables for the choices of numbers."""
        if refs(e).isdisjoint(self.numbers):
            return e
        if isinstance(e, Op) and e.op in _CHOICES and refs(e) <= self.numbers.keys() and free_vars(e) <= self.grid:
            read = rewrite(e, lambda n: self.numbers.get(n.name) if isinstance(n, Ref) else None)
            found = self.named(read, {}, {})
            if isinstance(found, Var):
                return found
        return with_children(e, tuple(map(self.position, children(e))))


def _chain(body: tuple[MemOp, ...], first: ForOp) -> tuple[ForOp, ...]:
    """The loops of ``body`` in the chain of ``first``."""
    return tuple(x for x in body if isinstance(x, ForOp) and (x is first or (x.chain and x.chain == first.chain)))

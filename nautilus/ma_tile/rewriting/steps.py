"""Copies of the steps of a loop: several of them in one iteration, and a loop of those that are left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.ops import ForOp, Frag, MemOp, walk_ops
from nautilus.ma_tile.ir.traverse import bound, variables
from nautilus.ma_tile.rewriting.renaming import Names, Renaming, with_variables


@dataclass(frozen=True, slots=True)
class Step:
    """The names of one step: ``frags`` are those of its fragments, which a caller may change; ``rename`` reads them."""

    frags: dict[str, Frag]
    inner: dict[str, str]
    rename: Renaming

    def op(self, x: MemOp) -> MemOp:
        """``x`` in this step."""
        (made,) = with_variables(self.rename.ops((x,)), self.inner)
        return made


def step(loop: ForOp, at: Expr, state: Sequence[Frag], names: Names, suffix: str) -> Step:
    """The step ``at`` of ``loop``, whose carried values are ``state``."""
    frags = {a.name: s for (a, _), s in zip(loop.carried, state, strict=True)}
    frags |= {f.name: names.frag(f, suffix) for x in walk_ops(loop.body) for f in bound(x)}
    inner = {v: names.variable(v) for x in walk_ops(loop.body) for v in variables(x)}
    return Step(frags, inner, Renaming(frags, {loop.var: at, **{v: Var(new) for v, new in inner.items()}}))


def left_over(loop: ForOp, low: Expr, states: Sequence[Frag], names: Names) -> ForOp:
    """The steps of ``loop`` from ``low`` on, whose carried values are ``states`` before them."""
    frags = {f.name: names.frag(f, "left") for x in walk_ops(loop.body) for f in bound(x)}
    frags |= {a.name: names.frag(a, "left") for a, _ in loop.carried}
    var = names.variable(loop.var)
    inner = {v: names.variable(v) for x in walk_ops(loop.body) for v in variables(x)}
    rename = Renaming(frags, {loop.var: Var(var), **{v: Var(new) for v, new in inner.items()}})
    carried = tuple((rename.frag(a), s) for (a, _), s in zip(loop.carried, states, strict=True))
    return replace(
        loop, var=var, lo=low, carried=carried, body=with_variables(rename.ops(loop.body), inner),
        yields=tuple(map(rename.frag, loop.yields)),
    )  # fmt: skip

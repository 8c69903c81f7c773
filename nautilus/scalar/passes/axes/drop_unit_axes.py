"""``drop-unit-axes``: axes of one element are removed where they prevent a faster plan.

``sum[k, u: 1](A[i, k, u] * B[k, u, j])`` is the product over ``k`` alone.  Three kinds of axes are dropped:

* an axis of one element that is reduced: beside others it would be a loop of its own, which no engine with one loop
  takes; alone it makes an elementwise definition a reduction;
* an axis along the last dimension of an argument: the axis that is contiguous in memory is then the one before it,
  which copies and vectors need to see;
* a dimension of an input at which every access has position 0: it stands between two axes that may be one.

Any other axis of one element costs nothing and stays.  An axis is removed from all definitions that are aligned along
it, so that they stay aligned.  An argument keeps the shape that the caller gives it (``Buffer.array_shape``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import integer
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, rewrite, substitute
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.axes import unify
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.ir import Kernel, Program, extent, statements
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.rewriting import all_defs, kernel_of

Dropped: TypeAlias = Mapping[str, frozenset[int]]  # dimensions by buffer


@dataclass(frozen=True, slots=True)
class DropUnitAxes:
    """Drop the axes of one element that the module docstring names."""

    name = "drop-unit-axes"

    def apply(self, program: Program) -> Program:
        """The program without them; the same object where there are none."""
        if all(n != 1 for b in program.buffers for n in b.shape) and not any(map(_has_unit_loop, program.kernels)):
            return program
        live = Dead().apply(program)  # what has no reader needs no axes
        defs = all_defs(live)
        if defs is None:
            return program
        last = _last_axes(live, tuple(defs.values()))
        without = [_at_zero(d, last[d.name] | {a.name for a in d.red if a.extent == 1}) for d in defs.values()]
        dropped = {b.name: found for b in live.buffers if (found := _dimensions(b, defs.get(b.name), without))}
        if not dropped and without == [*defs.values()]:
            return program
        made = (kernel_of(_without(d, dropped)) for d in without)
        buffers = tuple(_smaller(b, dropped) for b in live.buffers)
        return Simplify().apply(replace(live, buffers=buffers, kernels=tuple(made)))


def without_axes(program: Program, names: frozenset[str]) -> Program:
    """``program``, of definitions alone, without the axes ``names`` of one element; arguments have their own shapes."""
    defs = all_defs(program)
    if defs is None or not names:
        return program
    without = [_at_zero(d, names & {a.name for a in d.axes}) for d in defs.values()]
    changed = [b for b in program.buffers if b.name in defs or b.view_of is not None]
    dropped = {b.name: found for b in changed if (found := _dimensions(b, defs.get(b.name), without))}
    made = (kernel_of(_without(d, dropped)) for d in without)
    return replace(program, buffers=tuple(_smaller(b, dropped) for b in program.buffers), kernels=tuple(made))


def _has_unit_loop(k: Kernel) -> bool:
    return any(extent(loop) == 1 for loops, _ in statements(k.body) for loop in loops)


def _last_axes(program: Program, defs: Sequence[Def]) -> Mapping[str, frozenset[str]]:
    """By definition, the axes of one element that are aligned with the last dimension of an argument."""
    given = {b.name for b in program.buffers if b.space is not Space.TEMP and len(b.shape) > 1 and b.shape[-1] == 1}
    if not given:
        return {d.name: frozenset() for d in defs}
    unified = unify(defs, tuple(p.name for p in program.params))
    found: set[str] = set()
    for d in unified.defs:
        indices = [ld.index for ld in d.reads() if ld.buffer in given] + ([d.index] if d.name in given else [])
        found |= {index[-1].name for index in indices if isinstance(index[-1], Var)}
    pairs = zip(defs, unified.defs, strict=True)
    return {
        d.name: frozenset(a.name for a, x in zip(d.axes, u.axes, strict=True) if x.name in found and a.extent == 1)
        for d, u in pairs
    }


def _at_zero(d: Def, names: Collection[str]) -> Def:
    """``d`` without the axes ``names``, whose only position is 0; a reduction over nothing else is none."""
    if not names:
        return d
    env: Mapping[str, Expr] = dict.fromkeys(names, integer(0))
    par, red = (tuple(a for a in axes if a.name not in names) for axes in (d.par, d.red))
    value, guard = substitute(d.value, env), None if d.guard is None else substitute(d.guard, env)
    if red or d.op is None:
        return replace(d, par=par, red=red, value=value, guard=guard)
    if guard is not None:
        value = Op("select", (guard, value, d.init()), value.dtype, d.span)
    return replace(d, par=par, red=(), op=None, value=value, guard=None)


def _dimensions(b: Buffer, before: Def | None, defs: Sequence[Def]) -> frozenset[int]:
    """The dimensions of ``b`` that are dropped: of axes that are, and those at which every access has position 0.

    ``before``: the definition of ``b``; ``defs``: all definitions, without the axes that are dropped.
    """
    own = {a.name for d in defs if d.name == b.name for a in d.par}
    gone = {n for n, a in enumerate(before.par) if a.name not in own} if before is not None else set()
    reads = [ld.index for d in defs for ld in d.reads() if ld.buffer == b.name]
    for n, size in enumerate(b.shape):
        if size == 1 and before is None and len(gone) + 1 < len(b.shape) and all(_is_zero(r[n]) for r in reads):
            gone.add(n)
    return frozenset(gone)


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


def _smaller(b: Buffer, dropped: Dropped) -> Buffer:
    if b.name not in dropped:
        return b
    return b.without(dropped[b.name])


def _without(d: Def, dropped: Dropped) -> Def:
    """``d`` whose accesses lack the dimensions ``dropped``."""

    def rule(n: Expr) -> Expr | None:
        if not isinstance(n, Load) or n.buffer not in dropped:
            return None
        return replace(n, index=tuple(e for k, e in enumerate(n.index) if k not in dropped[n.buffer]))

    guard = None if d.guard is None else rewrite(d.guard, rule)
    return replace(d, buffer=_smaller(d.buffer, dropped), value=rewrite(d.value, rule), guard=guard)

"""Elementwise ops on windows are computed once for each element that the windows share.

A condition on the place of a padded element, or a function of the element alone, is the same in all windows that have
it.  Windows take registers, and no instruction, so they are made last::

    %x = window %u over u into q s by 1 1            %c = index u >= 1 : bool[u: 6]
    %c = index q + s >= 1 : bool[q: 4, s: 3]         %t = select %c, %u, %inf
    %y = select %c, %x, %inf                         %y = window %t over u into q s by 1 1

A condition that has one value for neighbouring elements, as that of a load in vectors, is written as one of their first
element, ``u // 4 * 4``, so that it is computed once for all of them.

An op is not moved if something else reads the windows or the condition, if an operand is neither a single number nor a
function of the elements, if it changes the width of an element, or if the elements are not fewer than those in windows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import TypeAlias

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Load, Ref, Var, substitute, walk
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.access import uniform
from nautilus.ma_tile.ir.ops import Frag, IndexOp, MapOp, MemKernel, MemModule, MemOp, WindowOp, walk_ops
from nautilus.ma_tile.ir.traverse import each_kernel, reads, rebuild
from nautilus.ma_tile.passes.registers.share_windows import Along
from nautilus.ma_tile.rewriting.renaming import Names
from nautilus.targets.limits import WORD

Changed: TypeAlias = Mapping[str, tuple[MemOp, ...]]


@dataclass(frozen=True, slots=True)
class SinkWindows:
    """The pass ``sink-windows``, which has no options."""

    name = "sink-windows"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose elementwise ops on windows are before these."""
        return each_kernel(module, _sunk)


def _sunk(kernel: MemKernel) -> MemKernel:
    """``kernel`` with its windows after the elementwise ops on them, one after another."""
    while (made := _moved(kernel)) is not None:
        kernel = replace(kernel, body=rebuild(kernel.body, partial(_replaced, made)))
    return kernel


def _replaced(made: Changed, op: MemOp) -> tuple[MemOp, ...]:
    return made.get(op.result.name, (op,)) if isinstance(op, MapOp | IndexOp | WindowOp) else (op,)


def _moved(kernel: MemKernel) -> Changed | None:
    """By the result of an op, what replaces it, for the first elementwise op that moves; None where there is none."""
    ops = list(walk_ops(kernel.body))
    windows = {op.result.name: op for op in ops if isinstance(op, WindowOp)}
    if not windows:
        return None
    uses = Counter(name for op in ops for name in reads(op))
    places = {op.result.name: op for op in ops if isinstance(op, IndexOp)}
    for op in (x for x in ops if isinstance(x, MapOp)):
        for a in op.args:
            window = windows.get(a.name)
            if window is not None and uses[a.name] == 1 and _is_alike(op, window):
                own = {x.name: places[x.name] for x in op.args if x.name in places and uses[x.name] == 1}
                made = _before(op, window, own, Names(kernel))
                if made is not None:
                    return made
    return None


def _is_alike(op: MapOp, window: WindowOp) -> bool:
    """Whether ``op`` has an element of the same width for each of ``window``, of which there are more than elements."""
    result, given = op.result, window.result
    same = result.type.axes == given.type.axes and result.layout == given.layout
    words = all(f.type.dtype.bytes == WORD for f in (result, given))
    return same and words and prod(window.arg.type.shape) < prod(given.type.shape)


def _before(op: MapOp, window: WindowOp, places: Mapping[str, IndexOp], names: Names) -> Changed | None:
    """What replaces ``op``, its ``window`` and the ``places`` among its operands; None where one has no equal."""
    out: dict[str, tuple[MemOp, ...]] = {window.result.name: ()}
    args = list[Frag]()

    def shared(f: Frag) -> Frag:
        type_ = TileType(f.type.dtype, window.arg.type.axes)
        return replace(names.frag(f, "once"), type=type_, layout=window.arg.layout)

    for a in op.args:
        place = places.get(a.name)
        if a == window.result:
            args.append(window.arg)
        elif not a.type.axes:
            args.append(a)
        elif place is not None and a.layout == window.result.layout and (e := _at(place.expr, window)) is not None:
            args.append(shared(a))
            out[a.name] = (replace(place, result=args[-1], expr=e),)
        else:
            return None
    once = replace(op, result=shared(op.result), args=tuple(args))
    out[op.result.name] = (once, replace(window, result=op.result, arg=once.result))
    return out


def _at(e: Expr, window: WindowOp) -> Expr | None:
    """``e`` by the element of ``window``; None where it does not depend on the element alone."""
    if any(isinstance(n, Ref | Load) for n in walk(e)):
        return None
    sizes = {a.name: a for a in window.result.type.axes}
    positions, terms = sizes[window.positions], sizes[window.terms]
    along = Along(0, positions, terms, window.step, window.dilation, window.together)
    found = along.condition(e, window.axis) if e.dtype is DType.BOOL else along.moved(e, window.axis)
    if found is None:
        return None
    u, before = Var(window.axis, DType.I32), (window.start or 0) - along.first
    found = simplify(substitute(found, {window.axis: calc("sub", u, integer(before))})) if before else found
    size = next(a.size for a in window.arg.type.axes if a.name == window.axis)
    for v in (n for n in (16, 8, 4, 2) if size % n == 0 and uniform(found, window.axis, n, {})):
        return substitute(found, {window.axis: calc("mul", calc("floordiv", u, integer(v)), integer(v))})
    return found

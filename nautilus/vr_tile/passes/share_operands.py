"""``share-operands``: products that read one tensor along different axes read the same tile of it.

A tensor may be the right operand of two products of one loop, contracted in the first one and with columns in the
second one, such as latent vectors that serve as keys and, in their first elements, as values::

    %k = load C[j, f] : f16[j: 64, f: 576]                 %c = load C[j, r] : f16[j: 64, r: 512]
    %s = dot %q, %k over f                          ->     %t = load C[j, 512 + g] : f16[j: 64, g: 64]
    %v = load C[j, r] : f16[j: 64, r: 512]                 %s = dot %qt, %t + (dot %qc, %c over r) over g
    %o = dot %p, %v over j                                 %o = dot %p, %c over j

The contraction over ``f`` becomes one over ``r``, and one over the rest ``g`` of ``f`` if it is longer, so that ``%k``
and ``%v`` are one value, which is loaded once.  Only the order of the sum changes.  ``cse`` then merges the loads, and
``dce`` removes those without readers.

Both operands of the first product are loads of 16-bit floats, which shared memory holds in one form for either use.
The loads of the tensor are in one block and equal but for the axis.  One without a mask gets that of the other if every
reader of the product hides what differs (:mod:`nautilus.vr_tile.analysis.hidden`).  The rest of ``f`` is a multiple of
:data:`MMA_DEPTH`.  In the same way, a computed operand becomes that of a later product which is 0 where a condition is
false (``select(c, x, 0)`` in the place of ``x``), such as a dequantised tile that serves as keys and as values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Expr, Var, free_vars, refs, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.tiles import TileAxis
from nautilus.targets.limits import MMA_DEPTH
from nautilus.vr_tile.analysis.hidden import expression, hides
from nautilus.vr_tile.ir import (
    ConstOp,
    DotOp,
    ForOp,
    LoadOp,
    MapOp,
    TileKernel,
    TileModule,
    TileOp,
    Value,
    expressions,
    operands,
    results,
    walk_ops,
)
from nautilus.vr_tile.rewriting import Peephole, each_kernel


@dataclass(frozen=True, slots=True)
class ShareOperands:
    """Contract along the axis of another load of the same tensor."""

    name = "share-operands"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with contractions along the axes of loads that other products read."""
        return each_kernel(module, _kernel)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of contracted axis ``whole``: ``axis`` counts its elements from ``start`` on."""

    whole: str
    axis: str
    start: int


def _kernel(k: TileKernel) -> TileKernel:
    k = _with_zeros(_with_masks(k))
    defs = {v.name: op for op in walk_ops(k.body) for v in results(op)}
    sizes = {a.name: a.size for a in k.axes}
    found = {
        op.result.name: (op.axes[0], axis)
        for block in _blocks(k.body)
        for op in block
        if isinstance(op, DotOp) and (axis := _shared_axis(op, block, defs, sizes)) is not None
    }
    if not found:
        return k
    taken, axes, parts = {*sizes}, list(k.axes), dict[tuple[str, str], tuple[_Part, ...]]()
    for whole, axis in dict.fromkeys(found.values()):
        parts[whole, axis] = (_Part(whole, axis, 0),)
        if rest := sizes[whole] - sizes[axis]:
            name = unused(f"{whole}_rest", taken)
            taken.add(name)
            axes.append(TileAxis(name, rest))
            parts[whole, axis] += (_Part(whole, name, sizes[axis]),)
    work = _Parts(replace(k, axes=tuple(axes)), defs, {name: parts[pair] for name, pair in found.items()})
    return replace(work.run(_Parts.rule), axes=tuple(axes))


def _with_masks(k: TileKernel) -> TileKernel:
    """``k`` with masks at first operands, as other loads of the same tile have, where no reader shows what differs."""
    defs = {v.name: op for op in walk_ops(k.body) for v in results(op)}
    uses = Counter(v.name for x in walk_ops(k.body) for v in operands(x))
    masks: dict[str, Expr] = {}
    for block in _blocks(k.body):
        for op in (x for x in block if isinstance(x, DotOp) and len(x.axes) == 1):
            for mine in (x for v in (op.a, op.b) for x in _loads_of(v, defs, uses) if x in block):
                found = (x.mask for x in block if isinstance(x, LoadOp) and _alike(mine, x, op.axes[0]))
                mask = next((m for m in found if m is not None and m != mine.mask), None)
                more = None if mask is None else _more(mask, mine.mask)
                if mask is not None and more is not None and hides(k.body, block, op, more, defs):
                    masks[mine.result.name] = mask
    if not masks:
        return k

    def changed(op: TileOp) -> tuple[TileOp, tuple[Value, ...]]:
        if not isinstance(op, LoadOp) or op.result.name not in masks:
            return op, ()
        mask = masks[op.result.name]
        return replace(op, mask=mask), tuple(Value(n, op.result.type) for n in refs(mask))

    return replace(k, body=tuple(_with_needed(k.body, changed, defs, frozenset())))


def _loads_of(v: Value, defs: Mapping[str, TileOp], uses: Mapping[str, int]) -> Iterator[LoadOp]:
    """The loads that ``v`` is made from by elementwise work, and of which nothing else is made."""
    op = defs.get(v.name)
    if uses[v.name] == 1 and isinstance(op, LoadOp):
        yield op
    elif uses[v.name] == 1 and isinstance(op, MapOp):
        for x in op.args:
            yield from _loads_of(x, defs, uses)


def _with_zeros(k: TileKernel) -> TileKernel:
    """``k`` with computed operands that are 0 where those of later products are, if no reader shows what differs."""
    defs = {v.name: op for op in walk_ops(k.body) for v in results(op)}
    other: dict[str, tuple[Value, Value]] = {}  # result of a dot -> its operand, and that of the later product
    for block in _blocks(k.body):
        dots = [x for x in block if isinstance(x, DotOp)]
        for n, op in enumerate(dots):
            for mine, zeros in ((v, w) for v in (op.a, op.b) for x in dots[n + 1 :] for w in (x.a, x.b)):
                cond = _chosen(mine, zeros, defs)
                if cond is not None and op.mask is None and hides(k.body, block, op, expression(cond, defs), defs):
                    other[op.result.name] = mine, zeros
    if not other:
        return k

    def changed(op: TileOp) -> tuple[TileOp, tuple[Value, ...]]:
        if not isinstance(op, DotOp) or op.result.name not in other:
            return op, ()
        mine, zeros = other[op.result.name]
        return replace(op, a=zeros if op.a == mine else op.a, b=zeros if op.b == mine else op.b), (zeros,)

    return replace(k, body=tuple(_with_needed(k.body, changed, defs, frozenset())))


def _with_needed(
    body: tuple[TileOp, ...],
    changed: Callable[[TileOp], tuple[TileOp, tuple[Value, ...]]],
    defs: Mapping[str, TileOp],
    known: frozenset[str],
) -> Iterator[TileOp]:
    """``body`` with ops as ``changed`` makes them, each behind what makes the values that it then reads beside others.

    ``known``: the values that exist before ``body``.
    """
    for op in body:
        made = {v.name for v in results(op)}
        if isinstance(op, ForOp):
            inner = known.union(arg.name for arg, _ in op.carried)
            yield replace(op, body=tuple(_with_needed(op.body, changed, defs, inner)))
        elif not made or not made <= known:
            new, values = changed(op)
            for x in (x for v in values for x in _needed(v, defs, known | made)):
                if not {v.name for v in results(x)} <= made:
                    yield x
                made |= {v.name for v in results(x)}
            yield new
        known |= made


def _chosen(mine: Value, zeros: Value, defs: Mapping[str, TileOp]) -> Value | None:
    """The condition where ``zeros`` is what ``mine`` is, and 0 elsewhere; None where it is something else."""
    a, b = defs.get(mine.name), defs.get(zeros.name)
    if isinstance(a, MapOp) and isinstance(b, MapOp) and a.op == b.op in ("cast", "narrow"):
        return _chosen(a.args[0], b.args[0], defs) if mine.type == zeros.type else None
    if not isinstance(b, MapOp) or b.op != "select" or not isinstance(a, MapOp) or b.args[1] != mine:
        return None
    zero = defs.get(b.args[2].name)
    return b.args[0] if isinstance(zero, ConstOp) and zero.value == 0 else None


def _needed(v: Value, defs: Mapping[str, TileOp], known: frozenset[str]) -> Iterator[TileOp]:
    """The ops that make ``v`` from ``known`` values, in order."""
    op = defs[v.name]
    if v.name in known:
        return
    made = set(known)
    for x in (*operands(op), *(Value(n, v.type) for e in expressions(op) for n in refs(e))):
        for inner in _needed(x, defs, frozenset(made)):
            yield inner
            made |= {y.name for y in results(inner)}
    yield op


def _blocks(body: tuple[TileOp, ...]) -> Iterator[tuple[TileOp, ...]]:
    yield body
    for op in body:
        if isinstance(op, ForOp):
            yield from _blocks(op.body)


def _shared_axis(
    op: DotOp, block: tuple[TileOp, ...], defs: Mapping[str, TileOp], sizes: Mapping[str, int]
) -> str | None:
    """The axis of another load in ``block`` along which ``op`` may contract; None where there is none."""
    sides = [defs.get(v.name) for v in (op.a, op.b)]
    if len(op.axes) != 1 or op.mask is not None or op.parts is not None:
        return None
    (whole,) = op.axes
    loads = [x for x in sides if isinstance(x, LoadOp) and x.result.type.dtype.is_half]
    if len(loads) != len(sides) or any(whole in free_vars(x.mask) for x in loads if x.mask is not None):
        return None
    taken = {*op.a.type.names, *op.b.type.names}
    for mine in (x for x in loads if x in block):
        for other in block:
            axis = _renamed(mine, other, whole, mine.mask)
            if axis is None or axis in taken:
                continue
            if sizes[whole] - sizes[axis] in range(0, sizes[whole], MMA_DEPTH):
                return axis
    return None


def _more(mask: Expr, own: Expr | None) -> Expr | None:
    """What ``mask`` asks beside all that ``own`` asks; None where it does not ask that, or nothing else."""
    asked, known = list(conjuncts(mask)), [] if own is None else list(conjuncts(own))
    return conjunction([c for c in asked if c not in known]) if all(c in asked for c in known) else None


def _alike(mine: LoadOp, other: LoadOp, whole: str) -> bool:
    """Whether ``other`` loads what ``mine`` does under its mask, maybe along another axis than ``whole``."""
    same = (mine.buffer, mine.index, mine.result.type.names) == (other.buffer, other.index, other.result.type.names)
    return same or _renamed(mine, other, whole, other.mask) is not None


def _renamed(mine: LoadOp, other: TileOp, whole: str, mask: Expr | None) -> str | None:
    """The axis of ``other`` if it loads what ``mine`` does under ``mask``, with this axis in the place of ``whole``."""
    if not isinstance(other, LoadOp) or other.buffer != mine.buffer or other.mask != mask:
        return None
    own, mates = set(other.result.type.names), set(mine.result.type.names)
    if mates - own != {whole} or len(own - mates) != 1:
        return None
    (axis,) = own - mates
    return axis if tuple(substitute(e, {whole: Var(axis)}) for e in mine.index) == other.index else None


class _Parts(Peephole):
    """Rewrites the dots ``cut``, each along parts of its contracted axis."""

    def __init__(self, k: TileKernel, defs: Mapping[str, TileOp], cut: Mapping[str, tuple[_Part, ...]]) -> None:
        super().__init__(k)
        self.cut = cut
        self.wanted: dict[str, dict[_Part, None]] = {}  # parts of the loads that the dots read
        self.made: dict[tuple[str, _Part], Value] = {}
        for op in defs.values():
            if isinstance(op, DotOp) and op.result.name in cut:
                for v in (op.a, op.b):
                    self.wanted.setdefault(v.name, {}).update(dict.fromkeys(cut[op.result.name]))

    def rule(self: Peephole, op: TileOp) -> Value | None:
        """The rule of the pass."""
        assert isinstance(self, _Parts)
        if isinstance(op, LoadOp):
            for part in self.wanted.get(op.result.name, ()):
                self.made[op.result.name, part] = self.load(op, part)
        if not (isinstance(op, DotOp) and op.result.name in self.cut):
            return None
        acc = op.acc
        for part in self.cut[op.result.name]:
            a, b = (self.made[v.name, part] for v in (op.a, op.b))
            acc = self.dot(a, b, acc, (part.axis,), op.result.name)
        return acc

    def load(self, op: LoadOp, part: _Part) -> Value:
        """The part of the tile that ``op`` loads."""
        at: Expr = Var(part.axis) if part.start == 0 else calc("add", part.start, Var(part.axis))
        names = [part.axis if n == part.whole else n for n in op.result.type.names]
        out = self.fresh(self.type(op.result.type.dtype, names), op.result.name)
        index = tuple(simplify(substitute(e, {part.whole: at})) if part.whole in free_vars(e) else e for e in op.index)
        self.emit(LoadOp(out, op.buffer, index, op.mask, op.span))
        return out

"""``store-parts``: the parts of f32 operands become tensors in memory, and products of them replace a product.

A product with ``parts 3`` (``decompose-operands``) reads three parts of bf16 of each operand.  The kernel that stores
the tensor ``A`` stores them too, if it has neither loops nor products, such as one that makes windows (im2col).
Otherwise a kernel of its own stores them in front of the first kernel that multiplies ``A``, for all of its elements::

    h0 = narrow<bf16> A[i, k]  ;  h1 = narrow<bf16> (A[i, k] - h0)  ;  h2 = narrow<bf16> (A[i, k] - h0 - h1)
    A_parts[0, i, k] = h0      ;  A_parts[1, i, k] = h1             ;  A_parts[2, i, k] = h2

A load of ``A`` becomes a load of each part at the same place, and the product a chain of products
(``core.functions.parts.PAIRS``)::

    dot a, b + acc  ->  acc + (dot a0, b0 + (dot a0, b1 + ... (dot a2, b0)))

The sum of one step of the reduction loop begins at 0, because a matrix unit cuts off what it drops relative to its
accumulator: the smallest products come first, and an f32 addition adds the sum to ``acc``.  Over the reals a narrowed
number is the number itself, so that the other parts are 0 and nothing changes.

A tensor map has five axes.  Parts of a tensor of five axes are one after the other along its outermost axis, at
``part * size + b``; no load of it may leave the tensor along that axis (``decompose-operands``).

Sizes of ``A`` may be known only at launch.  Rows of ``A_parts`` are multiples of 16 bytes, as copy units need.  The
elements after a row of ``A`` are 0, and the masks of loads admit them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer, within
from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.functions.parts import PAIRS, STORED
from nautilus.core.index.simplify import TRUE, Ranges, conjuncts, simplify
from nautilus.core.index.sizes import Extent, at_most, blocks, extent_expr, rounded_up, volume
from nautilus.core.records import dataclass
from nautilus.core.schedule import storing
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileAxis, TileType, ceil_pow2
from nautilus.core.types import DType
from nautilus.targets.limits import TENSOR_MAP_AXES
from nautilus.vr_tile.ir import DotOp, ForOp, GridAxis, LoadOp, StoreOp, TileKernel, TileModule, TileOp, Value, walk_ops
from nautilus.vr_tile.lowering.emitter import Emitter
from nautilus.vr_tile.rewriting import Peephole

_TILE = 2048  # elements of which a block stores the parts
_COLUMNS = 512  # columns of a tile at most, from one row of the tensor
_ROW = 8  # elements of bf16 in 16 bytes


@dataclass(frozen=True, slots=True)
class StoreParts:
    """No options: ``decompose-operands`` has chosen the products."""

    name = "store-parts"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with a kernel and a buffer for the parts of each operand of a product with ``parts 3``."""
        names = {b.name for b in module.buffers} | {x.name for x in module.params} | {k.name for k in module.kernels}
        stored: dict[str, Buffer] = {}
        kernels: list[TileKernel] = []
        for k in module.kernels:
            read = _operands(k)
            for name in sorted(set(read.values()) - stored.keys()):
                whole = module.buffer(name)
                stored[name] = parts = _parts_of(whole, fresh(storing(name), names))
                at = _writer(kernels, whole, parts)
                if at is None:
                    kernels.append(_storing(whole, parts))
                else:
                    kernels[at] = _with_parts(kernels[at], whole, parts)
            kernels.append(_Products(k, read, {n: (module.buffer(n), stored[n]) for n in read.values()}).rewritten())
        made = replace(module, buffers=(*module.buffers, *stored.values()), kernels=tuple(kernels))
        return made if stored else module


def _operands(k: TileKernel) -> dict[str, str]:
    """The operands of products in parts, with the buffer that each is loaded from."""
    used = {v.name for op in walk_ops(k.body) if isinstance(op, DotOp) and op.parts == STORED for v in (op.a, op.b)}
    return {op.result.name: op.buffer for op in walk_ops(k.body) if isinstance(op, LoadOp) and op.result.name in used}


def _parts_of(whole: Buffer, name: str) -> Buffer:
    """The buffer of the parts of ``whole``."""
    sizes = (*whole.shape[:-1], rounded_up(whole.shape[-1], _ROW))
    shape = (STORED, *sizes) if len(sizes) < TENSOR_MAP_AXES else (volume((STORED, sizes[0])), *sizes[1:])
    return Buffer(name, DType.BF16, shape, Space.TEMP, whole.span)


def _at(part: int, index: Sequence[Expr], whole: Buffer) -> tuple[Expr, ...]:
    """The place of part ``part`` of ``whole[index]`` in the buffer of the parts."""
    if len(index) < TENSOR_MAP_AXES:
        return (integer(part), *index)
    return (calc("add", index[0], volume((part, whole.shape[0]))) if part else index[0], *index[1:])


class _Products:
    """Kernel ``k`` with products of parts.

    ``read``: as :func:`_operands`; ``stored``: the buffers of it, each with that of its parts.
    """

    def __init__(self, k: TileKernel, read: dict[str, str], stored: dict[str, tuple[Buffer, Buffer]]) -> None:
        self.k, self.read, self.stored = k, read, stored
        self.parts: dict[str, tuple[Value, ...]] = {}  # of each operand

    def rewritten(self) -> TileKernel:
        """The kernel; the loads of the operands themselves lose their last use."""
        return Peephole(self.k).run(self.rule)

    def rule(self, p: Peephole, op: TileOp) -> Value | None:
        if isinstance(op, LoadOp) and op.result.name in self.read:
            self.parts[op.result.name] = tuple(self.load(p, op, n) for n in range(STORED))
        if not (isinstance(op, DotOp) and op.parts == STORED):
            return None
        a, b = self.parts[op.a.name], self.parts[op.b.name]
        total: Value | None = None
        for left, right in PAIRS:
            made = p.fresh(op.result.type, f"{op.result.name}_part")
            p.emit(DotOp(made, a[left], b[right], total, op.axes, terms=op.terms, span=op.span))
            total = made
        assert total is not None
        return total if op.acc is None else p.map("add", (op.acc, total))

    def load(self, p: Peephole, op: LoadOp, part: int) -> Value:
        """Part ``part`` of what ``op`` loads."""
        whole, parts = self.stored[op.buffer]
        value = p.fresh(replace(op.result.type, dtype=DType.BF16), f"{op.result.name}_{part}")
        p.emit(LoadOp(value, parts.name, _at(part, op.index, whole), self.mask(op, whole, parts), op.span))
        return value

    def mask(self, op: LoadOp, whole: Buffer, parts: Buffer) -> Expr | None:
        """The mask of ``op`` for the longer rows of ``parts``."""
        last, size, padded = op.index[-1], whole.shape[-1], parts.shape[-1]
        if op.mask is None or size == padded:
            return op.mask
        ranges = {a.name: (0, a.size - 1) for a in self.k.axes}
        known = within(last, size)
        kept = [c for c in conjuncts(op.mask) if simplify(c, ranges, known) != TRUE]
        return _all([*kept, *within(last, padded)], ranges)


def _writer(kernels: Sequence[TileKernel], whole: Buffer, parts: Buffer) -> int | None:
    """The kernel among ``kernels`` that stores ``whole`` and may store its parts; None where there is none.

    It stores each element once, in straight code without products, and rows of ``parts`` have no more elements.
    """
    found = [n for n, k in enumerate(kernels) if any(_stores(op, whole) for op in walk_ops(k.body))]
    if whole.space is not Space.TEMP or len(found) != 1 or whole.shape[-1] != parts.shape[-1]:
        return None
    body = kernels[found[0]].body
    plain = not any(isinstance(op, ForOp | DotOp) for op in body)
    return found[0] if plain and sum(_stores(op, whole) for op in body) == 1 else None


def _stores(op: TileOp, whole: Buffer) -> bool:
    return isinstance(op, StoreOp) and op.buffer == whole.name


def _with_parts(k: TileKernel, whole: Buffer, parts: Buffer) -> TileKernel:
    """``k`` with stores of the parts of what it stores in ``whole``."""

    def rule(p: Peephole, op: TileOp) -> Value | None:
        if isinstance(op, StoreOp) and _stores(op, whole):
            _emit(p, op.value, op.index, whole, parts, op.mask)
        return None

    return Peephole(k).run(rule)


def _emit(e: Emitter, x: Value, places: Sequence[Expr], whole: Buffer, parts: Buffer, mask: Expr | None) -> None:
    """Store the parts of ``x``, the elements of ``whole`` at ``places``."""
    name = x.name
    for n in range(STORED):
        part = e.map("narrow", (x,), DType.BF16, f"{name}_{n}")
        e.emit(StoreOp(parts.name, _at(n, places, whole), part, mask, e.span))
        if n + 1 < STORED:
            x = e.map("sub", (x, e.map("cast", (part,), DType.F32)))


def _storing(whole: Buffer, parts: Buffer) -> TileKernel:
    """The kernel that stores the parts of ``whole``."""
    padded = [*whole.shape[:-1], parts.shape[-1]]
    tiles = _tile(padded)
    counts = [blocks(s, t) for s, t in zip(padded, tiles, strict=True)]
    axes = tuple(TileAxis(f"e{n}", t) for n, t in enumerate(tiles) if t > 1)
    places: list[Expr] = [
        calc("add", calc("mul", Var(f"g{n}"), t), Var(f"e{n}")) if t > 1 else Var(f"g{n}") for n, t in enumerate(tiles)
    ]
    ranges = {a.name: (0, a.size - 1) for a in axes} | {f"g{n}": (0, at_most(c) - 1) for n, c in enumerate(counts)}
    facts = [calc("lt", Var(f"g{n}"), c) for n, c in enumerate(counts) if not isinstance(c, int)]
    e = Emitter({a.name: a for a in axes})
    e.span = whole.span
    x = e.fresh(TileType(DType.F32, axes), "x")
    e.emit(LoadOp(x, whole.name, tuple(places), _inside(places, whole.shape, ranges, facts), e.span))
    _emit(e, x, places, whole, parts, _inside(places, padded, ranges, facts))
    grid = tuple(GridAxis(f"g{n}", extent_expr(c)) for n, c in enumerate(counts))
    return TileKernel(parts.name, grid, axes, tuple(e.out), whole.span)


def _tile(sizes: Sequence[Extent]) -> list[int]:
    """The tile of a tensor of ``sizes``: columns of the last two axes, powers of two."""
    tiles = [1] * len(sizes)
    tiles[-1] = min(_COLUMNS, ceil_pow2(at_most(sizes[-1])))
    if len(sizes) > 1:
        tiles[-2] = min(_TILE // tiles[-1], ceil_pow2(at_most(sizes[-2])))
    return tiles


def _inside(places: Sequence[Expr], sizes: Sequence[Extent], ranges: Ranges, facts: Sequence[Expr]) -> Expr | None:
    """The condition that ``places`` are elements of a tensor of ``sizes``; None where they all are."""
    return _all([calc("lt", x, n) for x, n in zip(places, sizes, strict=True)], ranges, facts)


def _all(conditions: Sequence[Expr], ranges: Ranges, facts: Sequence[Expr] = ()) -> Expr | None:
    """The conjunction of ``conditions``; None where it always holds.  ``facts``: what holds of the variables."""
    mask: Expr | None = None
    for c in (simplify(c, ranges, facts) for c in conditions):
        if c != TRUE:
            mask = c if mask is None else calc("and", mask, c)
    return mask

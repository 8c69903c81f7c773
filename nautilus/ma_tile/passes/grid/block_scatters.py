"""``block-scatters``: a block combines what it scatters in shared memory, and its results with memory once.

Atomic operations on memory wait for each other where many terms have few elements, as in a histogram.  Where the
elements that a block may reach fit in shared memory, it combines terms there (``st.global .. in NAME``).  A block then
takes the tiles of many blocks, because it adds its elements to memory once.  It takes them in a loop over a coordinate
of the grid on which the reached part of the tensor does not depend::

    grid 4096: y = block / 64, x = block % 64                    grid 512: y = block / 8, chunk = block % 8
    st.global C[y, %key], %v atomic sum             becomes      for x in chunk * 8 .. chunk * 8 + 8:
                                                                     st.global C[y, %key], %v atomic sum in C_block

Lanes of a warp wait for each other where their elements are in one bank of shared memory.  So the scratch of few
elements has copies (:func:`copies`), of which neighbouring lanes take different ones: element ``k`` of copy ``c`` of
``C`` is at ``k * C + c``, so that they are in different banks too.

The result is the same: every order of an atomic combiner gives the same bits.  A block has :data:`TERMS` terms for an
element, or fewer where too few multiprocessors had blocks otherwise, but at least one.  Where the number of tiles is
known only at launch, so is that of a block, and there are copies as for :data:`RUNTIME_TILES` tiles.  A kernel stays as
it is if it has roles or loops, stores anything else, or has too few tiles for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Const, Expr, Op, Var, free_vars, loads, refs
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.tiles import TileAxis, floor_pow2
from nautilus.ma_tile.analysis.access import key_dimensions
from nautilus.ma_tile.ir.ops import (
    ForOp,
    GlobalLoad,
    GlobalStore,
    IfOp,
    MemKernel,
    MemModule,
    RolesOp,
    Smem,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import each_kernel
from nautilus.targets.limits import SCATTER_BYTES, SCATTERS_BYTES, WARP, limits

TERMS = 4  # terms that a block combines, at least, for each element that it then combines with memory
RUNTIME_TILES = 8  # tiles of a block for which it has copies, at least, where their number is known only at launch
BLOCKS = 8  # largest number of blocks of a multiprocessor
FEWEST = 0.5  # blocks for each multiprocessor
COPIED_BYTES = 16384  # of all copies of a block, of which as many blocks as have 48 warps then share a multiprocessor
_ALIGNED = 16  # bytes


@dataclass(frozen=True, slots=True)
class BlockScatters:
    """``multiprocessors`` overrides the target's."""

    multiprocessors: int | None = None
    name = "block-scatters"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose blocks combine scatters in shared memory."""
        count = self.multiprocessors or limits(module.target).multiprocessors
        buffers = {b.name: b for b in module.buffers}
        return each_kernel(module, lambda k: _in_blocks(k, buffers, count))


@dataclass(frozen=True, slots=True)
class _Digit:
    """A coordinate of the grid: ``block // stride % size``."""

    name: str
    stride: int
    size: int


@dataclass(frozen=True, slots=True)
class _Line:
    """The coordinate ``name`` of ``size`` tiles, of which a block has several; ``outer``: the others of the grid."""

    name: str
    size: Expr
    outer: tuple[_Digit, ...]


def _in_blocks(kernel: MemKernel, buffers: Mapping[str, Buffer], multiprocessors: int) -> MemKernel:
    stores = [op for op in kernel.body if isinstance(op, GlobalStore)]
    if not stores or not _is_simple(kernel, stores):
        return kernel
    keys = {op.buffer: key_dimensions(buffers[op.buffer], op.index, op.value.type.names) for op in stores}
    if not all(_is_in_one_part(op, keys[op.buffer], kernel) for op in stores):
        return kernel
    most = SCATTER_BYTES if len(keys) == 1 else SCATTERS_BYTES
    if sum(prod(n) * buffers[name].dtype.bytes for name, n in keys.items()) > most:
        return kernel
    elements, terms = max(prod(n) for n in keys.values()), min(prod(op.value.type.shape) for op in stores)
    made, bytes_of = {name: prod(n) for name, n in keys.items()}, {name: buffers[name].dtype.bytes for name in keys}
    used = frozenset[str]().union(*(free_vars(e) for op in stores for e in _leading(op, keys[op.buffer])))
    if (tile := _only_coordinate(kernel)) is not None:
        least = -(-TERMS * elements // terms)
        shares = _launched(kernel.blocks, least, elements, terms, multiprocessors)
        few = copies(made, bytes_of, max(RUNTIME_TILES, least) * terms)
        return kernel if tile in used else _looped(kernel, buffers, made, _Line(tile, kernel.blocks, ()), shares, few)
    digits = _digits(kernel)
    if digits is None:
        return kernel
    free = [d for d in digits if d.name not in used and d.size > 1]
    if not free or not multiprocessors:
        return kernel
    loop = max(free, key=lambda d: d.size)
    tiles = prod(d.size for d in digits)
    most = min(loop.size, int(tiles / (FEWEST * multiprocessors)))
    each = min(most, max(-(-tiles // (BLOCKS * multiprocessors)), -(-TERMS * elements // terms)))
    if each < 1 or each * terms < elements:
        return kernel
    line = _Line(loop.name, integer(loop.size), tuple(d for d in digits if d is not loop))
    return _looped(kernel, buffers, made, line, integer(each), copies(made, bytes_of, each * terms))


def _launched(tiles: Expr, least: int, elements: int, terms: int, multiprocessors: int) -> Expr:
    """How many of ``tiles``, whose number is known only at launch, a block takes: as where it is known.

    ``least``: those with enough of ``terms`` for ``elements``; fewer where multiprocessors had no blocks otherwise.
    """
    if not multiprocessors:
        return integer(max(RUNTIME_TILES, least))
    many, few = BLOCKS * multiprocessors, max(1, int(FEWEST * multiprocessors))
    shares = simplify(calc("floordiv", calc("add", tiles, integer(many - 1)), integer(many)))
    wanted, floor = calc("max", integer(least), shares), -(-elements // terms)
    if least == floor:
        return wanted
    return calc("min", wanted, calc("max", integer(floor), simplify(calc("floordiv", tiles, integer(few)))))


def copies(elements: Mapping[str, int], bytes_of: Mapping[str, int], terms: int) -> int:
    """The copies of the scratch of a block that combines ``terms``: a power of two.

    A copy is filled and combined at the end too, so that a block has :data:`TERMS` terms for each of its elements.
    """
    size = sum(n * bytes_of[name] for name, n in elements.items())
    filled = terms // (TERMS * max(elements.values()))
    return max(1, floor_pow2(min(WARP, COPIED_BYTES // size, filled)))


def _only_coordinate(kernel: MemKernel) -> str | None:
    """The coordinate that is the number of the block, where the number of blocks is known only at launch."""
    if isinstance(kernel.blocks, Const) or len(kernel.decode) != 1:
        return None
    ((name, e),) = kernel.decode
    return name if e == Var("block") else None


def _is_simple(kernel: MemKernel, stores: Sequence[GlobalStore]) -> bool:
    """Whether all that ``kernel`` does is to scatter, without loops and roles."""
    ops = [*walk_ops(kernel.body)]
    loaded = {op.buffer for op in ops if isinstance(op, GlobalLoad)}
    alone = all(op.combiner is not None and op.scratch is None and op.buffer not in loaded for op in stores)
    plain = not any(isinstance(op, RolesOp | ForOp | IfOp) for op in ops)
    return alone and plain and kernel.cluster == kernel.consumers == 1 and not kernel.mbars and not kernel.pipelines


def _is_in_one_part(op: GlobalStore, keys: tuple[int, ...], kernel: MemKernel) -> bool:
    """Whether coordinates of the grid alone decide about the leading dimensions, and fragments about one of the others.

    The place of an element may tell which part of a loaded value is its key, such as that of half a byte, and it may
    be another position of the element, as the channel of a pixel is.
    """
    coordinates = {name for name, _ in kernel.decode}
    leading = _leading(op, keys)
    plain = all(free_vars(e) <= coordinates and not loads(e) for e in leading)
    rest = op.index[len(leading) :]
    return bool(keys) and plain and not any(loads(e) for e in rest) and any(refs(e) for e in rest)


def _leading(op: GlobalStore, keys: tuple[int, ...]) -> tuple[Expr, ...]:
    return op.index[: len(op.index) - len(keys)]


def _digits(kernel: MemKernel) -> list[_Digit] | None:
    """The coordinates of the grid from the slowest to the fastest one; None where it decodes anything else."""
    if not isinstance(kernel.blocks, Const):
        return None
    total, found = int(kernel.blocks.value), list[_Digit]()
    for name, e in kernel.decode:
        match e:
            case Const(value=0):
                found.append(_Digit(name, total, 1))
                continue
            case Op(op="mod", args=(inner, Const(value=size))):
                e, count = inner, int(size)
            case _:
                count = 0
        match e:
            case Var(name="block"):
                stride = 1
            case Op(op="floordiv", args=(Var(name="block"), Const(value=n))):
                stride = int(n)
            case _:
                return None
        found.append(_Digit(name, stride, count or total // stride))
    found.sort(key=lambda d: (-d.stride, d.size))
    whole = all(d.stride == prod(x.size for x in found[n + 1 :]) for n, d in enumerate(found) if d.size > 1)
    return found if whole and prod(d.size for d in found) == total else None


def _looped(
    kernel: MemKernel,
    buffers: Mapping[str, Buffer],
    elements: Mapping[str, int],
    line: _Line,
    each: Expr,
    count: int,
) -> MemKernel:
    """``kernel`` with blocks of ``each`` tiles of ``line``, whose scratch has ``count`` copies."""
    taken = {name for name, _ in kernel.decode} | {s.name for s in kernel.smem}
    taken |= {a.name for op in kernel.body if isinstance(op, GlobalStore) for a in op.value.type.axes}
    chunk, key, copy = unused("chunk", taken), unused("key", taken), unused("copy", taken)
    copied = (TileAxis(copy, count),) if count > 1 else ()
    beyond = calc("add", line.size, calc("sub", each, integer(1)))
    chunks = simplify(calc("floordiv", beyond, each))
    first = calc("mul", Var(chunk), each)
    end = calc("add", first, each)
    made, end_of_shared = dict[str, Smem](), kernel.smem_bytes
    for name, n in elements.items():
        at = -(-end_of_shared // _ALIGNED) * _ALIGNED
        axes = (TileAxis(key, n), *copied)
        made[name] = Smem(unused(f"{name}_block", taken), buffers[name].dtype, axes, offset=at)
        end_of_shared = at + made[name].bytes
    body = tuple(replace(op, scratch=made[op.buffer].name) if isinstance(op, GlobalStore) else op for op in kernel.body)
    whole = isinstance(line.size, Const) and isinstance(each, Const) and int(line.size.value) % int(each.value) == 0
    last = end if whole else calc("min", end, line.size)
    place = simplify(calc("mod", Var("block"), chunks)) if isinstance(chunks, Const) else Var("block")
    below = int(chunks.value) if isinstance(chunks, Const) else 1
    return replace(
        kernel,
        blocks=simplify(calc("mul", integer(prod(d.size for d in line.outer)), chunks)),
        decode=(*_decoded(line.outer, below), (chunk, place)),
        smem=(*kernel.smem, *made.values()),
        body=(ForOp((), line.name, first, last, (), body, (), span=kernel.span),),
    )


def _decoded(digits: Sequence[_Digit], below: int) -> list[tuple[str, Expr]]:
    """The coordinates ``digits``, the fastest one of which moves after ``below`` blocks."""
    out, stride = list[tuple[str, Expr]](), below * prod(d.size for d in digits)
    for n, d in enumerate(digits):
        stride //= d.size
        e = calc("floordiv", Var("block"), integer(stride))
        out.append((d.name, simplify(e if n == 0 else calc("mod", e, integer(d.size)))))
    return out

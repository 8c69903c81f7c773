"""From the linear block number to grid variables, in the order that the schedule states.

* ``natural``: the first grid axis varies slowest.
* ``longest-first``: an axis on which loop bounds depend becomes the slowest, so that the longest blocks of every other
  axis start first.  It runs backwards, unless it only says where loops begin: those are longest at its beginning.
  With ``l2_supertiles`` the other axes together are cut into that many supertiles, one after the other and
  each longest first, so that the operands that the tiles of a supertile share stay in the L2 cache.
* ``grouped``: ``raster_group`` tiles of the last axis but one are numbered together, so that tiles that run
  at the same time share operands in the L2 cache.
"""

from __future__ import annotations

from collections.abc import Iterable

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Const, Expr, Load, Var, free_vars, loads, rewrite
from nautilus.core.index.simplify import bounds, divisible_by, simplify
from nautilus.core.schedule import MappingPlan, WarpgroupPlan
from nautilus.targets.limits import MAX_BLOCKS
from nautilus.vr_tile.ir import ForOp, GridAxis, TileKernel, walk_ops

Decode = tuple[tuple[str, Expr], ...]
BLOCK = Var("block")


def decode_grid(kernel: TileKernel, mapping: MappingPlan) -> tuple[Expr, Decode]:
    """(number of blocks, grid variables in terms of ``block``).  Raises ScheduleError for more than a launch has."""
    grid = kernel.grid
    blocks = _product(grid)
    if isinstance(blocks, Const) and blocks.value > MAX_BLOCKS:
        raise ScheduleError(f"{blocks.value} blocks; a launch has at most {MAX_BLOCKS}", kernel=kernel.name)
    if mapping.raster_order == "grouped" and len(grid) >= 2:
        cluster = mapping.cluster if isinstance(mapping, WarpgroupPlan) else 1
        return blocks, _grouped(grid, mapping.raster_group, cluster)
    if mapping.raster_order == "longest-first":
        begins, ends = _bounding(kernel)
        first = [g for g in grid if g.var in begins | ends]
        rest = [g for g in grid if g.var not in begins | ends]
        in_supertiles = mapping.l2_supertiles > 1 and first and rest
        decode = dict(_supertiles(first, rest, mapping.l2_supertiles) if in_supertiles else _linear((*first, *rest)))
        for g in (g for g in first if g.var in ends):
            last = calc("sub", g.extent, 1)
            decode[g.var] = simplify(calc("sub", last, decode[g.var]))
        return blocks, tuple((g.var, decode[g.var]) for g in grid)
    return blocks, _linear(grid)


def _bounding(kernel: TileKernel) -> tuple[frozenset[str], frozenset[str]]:
    """Grid variables on which the beginnings and the ends of loops depend; what is read at them has no order.

    A mask cuts a loop in parts one after another, of which the ends of one are the beginnings of the next one.
    """
    grid = {g.var for g in kernel.grid}
    loops = [op for op in walk_ops(kernel.body) if isinstance(op, ForOp)]
    first = [op for n, op in enumerate(loops) if n == 0 or op.lo != loops[n - 1].hi]
    last = [op for n, op in enumerate(loops) if n + 1 == len(loops) or op.hi != loops[n + 1].lo]
    begins, ends = (
        frozenset[str]().union(*map(_outside_reads, x)) for x in ([op.lo for op in first], [op.hi for op in last])
    )
    return begins & grid, ends & grid


def _outside_reads(e: Expr) -> frozenset[str]:
    """Variables of ``e`` that stand outside of positions in tensors."""
    return free_vars(rewrite(e, lambda n: integer(0) if isinstance(n, Load) else None)) if loads(e) else free_vars(e)


def _linear(grid: tuple[GridAxis, ...], number: Expr = BLOCK) -> Decode:
    """The axes of ``grid``, the first slowest, from their linear ``number``."""
    out: list[tuple[str, Expr]] = []
    below: Expr = integer(1)
    for n, g in reversed(list(enumerate(grid))):
        e: Expr = number if below == integer(1) else calc("floordiv", number, below)
        if _is_one(g.extent):
            out.append((g.var, integer(0)))
            continue
        if n > 0 and not all(_is_one(x.extent) for x in grid[:n]):
            e = calc("mod", e, g.extent)
        out.append((g.var, e))
        below = _mul(below, g.extent)
    return tuple(reversed(out))


def _is_one(extent: Expr) -> bool:
    """Whether an axis has one position wherever there is a block: an empty one has none."""
    return bounds(extent)[1] == 1


def _supertiles(first: list[GridAxis], rest: list[GridAxis], count: int) -> Decode:
    """``first`` slowest inside each of ``count`` supertiles of ``rest``; the last one may be shorter."""
    long, wide = (_product(axes) for axes in (first, rest))
    size: Expr = calc("floordiv", calc("add", wide, count - 1), count)
    if isinstance(wide, Const):
        size = integer(-(-int(wide.value) // count))
    whole = _mul(size, long)
    start = _mul(calc("floordiv", BLOCK, whole), size)
    here: Expr = size
    if not (isinstance(wide, Const) and isinstance(size, Const) and int(wide.value) % int(size.value) == 0):
        here = calc("min", calc("sub", wide, start), size)
    inside = calc("mod", BLOCK, whole)
    slow = _linear(tuple(first), calc("floordiv", inside, here))
    return (*slow, *_linear(tuple(rest), calc("add", start, calc("mod", inside, here))))


def _product(axes: Iterable[GridAxis]) -> Expr:
    out: Expr = integer(1)
    for g in axes:
        out = _mul(out, g.extent)
    return out


def _grouped(grid: tuple[GridAxis, ...], group: int, cluster: int) -> Decode:
    """The last two axes in groups; the others as in ``natural``.

    Where groups and the last axis but one are whole clusters, the blocks of a cluster are neighbours along that axis.
    """
    *outer, slow, fast = grid
    inner = _mul(slow.extent, fast.extent)
    decode = list(_linear((*outer, GridAxis("", inner))))[:-1]
    position = calc("mod", BLOCK, inner) if outer else BLOCK
    whole = cluster if group % cluster == 0 and divisible_by(slow.extent, cluster) else 1
    rows, group = _divided(slow.extent, whole), group // whole
    number = position if whole == 1 else calc("floordiv", position, whole)
    per_group = _mul(integer(group), fast.extent)
    first = calc("mul", calc("floordiv", number, per_group), group)
    size: Expr = calc("min", calc("sub", rows, first), group)
    if isinstance(rows, Const) and int(rows.value) % group == 0:
        size = integer(group)
    inside = calc("mod", number, per_group)
    row = calc("add", first, calc("mod", inside, size))
    if whole > 1:
        row = calc("add", calc("mul", row, whole), calc("mod", BLOCK, whole))
    decode.append((slow.var, row))
    decode.append((fast.var, calc("floordiv", inside, size)))
    return tuple(decode)


def _divided(extent: Expr, n: int) -> Expr:
    """``extent`` // ``n``."""
    return extent if n == 1 else simplify(calc("floordiv", extent, n))


def _mul(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return integer(int(a.value) * int(b.value))
    if a == integer(1):
        return b
    return a if b == integer(1) else calc("mul", a, b)

"""Recognises matrix products: sums of products whose factors have free axes of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from math import gcd, prod

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import RELATIONAL, Const, Expr, Load, Op, Var, children, free_vars, loads, walk
from nautilus.core.expr.products import matrix_product
from nautilus.core.index.simplify import linear_in
from nautilus.core.index.sizes import nominal
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.core.types import DType
from nautilus.planner.rowwise.segments import Segments, segments_of
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.contractions.dense import multiplies_lanes
from nautilus.scalar.analysis.contractions.scales import matrix_part, scaled_product
from nautilus.scalar.analysis.definitions import Def, size, slides
from nautilus.targets.limits import MMA_DEPTH

LARGE = 128  # elements along each axis of products whose loops run one after another
ONE_BY_ONE = 4096  # terms of all of them at most
#: Of products of many matrices that have no matrix instructions: the most elements of the smaller side or of a result,
#: and the most terms of an element. The cost model predicts 33 us instead of 844 for a depthwise convolution with 2
#: filters for each channel, and 58 instead of 167 for matrices of 8 x 8 on an H200.
FEW_COLUMNS, FEW_RESULTS, MOST_TERMS = 4, 64, 64
MANY = 1024  # matrices that fill the multiprocessors with several in each block


@dataclass(frozen=True, slots=True)
class Dot:
    """A product-sum over tiles: free axes of either operand and the contracted ones.

    ``chosen``: summed axes of one operand alone, for each of which a condition reads from a tensor which rows have
    terms there (the experts that rows belong to).
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    inner: tuple[str, ...]
    chosen: tuple[str, ...] = ()


@by_identity(2048)
def dot_of(d: Def) -> Dot | None:
    """``d`` as a matrix product: a sum of products whose factors have free axes of their own."""
    parallel, inner = [a.name for a in d.par], tuple(a.name for a in d.red)
    found = matrix_product(matrix_part(d), parallel) if d.op == "sum" else None
    if found is None or not inner:
        return None
    chosen = tuple(x for x in inner if x not in found.shared)
    if chosen and (len(chosen) > 1 or len(inner) != 2 or not _is_chosen(d, chosen[0])):
        return None
    rows, columns = (tuple(x for x in parallel if x in side) for side in (found.rows, found.columns))
    apart = segments_of(d)
    chosen = chosen or _blocks_of(d, apart, inner)
    disjoint = apart is not None and apart.disjoint and {apart.rows, *apart.outer} in (set(rows), set(columns))
    if disjoint and apart is not None and (apart.axis in inner or (apart.axis,) in (rows, columns)):
        return None
    if _is_small(d, rows, columns) or multiplies_lanes(d):
        return None
    return Dot(rows, columns, tuple(x for x in inner if x not in chosen), chosen)


def _blocks_of(d: Def, apart: Segments | None, inner: tuple[str, ...]) -> tuple[str, ...]:
    """The axis of ``inner`` whose positions are the blocks of a row of a block-sparse matrix, which are in segments.

    A tile along it would hold elements of several blocks, of which few are of the row; the other axis has those of one.
    """
    if apart is None or len(inner) != 2 or apart.axis not in inner:
        return ()
    (other,) = (a for a in d.red if a.name != apart.axis)
    return (apart.axis,) if (size(other) or 0) >= 2 * MMA_DEPTH else ()


def _is_small(d: Def, rows: tuple[str, ...], columns: tuple[str, ...]) -> bool:
    """Whether ``d`` multiplies many matrices that are too small for matrix instructions.

    The filters of each channel have few elements and no channels of their own, or a result has few elements, and the
    sum is short.  What is contiguous is then often an axis that numbers the matrices, of which a tile of rows and
    columns has one element.
    """
    sizes = {a.name: size(a) for a in d.axes}

    def count(axes: Iterable[str]) -> int:
        return prod(sizes[x] or MOST_TERMS + 1 for x in axes)

    matrices = count(a.name for a in d.par if a.name not in (*rows, *columns))
    if matrices == 1 or count(a.name for a in d.red) > MOST_TERMS:
        return False
    sides = count(rows), count(columns)
    if matrices >= MANY and prod(sides) <= FEW_RESULTS:
        return True
    par = {a.name for a in d.par}
    return min(sides) <= FEW_COLUMNS and all(slides(d, {a.name}, par) for a in d.red)


def _is_chosen(d: Def, axis: str) -> bool:
    """Whether the condition of ``d`` compares with elements of a tensor at ``axis``, and with nothing else there."""
    found = [c for c in conjuncts(d.guard) if axis in free_vars(c)]
    return bool(found) and all(any(axis in free_vars(ld) for ld in loads(c)) for c in found)


def uses(d: Def, dot: Dot, computed: Collection[str], unknown: int) -> int:
    """The least number of products in which ``d``, as ``dot``, uses an element of an input.

    ``computed``: definitions of the same kernel, whose elements do not count unless both factors have them.
    ``unknown``: what a size that is known only at launch counts as.
    """
    value = matrix_part(d)
    parts = value.args if isinstance(value, Op) and value.op == "mul" else ()
    read = [e for e in parts if not any(ld.buffer in computed for ld in loads(e))] or parts
    sides = {*dot.rows, *dot.columns}
    return min(prod(size(a) or unknown for a in d.par if a.name in sides - free_vars(e)) for e in read or (value,))


def run_one_by_one(unified: Unified, loops: Collection[str]) -> bool:
    """Whether ``loops`` are those of large products of one shape, each of which has one of its own.

    With more than :data:`ONE_BY_ONE` terms in all, products with tiles of their own are so much faster that one result
    may be stored.
    """
    found = [(d, dot) for d in unified.defs if (dot := dot_of(d)) is not None]
    inner = [x for _, dot in found for x in dot.inner]
    shapes = {(dot.rows, dot.columns) for _, dot in found}
    apart = len(found) > 1 and len(shapes) == 1 and len(set(inner)) == len(inner) == len(found) and {*loops} <= {*inner}
    if not apart or not all(half_operands(d) and not dot.chosen for d, dot in found):
        return False
    (rows, columns) = shapes.pop()
    lengths = [nominal(unified.extents[x]) for x in inner]
    sides = (prod(nominal(unified.extents[x]) for x in side) for side in (rows, columns))
    return min(*lengths, *sides) >= LARGE and sum(lengths) <= ONE_BY_ONE


def full_operands(d: Def) -> bool:
    """Whether a factor of the product ``d`` needs all bits of f32, so that its matrices are multiplied in parts."""
    value = matrix_part(d)
    if not (isinstance(value, Op) and value.op == "mul" and value.dtype is DType.F32):
        return False
    return not all(isinstance(e, Op) and e.op == "cast" and _is_narrow(e.args[0].dtype) for e in value.args)


def _is_narrow(dtype: DType) -> bool:
    return dtype.bits < 32 or dtype is DType.TF32


def half_operands(d: Def) -> bool:
    """Whether both factors of the product are 16-bit floats."""
    value = d.value
    while isinstance(value, Op) and value.op == "cast":
        value = value.args[0]
    return isinstance(value, Op) and value.op == "mul" and all(_half(x) for x in value.args)


def _half(e: Expr) -> bool:
    match e:
        case Op(op="cast", args=(inner,)):
            return inner.dtype.is_half and isinstance(inner, Load | Op)
        case _:
            return e.dtype.is_half


def step_within(defs: Iterable[Def], step: int) -> int:
    """The largest step of a reduction loop, at most ``step``, that lies within the groups of every scaled product."""
    return gcd(step, *(found.group for d in defs if (found := scaled_product(d)) is not None))


def computed_operands(defs: Iterable[Def], loop: str) -> Iterator[tuple[Op, tuple[Load, ...]]]:
    """The operands of products among ``defs`` that are computed from tensors along ``loop``, without a conversion.

    With the loads of each, of which none is of a result of ``defs``.
    """
    every = list(defs)
    names = {d.name for d in every}
    for value in (matrix_part(d) for d in every if dot_of(d) is not None):
        for e in value.args if isinstance(value, Op) else ():
            bare = e.args[0] if isinstance(e, Op) and e.op == "cast" else e
            read = loads(bare)
            if isinstance(bare, Op) and loop in free_vars(bare) and names.isdisjoint(ld.buffer for ld in read):
                yield bare, read


def digit(operands: list[Load], loop: str) -> int:
    """The number of positions of ``loop`` after which all of its digits but the innermost one stay the same, or 0."""
    return gcd(*(n for ld in operands for e in ld.index for n in _periods(e, loop)))


def step_of_digit(defs: Iterable[Def], loop: str, step: int) -> int:
    """The part of ``step`` in which the positions that divisions make of ``loop`` stay the same; else ``step``.

    Such are the taps of a filter, whose channels follow one another in the loop.  Each element would have divisions of
    its own, where vectors lie neither along the innermost digit nor along another axis.
    """
    read = [ld for d in defs for ld in loads(matrix_part(d)) if ld.index and loop in free_vars(ld)]
    last = [x for ld in read for x in walk(ld.index[-1]) if loop in free_vars(x)]
    if not last or any(isinstance(x, Op) and x.op == "mod" and x.args[0] == Var(loop, x.dtype) for x in last):
        return step
    within = gcd(step, digit(read, loop))
    return within if within >= MMA_DEPTH else step


def _periods(e: Expr, loop: str) -> Iterator[int]:
    """The divisors by which ``e`` divides ``loop``."""
    match e:
        case Op(op="floordiv" | "mod", args=(Var(name=name), Const(value=value))) if name == loop:
            yield int(value)
        case _:
            for x in children(e):
                yield from _periods(x, loop)


def lengths_differ(defs: Iterable[Def], loop: str, grid: Collection[str]) -> bool:
    """Whether an axis of ``grid`` moves one end of ``loop`` alone, so that blocks differ in their iteration counts.

    Chunks and windows have both ends moved.  What a condition reads at each term, as the mask of a dropout, bounds no
    loop, and neither does the edge of a tensor that the taps of a filter reach, which are digits of the loop.
    """
    ends: dict[bool, set[str]] = {True: set(), False: set()}
    for c in (c for d in defs for c in conjuncts(d.guard)):
        if not (isinstance(c, Op) and c.op in RELATIONAL and loop in free_vars(c)):
            continue
        less, more = (linear_in(e, loop) for e in (c.args if c.op in ("lt", "le") else c.args[::-1]))
        if less is not None and more is not None and less[0] != more[0]:
            ends[less[0] > more[0]].update(free_vars(c).intersection(grid))
    return ends[True] != ends[False]

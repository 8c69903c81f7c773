"""Results of products whose last axis in memory numbers matrices, so that the elements of different ones alternate.

``store-results``, ``order-results`` and the planner decide here whether a copy in another order is worth its time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile

from nautilus.core.expr.nodes import Axis, Var
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import dense_product
from nautilus.scalar.analysis.definitions import Def, points
from nautilus.targets import matrix_rates


@dataclass(frozen=True, slots=True)
class Matrices:
    """A definition ``of`` that has the elements of a product; its axes along ``rows`` and ``columns`` of a matrix."""

    of: Def
    rows: frozenset[str]
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Order:
    """Places of axes, first those that number matrices and last those of a matrix.

    ``of_product``: in the product; ``of_reader``: in its reader.  ``groups``: the first ones of these.  ``run``:
    neighbours in memory that belong to different matrices.
    """

    of_product: tuple[int, ...]
    of_reader: tuple[int, ...]
    groups: tuple[int, ...]
    run: int


def matrices(product: Def, d: Def) -> Matrices | None:
    """The matrices of ``product`` as ``d`` has them, which is it or reads it at axes by themselves; None if not so."""
    dense, names = dense_product(product, sized=False), _places(product, d)
    if dense is None or names is None:
        return None
    axes = dict(zip((a.name for a in product.par), names, strict=True))
    rows, columns = (frozenset(axes[x] for x in side) for side in (dense.rows, dense.columns))
    return Matrices(d, rows, columns)


def alternating(found: Matrices, r: Def) -> Order | None:
    """The order in which ``r``, which reads the matrices or has them, would have one matrix after another.

    None where ``r`` does not read them at its own axes, each by itself, or where its last axis is one of a matrix.
    """
    names, here = _places(found.of, r), [a.name for a in r.par]
    if names is None:
        return None
    own = [a.name for a in found.of.par]
    inside = {x for x, o in zip(names, own, strict=True) if o in found.rows | found.columns}
    if here[-1] in inside:
        return None
    ordered = sorted(here, key=lambda x: (x in inside, here.index(x)))
    places = tuple(map(here.index, ordered))
    return Order(tuple(map(names.index, ordered)), places, places[: len(here) - len(inside)], run_of(r.par, inside))


def is_worth(found: Matrices, r: Def) -> bool:
    """Whether ``r`` is stored faster by way of a temp with one matrix after another."""
    order = alternating(found, r)
    large = order is not None and smallest_side(found.of.par, found.rows, found.columns) >= matrix_rates.SIDE
    return order is not None and large and is_copy_faster(r.par, r.buffer.dtype, order.run)


def run_of(axes: Sequence[Axis], inside: Collection[str]) -> int:
    """The number of neighbours in memory that belong to different matrices; 1 where neighbours belong to one matrix.

    ``axes``: of the elements; ``inside``: the names of those of a matrix.
    """
    return points(takewhile(lambda a: a.name not in inside, reversed(axes)))


def smallest_side(axes: Iterable[Axis], *sides: Collection[str]) -> int:
    """The least number of rows or columns of a matrix, whose ``sides`` are some of ``axes`` each."""
    every = tuple(axes)
    return min(points(a for a in every if a.name in names) for names in sides)


def is_copy_faster(axes: Iterable[Axis], dtype: DType, run: int) -> bool:
    """Whether a kernel that brings elements into another order takes less time than it saves.

    ``axes``: of all elements, which have type ``dtype`` in memory; ``run``: that of :func:`run_of`.
    """
    return matrix_rates.turns(points(axes), dtype.bytes, run)


def _places(d: Def, r: Def) -> list[str] | None:
    """The axes of ``r`` at which it reads each axis of ``d``, which it may be; None where a position is another one."""
    found = {ld.index for ld in r.reads() if ld.buffer == d.name} if r is not d else {d.index}
    if len(found) != 1 or d.at is not None or r.at is not None:
        return None
    names = [e.name for e in next(iter(found)) if isinstance(e, Var)]
    return names if len(names) == len(d.par) and sorted(names) == sorted(a.name for a in r.par) else None

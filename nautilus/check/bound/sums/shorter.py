"""A program at some elements of its outputs, with some terms of its long sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from math import prod
from operator import itemgetter
from typing import Final

import numpy as np

from nautilus.check.bound.sums.gathered import sizes
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Reduce, Var, free_vars, walk
from nautilus.core.expr.products import indexed_factors
from nautilus.core.numerics import Array, distinct
from nautilus.core.records.memo import by_identity
from nautilus.frontend.interp import keys_of
from nautilus.frontend.restrict import Chosen, Restricted, restrict, sampled
from nautilus.frontend.spec import Spec, Tensor

ELEMENTS: Final = ((8, 16), (4, 8))  # sampled indices of the last axis but one of an output, and of the last one
FEWEST_ELEMENTS: Final = ((2, 4), (1, 2))  # the same, on more inputs
FAR: Final = 16  # the excess over the budget at which sums are shortened by two steps at once
_WINDOWS: Final = 512  # the excess at which tensors are limited to windows around the sampled elements
_ROWS_OF_ALL: Final = 32  # the same where they are limited to the rows that are read along one of several axes
_NODES: Final = 16  # operations of a definition that count as one
_PRODUCTS: Final = 32  # terms of a product of matrices that count as one
_INTEGERS: Final = 8  # integers, which have no errors, that count as one number
_LONGEST: Final = 1 << 17  # terms of a sum in the sampled evaluation
TERMS: Final = 32  # terms along an axis that sums keep
_FEWEST: Final = 4  # the same where sums of sums over several axes exceed the budget by far


def at_elements(
    program: Spec, budget: int, elements: Sequence[tuple[int, int]] = ELEMENTS, most: int | None = None
) -> tuple[Spec, Mapping[str, Array]]:  # fmt: skip
    """``program`` at sampled elements of its outputs, and its new inputs; ``elements``: as in :data:`ELEMENTS`.

    Where that is too much work, there are fewer elements, because a sum of fewer terms cancels less.  After that,
    long sums are shortened, and the outputs are taken at the same indices as the sums are.
    """
    whole = most is None or longest(program) <= most
    fewest = FEWEST_ELEMENTS if elements is ELEMENTS else ()
    for inner, last in (*elements, *fewest) if whole else ():
        few, points = _whole(program)(inner, last)
        if points <= budget:
            return few.spec, few.rows
    cut = shorter_sums(program, _chosen(program), budget, most)
    return cut.spec, cut.rows


def shorter_sums(program: Spec, chosen: Chosen, budget: int, most: int | None = None) -> Restricted:
    """``program`` at ``chosen`` or fewer elements, with sums of so few terms that its work is within ``budget``.

    ``most``: the terms along an axis at most.
    """
    extents, shorter = _extents(program), _shorter(program, chosen)
    most = min(max(extents, default=1), _LONGEST if most is None else most)
    cut, points = shorter(most)
    while points > budget and most > TERMS:
        most //= 2 if points < FAR * budget else 4
        cut, points = shorter(most)
    while points > FAR * budget and most > _FEWEST:
        before, most = (cut, points), most // 2
        cut, points = shorter(most)
        if 2 * points > before[1]:
            cut, points = before  # the work is not that of sums
            break
    if points > (_ROWS_OF_ALL if _is_plain(program) else _WINDOWS) * budget:  # nor that of the elements that are wanted
        kept = {n: _terms(program, chosen, n, most) for n in sorted(extents) if n > most}
        fewer = restrict(program, chosen, kept, images=True)
        cut = fewer if 2 * work(fewer.spec) <= points else cut
    return cut


def _is_plain(program: Spec) -> bool:
    """Whether every position is an axis or a number, for one output.

    Elsewhere tensors have windows around the elements that are wanted.  A tensor that is read along several axes, such
    as a matrix and its diagonal, has few other elements than those.  Several outputs are evaluated apart.
    """
    if len(program.outputs) > 1:
        return False
    loads = (e for d in program.definitions for e in walk(d.expr) if isinstance(e, Load))
    return all(isinstance(i, Var | Const) for e in loads for i in e.index)


def _extents(program: Spec) -> set[int]:
    return {a.extent for _, e in reductions(program) for a in e.axes if isinstance(a.extent, int)}


@by_identity(4)  # the search for another budget begins with the same numbers of terms
def _shorter(program: Spec, chosen: Chosen) -> Callable[[int], tuple[Restricted, int]]:
    """``program`` at ``chosen`` elements, or at the indices of its terms, with this many terms; and its work."""
    extents = sorted(_extents(program))

    @cache
    def shorter(most: int) -> tuple[Restricted, int]:
        kept = {n: _terms(program, chosen, n, most) for n in extents if n > most}
        same = {t.name: _same_indices(t, chosen.get(t.name, {}), kept) for t in program.outputs}
        found = ((r, work(r.spec)) for r in (restrict(program, c, kept) for c in (chosen, same)))
        return min(found, key=itemgetter(1))

    return shorter


@by_identity(4)
def _whole(program: Spec) -> Callable[[int, int], tuple[Restricted, int]]:
    """``program`` with whole sums, at this many sampled indices of the last axes; and its work."""

    @cache
    def whole(inner: int, last: int) -> tuple[Restricted, int]:
        found = restrict(program, sampled(program, 0, inner=inner, last=last), {})
        return found, work(found.spec)

    return whole


@by_identity(4)
def _chosen(program: Spec) -> Chosen:
    """The elements at which a program with long sums is evaluated."""
    return sampled(program, 0, inner=ELEMENTS[0][0], last=ELEMENTS[0][1])


def _terms(program: Spec, chosen: Mapping[str, Mapping[int, Array]], extent: int, most: int) -> Array:
    """The terms of sums over ``extent`` indices: ``most`` of them, and those at which outputs are ``chosen``.

    Their number divides the extent, so that counts that add up to all of them do so at full size too.

    A condition such as ``j <= i and key[j] == key[i]`` then keeps a term for each index ``i``.  Where terms are read in
    either direction, as in ``sum[j](X[j] - X[N - 1 - j])``, the mirror image of each term is kept, which may cancel it.
    """
    spaced = np.linspace(0, extent - 1, -(-extent // -(-extent // most))).astype(np.int64)
    shared = (chosen.get(t.name, {}).get(p) for t in program.outputs for p, n in enumerate(t.shape) if n == extent)
    kept = np.concatenate([spaced, *(x for x in shared if x is not None)])
    return distinct(np.concatenate([kept, extent - 1 - kept]) if _is_mirrored(program, extent) else kept)


def _is_mirrored(program: Spec, extent: int) -> bool:
    """Whether an element is read at a position that falls along a reduced axis of ``extent`` indices."""
    names = {a.name for _, e in reductions(program) for a in e.axes if a.extent == extent}
    indices = (i for d in program.definitions for e in walk(d.expr) if isinstance(e, Load) for i in e.index)
    falling = (n.args[-1] for i in indices for n in walk(i) if isinstance(n, Op) and n.op in ("sub", "neg"))
    return any(free_vars(x) & names for x in falling)


def _same_indices(t: Tensor, chosen: Mapping[int, Array], kept: Mapping[int, Array]) -> dict[int, Array]:
    """``chosen``, with the indices of ``kept`` along the axes of these extents."""
    return dict(chosen) | {p: kept[n] for p, n in enumerate(t.shape) if isinstance(n, int) and n in kept}


def longest(spec: Spec) -> int:
    """The number of indices of the longest axis of a reduction."""
    return max((a.extent for _, e in reductions(spec) for a in e.axes if isinstance(a.extent, int)), default=1)


def work(spec: Spec) -> int:
    """The work of an evaluation: elements of inputs and of all grids; a term of a product of matrices is a 32nd."""
    found = [list(walk(d.expr)) for d in spec.definitions]
    elements = sizes(spec, chain.from_iterable(found))
    total = sum(elements[t.name] // (1 if t.dtype.is_float else _INTEGERS) for t in spec.inputs)
    for d, nodes in zip(spec.definitions, found, strict=True):
        outer = {a.name: a for a in d.axes}
        total += volume([a.extent for a in d.axes]) * max(1, len(nodes) // _NODES)
        total += sum(_work_of(e, outer) for e in nodes if isinstance(e, Reduce))
    return total


def _work_of(e: Reduce, outer: Mapping[str, Axis]) -> int:
    """The work of the reduction ``e`` of a definition with the axes ``outer``."""
    extents = {n: a.extent for n, a in outer.items()} | {a.name: a.extent for a in e.axes}
    used, terms = (
        volume([extents[n] for n in names if n in extents]) for names in (free_vars(e), [a.name for a in e.axes])
    )
    if keys_of(e) is not None:
        return volume([a.extent for a in outer.values()]) + terms // _INTEGERS
    factors = indexed_factors(e.body) if e.op == "sum" and e.cond is None else []
    if len(factors) < 2:
        return used * terms
    largest = max(volume([extents[n] for n in free_vars(f) if n in extents]) for f in factors)
    return min(used * terms, largest + used * (2 + terms // _PRODUCTS))


def volume(shape: Sequence[int | Expr]) -> int:
    """The number of elements along the dimensions of ``shape`` whose sizes are known."""
    return prod(n for n in shape if isinstance(n, int))


def reductions(program: Spec) -> Iterator[tuple[str, Reduce]]:
    """The reductions of ``program``, each with the name of its definition."""
    for d in program.definitions:
        yield from ((d.name, e) for e in walk(d.expr) if isinstance(e, Reduce))

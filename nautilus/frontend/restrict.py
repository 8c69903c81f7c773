"""Restriction of a Spec to some indices of its outputs.

An axis of an output is limited to chosen indices.  A definition or an input that is read only at the index of such an
axis is limited with it, so nothing outside the dependencies of the chosen elements is computed.  The index of the steps
of a recurrence is never limited.  A limited index that is used as a number (in a mask, in ``h // G``) is read from a
tensor of row numbers, a new input.  With ``images``, a tensor that is read at computed positions, as in windows, is
limited to the positions that occur, and read through a table of places.  Axes of reductions outside of recurrences can
be limited in the same way, which changes the values: a sum then has fewer terms.  The result is a normal Spec.  The
float64 interpreter evaluates sampled rows of it, and the f32 reference is evaluated piece by piece.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import TypeAlias

import numpy as np

from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import (
    Axis,
    Const,
    Expr,
    Load,
    Param,
    Reduce,
    Var,
    children,
    free_vars,
    loads,
    rewrite,
    walk,
    with_children,
)
from nautilus.core.expr.products import indexed_factors
from nautilus.core.index.sizes import Extent
from nautilus.core.numerics import Array, distinct
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.frontend.spec import Assumption, Definition, Spec, Tensor

Chosen: TypeAlias = Mapping[str, Mapping[int, Array]]  # tensor -> position -> indices
_ALL = None
_POINTS = 1 << 20  # points at which positions are computed


@dataclass(frozen=True)
class Restricted:
    """``spec`` with its new inputs ``rows``; ``inputs`` and ``outputs`` give the remaining indices of each tensor."""

    spec: Spec
    rows: Mapping[str, Array]
    inputs: Chosen
    outputs: Chosen

    def cut(self, name: str, array: Array) -> Array:
        """The remaining part of tensor ``name``, an input or an output."""
        for position, indices in (self.inputs.get(name) or self.outputs.get(name) or {}).items():
            array = np.take(array, indices, axis=position)
        return array

    def arrays(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """The inputs of :attr:`spec`, taken from the inputs of the unrestricted Spec."""
        names = [t.name for t in self.spec.inputs if t.name not in self.rows]
        return {n: self.cut(n, given[n]) for n in names} | dict(self.rows)


@dataclass(frozen=True)
class _Rows:
    """Tensors of row numbers, by name.  ``taken``: the names of the inputs, which may be restricted already."""

    taken: frozenset[str]
    arrays: dict[str, Array] = field(default_factory=dict)

    def name(self, x: Array) -> str:
        """The tensor that holds ``x``, a new one if there is none."""
        known = next((n for n, other in self.arrays.items() if other is x or np.array_equal(other, x)), None)
        if known is None:
            known = unused(f"%rows{len(self.arrays)}", {*self.taken, *self.arrays})
            self.arrays[known] = np.asarray(x, np.int64)
        return known


def restrict(
    spec: Spec, chosen: Chosen, reduced: Mapping[int, Array] | None = None, images: bool = False
) -> Restricted:
    """``spec`` with the axes of its outputs limited to ``chosen``; axes without an entry stay complete.

    ``reduced``: the remaining indices of every axis of a reduction, by its extent.  ``images``: computed
    positions limit tensors too, but not in a spec with recurrences.
    """
    fewer = reduced or {}
    images = images and all(d.recurrence is None for d in spec.definitions)
    shapes = {t.name: t.shape for t in spec.inputs} | {
        d.name: tuple(a.extent for a in d.axes) for d in spec.definitions
    }
    wanted: dict[str, dict[int, Array | None]] = {}
    for t in spec.outputs:
        wanted[t.name] = {p: chosen.get(t.name, {}).get(p, _ALL) for p in range(len(t.shape))}
    kept: list[Definition] = []
    for d in reversed(spec.definitions):
        if d.recurrence is not None and d.name == d.recurrence.members[-1]:
            _ask_members([spec.definition(n) for n in d.recurrence.members], wanted, fewer)
        if d.name in wanted:
            if d.recurrence is None:
                _ask(d, wanted, fewer, shapes if images else {})
            kept.append(d)
    rows = _Rows(frozenset(t.name for t in spec.inputs))
    made = tuple(_limited(d, wanted, rows, fewer) for d in reversed(kept))
    left = {name: {p: x for p, x in at.items() if x is not _ALL} for name, at in wanted.items()}
    inputs = [_cut_tensor(t, left[t.name]) for t in spec.inputs if t.name in left]
    inputs += [Tensor(name, DType.I32, (len(x),)) for name, x in rows.arrays.items()]
    outputs = tuple(_cut_tensor(t, left[t.name]) for t in spec.outputs)
    small = replace(spec, inputs=tuple(inputs), outputs=outputs, definitions=made, facts=_whole(spec, left))
    ins = {t.name: left[t.name] for t in spec.inputs if t.name in left}
    return Restricted(small, rows.arrays, ins, {t.name: left[t.name] for t in spec.outputs})


def _ask_members(
    members: Sequence[Definition], wanted: dict[str, dict[int, Array | None]], fewer: Mapping[int, Array]
) -> None:
    """:func:`_ask` for the members of a recurrence, all steps of which are wanted, until nothing changes."""
    before: object = None
    while before != (now := {d.name: _limits(wanted[d.name]) for d in members if d.name in wanted}):
        before = now
        for d in members:
            if d.name in wanted:
                assert d.recurrence is not None
                wanted[d.name] = wanted[d.name] | {d.recurrence.axis: _ALL}
                _ask(d, wanted, fewer, {})


def _limits(at: Mapping[int, Array | None]) -> dict[int, bool]:
    return {p: x is not _ALL for p, x in at.items()}


def _whole(spec: Spec, left: Mapping[str, Mapping[int, Array]]) -> tuple[Assumption, ...]:
    """The facts about tensors that stay complete, and the parts of others that compare elements at kept positions."""
    kept = {name for name, cut in left.items() if not cut}
    found = []
    for f in spec.facts:
        if {n.buffer for n in walk(f.condition) if isinstance(n, Load)} <= kept:
            found.append(f)
            continue
        for part in conjuncts(f.condition):
            sizes = _positions(part, left)
            if sizes is not None:
                axes = tuple(a for a in f.axes if a.name in free_vars(part))
                found.append(replace(f, axes=tuple(_fewer(a, sizes) for a in axes), condition=part))
    return tuple(found)


def _positions(part: Expr, left: Mapping[str, Mapping[int, Array]]) -> dict[str, Array] | None:
    """The positions that are left of the variables of ``part``, without those that have all.

    None where variables do not stand alone in the index positions of its reads, or are cut in different ways.
    """
    reads = [n for n in walk(part) if isinstance(n, Load)]
    without = rewrite(part, lambda e: Const(0, e.dtype) if isinstance(e, Load) else None)
    if any(isinstance(n, Var | Reduce) for n in walk(without)):
        return None
    if not all(ld.buffer in left and all(isinstance(i, Var) for i in ld.index) for ld in reads):
        return None
    found: dict[str, Array | None] = {}
    for ld in reads:
        for p, name in enumerate(i.name for i in ld.index if isinstance(i, Var)):
            mine = left[ld.buffer].get(p, _ALL)
            other = found.setdefault(name, mine)
            if mine is not other and (mine is _ALL or other is _ALL or not np.array_equal(mine, other)):
                return None
    return {name: x for name, x in found.items() if x is not None}


def _ask(
    d: Definition, wanted: dict[str, dict[int, Array | None]], fewer: Mapping[int, Array],
    shapes: Mapping[str, Sequence[Extent]],
) -> None:  # fmt: skip
    """Add the indices that ``d`` reads of other tensors, at its own wanted indices, to ``wanted``.

    ``shapes``: of the tensors, where computed positions limit them.
    """
    mine = {a.name: wanted[d.name][p] for p, a in enumerate(d.axes)} | _summed(d, fewer)
    points = _points(d, mine) if shapes else {}
    for e in loads(d.expr):  # what an unrolled sum reads repeatedly is asked for once
        seen = wanted.get(e.buffer)
        asked = {p: mine.get(i.name, _ALL) if isinstance(i, Var) else _ALL for p, i in enumerate(e.index)}
        for p, n in enumerate(shapes.get(e.buffer, ())):
            if not isinstance(e.index[p], Var) and isinstance(n, int):
                asked[p] = _image(e.index[p], points, n)
        if seen is not None:
            asked = {p: _both(x, seen[p], bool(shapes)) for p, x in asked.items()}
        wanted[e.buffer] = asked


def _points(d: Definition, mine: Mapping[str, Array | None]) -> dict[str, Array]:
    """The indices of each axis in ``d``: those of ``mine``, else all."""
    points = {a.name: np.arange(a.extent) for a in (*d.axes, *_reduced(d.expr)) if isinstance(a.extent, int)}
    return points | {name: x for name, x in mine.items() if x is not _ALL}


def _both(a: Array | None, b: Array | None, joined: bool) -> Array | None:
    """The indices that two readers read; all of them where they differ, unless those of both may be ``joined``."""
    if a is None or b is None:
        return _ALL
    if a is b or np.array_equal(a, b):
        return a
    return distinct(np.concatenate([a, b])) if joined else _ALL


def _image(e: Expr, points: Mapping[str, Array], size: int) -> Array | None:
    """The positions ``e`` inside of ``size`` elements at all ``points``; all of them where most of them occur."""
    names = sorted(free_vars(e))
    if not names or any(n not in points for n in names) or any(isinstance(x, Load | Param) for x in walk(e)):
        return _ALL
    if prod(len(points[n]) for n in names) > _POINTS:
        return _ALL
    env = {n: points[n].reshape([-1 if m == k else 1 for m in range(len(names))]) for k, n in enumerate(names)}
    found = distinct(np.ravel(evaluate(e, env)).astype(np.int64))
    found = found[(found >= 0) & (found < size)]
    return found if 0 < 2 * len(found) <= size else _ALL


def _summed(d: Definition, fewer: Mapping[int, Array]) -> dict[str, Array | None]:
    """The remaining indices of the axes of reductions; all in a recurrence, whose sums reach all of its elements."""
    if d.recurrence is not None:
        return {}
    return {a.name: fewer[a.extent] for a in _reduced(d.expr) if isinstance(a.extent, int) and a.extent in fewer}


@by_identity(1 << 8)  # the search for shorter sums restricts the same definitions several times
def _reduced(e: Expr) -> tuple[Axis, ...]:
    """The axes of the reductions in ``e``."""
    return tuple(a for n in walk(e) if isinstance(n, Reduce) for a in n.axes)


def _limited(
    d: Definition, wanted: Mapping[str, Mapping[int, Array | None]], rows: _Rows, fewer: Mapping[int, Array]
) -> Definition:
    """``d`` with its axes limited."""
    mine = {a.name: x for p, a in enumerate(d.axes) if (x := wanted[d.name][p]) is not _ALL}
    axes = tuple(_fewer(a, mine) for a in d.axes)
    mine |= {n: x for n, x in _summed(d, fewer).items() if x is not _ALL}
    names = {v: rows.name(x) for v, x in mine.items()}
    return replace(d, axes=axes, expr=_rewrite(d.expr, _Places(mine, names, wanted, rows), {}))


def _fewer(a: Axis, mine: Mapping[str, Array]) -> Axis:
    return Axis(a.name, len(mine[a.name]), a.span) if a.name in mine else a


@dataclass(frozen=True)
class _Places:
    """The limits ``mine`` of the axes of a definition, the ``names`` of their rows, the limits ``wanted`` of all."""

    mine: Mapping[str, Array]
    names: Mapping[str, str]
    wanted: Mapping[str, Mapping[int, Array | None]]
    rows: _Rows

    def is_own(self, i: Expr, kept: Array) -> bool:
        """Whether ``i`` is an index with the same limits as the tensor."""
        mine = self.mine.get(i.name) if isinstance(i, Var) else None
        return mine is kept or (mine is not None and np.array_equal(mine, kept))

    def table(self, kept: Array) -> str:
        """The tensor with the place of each index among those that are ``kept``."""
        places = np.zeros(int(kept[-1]) + 1, np.int64)
        places[kept] = np.arange(len(kept))
        return self.rows.name(places)


def _rewrite(e: Expr, at: _Places, done: dict[int, Expr]) -> Expr:
    """Limit the axes of reductions, and replace limited indices by reads of row numbers, except where they index a
    tensor with the same limits."""
    if id(e) in done:
        return done[id(e)]
    if isinstance(e, Var):
        new: Expr = Load(at.names[e.name], (e,), DType.I32) if e.name in at.names else e
    elif isinstance(e, Load):
        index: list[Expr] = []
        for p, i in enumerate(e.index):
            kept = at.wanted[e.buffer][p]
            own = kept is not None and at.is_own(i, kept)
            place = i if own else _rewrite(i, at, done)
            index.append(place if own or kept is None else Load(at.table(kept), (place,), DType.I32))
        new = with_children(e, tuple(index))
    else:
        new = with_children(e, tuple([_rewrite(c, at, done) for c in children(e)]))
        if isinstance(new, Reduce) and any(a.name in at.mine for a in new.axes):
            new = replace(new, axes=tuple(_fewer(a, at.mine) for a in new.axes))
    done[id(e)] = new
    return new


def _cut_tensor(t: Tensor, left: Mapping[int, Array]) -> Tensor:
    return replace(t, shape=tuple(len(left[p]) if p in left else n for p, n in enumerate(t.shape)), strides=None)


# -- choice of indices --------------------------------------------------------------------------


def sampled(spec: Spec, seed: int, inner: int = 32, last: int = 0) -> Chosen:
    """Sampled indices of each output, first and last ones included.

    These are ``inner`` indices of the last axis but one, ``last`` of the last axis (0: all of it), and two of each axis
    before them, or more where the last two have fewer indices.  An output with one axis gets ``inner`` squared
    elements.
    """
    out: dict[str, dict[int, Array]] = {}
    for t in spec.outputs:
        shape = shape_of(t)
        rank = len(shape)
        at: dict[int, Array] = {}
        if rank == 1:
            at[0] = _pick(shape[0], inner**2, seed)
        if rank > 1 and 0 < last < shape[-1]:
            at[rank - 1] = _pick(shape[-1], last, seed)
        missing = inner * max(last, 1) // max(1, min(shape[-1], last)) if rank > 1 else 1
        for p in range(rank - 2, -1, -1):
            at[p] = _pick(shape[p], max(2, missing) if p < rank - 2 else inner, seed)
            missing //= max(1, len(at[p]))
        out[t.name] = at
    return out


def _pick(size: int, count: int, seed: int) -> Array:
    if size <= count:
        return np.arange(size)
    ends = [size - 1] if count == 1 else [0, size - 1]
    rng = np.random.default_rng([seed, size, count])
    inner = 1 + rng.choice(size - 2, count - len(ends), replace=False)
    return np.sort(np.concatenate([ends, inner]).astype(np.int64))


def pieces(spec: Spec, most: int) -> list[Chosen]:
    """The outputs in pieces along their leading axes, so that no tensor of a piece has over ``most`` elements.

    Outputs of different shapes give one complete piece, because their leading axes are unrelated.
    """
    shapes = {shape_of(t) for t in spec.outputs}
    whole: list[Chosen] = [{}]
    if len(shapes) != 1 or largest(spec) <= most:
        return whole
    (shape,) = shapes
    names = [t.name for t in spec.outputs]
    todo: list[dict[int, Array]] = [{}]
    for p, size in enumerate(shape):
        load = largest(restrict(spec, dict.fromkeys(names, todo[0])).spec)
        if load <= most:
            break
        step = max(1, size * most // load)
        ranges = [np.arange(start, min(start + step, size)) for start in range(0, size, step)]
        todo = [{**have, p: r} for have in todo for r in ranges]
    return [dict.fromkeys(names, at) for at in todo]


def largest(spec: Spec) -> int:
    """Elements of the largest tensor in the evaluation of ``spec``; contractions make no tensor of their products."""
    sizes = [_volume(d.axes) for d in spec.definitions]
    for d in spec.definitions:
        outer = {a.name: a for a in d.axes}
        for e in walk(d.expr):
            if isinstance(e, Reduce) and not _contracts(e):
                used = {n.name for n in walk(e) if isinstance(n, Var)}
                sizes.append(_volume([a for n, a in outer.items() if n in used]) * _volume(e.axes))
    return max(sizes)


def _contracts(e: Reduce) -> bool:
    return e.op == "sum" and e.cond is None and len(indexed_factors(e.body)) > 1


def _volume(axes: Sequence[Axis]) -> int:
    total = 1
    for a in axes:
        total *= a.extent if isinstance(a.extent, int) else 1
    return total


def shape_of(t: Tensor) -> tuple[int, ...]:
    """The shape of ``t``.  Raises UnsupportedError for a size that is known only at launch."""
    sizes = [n for n in t.shape if isinstance(n, int)]
    if len(sizes) < len(t.shape):
        raise UnsupportedError("runtime dims", f"{t.name} in a restriction")
    return tuple(sizes)

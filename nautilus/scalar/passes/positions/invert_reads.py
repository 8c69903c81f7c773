"""``invert-reads``: a product whose elements have other places in a result is stored at these places.

Many results are rearranged products: heads beside each other, rows in reverse, windows of an image::

    E[t, c] sum= X[t, p] * W[p, c]                ;    Y[h, t, d] = f(E[t, 64 * h + d])

    E[t, c] sum= X[t, p] * W[p, c]                ;    Y[c // 64, t, c % 64] = f(E[t, c])

A kernel then computes ``E`` and ``Y`` at the axes of ``E``, so ``E`` is not stored.  The reader is elementwise, and
reads one element of ``E`` for each of its own.  :mod:`nautilus.scalar.analysis.ranges.inverse` finds the place of the
result from that of the element, so that no two results read the same one; and there are as many results as elements.

Rows that several axes number, as those of windows, become one axis where their tiles would have a rest
(:mod:`nautilus.scalar.rewriting.flat_rows`).

Several readers of parts that have no element in common, such as queries, keys and values, have a product each.

The pass applies where :data:`RUN` bytes of the columns of the product are side by side in each result and start at a
multiple of their size, so that stores are as wide as those of the product would be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

from nautilus.core.buffers import Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Axis, Expr, Load, Var, free_vars, rewrite, substitute
from nautilus.core.index.divisors import divisible_by
from nautilus.core.index.simplify import bounds, simplify
from nautilus.core.index.sizes import at_most
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.ranges.inverse import inverse
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.rewriting import axis_assumptions, find_defs, fresh_name, put_defs
from nautilus.scalar.rewriting.flat_rows import with_flat_rows

RUN = 16  # bytes of the widest store


@dataclass(frozen=True, slots=True)
class _Part:
    """``reader`` reads the elements of a product from ``start`` on, as many as ``axes`` have.

    ``places``: the axes of ``reader`` at the element of the part that ``axes`` name.
    """

    reader: Def
    start: tuple[int, ...]
    axes: tuple[Axis, ...]
    places: Mapping[str, Expr]


@dataclass(frozen=True, slots=True)
class InvertReads:
    """Store products at the places that their readers give their elements."""

    name = "invert-reads"

    def apply(self, program: Program) -> Program:
        """The program with such products; the same object where there are none."""
        for name in find_defs(program):
            live = Dead().apply(program)
            defs = find_defs(live)
            found = _parts(defs[name], defs) if name in defs else None
            if found is not None:
                program = Simplify().apply(Dead().apply(_inverted(live, defs[name], found)))
        return program


def _parts(d: Def, defs: Mapping[str, Def]) -> list[_Part] | None:
    """The parts of the product ``d`` that its readers have; None unless each may be stored at the reader's places."""
    plain = d.at is None and d.scatter is None and d.buffer.space is Space.TEMP and d.buffer.support is None
    if not plain or not multiplies_matrices(d):
        return None
    readers = [r for r in defs.values() if any(ld.buffer == d.name for ld in r.reads())]
    found = [_part(d, r) for r in readers]
    parts = [p for p in found if p is not None]
    if not parts or len(parts) < len(found) or not all(_is_apart(p, q) for p, q in combinations(parts, 2)):
        return None
    return None if all(p.axes == d.par and all(isinstance(e, Var) for e in p.places.values()) for p in parts) else parts


def _is_apart(p: _Part, q: _Part) -> bool:
    """Whether two parts have no element in common."""
    sides = zip(p.start, p.axes, q.start, q.axes, strict=True)
    return any(
        isinstance(a.extent, int) and isinstance(b.extent, int) and (i + a.extent <= k or k + b.extent <= i)
        for i, a, k, b in sides
    )


def _part(d: Def, r: Def) -> _Part | None:
    """The part of the product ``d`` whose elements ``r`` reads once each; None where it has none."""
    reads = {ld for ld in r.reads() if ld.buffer == d.name}
    if r.op is not None or r.guard is not None or r.at is not None or r.scatter is not None or len(reads) != 1:
        return None
    (ld,) = reads
    if any(free_vars(e) - {a.name for a in r.par} for e in ld.index) or not _fits(d, r, ld):
        return None
    ranges, given = axis_assumptions(r.par)
    limits = [bounds(e, ranges, given) for e in ld.index]
    ends = [(lo, hi, at_most(a.extent)) for (lo, hi), a in zip(limits, d.par, strict=True)]
    if any(lo is None or hi is None or lo < 0 or hi >= n for lo, hi, n in ends):
        return None  # such as a place in front of the first row, which a condition leaves out
    start = tuple(lo for lo, _ in limits if lo is not None)
    extents = [hi - lo + 1 for lo, hi in limits if lo is not None and hi is not None]
    plain = _plain(d, r, ld)
    axes = tuple(a if a in plain else replace(a, extent=n) for a, n in zip(d.par, extents, strict=True))
    own, _ = axis_assumptions(axes)
    values = [calc("add", Var(a.name), lo) if lo else Var(a.name) for a, lo in zip(axes, start, strict=True)]
    places = inverse(ld.index, values, ranges, own)
    if places.keys() != {a.name for a in r.par} or any(n == 1 for n in extents):
        return None
    part = _Part(r, start, axes, places)
    return part if _has_runs(part) else None


def _plain(d: Def, r: Def, ld: Load) -> dict[Axis, str]:
    """The axes of ``d`` that ``ld`` reads at an axis of ``r`` by itself, from its start to its end."""
    extents = {a.name: a.extent for a in r.par}
    pairs = zip(d.par, ld.index, strict=True)
    return {a: e.name for a, e in pairs if isinstance(e, Var) and extents[e.name] == a.extent}


def _fits(d: Def, r: Def, ld: Load) -> bool:
    """Whether ``r`` has as many elements as ``ld`` has places, where each has one: those of a box."""
    ranges, given = axis_assumptions(r.par)
    plain = _plain(d, r, ld)
    rest = [a.extent for a in r.par if a.name not in plain.values()]
    sides = [bounds(e, ranges, given) for a, e in zip(d.par, ld.index, strict=True) if a not in plain]
    if not all(isinstance(n, int) for n in rest) or any(lo is None or hi is None for lo, hi in sides):
        return False
    count = prod(hi - lo + 1 for lo, hi in sides if lo is not None and hi is not None)
    return prod(n for n in rest if isinstance(n, int)) == count


def _has_runs(part: _Part) -> bool:
    """Whether elements of :data:`RUN` bytes along the last axis of the product are side by side in the result."""
    r, last = part.reader, part.axes[-1]
    size = RUN // r.buffer.dtype.bytes
    if not isinstance(last.extent, int) or last.extent % size:
        return False
    ranges, given = axis_assumptions(part.axes)
    taken = {a.name for a in (*part.axes, *r.par)}
    first, step = unused("run", taken), unused("element", taken)
    ranges = {**ranges, first: (0, last.extent // size - 1), step: (0, size - 1)}
    at = calc("add", calc("mul", Var(first), size), Var(step))
    places = [simplify(substitute(part.places[a.name], {last.name: at}), ranges, given) for a in r.par]
    base = [simplify(substitute(e, {step: integer(0)}), ranges, given) for e in places]
    along = simplify(calc("sub", places[-1], base[-1]), ranges, given)
    return along == Var(step) and places[:-1] == base[:-1] and divisible_by(base[-1], size)


def _inverted(program: Program, d: Def, parts: Sequence[_Part]) -> Program:
    """``program`` with a product for each of ``parts``, which its reader stores."""
    whole = len(parts) == 1 and parts[0].axes == d.par
    products: list[Def] = []
    for part in parts:
        made = d if whole else _restricted(program, d, part, [p.name for p in products])
        products.append(made)
        program = put_defs(program, part.reader.name, (_stored(part, d, made),))
    if whole:
        return with_flat_rows(program, d.name, parts[0].reader.name)
    return put_defs(program, d.name, products)


def _restricted(program: Program, d: Def, part: _Part, taken: Sequence[str]) -> Def:
    """The elements of the product ``d`` of ``part`` alone."""
    name = fresh_name(program, f"{d.name}_{part.reader.name}", taken)
    buffer = replace(d.buffer, name=name, shape=tuple(a.extent for a in part.axes))
    pairs = zip(part.axes, part.start, strict=True)
    env: dict[str, Expr] = {a.name: calc("add", Var(a.name), lo) for a, lo in pairs if lo}
    guard = None if d.guard is None else substitute(d.guard, env)
    return replace(d, name=name, buffer=buffer, par=part.axes, value=substitute(d.value, env), guard=guard)


def _stored(part: _Part, d: Def, made: Def) -> Def:
    """The reader of ``part`` at the axes of its product, ``made`` from ``d``."""

    r = part.reader

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer == d.name:
            return replace(e, buffer=made.name, index=made.index)
        return part.places.get(e.name) if isinstance(e, Var) else None

    at = tuple(part.places[a.name] for a in r.par)
    return replace(r, par=part.axes, value=rewrite(r.value, rule), at=at)

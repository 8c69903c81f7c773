"""``tile-columns``: reductions over the columns of a large product have partial results over the columns of a tile.

The logits of a loss are a product of which only reductions over its columns remain::

    S[i, j] = sum[k](X[i, k] * W[j, k])      ;    m[i] = max[j](S[i, j])     ;    z[i] = sum[j](exp(S[i, j] - m[i]))

A kernel of all three has a loop over ``k`` inside of a loop over ``j``, so ``S`` is stored.  With ``j = c * G + t`` for
the ``G`` columns that a tile of matrix units has, each tile has partial results of its own::

    T[i, c, t] = sum[k](X[i, k] * W[c * G + t, k])
    m_part[c, i] = max[t](T[i, c, t])        ;    z_part[c, i] = sum[t](exp(T[i, c, t] - m_part[c, i]))

which ``split-k-update`` derives and combines.  A reader of one element for each row, such as the logit of a label,
has a reduction of its own over ``k``.  The pass acts where

* the target has warpgroup MMAs, both factors have 16 bits, and the product has more than :data:`DEEP` terms: with fewer
  terms one kernel holds a row of the left operand for the whole loop over ``j``;
* there are :data:`ROWS` rows, :data:`COLUMNS` columns, which whole groups divide, and :data:`LARGE` elements;
  registers hold :data:`WIDE` groups where no two reductions share what is computed from an element, as a scaled logit;
* all other readers reduce over the columns alone, and none of them is a product itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc, within
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, loads, rewrite, substitute
from nautilus.core.expr.products import strip_conversions
from nautilus.core.index.sizes import extent_expr
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, SplitPlan
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.chunks import Chunks, chunks_of
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.split_k_update import SplitKUpdate
from nautilus.scalar.rewriting import all_defs, fresh_name, put_defs
from nautilus.targets.limits import limits
from nautilus.targets.records import DEFAULT_TARGET

WIDE, NARROW = 256, 128  # columns of a tile: 28.8 us predicted for 4096 x 4096 x 512, and 31.2
DEEP = 256  # terms of a product whose rows one kernel holds
ROWS, COLUMNS = 128, 1024
LARGE = 1 << 20  # elements of the product: tiles for a quarter of the multiprocessors
THIN = 16  # elements of the product for one that a reader takes by itself


@dataclass(frozen=True, slots=True)
class TileColumns(CertifyingPass[Program]):
    """Give reductions over the columns of large products partial results.  ``arch``: the target."""

    arch: str = DEFAULT_TARGET

    name = "tile-columns"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with partial results, and the certificates of their combinations."""
        certificates: tuple[Certificate, ...] = ()
        if not limits(self.arch).warpgroup:
            return program, certificates
        live = Dead().apply(program)
        for name in all_defs(live) or ():
            defs = all_defs(live)
            found = None if defs is None or name not in defs else _columns(defs[name], defs)
            made = None if found is None else _tiled(live, name, found)
            if made is not None:
                live = program = made[0]
                certificates += made[1]
        return program, certificates


@dataclass(frozen=True, slots=True)
class _Columns:
    """Axis number ``at`` of a product, in groups of ``group``, over which ``reductions`` reduce."""

    at: int
    group: int
    reductions: tuple[SplitPlan, ...]
    thin: tuple[str, ...]  # readers of single elements


def _columns(d: Def, defs: Mapping[str, Def]) -> _Columns | None:
    """The columns of the product ``d`` that are tiled; None where the pass leaves it alone."""
    readers = [(r, ld) for r in defs.values() for ld in r.reads() if ld.buffer == d.name]
    if not _is_large(d) or not readers:
        return None
    thin = tuple(dict.fromkeys(r.name for r, ld in readers if _is_thin(r, ld, d)))
    whole = [(r, ld) for r, ld in readers if not _is_thin(r, ld, d)]
    places = {n for r, ld in whole for n, e in enumerate(ld.index) if e in [Var(a.name) for a in r.red]}
    if not whole or len(places) != 1 or any(r.name in thin for r, _ in whole):
        return None
    (at,) = places
    extent = size(d.par[at])
    rows = prod(size(a) or ROWS for n, a in enumerate(d.par) if n != at)
    computed = [r for r, _ in whole if not isinstance(strip_conversions(r.value), Load)]
    groups = (WIDE, NARROW) if len(computed) <= 1 else (NARROW,)
    group = next((g for g in groups if extent is not None and extent % g == 0), None)
    if group is None or extent is None or extent < COLUMNS or rows < ROWS or rows * extent < LARGE:
        return None
    if not all(_reduces_columns(r, ld, at) for r, ld in whole):
        return None
    ends = {r.name: r.red[0].name for r, _ in whole}
    cuts = tuple(SplitPlan(name, axis, extent // group, group) for name, axis in ends.items())
    return _Columns(at, group, cuts, thin)


def _is_large(d: Def) -> bool:
    """Whether ``d`` is a product of 16-bit matrices with many terms."""
    plain = d.buffer.space is Space.TEMP and d.scatter is None and d.guard is None
    if not plain or not multiplies_matrices(d) or len(d.red) != 1:
        return False
    terms = size(d.red[0])
    factors = d.value.args if isinstance(d.value, Op) and d.value.op == "mul" else ()
    half = [f for f in factors if isinstance(f, Op) and f.op == "cast" and isinstance(f.args[0], Load)]
    return terms is not None and terms > DEEP and len(half) == 2 and all(f.args[0].dtype.is_half for f in half)


def _is_thin(reader: Def, ld: Load, d: Def) -> bool:
    """Whether ``reader`` takes few elements of ``d``, such as those of a diagonal."""
    own = {a.name: size(a) for a in reader.axes}
    read = prod(own.get(x) or 1 for x in free_vars(ld))
    return read * THIN <= prod(size(a) or 1 for a in d.par)


def _reduces_columns(r: Def, ld: Load, at: int) -> bool:
    """Whether ``r`` reduces what it reads as ``ld`` along axis ``at`` alone, and all of it, and is no product."""
    rows = [e for n, e in enumerate(ld.index) if n != at]
    plain = all(isinstance(e, Var) for e in rows) and len(set(rows)) == len(rows)
    own = {Var(a.name) for a in r.par}
    alone = r.is_reduction and len(r.red) == 1 and ld.index[at] == Var(r.red[0].name) and r.at is None
    return alone and plain and {*rows} <= own and not multiplies_matrices(r)


def _tiled(program: Program, name: str, found: _Columns) -> tuple[Program, tuple[Certificate, ...]] | None:
    """``program`` with partial results; None where they cannot be combined."""
    try:
        cut, certificates = SplitKUpdate(Schedule(splits=found.reductions)).derive(program)
    except ScheduleError:
        return None
    defs = all_defs(cut)
    if defs is None:
        return None
    d = defs[name]
    parts = [r for r in defs.values() if any(ld.buffer == name for ld in r.reads()) and r.name not in found.thin]
    if any((c := chunks_of(r)) is None or c.axis != r.red[0].name or c.size != found.group for r in parts):
        return None
    for reader in found.thin:
        cut = _taken(cut, d, defs[reader])
    tiles = _tiles(cut, d, found)
    cut = put_defs(cut, name, (d, tiles))
    for r in parts:
        chunks = chunks_of(r)
        assert chunks is not None
        cut = put_defs(cut, r.name, (_over_tile(r, chunks, name, tiles, found),))
    return Dead().apply(cut), certificates


def _tiles(program: Program, d: Def, found: _Columns) -> Def:
    """The product ``d`` with its columns in groups."""
    axis = d.par[found.at]
    extent = size(axis)
    assert extent is not None
    taken = {a.name for a in d.axes}
    outer = Axis(unused(f"{axis.name}_tile", taken), extent // found.group, axis.span)
    inner = Axis(unused(f"{axis.name}_in", taken), found.group, axis.span)
    par = (*d.par[: found.at], outer, inner, *d.par[found.at + 1 :])
    name = fresh_name(program, f"{d.name}_tiles")
    buffer = Buffer(name, d.buffer.dtype, tuple(a.extent for a in par), Space.TEMP, d.span)
    place = calc("add", calc("mul", Var(outer.name), found.group), Var(inner.name))
    return replace(d, name=name, buffer=buffer, par=par, value=substitute(d.value, {axis.name: place}))


def _over_tile(r: Def, chunks: Chunks, name: str, tiles: Def, found: _Columns) -> Def:
    """Partial results ``r`` over the elements of a group; ``name``: the product."""
    (axis,) = r.red
    place = calc("add", calc("mul", Var(chunks.by), found.group), Var(axis.name))

    def rule(n: Expr) -> Expr | None:
        if not isinstance(n, Load) or n.buffer != name:
            return None
        return replace(n, buffer=tiles.name, index=_grouped(n.index, found.at, (Var(chunks.by), Var(axis.name))))

    def moved(e: Expr) -> Expr:
        return rewrite(substitute(e, {axis.name: place}), rule)

    guard = conjunction([moved(c) for c in conjuncts(r.guard) if not _says_chunk(c, axis.name, chunks.by)])
    return replace(r, red=(replace(axis, extent=found.group),), value=moved(r.value), guard=guard)


def _grouped(index: tuple[Expr, ...], at: int, place: tuple[Expr, Expr]) -> tuple[Expr, ...]:
    return (*index[:at], *place, *index[at + 1 :])


def _says_chunk(c: Expr, axis: str, by: str) -> bool:
    """Whether ``c`` is one of the two bounds of a chunk."""
    return isinstance(c, Op) and c.op in ("le", "lt") and free_vars(c) == {axis, by} and Var(axis) in c.args


def _taken(program: Program, d: Def, reader: Def) -> Program:
    """``program`` where ``reader`` has reductions of its own for the elements that it reads of the product ``d``."""
    made: list[Def] = []
    names: dict[Load, Load] = {}
    for ld in (x for x in reader.reads() if x.buffer == d.name):
        used = free_vars(ld)
        par = tuple(a for a in reader.axes if a.name in used)
        taken = {a.name for a in (*par, *d.axes)}
        red = tuple(replace(a, name=unused(a.name, taken - {a.name} | {x.name for x in par})) for a in d.red)
        at: dict[str, Expr] = {a.name: e for a, e in zip(d.par, ld.index, strict=True)}
        at |= {a.name: Var(b.name) for a, b in zip(d.red, red, strict=True)}
        name = fresh_name(program, f"{d.name}_at", [x.name for x in made])
        buffer = Buffer(name, d.buffer.dtype, tuple(a.extent for a in par), Space.TEMP, ld.span)
        read = [(e, a.extent) for e, a in zip(ld.index, d.par, strict=True) if loads(e)]
        guard = conjunction([c for e, n in read for c in within(e, extent_expr(n))])
        made.append(Def(name, buffer, par, red, d.op, substitute(d.value, at), guard, ld.span))
        names[ld] = Load(name, tuple(Var(a.name) for a in par), buffer.dtype, ld.span)

    def rule(n: Expr) -> Expr | None:
        return names.get(n) if isinstance(n, Load) else None

    guard = None if reader.guard is None else rewrite(reader.guard, rule)
    return put_defs(program, reader.name, (*made, replace(reader, value=rewrite(reader.value, rule), guard=guard)))

"""``tile-columns``: reductions over the columns of a large product have partial results over the columns of a tile.

The logits of a loss are a product of which only reductions over its columns remain::

    S[i, j] = sum[k](X[i, k] * W[j, k])      ;    m[i] = max[j](S[i, j])     ;    z[i] = sum[j](exp(S[i, j] - m[i]))

A kernel of all three has a loop over ``k`` inside of a loop over ``j``, so ``S`` is stored.  With ``j = c * G + t`` for
the ``G`` columns that a tile of matrix units has, each tile has partial results of its own::

    T[i, c, t] = sum[k](X[i, k] * W[c * G + t, k])
    m_part[c, i] = max[t](T[i, c, t])        ;    z_part[c, i] = sum[t](exp(T[i, c, t] - m_part[c, i]))

which ``split-k-update`` derives and combines.  A reader of one element for each row, such as the logit of a label,
has a reduction of its own over ``k``, also where it reduces over the columns as well, as a margin loss does.  What is
computed from one element alone, such as a result that is rounded to the type of its tensor, is computed by tiles too,
and reductions that read it compute it again::

    Y[i, c * G + t] = bf16(T[i, c, t])       ;    a_part[c, i] = max[t](abs(bf16(T[i, c, t])))

A reduction over rows as well has its results for each row first.  Where others reduce over the rows alone, or the
product is a result itself, its elements are stored from the tiles.  The last group may be shorter.  Of a product of few
terms, only readers of single elements change, as one kernel has it and all of its reductions.  The pass acts where

* the target has warpgroup MMAs, both factors have 16 bits, or both have 8, and the product has more than :data:`DEEP`
  terms: with fewer terms one kernel holds a row of the left operand for the whole loop over ``j``;
* there are :data:`ROWS` rows, :data:`COLUMNS` columns and :data:`LARGE` elements; registers hold :data:`WIDE` groups
  where no two reductions share what is computed from an element, as a scaled logit, none has :data:`HEAVY` functions
  of it, and operands have 16 bits;
* no element is read again for a result of its own with those of the reductions, such as a row that is normalised: the
  kernel of these results has the reductions as well, unless a row is longer than the registers of a block hold;
* all other readers reduce over one axis, none of them is a product itself, and those over other axes than the columns
  need no result of these, nor these of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc, within
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Reduce, Var, free_vars, loads, rewrite, substitute, walk
from nautilus.core.expr.products import strip_conversions
from nautilus.core.functions import FUNCTIONS
from nautilus.core.index.sizes import blocks, extent_expr
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, SplitPlan
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.chunks import Chunks, chunks_of
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.inline import replace_reads
from nautilus.scalar.passes.split_k_update import SplitKUpdate
from nautilus.scalar.rewriting import ASSOCIATIVE, all_defs, fresh_name, in_two_steps, put_defs, reduction_at
from nautilus.targets.limits import BLOCK_REGISTERS, limits
from nautilus.targets.records import DEFAULT_TARGET

WIDE, NARROW = 256, 128  # columns of a tile: 28.8 us predicted for 4096 x 4096 x 512, and 31.2
DEEP = 256  # terms of a product whose rows one kernel holds
ROWS, COLUMNS = 128, 1024
HEAVY = 2  # elementary functions of an element whose values need registers beside wide accumulators
LARGE = 1 << 20  # elements of the product: tiles for a quarter of the multiprocessors
_ELEMENTARY = frozenset(f.name for f in FUNCTIONS.values() if f.elementary)
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
            copied: list[Certificate] = []
            found = _stepwise(_without_mixed(_with_elements(live, name, copied), name, copied), name)
            made = next((m for x in found if (m := _tiled(x, name)) is not None), None)
            if made is not None:
                live = program = made[0]
                certificates += (*copied, *made[1])
            elif (apart := _without_thin(live, name)) is not None:
                live = program = apart[0]
                certificates += apart[1]
        return program, certificates


@dataclass(frozen=True, slots=True)
class _Columns:
    """Axis number ``at`` of a product, in groups of ``group``, over which ``reductions`` reduce."""

    at: int
    extent: int
    group: int
    reductions: tuple[SplitPlan, ...]
    others: tuple[str, ...]  # readers of the product itself
    thin: tuple[str, ...] = ()  # readers of single elements
    elements: tuple[str, ...] = ()  # readers that compute one element from each


def _with_elements(program: Program, name: str, certificates: list[Certificate]) -> Program:
    """``program`` where reductions of what is computed from each element of the product ``name`` compute it again.

    Definitions that are not read any more are gone.
    """
    defs = all_defs(program)
    if defs is None or name not in defs or not _is_large(defs[name]):
        return program
    for e in defs.values():
        if e.guard is None and any(ld.buffer == name for ld in e.reads()) and _is_elementwise(e, defs[name], defs):
            readers = [r for r in defs.values() if any(ld.buffer == e.name for ld in r.reads())]
            kept = {r.name for r in readers if not r.is_reduction or multiplies_matrices(r)}
            program = replace_reads(program, e, certificates, skip=kept)
    return Dead().apply(program)


def _without_mixed(program: Program, name: str, certificates: list[Certificate]) -> Program:
    """``program`` where reductions over columns of the product ``name`` have single elements of it by themselves."""
    defs = all_defs(program)
    if defs is None or name not in defs or not _is_large(defs[name]):
        return program
    d = defs[name]
    for r in defs.values():
        red, read = {a.name for a in r.red}, [ld for ld in r.reads() if ld.buffer == name]
        single = [ld for ld in read if _is_thin(r, ld, d) and red.isdisjoint(free_vars(ld))]
        if red and 0 < len(single) < len(read):
            program = _taken(program, d, r, certificates, single)
    return program


def _stepwise(program: Program, name: str) -> Iterator[Program]:
    """``program`` with reductions over one axis of the product ``name``: others reduce their results again."""
    defs = all_defs(program)
    if defs is None or name not in defs or not _is_large(defs[name]):
        return
    whole = [r for r in defs.values() if len(r.red) > 1 and r.op in ASSOCIATIVE and r.at is None]
    whole = [r for r in whole if any(ld.buffer == name for ld in r.reads()) and not multiplies_matrices(r)]
    if not whole:
        yield program
        return
    for n in reversed(range(len(defs[name].par))):
        made, apart = program, [_other_axes(r, name, n) for r in whole]
        if any(rows is None for rows in apart):
            continue
        for r, rows in zip(whole, apart, strict=True):
            made = put_defs(made, r.name, in_two_steps(made, r, rows or ()))
        yield made


def _other_axes(r: Def, name: str, n: int) -> tuple[Axis, ...] | None:
    """The reduced axes of ``r`` but for the one at dimension ``n`` of ``name``; None where there is not one."""
    columns = {ld.index[n] for ld in r.reads() if ld.buffer == name}
    rows = tuple(a for a in r.red if Var(a.name) not in columns)
    return rows if len(rows) + 1 == len(r.red) else None


def _columns(d: Def, defs: Mapping[str, Def]) -> _Columns | None:
    """The columns of the product ``d`` that are tiled; None where the pass leaves it alone."""
    readers = [(r, ld) for r in defs.values() for ld in r.reads() if ld.buffer == d.name]
    if not _is_large(d) or not readers:
        return None
    thin = tuple(dict.fromkeys(r.name for r, ld in readers if _is_thin(r, ld, d)))
    elements = tuple(dict.fromkeys(r.name for r, _ in readers if _is_elementwise(r, d, defs)))
    whole = [(r, ld) for r, ld in readers if r.name not in elements and not _is_thin(r, ld, d)]
    if any(r.name in thin for r, _ in whole):
        return None
    found = (_along(d, at, whole, defs) for at in reversed(range(len(d.par))))
    made = next((x for x in found if x is not None), None)
    if made is None or (made.extent <= BLOCK_REGISTERS and _are_read_again(made, elements, defs)):
        return None
    return replace(made, thin=thin, elements=elements)


def _are_read_again(found: _Columns, elements: Sequence[str], defs: Mapping[str, Def]) -> bool:
    """Whether what is computed from ``elements`` and from results of the reductions has an element for each of them."""
    ends = [r.op for r in found.reductions]
    rows = (r for r in defs.values() if not r.is_reduction and r.name not in elements)
    whole = [(r, {a.name for a in r.par}) for r in rows]
    again = [r for r, par in whole if any(ld.buffer in elements and free_vars(ld) >= par for ld in r.reads())]
    return any(_needs(r.name, x, defs) for r in again for x in ends)


def _without_thin(program: Program, name: str) -> tuple[Program, tuple[Certificate, ...]] | None:
    """``program`` where readers of single elements of the product ``name`` compute them, so that it need not be stored.

    For a product of few terms all of whose other readers reduce over its columns, in one kernel with it.  None for
    others.
    """
    defs = all_defs(program)
    if defs is None or name not in defs or not _is_matrix_product(defs[name]):
        return None
    d = defs[name]
    if prod(size(a) or 1 for a in d.par) < LARGE or d.buffer.space is Space.OUTPUT or (size(d.red[0]) or 0) > DEEP:
        return None
    readers = [(r, ld) for r in defs.values() for ld in r.reads() if ld.buffer == name]
    thin = dict.fromkeys(r.name for r, ld in readers if _is_thin(r, ld, d))
    whole = [(r, ld) for r, ld in readers if r.name not in thin]
    alike = any(all(_reduces_columns(r, ld, at) for r, ld in whole) for at in range(len(d.par)))
    if not thin or not whole or not alike:
        return None
    certificates: list[Certificate] = []
    for reader in thin:
        program = _taken(program, d, defs[reader], certificates)
    return Dead().apply(program), tuple(certificates)


def _along(d: Def, at: int, readers: list[tuple[Def, Load]], defs: Mapping[str, Def]) -> _Columns | None:
    """Axis number ``at`` of the product ``d`` as its columns; None where no reader reduces over them alone."""
    whole = [(r, ld) for r, ld in readers if _reduces_columns(r, ld, at)]
    ends = {r.name: r.red[0].name for r, _ in whole}
    others = [(r, ld) for r, ld in readers if r.name not in ends]
    apart = (any(_reduces_columns(r, ld, n) for n in range(len(d.par)) if n != at) for r, ld in others)
    needs = any(_needs(r.name, x, defs) or _needs(x, r.name, defs) for r, _ in others for x in ends)
    extent = size(d.par[at])
    rows = prod(size(a) or ROWS for n, a in enumerate(d.par) if n != at)
    computed = [r for r, _ in whole if not isinstance(strip_conversions(r.value), Load)]
    light = len(computed) <= 1 and not _multiplies_bytes(d) and all(_functions(r) < HEAVY for r in computed)
    groups = (WIDE, NARROW) if light else (NARROW,)
    if not whole or needs or not all(apart) or extent is None:
        return None
    if extent < COLUMNS or rows < ROWS or rows * extent < LARGE:
        return None
    group = min(groups, key=lambda g: blocks(extent, g) * g)  # the first of those that waste least
    cuts = tuple(SplitPlan(name, axis, blocks(extent, group), group) for name, axis in ends.items())
    return _Columns(at, extent, group, cuts, tuple(dict.fromkeys(r.name for r, _ in others)))


def _functions(r: Def) -> int:
    """The elementary functions that ``r`` evaluates for each term."""
    return len({e for e in walk(r.value) if isinstance(e, Op) and e.op in _ELEMENTARY}) if r.red else 0


def _is_large(d: Def) -> bool:
    """Whether ``d`` is a product of 16-bit or 8-bit matrices with many terms."""
    return _is_matrix_product(d) and (size(d.red[0]) or 0) > DEEP


def _is_matrix_product(d: Def) -> bool:
    """Whether ``d`` is a product of 16-bit or 8-bit matrices with a known number of terms."""
    plain = d.buffer.dtype.bits == 32 and d.at is None and d.scatter is None and d.guard is None
    if not plain or not multiplies_matrices(d) or len(d.red) != 1:
        return False
    terms = size(d.red[0])
    factors = d.value.args if isinstance(d.value, Op) and d.value.op == "mul" else ()
    types = [f.args[0].dtype for f in factors if isinstance(f, Op) and f.op == "cast" and isinstance(f.args[0], Load)]
    short = len(types) == 2 and (all(t.is_half for t in types) or all(_has_8_bits(t) for t in types))
    return terms is not None and short


def _has_8_bits(t: DType) -> bool:
    return t.is_float8 or (t.is_int and t.bits == 8)


def _is_elementwise(r: Def, d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether ``r`` computes one element from each of ``d``, and from nothing else that needs ``d``."""
    own = {Var(a.name) for a in r.par}
    plain = r.op is None and r.at is None and r.scatter is None and len(own) == len(d.par)
    found = [ld for ld in r.reads() if ld.buffer == d.name]
    if not plain or any({*ld.index} != own for ld in found) or len({ld.index for ld in found}) != 1:
        return False
    return not any(_needs(ld.buffer, d.name, defs) for ld in r.reads() if ld.buffer != d.name)


def _needs(name: str, other: str, defs: Mapping[str, Def]) -> bool:
    """Whether the definition ``name`` reads ``other``, itself or through others."""
    found, pending = {name}, [name]
    while pending:
        d = defs.get(pending.pop())
        read = {ld.buffer for ld in d.reads()} - found if d is not None else set()
        found |= read
        pending += read
    return other in found - {name}


def _multiplies_bytes(d: Def) -> bool:
    """Whether the factors of ``d`` have 8 bits: such a product has narrow groups."""
    return any(_has_8_bits(ld.dtype) for ld in d.reads())


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


def _tiled(program: Program, name: str) -> tuple[Program, tuple[Certificate, ...]] | None:
    """``program`` with partial results of the product ``name``; None where it has none or they cannot be combined."""
    before = all_defs(program)
    found = None if before is None else _columns(before[name], before)
    if found is None:
        return None
    try:
        cut, certificates = SplitKUpdate(Schedule(splits=found.reductions)).derive(program)
    except ScheduleError:
        return None
    defs = all_defs(cut)
    if defs is None:
        return None
    d = defs[name]
    kept, own = (*found.thin, *found.elements, *found.others), list[Certificate]()
    parts = [r for r in defs.values() if any(ld.buffer == name for ld in r.reads()) and r.name not in kept]
    if any((c := chunks_of(r)) is None or c.axis != r.red[0].name or c.size != found.group for r in parts):
        return None
    for reader in found.thin:
        cut = _taken(cut, d, defs[reader], own)
    tiles = _tiles(cut, d, found)
    stored = found.others or d.buffer.space is Space.OUTPUT
    cut = put_defs(cut, name, (tiles, _by_tile(_itself(d), name, tiles, found)) if stored else (d, tiles))
    for e in found.elements:
        cut = put_defs(cut, e, (_by_tile(defs[e], name, tiles, found),))
    for r in parts:
        chunks = chunks_of(r)
        assert chunks is not None
        cut = put_defs(cut, r.name, (_over_tile(r, chunks, name, tiles, found),))
    return Dead().apply(cut), (*certificates, *own)


def _tiles(program: Program, d: Def, found: _Columns) -> Def:
    """The product ``d`` with its columns in groups."""
    axis = d.par[found.at]
    extent = size(axis)
    assert extent is not None
    taken = {a.name for a in d.axes}
    outer = Axis(unused(f"{axis.name}_tile", taken), blocks(extent, found.group), axis.span)
    inner = Axis(unused(f"{axis.name}_in", taken), found.group, axis.span)
    par = (*d.par[: found.at], outer, inner, *d.par[found.at + 1 :])
    name = fresh_name(program, f"{d.name}_tiles")
    buffer = Buffer(name, d.buffer.dtype, tuple(a.extent for a in par), Space.TEMP, d.span)
    place = calc("add", calc("mul", Var(outer.name), found.group), Var(inner.name))
    value = substitute(_oriented(d.value, axis.name), {axis.name: place})
    return replace(d, name=name, buffer=buffer, par=par, value=value, guard=_inside(place, extent, found.group))


def _inside(place: Expr, extent: int, group: int) -> Expr | None:
    """The condition that a column is one of ``extent``, where groups are not whole."""
    return calc("lt", place, extent) if extent % group else None


def _oriented(value: Expr, column: str) -> Expr:
    """The product ``value`` with the factor that has columns on the right, so that a tile has rows of the other."""
    match value:
        case Op(op="mul", args=(left, right)) if column in free_vars(left):
            return replace(value, args=(right, left))
        case _:
            return value


def _reads_tiles(name: str, tiles: Def, found: _Columns, place: tuple[Expr, Expr]) -> Callable[[Expr], Expr | None]:
    """The rule by which reads of the product ``name`` become those of ``tiles`` at ``place``, a tile and its column."""

    def rule(n: Expr) -> Expr | None:
        if not isinstance(n, Load) or n.buffer != name:
            return None
        return replace(n, buffer=tiles.name, index=_grouped(n.index, found.at, place))

    return rule


def _over_tile(r: Def, chunks: Chunks, name: str, tiles: Def, found: _Columns) -> Def:
    """Partial results ``r`` over the elements of a group; ``name``: the product."""
    (axis,) = r.red
    place = calc("add", calc("mul", Var(chunks.by), found.group), Var(axis.name))

    rule = _reads_tiles(name, tiles, found, (Var(chunks.by), Var(axis.name)))

    def moved(e: Expr) -> Expr:
        return rewrite(substitute(e, {axis.name: place}), rule)

    kept = [moved(c) for c in conjuncts(r.guard) if not _says_chunk(c, axis.name, chunks.by)]
    guard = conjunction([*kept, *conjuncts(_inside(place, found.extent, found.group))])
    return replace(r, red=(replace(axis, extent=found.group),), value=moved(r.value), guard=guard)


def _by_tile(r: Def, name: str, tiles: Def, found: _Columns) -> Def:
    """The elements ``r`` computed for one group of columns after another; ``name``: the product."""
    read = next(ld for ld in r.reads() if ld.buffer == name)
    column = read.index[found.at]
    assert isinstance(column, Var)
    outer, inner = tiles.par[found.at : found.at + 2]
    taken = {a.name for a in r.axes}
    by, within = (replace(a, name=unused(f"{column.name}_{w}", taken)) for a, w in ((outer, "tile"), (inner, "in")))
    place = calc("add", calc("mul", Var(by.name), found.group), Var(within.name))

    rule = _reads_tiles(name, tiles, found, (Var(by.name), Var(within.name)))

    def moved(e: Expr) -> Expr:
        return substitute(rewrite(e, rule), {column.name: place})

    par = tuple(x for a in r.par for x in ((by, within) if a.name == column.name else (a,)))
    at = tuple(substitute(e, {column.name: place}) for e in r.index)
    guard = conjunction([*map(moved, conjuncts(r.guard)), *conjuncts(_inside(place, found.extent, found.group))])
    return replace(r, par=par, value=moved(r.value), guard=guard, at=at)


def _itself(d: Def) -> Def:
    """The elements of ``d``, which another definition computes."""
    own = Load(d.name, tuple(Var(a.name) for a in d.par), d.buffer.dtype, d.span)
    return replace(d, red=(), op=None, value=own)


def _grouped(index: tuple[Expr, ...], at: int, place: tuple[Expr, Expr]) -> tuple[Expr, ...]:
    return (*index[:at], *place, *index[at + 1 :])


def _says_chunk(c: Expr, axis: str, by: str) -> bool:
    """Whether ``c`` is one of the two bounds of a chunk."""
    return isinstance(c, Op) and c.op in ("le", "lt") and free_vars(c) == {axis, by} and Var(axis) in c.args


def _taken(
    program: Program, d: Def, reader: Def, certificates: list[Certificate], single: Sequence[Load] | None = None
) -> Program:
    """``program`` where ``reader`` has reductions of its own for the elements that it reads of the product ``d``.

    ``single``: those elements; None for all of them.
    """
    made: list[Def] = []
    names: dict[Expr, Expr] = {}
    sums: dict[Expr, Expr] = {}
    for ld in (x for x in reader.reads() if x.buffer == d.name):
        if single is not None and ld not in single:
            sums[ld] = ld
            continue
        read = [(e, a.extent) for e, a in zip(ld.index, d.par, strict=True) if loads(e)]
        guard = conjunction([c for e, n in read for c in within(e, extent_expr(n))])
        own = reduction_at(program, d, ld, reader.axes, guard, made)
        made.append(own)
        names[ld] = Load(own.name, own.index, d.buffer.dtype, ld.span)
        sums[ld] = Reduce(own.op or "sum", own.red, None, own.value, own.value.dtype, d.span)
    own_sums = tuple((f"{d.name}[...]", e) for ld, e in sums.items() if ld in set(loads(reader.value)))
    if own_sums:
        inside = tuple(c for x in made for c in conjuncts(x.guard))
        proof = f"{d.name} is the sum of these terms, at every index"
        value = rewrite(reader.value, sums.get)
        certificates.append(
            Certificate("inline", reader.name, reader.value, value, own_sums, inside, (), proof, reader.span)
        )
    guard = None if reader.guard is None else rewrite(reader.guard, names.get)
    return put_defs(program, reader.name, (*made, replace(reader, value=rewrite(reader.value, names.get), guard=guard)))

"""``separate-columns``: a product whose readers need two of its columns for each element becomes two products.

The columns of a gate and of what it scales often stand side by side in one matrix::

    Y[m, f: 2 * F] = sum[k](X[m, k] * W[f, k])                 ;    H[m, f] = gelu(Y[m, f]) * Y[m, f + F]

    G[m, f] = sum[k](X[m, k] * W[f, k])
    U[m, f] = sum[k](X[m, k] * W[f + F, k])                    ;    H[m, f] = gelu(G[m, f]) * U[m, f]

A kernel then has tiles of both products at the positions of the result, so ``Y`` is not stored.  Every read of the
product is at a variable of its reader along that axis, or a constant away from it, at two places in all, and no
column is computed twice.

Columns may also be constant positions of an axis of their own, ``Y[m, 0, f]`` and ``Y[m, 1, f]``, and what is made from
them at each position may be more than one definition, as a softmax is (:mod:`nautilus.scalar.analysis.positions`).
Each definition becomes one for each position then.  So it does where the positions are every second one of an axis, or
its halves, ``Y[2 * m, f]`` and ``Y[2 * m + 1, f]`` (:mod:`nautilus.scalar.rewriting.interleaved`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Const, Expr, Load, Var, rewrite, substitute
from nautilus.core.index.simplify import linear_in, simplify
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.positions import Chain, find_chain, written_out
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.inline import can_inline, replace_reads
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.rewriting import all_defs, fresh_name, put_defs
from nautilus.scalar.rewriting.interleaved import find_members, in_groups

_PLACES = 2  # columns of one result: tiles of more products are narrow


@dataclass(frozen=True, slots=True)
class SeparateColumns:
    """Separate the columns of products that readers combine."""

    name = "separate-columns"

    def apply(self, program: Program) -> Program:
        """The program with two products for each such one; the same object where there is none."""
        live = Dead().apply(program)
        for name in all_defs(live) or ():
            defs = all_defs(live)
            found = None if defs is None else _places(defs[name], defs)
            if defs is not None and found is not None:
                live = program = Simplify().apply(Dead().apply(_separated(live, defs[name], defs, found)))
        for name in all_defs(live) or ():
            grouped = _grouped(live, name)
            defs = all_defs(grouped) or {}
            chain = find_chain(defs[name], defs) if name in defs else None
            if chain is not None:
                live = grouped
                live = program = Simplify().apply(Dead().apply(_at_positions(live, chain, defs)))
        return program


def _grouped(program: Program, name: str) -> Program:
    """``program`` with axes of their own for the members of groups that readers of the product ``name`` need."""
    defs = all_defs(program) or {}
    members = find_members(defs[name], defs) if name in defs else None
    if members is None:
        return program
    axis = defs[name].par[members.places[name]].name
    taken = {a.name for d in defs.values() for a in d.axes}
    names = (fresh_name(program, f"{axis}_group", taken), fresh_name(program, f"{axis}_member", taken))
    for d in defs.values():
        made = in_groups(d, members, names)
        if made != d:
            program = put_defs(program, d.name, (made,))
    return Simplify().apply(program)


@dataclass(frozen=True, slots=True)
class _Places:
    """Axis number ``at`` of a product is read at ``offsets`` from positions below ``extent``."""

    at: int
    extent: int
    offsets: tuple[int, ...]


def _places(d: Def, defs: Mapping[str, Def]) -> _Places | None:
    """The places of the columns of the product ``d`` that its readers combine; None unless there are two."""
    plain = d.scatter is None and d.buffer.space is Space.TEMP and d.buffer.support is None
    if not plain or not multiplies_matrices(d):
        return None
    reads = [(r, ld) for r in defs.values() for ld in r.reads() if ld.buffer == d.name]
    moved = {n for _, ld in reads for n, e in enumerate(ld.index) if not isinstance(e, Var)}
    if len(moved) != 1:
        return None
    (at,) = moved
    found = [_place(r, ld, at) for r, ld in reads]
    offsets = sorted({p[0] for p in found if p is not None})
    extents = {p[1] for p in found if p is not None}
    whole = size(d.par[at])
    if None in found or len(offsets) != _PLACES or len(extents) != 1 or whole is None:
        return None
    (extent,) = extents
    apart = offsets[0] >= 0 and offsets[1] - offsets[0] >= extent and offsets[1] + extent <= whole
    return _Places(at, extent, tuple(offsets)) if apart else None


def _place(reader: Def, ld: Load, at: int) -> tuple[int, int] | None:
    """How far ``ld`` is from an axis of ``reader`` along axis ``at``, and the extent of that; None: other reads."""
    others = [e for n, e in enumerate(ld.index) if n != at]
    for a in reader.axes:
        form, extent = linear_in(ld.index[at], a.name), size(a)
        if form is None or form[0] != 1 or not isinstance(form[1], Const) or Var(a.name) in others:
            continue
        return None if extent is None else (int(form[1].value), extent)
    return None


def _separated(program: Program, d: Def, defs: Mapping[str, Def], places: _Places) -> Program:
    """``program`` with a product for each place of ``d``."""
    names: dict[int, str] = {}
    made: list[Def] = []
    for offset in places.offsets:
        names[offset] = fresh_name(program, f"{d.name}_at_{offset}")
        made.append(_columns(d, names[offset], places, offset))
    out = put_defs(program, d.name, made)
    for r in defs.values():

        def rule(n: Expr, reader: Def = r) -> Expr | None:
            if not isinstance(n, Load) or n.buffer != d.name:
                return None
            place = _place(reader, n, places.at)
            assert place is not None, "every read of the product has a place"
            index = list(n.index)
            index[places.at] = simplify(calc("sub", n.index[places.at], place[0]))
            return replace(n, buffer=names[place[0]], index=tuple(index))

        value = rewrite(r.value, rule)
        guard = None if r.guard is None else rewrite(r.guard, rule)
        if value is not r.value or guard is not r.guard:
            out = put_defs(out, r.name, (replace(r, value=value, guard=guard),))
    return out


def _columns(d: Def, name: str, places: _Places, offset: int) -> Def:
    """The columns of ``d`` from ``offset`` on, as definition ``name``."""
    axis = d.par[places.at]
    moved: dict[str, Expr] = {axis.name: calc("add", Var(axis.name), offset)} if offset else {}
    par = tuple(replace(a, extent=places.extent) if a is axis else a for a in d.par)
    buffer = replace(d.buffer, name=name, shape=tuple(a.extent for a in par))
    guard = None if d.guard is None else substitute(d.guard, moved)
    return replace(d, name=name, buffer=buffer, par=par, value=substitute(d.value, moved), guard=guard)


def _at_positions(program: Program, chain: Chain, defs: Mapping[str, Def]) -> Program:
    """``program`` with definitions for each position of the members of ``chain``."""
    names: dict[tuple[str, int], str] = {}
    for name in chain.places:
        for p in range(chain.extent):
            names[name, p] = fresh_name(program, f"{name}_at_{p}", list(names.values()))

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer not in chain.places:
            return None
        at = chain.places[e.buffer]
        place = e.index[at]
        assert isinstance(place, Const), "members are read at constants, or at axes that have become constants"
        return replace(e, buffer=names[e.buffer, int(place.value)], index=(*e.index[:at], *e.index[at + 1 :]))

    for d in defs.values():
        if d.name in chain.places:
            whole = [_position(d, chain.places[d.name], p) for p in range(chain.extent)]
        elif d.name in chain.sums or any(ld.buffer in chain.places for ld in d.reads()):
            whole = [d]
        else:
            continue
        made: list[Def] = []
        for p, x in enumerate(whole):
            axis = chain.sums.get(x.name) if d.name in chain.sums else None
            x = x if axis is None else written_out(x, axis, chain.extent)
            guard = None if x.guard is None else rewrite(x.guard, rule)
            name = names.get((d.name, p), d.name)
            made.append(
                replace(x, name=name, buffer=replace(x.buffer, name=name), value=rewrite(x.value, rule), guard=guard)
            )
        program = put_defs(program, d.name, made)
        for x in made if d.name in chain.sums else ():
            if can_inline(x) and x.buffer.dtype is x.value.dtype:
                program = replace_reads(program, x)
    return program


def _position(d: Def, at: int, p: int) -> Def:
    """``d`` at position ``p`` of dimension ``at``."""
    env: dict[str, Expr] = {d.par[at].name: integer(p)}
    par = (*d.par[:at], *d.par[at + 1 :])
    guard = None if d.guard is None else substitute(d.guard, env)
    buffer = replace(d.buffer, shape=tuple(a.extent for a in par))
    return replace(d, buffer=buffer, par=par, value=substitute(d.value, env), guard=guard)

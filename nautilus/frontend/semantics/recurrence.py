"""The definitions of a recurrence: their types, the index of the steps, the order of one step, and the conditions.

A definition of a recurrence may read its own value and those of the other members, so its type and its shape are known
only after it was expanded.  It is therefore expanded several times, without a report: first for the ranges of its
indices, which follow from what it reads, else from its readers, then from assumed element types until the types that
result are the assumed ones.  The last expansion reports.

The *index of the steps* is the one along which every read has a constant distance, not all of them 0 and all with one
sign.  A read of an earlier step needs a condition around it that is false wherever that step does not exist.  There
are as many such positions as the distance is long, and at each of them the condition has to simplify to a constant.

One block may hold several recurrences, such as a running maximum, a matrix relative to it, and a vector.  Where these
have different numbers of axes, each becomes a recurrence of its own (:func:`apart`), as if the spec had one block for
each: a member of one axis would otherwise keep the steps of a matrix in a loop that nothing else can compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from nautilus.core.errors import Diagnostic, Severity
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Reduce, substitute, walk
from nautilus.core.index.simplify import linear_in, simplify
from nautilus.core.index.sizes import at_most, extent_expr
from nautilus.core.records import dataclass
from nautilus.core.text.expressions import format_expr
from nautilus.core.types import DType
from nautilus.frontend.semantics.bounds import conditional_loads
from nautilus.frontend.semantics.frames import range_hint
from nautilus.frontend.semantics.symbols import Shaped, Size, Symbols
from nautilus.frontend.spec import Definition, Recurrence
from nautilus.frontend.syntax import ast

Define: TypeAlias = Callable[[Symbols, ast.Define], Definition | None]
#: assumed in this order; integers twice, because the first error may be that of a member that reads a condition
_TYPES = (DType.I32, DType.BOOL, DType.I32, DType.F32, DType.BOOL, DType.F32)
_ROUNDS = 10
_LONGEST = 1024  # distances above this are refused


def define_recurrence(sym: Symbols, nodes: Sequence[ast.Define], define: Define) -> list[Definition]:
    """The definitions of one recurrence in the order of a step; none after a reported error."""
    for n in nodes:
        if n.name.id not in sym.decls:
            dtype = DType.F32 if n.dtype is None else sym.dtype(n.dtype)
            sym.tensors[n.name.id] = Shaped(n.name.id, dtype, None, n.name.span, "definition")
    nodes = _infer_shapes(sym, nodes, define)
    inner = [n for n in nodes if n.name.id not in sym.decls]
    _infer_types(sym, nodes, [n for n in inner if n.dtype is None], define)
    made = [define(sym, n) for n in nodes]
    found = [d for d in made if d is not None]
    if len(found) < len(nodes):
        return []
    return _ordered(sym, found)


def _infer_shapes(sym: Symbols, nodes: Sequence[ast.Define], define: Define) -> list[ast.Define]:
    """Register the shapes of the members that are not outputs; a member's range may follow from another member's.

    Where it does not follow from what a member reads, it follows from the readers of the member, and the returned nodes
    state it.
    """
    made = {n.name.id: n for n in nodes}
    open_ = [n for n in made if sym.tensors[n].shape is None]
    while open_:
        for _ in open_:
            for name in open_:
                _infer_shape(sym, made[name], define)
        open_ = [n for n in open_ if sym.tensors[n].shape is None]
        ranged = {n: _ranged(sym, made[n], _unknown(sym, made[n], define)) for n in open_}
        if all(ranged[n] == made[n] for n in open_):
            break
        made |= ranged
    for name in open_:
        _report_ranges(sym, made[name], define)
    return list(made.values())


def _infer_shape(sym: Symbols, n: ast.Define, define: Define) -> None:
    name, before = n.name.id, sym.tensors[n.name.id]
    if before.shape is None:
        with sym.silent():
            define(sym, n)
        sym.tensors[name] = replace(before, shape=sym.tensors[name].shape)


def _unknown(sym: Symbols, n: ast.Define, define: Define) -> list[ast.Binder]:
    """The indices of member ``n`` whose ranges do not follow from what it reads."""
    name, before = n.name.id, sym.tensors[n.name.id]
    unknown = []
    for b in [b for b in n.axes if b.range is None]:
        others = tuple(x if x is b or x.range is not None else replace(x, range=ast.Num(1, x.span)) for x in n.axes)
        with sym.silent():
            define(sym, replace(n, axes=others))
        unknown += [b] if sym.tensors[name].shape is None else []
        sym.tensors[name] = before
    return unknown


def _ranged(sym: Symbols, n: ast.Define, unknown: Sequence[ast.Binder]) -> ast.Define:
    """``n`` with the ranges of ``unknown`` that its readers give: each reads it at indices of its own, of one range."""

    def ranged(place: int, b: ast.Binder) -> ast.Binder:
        sizes = set(_sizes_read(sym, n.name.id, place)) if b in unknown else set()
        if len(sizes) != 1:
            return b
        (size,) = sizes
        if size.dim is not None:
            return replace(b, range=ast.Name(size.dim, b.span))
        return replace(b, range=ast.Num(size.extent, b.span)) if isinstance(size.extent, int) else b

    return replace(n, axes=tuple(ranged(place, b) for place, b in enumerate(n.axes)))


def _sizes_read(sym: Symbols, name: str, place: int) -> Iterator[Size]:
    """The ranges of the indices of definitions of known shape at which they read axis ``place`` of tensor ``name``."""
    for reader in sym.defines.values():
        known = sym.tensors.get(reader.name.id)
        shape = () if known is None or known.shape is None else known.shape
        inside = [e for e in _walk(reader.expr) if isinstance(e, ast.BoundCall)]
        bound = {b.name for e in inside for b in e.binders}
        own = {b.name: size for b, size in zip(reader.axes, shape, strict=False) if b.name not in bound}
        for e in _walk(reader.expr):
            if isinstance(e, ast.Index) and e.name.id == name and len(e.items) > place:
                at = e.items[place]
                if isinstance(at, ast.Name) and at.id in own:
                    yield own[at.id]


def _walk(e: ast.Expr) -> Iterator[ast.Expr]:
    yield e
    for child in ast.children(e):
        yield from _walk(child)


def _report_ranges(sym: Symbols, n: ast.Define, define: Define) -> None:
    """Report the indices of member ``n`` whose ranges cannot be inferred."""
    unknown = _unknown(sym, n, define)
    for b in unknown:
        message = f"the range of '{b.name}' cannot be inferred: it indexes no tensor alone but those of the recurrence"
        sym.error("N0304", message, b.span, range_hint(b.name, sym.dims))
    if not unknown:
        sym.error("N0304", f"the ranges of the indices of '{n.name.id}' cannot be inferred", n.name.span, "write them")


def _infer_types(sym: Symbols, nodes: Sequence[ast.Define], untyped: Sequence[ast.Define], define: Define) -> None:
    """Register the element types of the members without a written one; f32 where no assumption holds.

    A member whose expression has no type under the assumptions of a round gets its next type of :data:`_TYPES`.
    """
    fixed = {n.name.id: sym.tensors[n.name.id] for n in nodes}
    assumed = {n.name.id: _TYPES[0] for n in untyped}
    tried = dict.fromkeys(assumed, 0)
    for _ in range(_ROUNDS if assumed else 0):
        sym.tensors.update(fixed | {n: replace(fixed[n], dtype=t) for n, t in assumed.items()})
        found = _types(sym, nodes, define)
        if all(found[n] is t for n, t in assumed.items()):
            return
        for n in assumed:
            tried[n] += found[n] is None
            assumed[n] = found[n] or _TYPES[min(tried[n], len(_TYPES) - 1)]
    sym.tensors.update(fixed)


def _types(sym: Symbols, nodes: Sequence[ast.Define], define: Define) -> dict[str, DType | None]:
    """The types that result from the registered ones; None for a member with an error."""
    before = {n.name.id: sym.tensors[n.name.id] for n in nodes}
    found: dict[str, DType | None] = {}
    with sym.silent():
        for n in nodes:
            count = len(sym.errors)
            d = define(sym, n)
            sym.tensors.update(before)
            failed = any(e.severity is Severity.ERROR for e in sym.errors[count:])
            found[n.name.id] = None if d is None or failed else d.stored
    return found


# ---- the index of the steps
@dataclass(frozen=True, slots=True)
class _Read:
    """A read of member ``load.buffer`` in ``reader``."""

    reader: Definition
    load: Load


def _reads(members: Mapping[str, Definition]) -> list[_Read]:
    return [_Read(d, e) for d in members.values() for e in walk(d.expr) if isinstance(e, Load) and e.buffer in members]


def distance(index: Expr, step: str) -> int | None:
    """``c`` where ``index`` is ``step + c``, else None."""
    found = linear_in(index, step)
    if found is None or found[0] != 1:
        return None
    rest = simplify(found[1])
    return int(rest.value) if isinstance(rest, Const) else None


def _ordered(sym: Symbols, found: Sequence[Definition]) -> list[Definition]:
    """The members with their recurrence, in the order of one step; none after a reported error."""
    members = {d.name: d for d in found}
    reads = _reads(members)
    if all(r.reader.name != r.load.buffer for r in reads) and len(found) == 1:
        hint = "leave out 'recur', or read an earlier value, as in 'h[t - 1]'"
        sym.error("N0307", f"'{found[0].name}' reads no earlier value of its own", found[0].span, hint)
        return []
    tried: list[tuple[int, list[Diagnostic]]] = []
    for axis in range(len(found[0].axes)):
        places = _places(members, reads, found[0].name, axis)
        faults = list(_faults(members, reads, places))
        if not faults:
            return _steps(sym, members, reads, places)
        tried.append((_likelihood(reads, places), faults))
    message = f"'{found[0].name}' has no index along which earlier values could stand"
    none = 0, [Diagnostic("N0307", message, found[0].span)]
    _, best = min(tried, key=lambda x: (x[0], len(x[1])), default=none)
    sym.report(best[0])
    return []


def _likelihood(reads: Sequence[_Read], places: Mapping[str, int]) -> int:
    """A rank of ``places`` as the steps that the author means, the likeliest first.

    0: another step is read; 1: a distance is not constant, as in ``sum[k | k < i](x[k])``; 2: all read the same step.
    """
    known = (r for r in reads if r.reader.name in places and r.load.buffer in places)
    far = [distance(r.load.index[places[r.load.buffer]], r.reader.axes[places[r.reader.name]].name) for r in known]
    return 0 if any(far) else 1 if None in far else 2


def _places(members: Mapping[str, Definition], reads: Sequence[_Read], first: str, axis: int) -> dict[str, int]:
    """The axis of the steps of each member, where it follows from ``axis`` of the member ``first``."""
    places = {first: axis}
    for _ in members:
        for r in reads:
            target, reader = r.load.buffer, r.reader.name
            if reader in places and target not in places:
                step = r.reader.axes[places[reader]].name
                at = [p for p, e in enumerate(r.load.index) if distance(e, step) is not None]
                places |= {target: at[0]} if at else {}
            elif target in places and reader not in places:
                index = r.load.index[places[target]]
                at = [p for p, a in enumerate(r.reader.axes) if distance(index, a.name) is not None]
                places |= {reader: at[0]} if at else {}
    return places


def _faults(
    members: Mapping[str, Definition], reads: Sequence[_Read], places: Mapping[str, int]
) -> Iterator[Diagnostic]:
    """Why the steps of a recurrence cannot run along ``places``."""
    first = next(iter(members.values()))
    signs: dict[bool, _Read] = {}
    constant = True
    for r in reads:
        name, target = r.reader.name, r.load.buffer
        if name not in places or target not in places:
            continue
        step = r.reader.axes[places[name]].name
        found = distance(r.load.index[places[target]], step)
        if found is None:
            constant = False
            hint = f"an earlier value is read at a constant distance along one index, as in '{step} - 1'"
            message = f"'{name}' reads '{target}' at no constant distance along '{step}'"
            yield Diagnostic("N0307", message, r.load.span, hint=hint)
        elif abs(found) > _LONGEST:
            yield Diagnostic("N0307", f"'{target}' is read more than {_LONGEST} steps away", r.load.span)
        elif found:
            other = signs.setdefault(found < 0, r)
            if len(signs) > 1:
                message = f"the recurrence reads earlier and later values along '{step}'"
                yield Diagnostic("N0307", message, (r if other is r else other).load.span)
    for d in members.values():
        if d.name not in places:
            message = f"'{d.name}' neither reads a member of this recurrence at a constant distance nor is read so"
            yield Diagnostic("N0307", message, d.span, hint="define it outside of the block")
        elif d.axes[places[d.name]].extent != first.axes[places[first.name]].extent:
            yield Diagnostic("N0307", f"the steps of '{d.name}' and of '{first.name}' differ in number", d.span)
    if constant and not signs and all(n in places for n in members):
        message = "no definition of this recurrence reads an earlier value"
        step = first.axes[places[first.name]].name
        hint = f"leave out 'recur', or read an earlier value, as in '{step} - 1'"
        yield Diagnostic("N0307", message, first.span, hint=hint)


def _steps(
    sym: Symbols, members: Mapping[str, Definition], reads: Sequence[_Read], places: Mapping[str, int]
) -> list[Definition]:
    """The members in the order of one step; none where they need each other within a step."""
    now: dict[str, dict[str, _Read]] = {n: {} for n in members}
    reverse = False
    for r in reads:
        target = r.load.buffer
        found = distance(r.load.index[places[target]], r.reader.axes[places[r.reader.name]].name)
        assert found is not None
        reverse |= found > 0
        if found == 0:
            now[r.reader.name].setdefault(target, r)
    order: list[str] = []
    while len(order) < len(members):
        free = [n for n in members if n not in order and all(t in order for t in now[n])]
        if not free:
            target, stuck = next((t, r) for n in members if n not in order for t, r in now[n].items() if t not in order)
            step = stuck.reader.axes[places[stuck.reader.name]].name
            message = f"'{stuck.reader.name}' is defined from its own value at the same '{step}'"
            back = f"every read of an earlier value goes back along '{step}'"
            hint = f"{back}; what runs along another index is a recurrence of its own"
            sym.error("N0207", message, stuck.load.span, hint if target == stuck.reader.name else None)
            return []
        order += free
    names = tuple(order)
    return [replace(members[n], recurrence=Recurrence(names, places[n], reverse)) for n in names]


# ---- several recurrences in one block
def apart(definitions: Sequence[Definition]) -> list[Definition]:
    """``definitions`` with recurrences of one block that have different numbers of axes apart, in dependence order."""
    out: list[Definition] = []
    for d in definitions:
        if d.recurrence is None:
            out.append(d)
        elif d.name == d.recurrence.members[0]:
            out += _parts([x for x in definitions if x.name in d.recurrence.members])
    return out


def _parts(members: Sequence[Definition]) -> list[Definition]:
    names = [d.name for d in members]
    reached = {d.name: {e.buffer for e in walk(d.expr) if isinstance(e, Load)} & set(names) for d in members}
    for through in names:  # what each member needs, in any number of reads
        for n in names:
            reached[n] |= reached[through] if through in reached[n] else set()
    axes = {d.name: len(d.axes) for d in members}
    again = {n: frozenset(x for x in names if x in reached[n] and n in reached[x]) for n in names}
    if len({max(axes[x] for x in group) for group in set(again.values()) if group}) < 2:
        return list(members)
    groups = list(dict.fromkeys(again[n] or frozenset({n}) for n in names))
    done: set[str] = set()
    out: list[Definition] = []
    while groups:
        group = next(g for g in groups if all(reached[n] <= done | g for n in g))
        groups.remove(group)
        done |= group
        own = [d for d in members if d.name in group]
        ordered = tuple(d.name for d in own)
        for d in own:
            assert d.recurrence is not None
            kept = replace(d.recurrence, members=ordered) if again[d.name] else None
            out.append(replace(d, recurrence=kept))
    return out


# ---- conditions
def unguarded(d: Definition, definitions: Sequence[Definition]) -> Iterator[Diagnostic]:
    """A diagnostic for each read of an earlier step in ``d`` that no condition limits to the steps that exist."""
    if d.recurrence is None:
        return
    places = {x.name: x.recurrence.axis for x in definitions if x.recurrence is not None}
    step = d.axes[d.recurrence.axis]
    extents = {a.name: at_most(a.extent) for a in d.axes}
    extents |= {a.name: at_most(a.extent) for e in walk(d.expr) if isinstance(e, Reduce) for a in e.axes}
    ranges = {n: (0, size - 1) for n, size in extents.items() if n != step.name}
    for load, guards in conditional_loads(d.expr):
        if load.buffer not in d.recurrence.members:
            continue
        far = distance(load.index[places[load.buffer]], step.name)
        assert far is not None
        for n in range(min(abs(far), at_most(step.extent))):
            last = calc("sub", extent_expr(step.extent), n + 1)
            at: Expr = integer(n) if far < 0 else simplify(last)
            if not any(_is(g, {step.name: at}, ranges, not held) for g, held in guards):
                yield _unguarded(load, step, far, at)
                break


def _is(cond: Expr, at: Mapping[str, Expr], ranges: Mapping[str, tuple[int, int]], value: bool) -> bool:
    made = simplify(substitute(cond, dict(at)), ranges)
    return isinstance(made, Const) and made.value is value


def _unguarded(load: Load, step: Axis, far: int, at: Expr) -> Diagnostic:
    shown = f"{step.name} {'-' if far < 0 else '+'} {abs(far)}"
    where = f"{step.name} = {at.value}" if isinstance(at, Const) else f"the last {step.name}"
    message = f"'{load.buffer}' is read at {shown}, and no condition is known to exclude {where}"
    size = step.extent if isinstance(step.extent, int) else format_expr(step.extent)
    hint = f"write '... if {step.name} >= {-far} else ...'" if far < 0 else f"write '... if {shown} < {size} else ...'"
    return Diagnostic("N0307", message, load.span, hint=hint)

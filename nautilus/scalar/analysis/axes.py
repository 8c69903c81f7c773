"""Axis unification: finds the loops of different definitions that iterate over the same index space.

An index position of a load that is a plain variable unifies the reader's axis with the temp's axis at that position.
Axes of independent reductions that read the same input at the same positions also unify, so that they can share one
loop, and so do the axes that number chunks of it, where the chunks are the same.  So do the axes of elementwise
definitions of one shape, by their places.  Two axes of one definition never unify.  A load that would require it
(``T[i] * T[j]``, a transpose of itself) is *misaligned*, and its buffer must stay in global memory.

A scan reads earlier elements of a tensor that others read at the position of its result, as in ``M[t] = max_u c[u]``
where ``u <= t`` beside ``c[t] / M[t]``.  Where the axes would not unify otherwise, those of ``t`` do: a kernel that has
whole rows computes the scan from the tile of ``c`` (:func:`scanned`).

Invariants: a class contains at most one axis of each definition; all its axes have one extent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from nautilus.core.expr.nodes import Expr, Load, Op, Var, free_vars, substitute
from nautilus.core.index.sizes import Extent
from nautilus.core.records import dataclass
from nautilus.core.records.memo import Same, within_compilation
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.chunks import chunks_of
from nautilus.scalar.analysis.definitions import Def, rename_axes
from nautilus.scalar.analysis.domains import scan_of

Key = tuple[str, str]  # definition, axis


@dataclass(slots=True)
class _Classes:
    """Union-find in which a class never contains two axes of one definition."""

    extents: dict[Key, Extent]
    parent: dict[Key, Key] = field(default_factory=dict)
    members: dict[Key, tuple[Key, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parent = {k: k for k in self.extents}
        self.members = {k: (k,) for k in self.extents}

    def find(self, k: Key) -> Key:
        while self.parent[k] != k:
            self.parent[k] = k = self.parent[self.parent[k]]  # halves the path, so that long chains stay cheap
        return k

    def can(self, a: Key, b: Key) -> bool:
        a, b = self.find(a), self.find(b)
        if a == b:
            return True
        owners = {d for d, _ in self.members[a]}
        return self.extents[a] == self.extents[b] and not any(d in owners for d, _ in self.members[b])

    def union(self, a: Key, b: Key) -> bool:
        if not self.can(a, b):
            return False
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parent[b] = a
            self.members[a] += self.members.pop(b)
        return True


@dataclass(frozen=True, slots=True)
class Unified:
    """``defs`` in their order with the names of classes as axes; ``extents`` by class name.

    ``misaligned`` lists (reader, temp) pairs whose indices differ.
    """

    defs: tuple[Def, ...]
    extents: Mapping[str, Extent]
    misaligned: tuple[tuple[str, str], ...]

    def get(self, name: str) -> Def:
        """The definition called ``name``. Raises KeyError."""
        for d in self.defs:
            if d.name == name:
                return d
        raise KeyError(name)


def unify(defs: Sequence[Def], reserved: Iterable[str] = ()) -> Unified:
    """Unify the axes of ``defs`` (dependence order). No class gets a name of ``reserved``."""
    found = _unify(defs, reserved, scans=False)
    other = _unify(defs, reserved, scans=True) if found.misaligned and any(map(scan_of, defs)) else found
    return found if other.misaligned else other


def scanned(reader: Def, temp: Def, ld: Load) -> tuple[str, str] | None:
    """The axis along which the scan ``reader`` reads ``temp``, and that of its results, which is the one of ``temp``.

    None where it is no scan, or reads other positions.
    """
    scan = scan_of(reader)
    if scan is None or scan.chunk or ld.index == temp.index:
        return None
    along = tuple(Var(scan.into) if e == Var(scan.axis) else e for e in ld.index)
    return (scan.axis, scan.into) if along == temp.index else None


def scans_again(temp: Def, reader: Def) -> bool:
    """Whether ``temp`` and ``reader`` are scans along one axis, of which ``reader`` combines results of ``temp``.

    It reads no other results of ``temp`` for an element, such as the one before, which is at another place of a tile.
    """
    first, scan = scan_of(temp), scan_of(reader)
    if first is None or scan is None or first.chunk or scan.chunk:
        return False
    found = [i for ld in reader.reads() if ld.buffer == temp.name for i in zip(temp.index, ld.index, strict=True)]
    along = {pair for pair in found if scan.axis in free_vars(pair[1])}
    return along == {(Var(first.into), Var(scan.axis))}


def _unify(defs: Sequence[Def], reserved: Iterable[str], scans: bool) -> Unified:
    """:func:`unify`; ``scans``: scans read tensors along the axis of their results."""
    by_name = {d.name: d for d in defs}
    classes = _Classes({(d.name, a.name): a.extent for d in defs for a in d.axes})
    for d in defs:
        scan = scan_of(d) if scans else None
        for ld in d.reads():
            if ld.buffer in by_name:
                along = ld if scan is None else substitute(ld, {scan.axis: Var(scan.into)})
                assert isinstance(along, Load)
                _align(classes, d, by_name[ld.buffer], along)
    _horizontal(classes, defs, reductions_only=True)
    _horizontal(classes, defs, reductions_only=False)
    _unify_chunks(classes, defs)
    _unify_elements(classes, defs)
    names = _names(classes, defs, frozenset(reserved))
    table = {d.name: {a.name: names[classes.find((d.name, a.name))] for a in d.axes} for d in defs}
    renamed = tuple(_renamed(Same(d), tuple(table[d.name].items())) for d in defs)
    extents = {a.name: a.extent for d in renamed for a in d.axes}
    return Unified(renamed, extents, _misaligned(renamed))


@within_compilation(1 << 12)
def _renamed(d: Same, names: tuple[tuple[str, str], ...]) -> Def:
    """The definition with its axes renamed: most of a group that grows by one have the names that they had before."""
    made: Def = rename_axes(d.value, dict(names))
    return made


def _align(classes: _Classes, reader: Def, temp: Def, ld: Load) -> None:
    axes = {a.name for a in reader.axes}
    for read, stored in zip(ld.index, temp.index, strict=True):
        for mine, theirs in _variables(read, stored):
            if mine in axes:
                classes.union((reader.name, mine), (temp.name, theirs))


def _variables(a: Expr, b: Expr) -> tuple[tuple[str, str], ...]:
    """Pairs of variables at the same places of ``a`` and ``b``; none where the expressions differ otherwise."""
    if isinstance(a, Var) and isinstance(b, Var):
        return ((a.name, b.name),)
    if isinstance(a, Op) and isinstance(b, Op) and a.op == b.op and len(a.args) == len(b.args):
        inner = [_variables(x, y) for x, y in zip(a.args, b.args, strict=True)]
        alike = all(found or x == y for found, x, y in zip(inner, a.args, b.args, strict=True))
        return tuple(pair for found in inner for pair in found) if alike else ()
    return ()


def _misaligned(defs: Sequence[Def]) -> tuple[tuple[str, str], ...]:
    by_name = {d.name: d for d in defs}
    bad: dict[tuple[str, str], None] = {}
    for d in defs:
        for ld in d.reads():
            t = by_name.get(ld.buffer)
            if t is not None and ld.index != t.index and scanned(d, t, ld) is None:
                bad[d.name, ld.buffer] = None
    return tuple(bad)


def _horizontal(classes: _Classes, defs: Sequence[Def], *, reductions_only: bool) -> None:
    """Unify axes with which two definitions index one input at one position, where that is possible.

    Of loads whose axes are already the same, one stands for all.
    """
    seen: dict[str, list[tuple[Def, Load]]] = {}
    names = {d.name for d in defs}
    for d in reversed(defs):
        for ld in d.reads():
            if ld.buffer in names:
                continue
            others = seen.setdefault(ld.buffer, [])
            for other, theirs in others:
                if other is not d:
                    _unify_reads(classes, (d, ld), (other, theirs), reductions_only)
            mine = _axes_read(classes, d, ld)
            if all(_axes_read(classes, *x) != mine for x in others):
                others.append((d, ld))


def _unify_chunks(classes: _Classes, defs: Sequence[Def]) -> None:
    """Unify the axes that number the same chunks of one class."""
    found = [(d, c) for d in defs if (c := chunks_of(d)) is not None]
    for n, (d, c) in enumerate(found):
        for other, theirs in found[:n]:
            alike = replace(theirs, by=c.by, axis=c.axis) == c and c.size > 0
            if alike and classes.find((d.name, c.axis)) == classes.find((other.name, theirs.axis)):
                classes.union((other.name, theirs.by), (d.name, c.by))


def _unify_elements(classes: _Classes, defs: Sequence[Def]) -> None:
    """Unify the axes of elementwise definitions that have one shape, if they are all of ``defs``."""
    shapes = {tuple(a.extent for a in d.par) for d in defs}
    if any(d.is_reduction or d.scatter or d.at for d in defs) or len(shapes) > 1:
        return
    for d in defs[1:]:
        for a, b in zip(defs[0].par, d.par, strict=True):
            classes.union((defs[0].name, a.name), (d.name, b.name))


def _axes_read(classes: _Classes, d: Def, ld: Load) -> tuple[tuple[Key, bool] | None, ...]:
    """For each position of the index, the class of the axis there and whether it is reduced; None for no plain axis."""
    reduced = {a.name for a in d.red}
    own = {a.name for a in d.axes}
    found = (x.name if isinstance(x, Var) and x.name in own else None for x in ld.index)
    return tuple(None if n is None else (classes.find((d.name, n)), n in reduced) for n in found)


def _unify_reads(classes: _Classes, a: tuple[Def, Load], b: tuple[Def, Load], reductions_only: bool) -> None:
    pairs = []
    for x, y in (pair for e, f in zip(a[1].index, b[1].index, strict=True) for pair in _variables(e, f)):
        ax, ay = a[0].axis(x), b[0].axis(y)
        if ax is not None and ay is not None:
            pairs.append((ax, ay))
    keys = [((a[0].name, x.name), (b[0].name, y.name)) for x, y in pairs]
    if not all(classes.can(x, y) for x, y in keys):
        return
    for (ax, ay), (left, right) in zip(pairs, keys, strict=True):
        if not reductions_only or (ax in a[0].red and ay in b[0].red):
            classes.union(left, right)


def _names(classes: _Classes, defs: Sequence[Def], reserved: frozenset[str]) -> dict[Key, str]:
    """A unique readable name for each class: the axis name in the last definition, with a number where it is taken."""
    names: dict[Key, str] = {}
    taken = set(reserved)
    for d in reversed(defs):
        for a in d.axes:
            root = classes.find((d.name, a.name))
            if root in names:
                continue
            names[root] = unused(a.name, taken)
            taken.add(names[root])
    return names

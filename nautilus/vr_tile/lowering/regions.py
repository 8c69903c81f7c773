"""Analyses of a kernel in tiled form before its conversion to SSA: structure, liveness, unread elements.

A kernel body is a sequence of :class:`Node`.  A :class:`Point` is one statement under its tile loops; the tile loops
have no node, and an axis of size 1 is replaced by its only value.  A :class:`Region` is a loop of the block around
more nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.conditions import conjunction, negated
from nautilus.core.expr.nodes import (
    Const,
    Expr,
    Load,
    Op,
    Var,
    children,
    free_vars,
    identity,
    rewrite,
    substitute,
    walk,
)
from nautilus.core.index.prefixes import Prefix, only_prefix
from nautilus.core.index.simplify import FALSE, TRUE, conjuncts, simplify
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType
from nautilus.scalar.ir import Kind, Loop, Stmt, Store, Update


@dataclass(frozen=True, slots=True)
class Point:
    """One statement under the tile axes ``axes`` (of size > 1); ``reduced`` names those that it reduces over.

    ``ordered``: the axis of a scan, along which a store reads the element of the step before; ``states``: the axis of
    its states, if it has several.  ``bound``: of an update that is a scan along ``ordered``.
    """

    stmt: Store | Update
    reduced: frozenset[str]
    axes: frozenset[str] = frozenset()
    ordered: str = ""
    states: str = ""
    bound: Prefix | None = None

    @property
    def loads(self) -> list[Load]:
        """What the statement reads, but for the element of the step before in a scan."""
        return [x for x in _loads(self.stmt) if not (self.ordered and x.buffer == self.stmt.buffer)]


@dataclass(frozen=True, slots=True)
class Region:
    """A sequential loop of the block. ``body`` replaces ``loop.body``."""

    loop: Loop
    body: tuple[Node, ...]


Node: TypeAlias = Point | Region


def prepare(
    body: Sequence[Stmt], known: Mapping[str, Expr], names: Collection[str]
) -> tuple[dict[str, TileAxis], tuple[Node, ...]]:
    """The tile axes of a kernel in order of first occurrence, and its body as nodes.

    ``known``: the values of variables that have only one, so that equal conditions on them look equal.  ``names``: of
    the locals.

    Raises UnsupportedError for a body that is not in tiled form.
    """
    axes: dict[str, TileAxis] = {}
    nodes = tuple(_nodes(body, known, frozenset(), axes, frozenset(), False))
    nodes = _along_one_axis(nodes, {p.stmt.buffer: p.stmt.index for p in points(nodes) if p.stmt.buffer in names})
    used = frozenset[str]().union(*(p.axes for p in points(nodes)))
    return {name: axis for name, axis in axes.items() if name in used}, nodes


def _along_one_axis(nodes: Sequence[Node], written: Mapping[str, tuple[Expr, ...]]) -> tuple[Node, ...]:
    """``nodes`` with scans of locals along the axis of these.

    An update ``E[t] op= R[u] where u < t`` reads along ``u`` a tile that has the axis ``t``: it is a scan along ``t``.
    """
    return tuple(
        replace(n, body=_along_one_axis(n.body, written)) if isinstance(n, Region) else _scan_of_locals(n, written)
        for n in nodes
    )


def _scan_of_locals(p: Point, written: Mapping[str, tuple[Expr, ...]]) -> Point:
    s = p.stmt
    if not isinstance(s, Update) or len(p.reduced) != 1:
        return p
    (u,) = p.reduced
    pairs = (x for ld in _loads(s) if ld.buffer in written for x in zip(ld.index, written[ld.buffer], strict=True))
    others = {own.name for at, own in pairs if at == Var(u) and isinstance(own, Var)} - {u}
    guard = conjuncts(s.guard or TRUE)
    found = only_prefix(u, t, s.value, guard) if len(others) == 1 and (t := min(others)) in p.axes else None
    if found is None or not found[1].scans:
        return p
    condition, bound = found
    names = {u: Var(t)}
    rest = conjunction(substitute(c, names) for c in guard if c is not condition)
    made = replace(s, value=substitute(s.value, names), guard=rest)
    return Point(made, frozenset(), p.axes - {u}, t, "", bound)


def _nodes(
    body: Sequence[Stmt],
    env: Mapping[str, Expr],
    reduced: frozenset[str],
    axes: dict[str, TileAxis],
    around: frozenset[str],
    inside: bool,
) -> Iterator[Node]:
    """The nodes of ``body``, which is under the tile axes ``around``, with ``env`` substituted.

    ``inside``: in a tile loop, which contains only tile loops.
    """
    if reduced and len(body) > 1:
        raise UnsupportedError("several statements in one reducing tile loop", span=body[0].span)
    for s in body:
        match s:
            case Loop(kind=kind) if kind.is_tile:
                inner, name = _tile_axis(s, env, axes)
                more = {name} if name and kind is Kind.TILE_RED else set()
                here = around | {name} if name else around
                if kind.is_scan and name:
                    (only,), states = s.body, ""
                    if isinstance(only, Loop) and only.kind is Kind.TILE:
                        inner, found = _tile_axis(only, inner, axes)
                        states, (only,) = found or "", only.body
                        here |= {states}
                    if isinstance(only, Loop):
                        raise UnsupportedError("a loop in a scan", s.var, s.span)
                    yield Point(_unnested(_substituted(only, inner)), reduced, here, name, states)
                    continue
                yield from _nodes(s.body, inner, reduced | more, axes, here, True)
            case Loop():
                if inside or s.kind is Kind.GRID:
                    raise UnsupportedError(f"a {s.kind.value} loop here", s.var, s.span)
                bare = replace(s, lo=substitute(s.lo, env), hi=substitute(s.hi, env), body=())
                yield Region(bare, tuple(_nodes(s.body, env, frozenset(), axes, frozenset(), False)))
            case _:
                yield Point(_unnested(_substituted(s, env)), reduced, around)


def _tile_axis(loop: Loop, env: Mapping[str, Expr], axes: dict[str, TileAxis]) -> tuple[dict[str, Expr], str | None]:
    """Declare the axis of a tile loop (none for one iteration); returns the substitution in the loop and the axis."""
    lo, hi = loop.lo, loop.hi
    if not (isinstance(lo, Const) and isinstance(hi, Const)):
        raise UnsupportedError("a tile loop without constant bounds", loop.var, loop.span)
    size = int(hi.value) - int(lo.value)
    if size == 1:
        return {**env, loop.var: lo}, None
    if size < 1:
        raise UnsupportedError("an empty tile loop", loop.var, loop.span)
    if axes.setdefault(loop.var, TileAxis(loop.var, size)).size != size:
        raise UnsupportedError("one tile variable with two extents", loop.var, loop.span)
    if int(lo.value):
        at = Op("add", (Var(loop.var, lo.dtype), lo), lo.dtype)
        return {**env, loop.var: at}, loop.var
    return {k: v for k, v in env.items() if k != loop.var}, loop.var


def _substituted(s: Store | Update, env: Mapping[str, Expr]) -> Store | Update:
    if not env:
        return s
    guard = None if s.guard is None else _simplified(s.guard, env)
    index = tuple(substitute(e, env) for e in s.index)
    return replace(s, index=index, value=substitute(s.value, env), guard=guard)


def _simplified(guard: Expr, env: Mapping[str, Expr]) -> Expr:
    """``guard`` with ``env``, simplified, but for conjuncts without it: the conditions of values have their form."""
    found = simplify(substitute(guard, env))
    kept = {simplify(c): c for c in conjuncts(flat(guard)) if free_vars(c).isdisjoint(env)}
    return rewrite(found, kept.get) if kept else found


def _unnested(s: Store | Update) -> Store | Update:
    """``s`` with ``bound and inner`` for ``select(bound, inner, false)`` in its guard.

    Such a select prevents reads of ``inner`` outside a buffer.  At this level every load has its own bounds check, and
    separate conjuncts can be applied to the operands that have their axes.
    """
    return s if s.guard is None else replace(s, guard=flat(s.guard))


def flat(guard: Expr) -> Expr:
    """``guard`` with conjunctions instead of nested selects."""
    match guard:
        case Op(op="select", args=(bound, inner, last)) if last == FALSE:
            return Op("and", (flat(bound), flat(inner)), guard.dtype)
        case Op(op="and", args=(a, b)):
            return Op("and", (flat(a), flat(b)), guard.dtype)
    return guard


def points(nodes: Sequence[Node]) -> Iterator[Point]:
    """Every statement, in program order."""
    for n in nodes:
        if isinstance(n, Point):
            yield n
        else:
            yield from points(n.body)


def _expressions(s: Store | Update) -> Iterator[Expr]:
    yield s.value
    yield from s.index
    if s.guard is not None:
        yield s.guard


def _loads(s: Store | Update) -> Iterator[Load]:
    for e in _expressions(s):
        for node in walk(e):
            if isinstance(node, Load):
                yield node


def locals_of(nodes: Sequence[Node], names: Collection[str], axes: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The tile axes of each local that is accessed.

    Raises UnsupportedError where one local is accessed along different axes.
    """
    found: dict[str, tuple[str, ...]] = {}
    for p in points(nodes):
        accesses = [(x.buffer, x.index) for x in p.loads] + [(p.stmt.buffer, p.stmt.index)]
        for name, index in accesses:
            if name not in names:
                continue
            used = tuple(e.name for e in index if isinstance(e, Var) and e.name in axes)
            alone = all(isinstance(e, Const) or (isinstance(e, Var) and e.name in axes) for e in index)
            if not alone or found.setdefault(name, used) != used:
                raise UnsupportedError("a local that is not a tile", name, p.stmt.span)
    return found


def _uses(p: Point, names: Collection[str]) -> set[str]:
    """The locals whose current value the statement uses."""
    used = {x.buffer for x in p.loads if x.buffer in names}
    if p.stmt.buffer in names and (isinstance(p.stmt, Update) or p.stmt.guard is not None):
        used.add(p.stmt.buffer)
    return used


def exposed(nodes: Sequence[Node], names: Collection[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The locals that may be read before they are written, and the locals that are certainly written."""
    gen: set[str] = set()
    kill: set[str] = set()
    for n in nodes:
        if isinstance(n, Point):
            gen |= _uses(n, names) - kill
            if isinstance(n.stmt, Store) and n.stmt.guard is None:
                kill.add(n.stmt.buffer)
        else:
            gen |= exposed(n.body, names)[0] - kill
    return frozenset(gen), frozenset(kill)


def written(nodes: Sequence[Node]) -> list[str]:
    """Buffers that the nodes write, each once, in order of first writing."""
    return list(dict.fromkeys(p.stmt.buffer for p in points(nodes)))


def unread(
    nodes: Sequence[Node], variables: Collection[str], shapes: Mapping[str, set[str]], axes: Collection[str]
) -> frozenset[tuple[Expr, str]]:
    """Pairs (conjunct, local) such that no statement uses the local's elements where the conjunct is false.

    Only conjuncts without loads over tile axes and ``variables`` are considered.  ``variables`` are those of the grid
    and of the loops around ``nodes``, whose values do not change between a write and a read.
    The result is the greatest fixed point: a statement may read an excluded element if it is guarded by the same
    conjunct, if it chooses it only where the conjunct holds, or if it writes, element by element, a local whose element
    there is also unread.
    """
    every = list(points(nodes))
    candidates = {c for p in every if p.stmt.buffer in shapes for c in conjuncts(p.stmt.guard or TRUE)}
    out: set[tuple[Expr, str]] = set()
    for c in candidates:
        names = free_vars(c)
        if not names <= {*variables, *axes} or any(isinstance(n, Load) for n in walk(c)):
            continue
        mine = names & set(axes)
        excluded = {name for name, own in shapes.items() if mine <= own}
        out |= {(c, name) for name in _unread_in(every, c, mine, excluded)}
    return frozenset(out)


def _unread_in(every: Sequence[Point], c: Expr, names: frozenset[str], excluded: set[str]) -> set[str]:
    while True:
        used: set[str] = set()
        for p in every:
            combined = p.reduced | {p.ordered}
            if c in conjuncts(p.stmt.guard or TRUE) or (p.stmt.buffer in excluded and not names & combined):
                continue
            used |= {x for e in _expressions(p.stmt) for x in _chosen(e, c)} & excluded
        if not used:
            return excluded
        excluded -= used


def _chosen(e: Expr, c: Expr) -> set[str]:
    """The buffers of which ``e`` uses an element where ``c`` may be false."""
    if not any(isinstance(n, Op) and n.op == "select" and _tells(n.args[0], c) for n in walk(e)):
        return {n.buffer for n in walk(e) if isinstance(n, Load)}
    found = {e.buffer} if isinstance(e, Load) else set[str]()
    for n, x in enumerate(children(e)):
        chosen = children(e)[0] if isinstance(e, Op) and e.op == "select" and n > 0 else TRUE
        if c not in conjuncts(chosen if n < 2 else negated(chosen)):
            found |= _chosen(x, c)
    return found


def _tells(condition: Expr, c: Expr) -> bool:
    return c in conjuncts(condition) or c in conjuncts(negated(condition))


def chained(nodes: Sequence[Node]) -> dict[int, int]:
    """Position of a loop -> number of its chain, for loops over adjoining ranges (``vr_tile.lowering.lower``)."""
    out: dict[int, int] = {}
    for i in range(1, len(nodes)):
        a, b = nodes[i - 1], nodes[i]
        if not (isinstance(a, Region) and isinstance(b, Region)):
            continue
        earlier = [n for k, n in enumerate(nodes[:i]) if k == i - 1 or (i - 1 in out and out.get(k) == out[i - 1])]
        if any(_adjoin(n, b) for n in earlier if isinstance(n, Region)) and _continues(a, b):
            out[i] = out.setdefault(i - 1, len(set(out.values())))
    return out


def _adjoin(a: Region, b: Region) -> bool:
    """Whether one range ends where the other begins."""
    return a.loop.hi == b.loop.lo or b.loop.hi == a.loop.lo


def _continues(a: Region, b: Region) -> bool:
    return _alike(a.body, b.body, {b.loop.var: Var(a.loop.var, a.loop.lo.dtype)})


def _alike(a: Sequence[Node], b: Sequence[Node], env: Mapping[str, Expr]) -> bool:
    """Whether ``a`` and ``b`` are equal except for guards when variables of ``b`` are renamed by ``env``."""
    return len(a) == len(b) and all(_same(x, y, env) for x, y in zip(a, b, strict=True))


def _same(x: Node, y: Node, env: Mapping[str, Expr]) -> bool:
    if isinstance(x, Point) and isinstance(y, Point):
        s, t = replace(x.stmt, guard=None), _substituted(replace(y.stmt, guard=None), env)
        return s == t and (x.reduced, x.bound) == (y.reduced, y.bound)
    if isinstance(x, Region) and isinstance(y, Region):
        inner = {**env, y.loop.var: Var(x.loop.var, x.loop.lo.dtype)}
        ends = [(x.loop.lo, y.loop.lo), (x.loop.hi, y.loop.hi)]
        return all(e == substitute(f, env) for e, f in ends) and _alike(x.body, y.body, inner)
    return False


def unwrapped(op: str, e: Expr) -> tuple[Expr, list[Expr]]:
    """The value and the conditions of nested ``select(c, x, identity)`` in a reduction: ``x`` guarded by ``c``."""
    more: list[Expr] = []
    while isinstance(e, Op) and e.op == "select" and e.args[2] == identity(op, e.dtype):
        more += conjuncts(flat(e.args[0]))
        e = e.args[1]
    return e, more


def zero_of(dtype: DType) -> int | float | bool:
    """The zero of a type."""
    return False if dtype is DType.BOOL else 0.0 if dtype.is_float else 0

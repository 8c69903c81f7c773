"""``collapse-axes``: adjacent axes that every tensor has side by side become one axis.

``C[b, i, j] = sum[k, l](A[b, i, k, l] * B[k, l, j])`` is the product of a matrix of ``b * i`` rows over one contracted
axis ``k * l``: both tensors are contiguous there.  The planner then has the same program whether a spec has one axis
or several, and tiles do not end where the inner axis does.

Axis ``x`` collapses with the axis ``y`` after it if in every definition that has one of them both are parallel, or
both reduced; wherever one is an index, the other one stands beside it, in dimensions of their extents; wherever they
are values, they are the position ``n * x + y`` of an element among them, where ``y`` has ``n`` elements, as in the
result of an argmax; and neither occurs in any other way (alone, in a computed index).  Where matrix products sum over
both, a condition may have ``x`` alone, which is then ``position // n`` (``n`` a power of two); ``x`` may itself be the
last one of a position.  So may conditions and
values where both are the rows of products with more than :data:`WIDE` columns or terms, :data:`FEW` rows at most, whose
tiles have one axis of rows: a few new positions and the heads that share latent keys.  All accesses to these
two dimensions of a buffer agree, so that its shape has one dimension instead: in row-major order the elements are the
same.  A buffer with strides keeps its axes.  An argument keeps the shape that the caller gives it
(``Buffer.array_shape``).  Where sizes are known only at launch, an index can count all elements of
the buffer.

Axes collapse only where a plan depends on it, because others are coordinates of blocks and cost nothing:

* two that are reduced together;
* two that are rows, or columns, of a matrix product;
* a short axis of a product and the one before it that other axes shift (:data:`SHORT_LINE`): the taps of a convolution
  along one axis of an image.  ``X[y + r - 1, x]`` is ``X[y_x + 10 * (r - 1)]``, and ``0 <= y + r - 1 < H`` is
  ``0 <= y_x + 10 * (r - 1) < 10 * H``, if both tensors have 10 elements along ``x``;
* those in front of an axis along which an elementwise definition reads or writes contiguous memory, if whole warps do
  not fit it (129 elements, of which each row starts at another address).

Where two axes collapse, those that other definitions read at the same positions collapse with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import TypeAlias

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, children, free_vars, rewrite, substitute, with_children
from nautilus.core.expr.products import matrix_product, strip_conversions
from nautilus.core.index.linear import Linear, build, excess, linear
from nautilus.core.index.sizes import MAX_DIM, Extent, at_most, volume
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def, points
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.rewriting import all_defs, kernel_of
from nautilus.targets.limits import WARP

FEW = 128  # rows of one tile
SHORT_LINE = 48  # elements of an axis of which the boxes of tiles waste a part
WIDE = 256  # columns that accumulators of a tile hold without division
Place: TypeAlias = tuple[str, int]  # a buffer and its dimension n, beside dimension n + 1
Pair: TypeAlias = tuple[str, str, str]  # a definition, an axis of it, and the axis after that
Join: TypeAlias = tuple[Pair, Place]  # the axes of a pair are the index at a place


@dataclass(frozen=True, slots=True)
class CollapseAxes:
    """Collapse the axes that the module docstring names."""

    name = "collapse-axes"

    def apply(self, program: Program) -> Program:
        """The program with fewer axes; the same object where nothing collapses."""
        live = Dead().apply(program)  # what has no reader needs no axes
        defs = all_defs(live)
        if defs is None:
            return program
        wanted = {name: _wanted(d) for name, d in defs.items()}
        uneven = {name: _uneven(d) for name, d in defs.items()}
        if not any(uneven.values()) and all(len(side) < 2 for sides in wanted.values() for side in sides):
            return program
        joins = _legal(live, defs)
        pairs, places = _needed({name: (*wanted[name], *_runs_to(name, uneven[name], joins)) for name in defs}, joins)
        if not pairs:
            return program
        taken = {b.name for b in live.buffers} | {p.name for p in live.params}
        merged = (_collapsed(d, pairs, places, taken) for d in defs.values())
        buffers = tuple(_viewed(b, places) for b in live.buffers)
        return replace(live, buffers=buffers, kernels=tuple(map(kernel_of, merged)))


# -- what may collapse --------------------------------------------------------------------------------


def _legal(program: Program, defs: Mapping[str, Def]) -> list[Join]:
    """The largest set of pairs and places that may collapse together."""
    shapes = {b.name: b.shape for b in program.buffers}
    strided = {b.name for b in program.buffers if b.strides is not None}
    joins: dict[Pair, list[Place]] = {}
    uses: dict[tuple[str, str], int] = {}  # of an axis as an index
    accesses: dict[Place, list[Pair | None]] = {}  # None: an access with anything else there
    forms = {d.name: [*_positions(d)] for d in defs.values()}
    summed, rows = ({e for d in defs.values() for e in found(d)} for found in (_summed, _few_rows))
    for d in defs.values():
        kinds = {a.name: (a.extent, k) for k, axes in enumerate((d.par, d.red)) for a in axes}
        found = [*_accesses(d)]
        shifted = _shifted(d, kinds)
        for name in {n for _, index in found for e in index for n in _other_variables([e], shifted)}:
            uses[d.name, name] = -1
        for buffer, index in found:
            for e in (_unshifted(e, shifted) for e in index):
                if isinstance(e, Var) and uses.get((d.name, e.name), 0) >= 0:
                    uses[d.name, e.name] = uses.get((d.name, e.name), 0) + 1
            for n in range(len(index) - 1):
                fits = buffer not in strided
                pair = _pair(d.name, index[n : n + 2], shapes[buffer][n : n + 2], kinds, shifted) if fits else None
                if pair is not None and not _is_counted(shapes[buffer], n):
                    pair = None
                follows = pair is not None and pair[1:] in shifted.items()
                if pair is not None and not follows and not _is_position(pair, kinds, forms[d.name]):
                    extents = shapes[buffer][n : n + 2]
                    block = _is_block(d, pair, kinds, extents in rows) if extents in summed | rows else False
                    pair = pair if block else None
                accesses.setdefault((buffer, n), []).append(pair)
                if pair is not None:
                    joins.setdefault(pair, []).append((buffer, n))
    return _consistent(joins, accesses, uses)


def _consistent(
    joins: dict[Pair, list[Place]], accesses: Mapping[Place, list[Pair | None]], uses: Mapping[tuple[str, str], int]
) -> list[Join]:
    """The pairs that stand at every use of their axes, at places where every access has such a pair."""
    while True:
        whole = {p for p, where in joins.items() if all(uses[p[0], x] == len(where) for x in p[1:])}
        places = {at for at, found in accesses.items() if all(p in whole for p in found)}
        kept = {p: where for p, where in joins.items() if p in whole and all(at in places for at in where)}
        if len(kept) == len(joins):
            return [(p, at) for p, where in kept.items() for at in where]
        joins = kept


def _accesses(d: Def) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """The buffer and the index of every access of ``d``, equal loads once."""
    yield d.name, d.index
    yield from ((ld.buffer, ld.index) for ld in d.reads())


def _other_variables(index: Sequence[Expr], shifted: Mapping[str, str]) -> frozenset[str]:
    found = ((free_vars(e), _unshifted(e, shifted)) for e in index if not isinstance(e, Var))
    return frozenset[str]().union(*(names - ({v.name} if isinstance(v, Var) else set()) for names, v in found))


def _unshifted(e: Expr, shifted: Mapping[str, str]) -> Expr:
    """The axis of ``shifted`` to which index ``e`` adds others; ``e`` where it is no such sum."""
    form = linear(e)
    mine = [x for x in shifted if form.slope(x)]
    if isinstance(e, Var) or len(mine) != 1 or form.slope(mine[0]) != 1:
        return e
    v = Var(mine[0])
    return e if any(v.name in free_vars(a) for a in form.without(v).terms) else v


def _shifted(d: Def, kinds: Mapping[str, tuple[Extent, int]]) -> Mapping[str, str]:
    """The axes of the product ``d`` that other axes shift, each with the short one behind it in every tensor."""
    if d.op != "sum" or matrix_product(strip_conversions(d.value), [a.name for a in d.par]) is None:
        return {}
    found: dict[str, str] = {}
    par = {a.name for a in d.par}
    for _, index in _accesses(d):
        for e, after in pairwise(index):
            form = linear(e)
            axes = [x for x in par if form.slope(x)]
            length = kinds[after.name][0] if isinstance(after, Var) and after.name in par else None
            if len(axes) == 1 and not isinstance(e, Var) and isinstance(length, int) and 1 < length < SHORT_LINE:
                assert isinstance(after, Var)
                found[axes[0]] = after.name
    return {y: x for y, x in found.items() if _limits_lines(d, y, x)}


def _limits_lines(d: Def, y: str, x: str) -> bool:
    """Whether conditions of ``d`` with ``y`` or ``x`` compare ``y`` with others, and its value has none of the two."""
    parts = [c for c in conjuncts(d.guard) if {x, y} & free_vars(c)]
    forms = [excess(c) for c in parts]
    fits = all(
        f is not None and abs(f.slope(y)) == 1 and not any({x, y} & free_vars(a) for a in f.without(Var(y)).terms)
        and not (isinstance(c, Op) and c.op == "eq")
        for c, f in zip(parts, forms, strict=True)
    )  # fmt: skip
    return fits and not any(f.slope(x) or f.slope(y) for f in _forms(d.value))


def _positions(d: Def) -> Iterator[Linear]:
    """The integers outside of indices in which variables of ``d`` are."""
    yield from _forms(d.value)
    if d.guard is not None:
        yield from _forms(d.guard)


def _forms(e: Expr) -> Iterator[Linear]:
    """The integers of ``e`` outside of indices."""
    stack, seen = [e], set[int]()
    while stack:
        e = stack.pop()
        if id(e) in seen or isinstance(e, Load) or not free_vars(e):
            continue
        seen.add(id(e))
        if e.dtype.is_int:
            form = linear(e)
            yield form
            stack += [x for a in form.terms if not isinstance(a, Load) for x in children(a)]
        else:
            stack += children(e)


def _is_counted(shape: Sequence[Extent], n: int) -> bool:
    """Whether one index may count the elements of the dimensions ``n`` and ``n + 1``, and of others that join them."""
    return all(isinstance(x, int) for x in shape[n : n + 2]) or at_most(volume(shape)) <= MAX_DIM


def _is_position(pair: Pair, kinds: Mapping[str, tuple[object, int]], forms: Sequence[Linear]) -> bool:
    """Whether every integer is one of the position that the axes of ``pair`` have together."""
    _, x, y = pair
    count = kinds[y][0]
    if not isinstance(count, int):  # slopes are numbers
        return not any(f.slope(x) or f.slope(y) for f in forms)
    return all(f.slope(x) == count * f.slope(y) for f in forms)


def _summed(d: Def) -> Iterator[tuple[object, ...]]:
    """The extents of the two axes over which the product ``d`` sums."""
    if d.op == "sum" and len(d.red) == 2 and matrix_product(strip_conversions(d.value), [a.name for a in d.par]):
        yield tuple(a.extent for a in d.red)


def _few_rows(d: Def) -> Iterator[tuple[object, ...]]:
    """The extents of the two axes of rows of ``d``, if it is a wide product of few rows."""
    found = matrix_product(strip_conversions(d.value), [a.name for a in d.par]) if d.op == "sum" else None
    for side, other in () if found is None else ((found.rows, found.columns), (found.columns, found.rows)):
        axes = [a for a in d.par if a.name in side]
        sizes = [a.extent for a in axes if isinstance(a.extent, int)]
        longest = max(points(d.red), points(a for a in d.par if a.name in other))
        if len(axes) == len(sizes) == 2 and prod(sizes) <= FEW and longest > WIDE:
            yield tuple(sizes)


def _is_block(d: Def, pair: Pair, kinds: Mapping[str, tuple[object, int]], rows: bool) -> bool:
    """Whether the first axis of ``pair`` alone is in the condition of ``d``, and its value has none of the two.

    ``rows``: the first axis may be in the value too.
    """
    _, x, y = pair
    count = kinds[y][0]
    fits = isinstance(count, int) and count & (count - 1) == 0 and (rows or d.guard is not None)
    other = [f.slope(y) for e in (d.value, d.guard) if e is not None for f in _forms(e)]
    return fits and not any(other) and (rows or not any(f.slope(x) for f in _forms(d.value)))


def _pair(
    name: str, index: Sequence[Expr], extents: Sequence[Extent], kinds: Mapping[str, tuple[Extent, int]],
    shifted: Mapping[str, str],
) -> Pair | None:  # fmt: skip
    """The two axes that are the index of dimensions of these extents, if they are of one kind.

    The dimension of an axis of ``shifted`` may be longer, if the one after it has the axis of which it is the line.
    """
    x, y = _unshifted(index[0], shifted), index[1]
    if not (isinstance(x, Var) and isinstance(y, Var)) or x.name == y.name:
        return None
    if x.name not in kinds or y.name not in kinds:
        return None
    (n, first), (m, second) = kinds[x.name], kinds[y.name]
    line = shifted.get(x.name) == y.name
    fits = m == extents[1] and (line or (n == extents[0] and isinstance(index[0], Var)))
    return (name, x.name, y.name) if fits and first == second else None


# -- what should --------------------------------------------------------------------------------------


def _needed(wanted: Mapping[str, tuple[frozenset[str], ...]], joins: Sequence[Join]) -> tuple[set[Pair], set[Place]]:
    """The pairs on which a plan depends, and all pairs and places that follow from them; ``wanted``: by definition."""
    pairs = {p for p, _ in joins if any({*p[1:]} <= side for side in wanted[p[0]])}
    places: set[Place] = set()
    while True:
        places |= {at for p, at in joins if p in pairs}
        more = {p for p, at in joins if at in places}
        if more <= pairs:
            return pairs, places
        pairs |= more


def _wanted(d: Def) -> tuple[frozenset[str], ...]:
    """The axes of ``d`` of which a plan needs one: the reduced ones, the rows, and the columns of a product."""
    reduced = frozenset(a.name for a in d.red)
    found = matrix_product(strip_conversions(d.value), [a.name for a in d.par])
    return (reduced,) if d.op != "sum" or found is None else (reduced, found.rows, found.columns)


def _uneven(d: Def) -> frozenset[str]:
    """The axes along which the elementwise ``d`` has contiguous memory, and into which whole warps do not fit."""
    if d.op is not None:
        return frozenset()
    extents = {a.name: a.extent for a in d.par}
    last = {index[-1].name for _, index in _accesses(d) if index and isinstance(index[-1], Var)}
    return frozenset(x for x in last if isinstance(n := extents.get(x), int) and n % WARP)


def _runs_to(name: str, last: frozenset[str], joins: Sequence[Join]) -> Iterator[frozenset[str]]:
    """For each axis of ``last``, those that may collapse into one with it."""
    before = {y: x for (found, x, y), _ in joins if found == name}
    for axis in sorted(last):
        run = [axis]
        while run[-1] in before:
            run.append(before[run[-1]])
        yield frozenset(run)


# -- the program after it -----------------------------------------------------------------------------


def _viewed(b: Buffer, places: set[Place]) -> Buffer:
    runs = _runs(len(b.shape), {n for name, n in places if name == b.name})
    if len(runs) == len(b.shape):
        return b
    return b.viewed(tuple(volume(b.shape[i:j]) for i, j in runs))


def _runs(rank: int, joined: set[int]) -> list[tuple[int, int]]:
    """The dimensions ``first .. end`` that become one; ``joined``: those that join the next one."""
    starts = [n for n in range(rank) if n - 1 not in joined]
    return [*zip(starts, [*starts[1:], rank], strict=True)] if rank else []


def _collapsed(d: Def, pairs: set[Pair], places: set[Place], taken: set[str]) -> Def:
    """``d`` over the axes that remain, with indices of this many dimensions as the buffers then have."""
    following = {x: y for name, x, y in pairs if name == d.name}
    first = [x for x in following if x not in following.values()]
    chains = [tuple(_chain(x, following)) for x in first]
    names, following_all = dict[str, str](), {c[0]: c[1:] for c in chains}
    for chain in chains:
        used = taken | {a.name for a in d.axes} | {*names.values()}
        names[chain[0]] = unused("_".join(chain), used)
    extents = {a.name: a.extent for a in d.axes}
    whole = {c[0]: volume(extents[x] for x in c) for c in chains}

    def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        left = (a for a in old if a.name not in following.values())
        return tuple(Axis(names[a.name], whole[a.name], a.span) if a.name in names else a for a in left)

    def position(e: Expr) -> Expr:
        """The place on a joined dimension, where ``e`` is that along the first one."""
        form = linear(e)
        x = next((x for x in names if form.slope(x) == 1), None)
        if x is None:
            return e
        shift = form.without(Var(x)).scale(prod(n for y in following_all[x] if isinstance(n := extents[y], int)))
        return build(shift + linear(Var(names[x])), e.dtype) if shift.terms or shift.const else Var(names[x])

    def put(buffer: str, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        runs = _runs(len(index), {n for name, n in places if name == buffer})
        return tuple(position(index[i]) if j > i + 1 else index[i] for i, j in runs)

    def rule(n: Expr) -> Expr | None:
        return replace(n, index=put(n.buffer, n.index)) if isinstance(n, Load) else None

    inner = {x: volume(extents[y] for y in c[n + 1 :]) for c in chains for n, x in enumerate(c)}
    parts = {x: _part(Var(names[c[0]]), inner[x]) for c in chains for x in c}
    forms = [*_positions(d)]
    ends = [(c, next((x for x in reversed(c) if any(f.slope(x) for f in forms)), c[0])) for c in chains]
    last = {x: (parts[x], frozenset(c)) for c, x in ends if x != c[0]}

    def rewritten(e: Expr) -> Expr:
        return _at_positions(e, last, rule, {}) if last else rewrite(e, rule)

    blocks = {x: parts[x] for x in first}

    def in_blocks(e: Expr) -> Expr:
        return substitute(e, blocks) if free_vars(e) & {*first} else e

    shifted = _shifted(d, {a.name: (a.extent, 0) for a in d.par})
    lines = {y: (Var(names[y]), n) for y, x in shifted.items() if y in names and isinstance(n := extents[x], int)}
    value = in_blocks(rewritten(d.value))
    parts_of_guard = [(c, _of_line(c, lines, {*following.values()})) for c in conjuncts(d.guard)]
    guard = conjunction(in_blocks(rewritten(c)) if line is None else line for c, line in parts_of_guard)
    return replace(d, buffer=_viewed(d.buffer, places), par=axes(d.par), red=axes(d.red), value=value, guard=guard)


def _at_positions(
    e: Expr,
    last: Mapping[str, tuple[Expr, frozenset[str]]],
    rule: Callable[[Expr], Expr | None],
    done: dict[int, tuple[Expr, Expr]],
) -> Expr:
    """``e`` with loads by ``rule``, and with a part of a new axis for each position.

    ``last``: that part and the axes that the new one was, by the last one of them that any position has.
    ``done``: what is shared stays shared.
    """
    if id(e) in done:
        return done[id(e)][1]
    form = linear(e) if e.dtype.is_int else None
    if isinstance(e, Load):
        new = rule(e) or e
    elif form is not None and any(form.slope(x) for x in last):
        gone = frozenset[str]().union(*(axes for _, axes in last.values()))
        rest = {a: c for a, c in form.terms.items() if not (isinstance(a, Var) and a.name in gone)}
        terms: dict[Expr, int] = {_at_positions(a, last, rule, done): c for a, c in rest.items()}
        terms |= {axis: form.slope(x) for x, (axis, _) in last.items() if form.slope(x)}
        new = build(Linear(terms, form.const), e.dtype)
    else:
        new = with_children(e, tuple(_at_positions(x, last, rule, done) for x in children(e)))
    done[id(e)] = e, new
    return new


def _of_line(c: Expr, lines: Mapping[str, tuple[Var, int]], last: Collection[str]) -> Expr | None:
    """Condition ``c`` on the first one of two axes, as that on the axis that they become, which is longer by a factor.

    ``lines``: the new axis and the factor, by the first axis; ``last``: the axes behind those.  None for any other
    condition, such as one on positions.
    """
    form = excess(c)
    y = None if form is None else next((y for y in lines if abs(form.slope(y)) == 1), None)
    if form is None or y is None or any(form.slope(x) for x in last):
        return None
    axis, count = lines[y]
    rest = form.without(Var(y)).scale(count)
    if form.slope(y) > 0:  # y + rest <= 0
        return calc("lt", build(linear(axis) + rest, axis.dtype), count)
    return calc("ge", build(linear(axis) + rest.scale(-1), axis.dtype), 0)


def _part(position: Var, inner: Extent) -> Expr:
    """The position on an axis from that on the collapsed one, where the axes behind it have ``inner`` elements."""
    return position if inner == 1 else calc("floordiv", position, inner)


def _chain(x: str, following: Mapping[str, str]) -> Iterator[str]:
    yield x
    while x in following:
        x = following[x]
        yield x

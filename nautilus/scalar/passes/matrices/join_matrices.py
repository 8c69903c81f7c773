"""``join-matrices``: several small products side by side become one, whose second factor is block-diagonal.

A convolution in groups multiplies a small matrix for each group, whose columns and terms do not fill the tiles of
warpgroup MMAs::

    Y[b, x, g, k] sum= X[b, x + r, g, c] * F[r, c, g, k]                      (g < 32, c < 8, k < 8)

Eight groups together have 64 columns and 64 terms for each tap, of which one in eight is a term of the sum::

    Y_blocks[g, r, c, k] = F[r, c % 8, 8 * g + k // 8, k % 8] if c // 8 == k // 8 else 0
    Y[b, x, g, k] sum= X[b, x + r, g, c] * Y_blocks[g, r, c, k]   where c // 8 == k // 8      (g < 4, c < 64, k < 64)

The tensors are seen in another shape, so that a group and what it contains remain one axis each.  The condition says
which terms there are; the temp states it as its support, as the elements outside are zeros
(:attr:`~nautilus.core.buffers.Buffer.support`).

As many groups are joined as take the shortest time by :mod:`nautilus.targets.window_rates`, if that is at most
:data:`SHARE` of the time of the small products: on targets with warpgroup MMAs, for operands of 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, in_compute_type
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, identity, rewrite, substitute
from nautilus.core.expr.products import MatrixProduct, strip_lossless_conversions
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.dense import dense_product
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.windows import length
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.operands.store_windows import group_of
from nautilus.scalar.passes.pack import pack
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.rewriting import axis_assumptions, find_defs, fresh_name, put_defs
from nautilus.scalar.rewriting.digits import viewed
from nautilus.targets import window_rates as rates
from nautilus.targets.limits import MMA_DEPTH, limits
from nautilus.targets.memory_rates import LAUNCH
from nautilus.targets.records import DEFAULT_TARGET

SHARE = 0.8  # time of the joint product, at most, as a share of that of the small ones
LEAST = 2  # columns, and terms of one tap, of the smallest matrices: others are sums of a few products
FILLED = 64  # columns and terms with which a product fills the tiles


@dataclass(frozen=True, slots=True)
class JoinMatrices:
    """Join the products of groups.  ``arch``: the target."""

    arch: str = DEFAULT_TARGET

    name = "join-matrices"

    def apply(self, program: Program) -> Program:
        """The program with joint products, and a temp for the second factor of each."""
        target = limits(self.arch)
        if not target.warpgroup:
            return program
        for name in find_defs(program):
            apart = _separated(program, name)
            found = _groups(apart, find_defs(apart)[name])
            count = 0 if found is None else _best(found, target.multiprocessors)
            if found is not None and count > 1:
                program = _joined(apart, found, count)
        return program


def _separated(program: Program, name: str) -> Program:
    """``program`` where groups that only one factor of the product ``name`` has are an axis."""
    plan = group_of(program, name)
    if plan is None:
        return program
    terms = {n for a in find_defs(program)[name].red if (n := size(a)) is not None and n > 1}
    program = pack(program, plan)
    for n in sorted(terms | {plan.size}):
        program = viewed(program, n)
    return program


@dataclass(frozen=True, slots=True)
class _Groups:
    """Product ``d`` of small matrices for each position of ``group``.

    ``terms``: the contracted axis of a group of the operand ``load``, whose dimension ``at`` counts the groups and the
    next one the terms; ``column``: the axis of the other factor.
    """

    d: Def
    load: Load
    other: Load
    at: int
    group: Axis
    terms: Axis
    column: Axis
    rows: tuple[Axis, ...]


def _groups(program: Program, d: Def) -> _Groups | None:
    """``d`` as products of small matrices; None for another definition."""
    product = dense_product(d, sized=False)
    if product is None or d.at is not None or not isinstance(d.value, Op):
        return None
    first, second = map(_tensor, d.value.args)
    if first is None or second is None or first.dtype is not second.dtype or not first.dtype.is_half:
        return None
    rows, columns = (tuple(a for a in d.par if a.name in names) for names in (product.rows, product.columns))
    sides = _side(d, product, first, second, rows, columns), _side(d, product, second, first, columns, rows)
    found = next((x for x in sides if x is not None), None)
    if found is None or not _is_small(found) or _has_extremes(program, d):
        return None
    return found if _may_merge(program, found) else None


def _has_extremes(program: Program, d: Def) -> bool:
    """Whether a reader takes extremes of the product ``d``, as a softmax does, whose loop has the product in a tile."""
    reads = ((r, ld) for r in find_defs(program).values() if r.op in ("max", "min") for ld in r.reads())
    return any(ld.buffer == d.name and free_vars(ld) & {a.name for a in r.red} for r, ld in reads)


def _side(
    d: Def, product: MatrixProduct, load: Load, other: Load, rows: tuple[Axis, ...], columns: tuple[Axis, ...]
) -> _Groups | None:
    """``d`` with ``load`` as the operand of rows; None where its groups are no axis beside the columns."""
    if len(columns) != 1 or columns[0] is d.par[0]:
        return None
    group = d.par[d.par.index(columns[0]) - 1]
    if group.name not in product.shared:
        return None
    at = next((n for n, e in enumerate(load.index[:-1]) if e == Var(group.name)), None)
    terms = None if at is None else next((a for a in d.red if load.index[at + 1] == Var(a.name)), None)
    if at is None or terms is None or not _is_alone(d, load, at, (group, terms, columns[0])):
        return None
    return _Groups(d, load, other, at, group, terms, columns[0], rows)


def _tensor(e: Expr) -> Load | None:
    e = strip_lossless_conversions(e) if isinstance(e, Op) and e.op == "cast" else e
    return e if isinstance(e, Load) else None


def _is_alone(d: Def, load: Load, at: int, axes: tuple[Axis, ...]) -> bool:
    """Whether no other index of ``load``, and no condition, depends on ``axes``."""
    names = {a.name for a in axes}
    others = (e for n, e in enumerate(load.index) if n not in (at, at + 1))
    guard = frozenset[str]() if d.guard is None else free_vars(d.guard)
    return names.isdisjoint(guard.union(*map(free_vars, others)))


def _is_small(x: _Groups) -> bool:
    """Whether the matrices do not fill the tiles of MMAs, and the numbers of their elements are known."""
    sizes = [size(a) for a in (x.group, x.terms, x.column)]
    if None in sizes or any(size(a) is None for a in x.d.red):
        return False
    terms, columns = length(x.terms), length(x.column)
    return min(terms, columns) >= LEAST and min(terms, columns) < FILLED and _volume(x.rows) >= rates.ROWS


def _may_merge(program: Program, x: _Groups) -> bool:
    """Whether the tensors may be seen in another shape."""
    defs = find_defs(program)
    for name in (x.load.buffer, x.d.name):
        b = program.buffer(name)
        written = [d for d in defs.values() if d.name == name]
        made = len(written) == 1 and written[0].at is None and written[0].scatter is None
        if not _may_be_seen(b) or not (b.space is Space.INPUT or made) or len(defs) < len(program.kernels):
            return False
    return x.load.buffer != x.other.buffer


def _volume(axes: tuple[Axis, ...]) -> int:
    return prod(map(length, axes))


# -- how many groups ------------------------------------------------------------------------------------


def _best(x: _Groups, multiprocessors: int) -> int:
    """The number of groups that are joined, which takes the shortest time; 1: none."""
    found = {n: _seconds(x, n, multiprocessors) for n in _counts(x)}
    best = min(found, key=lambda n: found[n], default=1)
    return best if best > 1 and found[best] <= SHARE * _apart(x) else 1


def _counts(x: _Groups) -> Iterator[int]:
    groups, terms, columns = map(length, (x.group, x.terms, x.column))
    for n in range(2, groups + 1):
        if groups % n == 0 and n * columns >= FILLED and n * terms % MMA_DEPTH == 0:
            yield n


def _operations(x: _Groups) -> float:
    return 2.0 * _volume(x.d.axes)


def _seconds(x: _Groups, count: int, multiprocessors: int) -> float:
    """The time of products of ``count`` groups together, and of the windows that they need."""
    sides = {a.name for a in (*x.rows, x.column)}
    others = _volume(tuple(a for a in x.d.par if a.name not in sides))
    shape = (others // count, _volume(x.rows), count * length(x.column))
    terms = count * length(x.terms)
    merit = next((m for step, m in rates.STEPS if terms % step == 0), rates.STEPS[-1][1])
    box = rates.Box(None, rates.SLAB, 0.0)
    product = rates.product_seconds(x.load.dtype, _operations(x) * count, shape, box, merit, multiprocessors)
    elements = _volume(tuple(a for a in x.d.axes if a.name in free_vars(x.load)))
    taps = _volume(tuple(a for a in x.d.red if a is not x.terms))
    moved = not isinstance(x.load.index[-1], Var)
    return product + 2e-6 * LAUNCH + (rates.store_seconds(x.load.dtype, elements // taps, True) if moved else 0.0)


def _apart(x: _Groups) -> float:
    """The time of the small products, whose matrices are padded to whole MMAs."""
    terms, columns = length(x.terms), length(x.column)
    padded = -(-terms // MMA_DEPTH) * -(-columns // MMA_DEPTH) * MMA_DEPTH**2 / (terms * columns)
    return _operations(x) * padded / (rates.WARPS if min(terms, columns) > MMA_DEPTH else rates.WARPS_SMALL)


# -- the program with a joint product -------------------------------------------------------------------


def _joined(program: Program, x: _Groups, count: int) -> Program:
    """``program`` where ``count`` groups of ``x`` are one."""
    place = x.d.par.index(x.group)
    beside = _beside(program, x, place)
    for name, at in ((x.load.buffer, x.at), (x.d.name, place), *beside.items()):
        program = _merged(program, name, at, count)
    return Simplify().apply(_with_blocks(program, find_defs(program)[x.d.name], x, count))


def _beside(program: Program, x: _Groups, place: int) -> dict[str, int]:
    """The tensors that elementwise definitions have beside the results, with the dimension of their groups.

    These are what such a definition makes of results, and what it reads at their positions.
    """
    defs, found = find_defs(program), {x.d.name: place}
    sizes = (x.group.extent, x.column.extent)
    for d in defs.values():
        pairs = {ld.index[n : n + 2] for ld in d.reads() for n in (found.get(ld.buffer),) if n is not None}
        own = [n for n in range(len(d.par) - 1) if {(Var(d.par[n].name), Var(d.par[n + 1].name))} == pairs]
        if d.is_reduction or not own or d.at is not None or not _may_be_seen(d.buffer):
            continue
        found[d.name] = own[0]
        for ld in d.reads():
            b = program.buffer(ld.buffer)
            at = next((n for n in range(len(ld.index) - 1) if ld.index[n : n + 2] in pairs), None)
            if at is not None and b.space is Space.INPUT and _may_be_seen(b) and b.shape[at : at + 2] == sizes:
                found.setdefault(ld.buffer, at)
    return {name: n for name, n in found.items() if name not in (x.d.name, x.load.buffer, x.other.buffer)}


def _may_be_seen(b: Buffer) -> bool:
    """Whether the elements of ``b`` may be seen in another shape."""
    return b.strides is None and b.support is None and b.initial is None


def _merged(program: Program, name: str, at: int, count: int) -> Program:
    """``program`` where ``count`` positions along dimension ``at`` of tensor ``name`` are some of the next one."""
    b = program.buffer(name)
    groups, each = b.shape[at], b.shape[at + 1]
    assert isinstance(groups, int) and isinstance(each, int)
    seen = b.viewed((*b.shape[:at], groups // count, count * each, *b.shape[at + 2 :]))

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer != name:
            return None
        index = tuple(rewrite(i, rule) for i in e.index)
        position = calc("add", calc("mul", index[at], each), index[at + 1])
        both = (calc(op, position, count * each) for op in ("floordiv", "mod"))
        return replace(e, index=(*index[:at], *both, *index[at + 2 :]))

    for d in find_defs(program).values():
        made = replace(d, value=rewrite(d.value, rule), guard=None if d.guard is None else rewrite(d.guard, rule))
        if d.name == name:
            made = _over_merged(replace(made, buffer=seen), at, count, each)
        program = put_defs(program, d.name, (_simplified(made),)) if made != d else program
    return replace(program, buffers=tuple(seen if x.name == name else x for x in program.buffers))


def _over_merged(d: Def, at: int, count: int, each: int) -> Def:
    """``d`` over merged axes ``at`` and the next one."""
    group, member = d.par[at : at + 2]
    axes = replace(group, extent=length(group) // count), replace(member, extent=count * each)
    env = dict(_digits(group, member, count, each))
    guard = None if d.guard is None else substitute(d.guard, env)
    return replace(d, par=(*d.par[:at], *axes, *d.par[at + 2 :]), value=substitute(d.value, env), guard=guard)


def _digits(group: Axis, member: Axis, count: int, each: int) -> Iterator[tuple[str, Expr]]:
    """The positions along the axes of a group, over those of ``count`` groups together."""
    inside = Var(member.name)
    yield group.name, calc("add", calc("mul", Var(group.name), count), calc("floordiv", inside, each))
    yield member.name, calc("mod", inside, each)


def _simplified(d: Def) -> Def:
    ranges, facts = axis_assumptions(d.axes)
    guard = None if d.guard is None else simplify(d.guard, ranges, facts)
    return replace(d, value=simplify(d.value, ranges, facts), guard=guard)


def _with_blocks(program: Program, d: Def, x: _Groups, count: int) -> Program:
    """``program`` where ``d``, whose results are those of ``count`` groups, is one product for them."""
    columns, terms = length(x.column), length(x.terms)
    whole = replace(x.terms, extent=count * terms)
    column = next(a for a in d.par if a.name == x.column.name)
    env: dict[str, Expr] = dict(_digits(x.group, x.column, count, columns))
    env[x.terms.name] = calc("mod", Var(whole.name), terms)
    inside = calc("eq", calc("floordiv", Var(whole.name), terms), calc("floordiv", Var(column.name), columns))

    used = free_vars(x.other)
    shared = [a for a in d.par if a.name in used and a.name != column.name]
    axes = (*shared, *(a for a in x.d.red if a is not x.terms and a.name in used), whole, column)
    ranges, facts = axis_assumptions(axes)
    place = tuple(simplify(substitute(e, env), ranges, facts) for e in x.other.index)
    value = in_compute_type(replace(x.other, index=place))
    value = Op("select", (inside, value, identity("sum", value.dtype)), value.dtype, d.span)
    names = {a.name: Var(f"i{n}") for n, a in enumerate(axes)}
    name = fresh_name(program, f"{d.name}_blocks", [a.name for a in (*d.axes, whole)])
    shape = tuple(a.extent for a in axes)
    buffer = Buffer(name, x.other.dtype, shape, Space.TEMP, d.span, support=substitute(inside, names))
    temp = Def(name, buffer, axes, (), None, value, None, d.span)

    first = replace(x.load, index=tuple(_joint(x, n, e) for n, e in enumerate(x.load.index)))
    second = Load(name, tuple(Var(a.name) for a in axes), x.other.dtype, d.span)
    assert isinstance(x.d.value, Op)
    factors = tuple(_put(e, first if _tensor(e) == x.load else second) for e in x.d.value.args)
    red = tuple(whole if a is x.terms else a for a in x.d.red)
    guard = conjunction((x.d.guard, buffer.supported(second.index)))
    made = replace(d, red=red, value=replace(x.d.value, args=factors), guard=guard)
    return put_defs(program, d.name, (temp, made))


def _joint(x: _Groups, n: int, e: Expr) -> Expr:
    """Index ``n`` of the operand of rows, which had ``e``, over the joint axes."""
    return Var(x.group.name) if n == x.at else Var(x.terms.name) if n == x.at + 1 else e


def _put(factor: Expr, ld: Load) -> Expr:
    """``factor`` with ``ld`` as its tensor."""
    return replace(factor, args=(_put(factor.args[0], ld),)) if isinstance(factor, Op) else ld

"""``store-shifted``: products of f32 with a shifted operand get one loop and operands that copy units load as boxes.

The sum of a convolution is over several axes, of which some shift an operand::

    Y[b, k, x] sum= X[b, c, x + r] * F[k, c, r]

No view makes this one matrix product, and the contiguous axis of ``F`` is that of the taps.  Warpgroup MMAs have their
rate if one loop copies boxes of both operands (``store-parts``).  So the loop has the position ``f``, the shifted
operand is read at the digits of ``f``, and the plain one becomes a temp with the axes of a box last::

    Y_right[r, c, k] = F[k, c, r]   ;   Y[b, k, x] sum= X[b, f % C, x + f // C] * Y_right[f // C, f % C, k]

The innermost digit counts an axis that the shifted operand has by itself.  It is padded under a condition, to a
multiple of the terms of one MMA.

Rows of a tile come in multiples of :data:`_ROWS`, columns in fewer.  So the shifted operand is the first one if the
columns of the plain one are no such multiple; multiplication is commutative.

The condition of the product may say that the shifted operand is inside of its tensor, because copies of boxes give
zeros elsewhere.  It says no more, and an index of a tensor is affine in the axes, with unit steps along those of the
result, because boxes have no others.  Nothing shifts the contiguous index, because boxes start at multiples of 16
bytes.

The pass applies only where warpgroup MMAs of stored parts are certainly faster: on targets that have them, in precision
fast, for products of many terms with enough rows and columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, within
from nautilus.core.expr.conditions import TRUE, conjunction, conjuncts
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, loads, substitute
from nautilus.core.index.linear import moves_with
from nautilus.core.index.simplify import linear_in, simplify
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, parts_allowed
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import dense_product
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import axis_assumptions, find_defs, fresh_name, put_defs
from nautilus.targets.limits import MMA_DEPTH, TENSOR_MAP_AXES, limits
from nautilus.targets.part_rates import SHIFTED, SHIFTED_SHARE, TILES, stored_seconds
from nautilus.targets.records import DEFAULT_TARGET
from nautilus.targets.window_rates import WHOLE

_ROWS, _COLUMNS = 128, 16  # rows and columns of the smallest product
_AGAIN = 64  # least number of terms for each element of the plain operand


@dataclass(frozen=True, slots=True)
class StoreShifted:
    """Store the operands of shifted products.

    ``arch``: the target; ``schedule`` and ``precision`` may forbid parts of operands.
    """

    arch: str = DEFAULT_TARGET
    precision: str = "fast"
    schedule: Schedule | None = None

    name = "store-shifted"

    def apply(self, program: Program) -> Program:
        """The program with one loop, and one more definition, for each such product."""
        target = limits(self.arch)
        if not (target.warpgroup and parts_allowed(self.precision, self.schedule)):
            return program
        for d in find_defs(program).values():
            made = shifted(program, d, target.multiprocessors)
            if made is not None:
                program = _stored(program, d, made)
        return program


@dataclass(frozen=True, slots=True)
class Shifted:
    """A product whose factor ``side`` is shifted.

    ``outer``: the contracted axes outside of ``inner``, whose extent is ``padded``; ``groups``: the axes of the result
    that both factors have; ``columns``: that of the plain factor.
    """

    side: int
    outer: tuple[Axis, ...]
    inner: Axis
    padded: int
    groups: tuple[Axis, ...]
    columns: Axis


def shifted(program: Program, d: Def, multiprocessors: int) -> Shifted | None:
    """``d`` as such a product; None for any other definition, and where the pass would not make it faster."""
    product = dense_product(d)
    if product is None or not (isinstance(d.value, Op) and is_affine(d)):
        return None
    factors = [e for e in d.value.args if isinstance(e, Load) and e.dtype is DType.F32]
    plain = [all(isinstance(e, Var) for e in ld.index) for ld in factors]
    if len(factors) < 2 or plain not in ([True, False], [False, True]) or conditions(program, d):
        return None
    side = plain.index(False)
    own = [product.rows, product.columns]
    columns = [a for a in d.par if a.name in own[1 - side]]
    groups = tuple(a for a in d.par if a.name in product.shared)
    inner = _inner(factors[side], d.red)
    if len(columns) != 1 or inner is None or not is_box(factors[side], own[side], inner, program):
        return None
    outer = tuple(a for a in d.red if a is not inner)
    made = Shifted(side, outer, inner, -(-_length(inner) // MMA_DEPTH) * MMA_DEPTH, groups, columns[0])
    return made if outer and _is_faster(program, d, made, multiprocessors) else None


def _length(a: Axis) -> int:
    return size(a) or 0


def _inner(ld: Load, red: Sequence[Axis]) -> Axis | None:
    """The longest contracted axis that is an index of ``ld`` by itself; None where there is none."""
    alone = {e.name for e in ld.index if isinstance(e, Var)}
    return max((a for a in red if a.name in alone), key=_length, default=None)


def is_affine(d: Def) -> bool:
    """Whether the operands are read at places that are affine in the axes."""
    names = {a.name for a in d.axes}
    found = [e for ld in loads(d.value) for e in ld.index]
    return not any(linear_in(e, x) is None for e in found for x in free_vars(e) & names)


def conditions(program: Program, d: Def) -> tuple[Expr, ...]:
    """The parts of the condition of ``d`` that do not follow from its operands being inside of their tensors.

    Or from their support: elements outside are zeros in memory.
    """
    inside = list(inside_of_operands(program, d))
    ranges, facts = axis_assumptions(d.axes)
    return tuple(c for c in conjuncts(d.guard) if simplify(c, ranges, (*facts, *inside)) != TRUE)


def inside_of_operands(program: Program, d: Def) -> Iterator[Expr]:
    """The conditions without which an operand of ``d`` is outside of its tensor, or a zero in it."""
    for ld in loads(d.value):
        b = program.buffer(ld.buffer)
        for e, n in zip(ld.index, b.shape, strict=True):
            yield from within(e, n)
        support = b.supported(ld.index)
        yield from () if support is None else conjuncts(support)


def is_box(ld: Load, rows: frozenset[str], inner: Axis, program: Program) -> bool:
    """Whether copies of boxes load tiles of ``ld`` along ``inner`` and an axis of ``rows``, and of its parts."""
    shape = program.buffer(ld.buffer).shape
    counted = [free_vars(e) & rows for e in ld.index]
    apart = all(len(x) <= 1 for x in counted) and sum(map(len, counted)) == len(rows)
    steps = all(moves_with(e, x) for e in ld.index for x in free_vars(e) & rows)
    one = [n for n, e in enumerate(ld.index) if inner.name in free_vars(e)]
    line = one == [len(shape) - 1] or (isinstance(ld.index[-1], Var) and counted[-1])  # which nothing shifts
    if not (apart and steps and len(one) == 1 and line):
        return False
    whole = _length(inner) % MMA_DEPTH == 0 or shape[one[0]] == _length(inner)  # zeros after it
    return whole and len(shape) <= TENSOR_MAP_AXES and isinstance(shape[-1], int)


def _is_faster(program: Program, d: Def, made: Shifted, multiprocessors: int) -> bool:
    """Whether stored parts are certainly faster than a product by warps."""
    groups, columns, terms = _volume(made.groups), _length(made.columns), _volume(d.axes)
    rows = _volume([a for a in d.par if a not in (made.columns, *made.groups)])
    if rows < _ROWS or columns < _COLUMNS or terms < _AGAIN * groups * _volume(d.red) * columns:
        return False
    assert isinstance(d.value, Op)
    ld = d.value.args[made.side]
    assert isinstance(ld, Load)
    elements = prod(n for n in program.buffer(ld.buffer).shape if isinstance(n, int))
    share = max(_share(groups, rows, columns, tile, multiprocessors) for tile in TILES)
    stored = stored_seconds(2 * terms // _length(made.inner) * made.padded, WHOLE * share, elements)
    return stored <= SHIFTED_SHARE * 2 * terms / SHIFTED


def _share(groups: int, rows: int, columns: int, tile: tuple[int, int, float], multiprocessors: int) -> float:
    """The rate of tiles of this kind as a share of that of full tiles in full waves."""
    m, n, rate = tile
    if columns % _ROWS == 0:
        m, n = n, m
    waves = -(-groups * -(-rows // m) * -(-columns // n) // multiprocessors)
    return rate * groups * rows * columns / (waves * multiprocessors * m * n)


def _stored(program: Program, d: Def, made: Shifted) -> Program:
    """``program`` where ``d`` has one loop and its plain factor is a temp."""
    assert isinstance(d.value, Op)
    taken = [a.name for a in d.axes if a not in made.outer]
    taps = Axis(fresh_name(program, "_".join(a.name for a in made.outer), taken), _volume(made.outer), made.inner.span)
    axes = (*made.outer, made.inner)
    flat = Axis(fresh_name(program, "_".join(a.name for a in axes), taken), _length(taps) * made.padded, taps.span)
    at = _digits(Var(taps.name), made.outer, [_length(a) for a in made.outer])
    plain = substitute(d.value.args[1 - made.side], dict(at))
    place = (*made.groups, taps, made.inner, made.columns)
    name = fresh_name(program, f"{d.name}_{('right', 'left')[made.side]}")
    buffer = Buffer(name, DType.F32, tuple(a.extent for a in place), Space.TEMP, plain.span)
    temp = Def(name, buffer, place, (), None, plain, None, plain.span)

    sizes = [*(_length(a) for a in made.outer), made.padded]
    env = dict(_digits(Var(flat.name), axes, sizes))
    tap, inside = calc("floordiv", Var(flat.name), made.padded), env[made.inner.name]
    index = (*(Var(a.name) for a in made.groups), tap, inside, Var(made.columns.name))
    factors: list[Expr] = [Load(name, index, DType.F32, plain.span)] * 2
    factors[made.side] = substitute(d.value.args[made.side], env)
    if made.side == 1 and _length(made.columns) % _ROWS:
        factors.reverse()
    beyond = None if made.padded == _length(made.inner) else calc("lt", inside, _length(made.inner))
    guard = conjunction((beyond, None if d.guard is None else substitute(d.guard, env)))
    new = replace(d, red=(flat,), value=replace(d.value, args=tuple(factors)), guard=guard)
    return put_defs(program, d.name, (temp, new))


def _volume(axes: Sequence[Axis]) -> int:
    return prod(_length(a) for a in axes)


def _digits(position: Expr, axes: Sequence[Axis], sizes: Sequence[int]) -> Iterator[tuple[str, Expr]]:
    """The position along each of ``axes`` at ``position`` of the axis that they become."""
    for n, a in enumerate(axes):
        stride = prod(sizes[n + 1 :])
        e = calc("floordiv", position, stride) if stride > 1 else position
        yield a.name, calc("mod", e, sizes[n]) if n else e

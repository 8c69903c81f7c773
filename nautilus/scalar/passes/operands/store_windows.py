"""``store-windows``: operands that a product reads at shifted or strided places become tensors of windows (im2col).

A product whose operand is read at ``X[b, c, 2 * y + r, 2 * x + s]`` has no copies of boxes along ``y`` and ``x``, or
its loop has steps of as few terms as there are channels.  Here both operands become temps
(:mod:`nautilus.scalar.analysis.windows`), and the product has one loop over a position ``f``::

    Y[b, k, y, x] sum= Y_left[(r % 2) * 2 + s % 2, b, c, y + r // 2, x + s // 2] * Y_right[r * 3 + s, c, k]

The contracted axes are divided into taps, which shift boxes, and the axes of a window, which are one axis of the temps.
More axes of a window repeat more elements and need less padding.  The loop has the taps outside and the position in a
window inside, padded to whole MMAs under a condition.

The condition of the product may say that the operands are inside of their tensors and no more.  Elements outside are
stored as 0, and a temp states this as its support, so that no mask is needed in the loop.

An operand that is computed is stored first (:mod:`nautilus.scalar.rewriting.computed_windows`), also where copies of
boxes load its windows as they are.

The pass takes the division that :mod:`nautilus.targets.window_rates` predicts to be fastest, where the prediction is at
most :data:`~nautilus.targets.window_rates.WINDOWS_SHARE` of that of a product by warps: on targets with warpgroup MMAs,
for operands of 16 bits, for integers of 8 bits whose terms are i32, and for those of f32 in precision fast.  MMAs of 8
bits read rows along the terms, so both temps have a window last, and steps are whole rows of 64 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

import numpy as np

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, in_compute_type
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, identity, loads, substitute
from nautilus.core.expr.products import strip_lossless_conversions
from nautilus.core.index.groups import shared_group
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import linear_in, simplify
from nautilus.core.index.sizes import Extent, nominal
from nautilus.core.records import dataclass
from nautilus.core.schedule import PackPlan, Schedule, parts_allowed
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import dense_product
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.windows import INNER, Windows, at, digits, extent, length, outside, windows
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.axes.flatten_contractions import contracted
from nautilus.scalar.passes.operands.store_shifted import conditions, is_box
from nautilus.scalar.passes.pack import pack
from nautilus.scalar.rewriting import all_defs, axis_assumptions, equal_temp, find_defs, fresh_name, put_defs
from nautilus.scalar.rewriting.computed_windows import with_computed_windows
from nautilus.targets import window_rates as rates
from nautilus.targets.limits import MMA_DEPTH, VECTOR_BYTES, limits
from nautilus.targets.records import DEFAULT_TARGET

_MOST_RED = 6  # contracted axes, of which every subset is priced
_MOST_POINTS = 4096  # largest number of points of conditions that are counted


@dataclass(frozen=True, slots=True)
class StoreWindows:
    """Store windows.  ``arch``: the target; ``schedule`` and ``precision`` may forbid parts of operands of f32."""

    arch: str = DEFAULT_TARGET
    precision: str = "fast"
    schedule: Schedule | None = None

    name = "store-windows"

    def apply(self, program: Program) -> Program:
        """The program with two more definitions for each such product."""
        target = limits(self.arch)
        if not target.warpgroup:
            return program
        in_parts = parts_allowed(self.precision, self.schedule)
        for name in find_defs(program):
            program = with_computed_windows(program, name, in_parts)
            grouped = _in_groups(program, name)
            made = convolution(grouped, find_defs(grouped)[name], in_parts)
            choice = None if made is None else _best(made, target.multiprocessors)
            if made is not None and choice is not None:
                program = with_windows(grouped, made, choice)
        return program


def _in_groups(program: Program, name: str) -> Program:
    """``program`` where an axis of a product is two if a factor has only the first one (``pack``)."""
    plan = group_of(program, name)
    return program if plan is None else pack(program, plan)


def group_of(program: Program, name: str) -> PackPlan | None:
    """The axis of the product ``name`` that a factor has in groups alone; None where there is none."""
    d = find_defs(program)[name]
    if d.op == "sum" and isinstance(d.value, Op) and d.value.op == "mul":
        for a in d.par:
            group = shared_group(d.value.args[0], d.value.args[1], a.name)
            if group is not None and (size(a) or 1) % group == 0 and all_defs(program) is not None:
                return PackPlan(name, a.name, group)
    return None


@dataclass(frozen=True, slots=True)
class Convolution:
    """Product ``d`` of tensors of ``dtype``, of which ``load`` is read at ``rows`` and not at ``column``.

    ``side``: the place of ``load`` among the factors; ``shared``: the axes of the result that both factors have;
    ``kept``: conditions on contracted axes and on axes of the result that no factor has, such as phases without terms.
    """

    d: Def
    side: int
    load: Load
    other: Load
    rows: tuple[Axis, ...]
    column: Axis
    shared: tuple[Axis, ...]
    shapes: tuple[tuple[Extent, ...], tuple[Extent, ...]]
    kept: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        """The element type of the operand that is read in windows."""
        return self.load.dtype


def convolution(program: Program, d: Def, in_parts: bool) -> Convolution | None:
    """``d`` as such a product; None for any other definition, and where boxes of the tensors are its operands."""
    product = dense_product(d, sized=False)
    if product is None or not isinstance(d.value, Op) or len(d.red) > _MOST_RED:
        return None
    found = [_tensor(e) for e in d.value.args]
    types = {ld.dtype for ld in found if ld is not None}
    if None in found or len(types) != 1:
        return None
    dtype = types.pop()
    exact = dtype is DType.I8 and d.value.dtype is DType.I32
    if not (dtype.is_half or exact or (dtype is DType.F32 and in_parts)):
        return None
    own = [[a for a in d.par if a.name in names] for names in (product.rows, product.columns)]
    plain = [all(isinstance(e, Var) for e in ld.index) for ld in found if ld is not None]
    side = plain.index(False) if plain.count(False) == 1 else int(len(own[0]) == 1 and len(own[1]) > 1)
    first, second = found[side], found[1 - side]
    if all(plain) or len(own[1 - side]) != 1 or first is None or second is None:
        return None
    if any(size(a) is None for a in d.axes if a not in own[side]):
        return None
    shapes = [program.buffer(x.buffer).shape for x in (first, second)]
    shared = tuple(a for a in d.par if a.name in product.shared)
    kept = conditions(program, d)
    alone = {a.name for a in (*d.par, *d.red)} - product.rows - product.columns - {a.name for a in shared}
    if any(loads(c) or not free_vars(c) <= alone for c in kept):
        return None
    made = Convolution(d, side, first, second, tuple(own[side]), own[1 - side][0], shared, (shapes[0], shapes[1]), kept)
    return None if _has_boxes(program, made) else made


def _tensor(e: Expr) -> Load | None:
    e = strip_lossless_conversions(e) if isinstance(e, Op) and e.op == "cast" else e
    return e if isinstance(e, Load) else None


def _has_boxes(program: Program, c: Convolution) -> bool:
    """Whether copies of boxes load the operand of 16 bits as it is (``flatten-contractions``)."""
    if not (c.dtype.is_half or c.dtype is DType.I8):
        return False
    found = contracted(program, c.d) or c.d.red[:1] * (len(c.d.red) == 1)
    rows = frozenset(a.name for a in c.rows)
    last = c.shapes[0][-1]
    whole = isinstance(last, int) and last * c.dtype.bytes % VECTOR_BYTES == 0
    plain = all(isinstance(e, Var) or _is_moved(e) for e in c.other.index)  # the passes after this one take it
    return bool(found) and whole and plain and is_box(c.load, rows, found[-1], program)


def _is_moved(e: Expr) -> bool:
    """Whether ``e`` is a variable and a constant, as where columns of one tensor belong to two products."""
    form = linear(e)
    return len(form.terms) == 1 and all(isinstance(a, Var) and n == 1 for a, n in form.terms.items())


# -- the division of the contracted axes ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choice:
    """``outer``: the taps; ``inner``: the axes of a window, of which each has ``padded`` terms in the loop."""

    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    padded: int
    temp: Windows
    seconds: float

    @property
    def is_plain(self) -> bool:
        """Whether the other operand has the axes of a window as they are."""
        return not self.outer and len(self.inner) == 1


def _best(c: Convolution, multiprocessors: int) -> Choice | None:
    """The choice that is predicted to be fastest, if that is faster than a product by warps by a margin."""
    if _volume(c.rows) < rates.ROWS or extent(c.column) < rates.columns(c.dtype):
        return None
    best = min(choices(c, multiprocessors), key=lambda x: x.seconds, default=None)
    return best if best is not None and best.seconds <= rates.WINDOWS_SHARE * _by_warps(c) else None


def seconds(c: Convolution, multiprocessors: int) -> float:
    """The time of ``c``, with stored windows where they are faster."""
    best = _best(c, multiprocessors)
    return _by_warps(c) if best is None else best.seconds


def _by_warps(c: Convolution) -> float:
    """The time of a product by warps."""
    live = _live_share(c)
    steps = {abs(form[0]) for a in c.rows for e in c.load.index if (form := linear_in(e, a.name)) and form[0]}
    return rates.warp_seconds(c.dtype, 2 * live * _volume(c.d.axes), max(map(extent, c.d.red)), steps == {1})


def _live_share(c: Convolution) -> float:
    """The share of the terms that the conditions on contracted axes and phases leave."""
    names = set[str]().union(*map(free_vars, c.kept))
    axes = [a for a in c.d.axes if a.name in names]
    if not axes or _volume(axes) > _MOST_POINTS:
        return 1.0
    places = np.indices([extent(a) for a in axes])
    env = {a.name: place for a, place in zip(axes, places, strict=True)}
    return float(np.mean(np.logical_and.reduce([np.broadcast_to(evaluate(e, env), places[0].shape) for e in c.kept])))


def choices(c: Convolution, multiprocessors: int) -> Iterator[Choice]:
    """Every division of the contracted axes of ``c``."""
    shape, result = _shape(c), _result_seconds(c)
    for n in range(1, len(c.d.red) + 1):
        for inner in combinations(c.d.red, n):
            outer = tuple(a for a in c.d.red if a not in inner)
            if any(a.name in free_vars(e) for e in c.kept for a in inner):
                continue
            terms = _volume(inner)
            if _volume(outer) == 1 and not rates.is_long(c.dtype, terms, extent(c.column)):
                continue
            for contiguous in (False, True) if c.dtype is not DType.I8 else (True,):
                found: dict[int, Windows | None] = {}
                for step, merit in rates.steps(c.dtype):
                    padded = -(-terms // step) * step if outer else terms
                    operations = 2 * prod(shape) * _volume(outer) * _terms(terms, padded, step)
                    for temp, box in _temps(c, inner, contiguous, step, padded, found):
                        product = rates.product_seconds(c.dtype, operations, shape, box, merit, multiprocessors)
                        stores = result + rates.store_seconds(c.dtype, temp.elements, temp.transposed)
                        yield Choice(outer, inner, padded, temp, product + stores)


def _temps(
    c: Convolution, inner: Sequence[Axis], last: bool, step: int, padded: int, found: dict[int, Windows | None]
) -> Iterator[tuple[Windows, rates.Box]]:
    """Temps of windows with their boxes: rows as long as their elements, and rows that are padded to whole boxes.

    A long loop without taps has one cut box.  ``found``: temps by the multiple of their rows.
    """

    def made(multiple: int) -> Windows | None:
        if multiple not in found:
            axes, rows = {a.name: a for a in c.d.axes}, [a.name for a in c.rows]
            found[multiple] = windows(c.load, rows, inner, axes, last, multiple)
        return found[multiple]

    plain = made(1)
    if plain is None:
        return
    line = next((length(a) for a in c.rows if a.name == plain.lines), None)
    row = step if line is None else rates.box_line(line)
    terms = 0.0 if line is None else 1 - _volume(inner) / padded  # a row for each term
    taps = _volume(inner) < _volume(c.d.red)
    for temp in (plain, made(row) if taps and nominal(plain.shape[-1]) % row else None):
        if temp is not None:
            line_size = nominal(temp.shape[-1])
            ends = 1 / -(-line_size // row) if line_size % row else 0.0
            yield temp, rates.Box(line, row, max(terms, ends))


def _terms(terms: int, padded: int, step: int) -> float:
    """The number of terms that the time of a loop is proportional to.

    In a loop of one step, MMAs do not multiply padded terms unless these are the most; but padded terms take room and
    are filled with zeros.
    """
    if not step == padded < 2 * terms:
        return padded
    multiplied = -(-terms // MMA_DEPTH) * MMA_DEPTH
    return multiplied + (padded - multiplied) * rates.ZEROS


def _shape(c: Convolution) -> tuple[int, int, int]:
    """Groups, rows and columns of the product."""
    sides = {a.name for a in (*c.shared, *c.rows, c.column)}
    phases = _volume([a for a in c.d.par if a.name not in sides])
    return phases * _volume(c.shared), _volume(c.rows), extent(c.column)


def _result_seconds(c: Convolution) -> float:
    """The time that writing the result adds: elements of other phases may lie between neighbours of a tile."""
    tile, steps = {a.name for a in (*c.rows, c.column)}, list[int]()
    for n, e in enumerate(c.d.index):
        each = c.d.buffer.stride(n)
        if isinstance(each, int):
            steps += [abs(k) * each for a, k in linear(e).terms.items() if isinstance(a, Var) and a.name in tile]
    return rates.result_seconds(c.d.buffer.dtype, prod(_shape(c)), min(steps, default=1))


def _volume(axes: Sequence[Axis]) -> int:
    return prod(map(length, axes))


# -- the program after it -------------------------------------------------------------------------------


def with_windows(program: Program, c: Convolution, x: Choice) -> Program:
    """``program`` where the operands of ``c.d`` are temps and its loop is one."""
    d = c.d
    taken = [a.name for a in d.axes]
    name = fresh_name(program, "_".join(a.name for a in (*x.outer, *x.inner)), taken)
    flat, terms = Var(name), _volume(x.inner)
    tap: Expr = calc("floordiv", flat, x.padded)
    place: Expr = calc("mod", flat, x.padded) if x.outer else flat
    taps = dict(digits(tap, x.outer))
    left = _window_temp(program, c, x)
    known = equal_temp(program, left, d.name)
    index = tuple(simplify(substitute(e, {**taps, INNER: place})) for e in x.temp.index)
    right = None if x.is_plain else _filter_temp(program, c, x)
    if right is None:
        other = replace(c.other, index=tuple(substitute(e, {x.inner[0].name: flat}) for e in c.other.index))
    else:
        last = (Var(c.column.name), place) if _terms_last(c) else (place, Var(c.column.name))
        where = (*(Var(a.name) for a in c.shared), *([tap] if x.outer else []), *last)
        other = Load(right.name, where, c.dtype, d.span)
    kept: list[Expr | None] = [calc("lt", place, terms)] if x.padded != terms else []
    if d.guard is not None:
        inside = [left.buffer.supported(index), None if right is None else right.buffer.supported(other.index)]
        kept += [*inside, *(substitute(e, taps) for e in c.kept)]
    factors: list[Expr] = [Load(known or left.name, index, c.dtype, d.span), other]
    factors = [in_compute_type(e) for e in factors]
    whole = extent(c.column) % rates.TILE == 0 or (len(c.rows) == 1 and extent(c.column) >= rates.TILE)
    if whole and c.column.name not in free_vars(d.index[-1]):
        factors.reverse()
    axis = Axis(name, _volume(x.outer) * x.padded, x.inner[0].span)
    value = Op("mul", tuple(factors), c.dtype.compute, d.span)
    made = replace(d, red=(axis,), value=value, guard=conjunction(kept))
    return put_defs(program, d.name, (*(t for t in (None if known else left, right) if t is not None), made))


def _window_temp(program: Program, c: Convolution, x: Choice) -> Def:
    """The temp of windows."""
    temp, terms = x.temp, _volume(x.inner)
    axes = [Axis(f"i{n}", e, c.d.span) for n, e in enumerate(temp.shape)]
    names = {at(n).name: Var(a.name) for n, a in enumerate(axes)}
    env = dict(digits(at(temp.at), x.inner))
    place = tuple(simplify(substitute(substitute(e, env), names)) for e in temp.place)
    beyond = calc("lt", Var(axes[temp.at].name), terms) if temp.shape[temp.at] != terms else None
    return _temp(program, f"{c.d.name}_windows", axes, c.load, place, beyond)


def _terms_last(c: Convolution) -> bool:
    """Whether the terms are contiguous in the temp of the other operand.

    Columns that are not whole rows of 128 bytes would be copied to shared memory in many short rows.
    """
    return c.dtype is DType.I8 or extent(c.column) % rates.SLAB != 0


def _filter_temp(program: Program, c: Convolution, x: Choice) -> Def:
    """The temp of the other operand."""
    tap, position = (unused(n, {a.name for a in c.d.axes}) for n in ("tap", "position"))
    axes = [*c.shared, *([Axis(tap, _volume(x.outer))] if x.outer else [])]
    terms = _volume(x.inner)
    whole = x.padded if x.outer and _terms_last(c) else terms  # its rows are whole boxes
    last = [Axis(position, whole), c.column]
    axes += last[::-1] if _terms_last(c) else last
    env = {**dict(digits(Var(tap), x.outer)), **dict(digits(Var(position), x.inner))}
    place = tuple(simplify(substitute(e, env)) for e in c.other.index)
    beyond = calc("lt", Var(position), terms) if whole > terms else None
    return _temp(program, f"{c.d.name}_filter", axes, c.other, place, beyond)


def _temp(
    program: Program, hint: str, axes: Sequence[Axis], ld: Load, place: tuple[Expr, ...], beyond: Expr | None = None
) -> Def:  # fmt: skip
    """A temp over ``axes`` of ``ld`` at ``place``, which is 0 outside of its tensor and without ``beyond``.

    A temp that only this one reads is computed here.
    """
    source = program.buffer(ld.buffer)
    inside = conjunction((outside(place, source.shape, *axis_assumptions(axes)), beyond))
    made = find_defs(program).get(ld.buffer)
    value = in_compute_type(Load(ld.buffer, place, ld.dtype, ld.span))
    if made is not None and source.support is not None and _is_read_once(program, made):
        value = substitute(made.value, {a.name: e for a, e in zip(made.par, place, strict=True)})
    if inside is not None:
        value = Op("select", (inside, value, identity("sum", value.dtype)), value.dtype, ld.span)
    support = conjunction((inside, source.supported(place)))
    if support is not None:
        support = substitute(support, {a.name: Var(f"i{n}") for n, a in enumerate(axes)})
    name = fresh_name(program, hint)
    buffer = Buffer(name, ld.dtype, tuple(a.extent for a in axes), Space.TEMP, ld.span, support=support)
    return Def(name, buffer, tuple(axes), (), None, value, None, ld.span)


def _is_read_once(program: Program, d: Def) -> bool:
    """Whether ``d`` is elementwise, and one definition alone reads it, at one place."""
    reads = [ld for other in find_defs(program).values() for ld in other.reads() if ld.buffer == d.name]
    return len(reads) == 1 and not d.is_reduction and d.guard is None and d.at is None and d.scatter is None

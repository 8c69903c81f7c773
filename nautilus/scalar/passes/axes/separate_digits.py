"""``separate-digits``: an axis whose quotient and remainder different factors read becomes an axis for each digit.

The product with a Kronecker product of matrices may number the rows of both with one axis::

    Y[n, o] = sum[i](P[o // B, i] * sum[j](Q[o % B, j] * X[n, i * B + j]))

Neither factor depends on all of ``o``.  With ``o = B * o_group + o_member`` (pass ``pack``) the inner sum depends on
``o_member`` alone, so that it is computed once for all groups, and both sums are products of matrices::

    S[n, o_member, i] = sum[j](Q[o_member, j] * X[n, i * B + j])
    Y[n, o_group * B + o_member] = sum[i](P[o_group, i] * S[n, o_member, i])

An axis of the result that both factors of a sum have, but at different digits, gives neither of them rows of its own.
With an axis for each digit the sum is a product of matrices, as in convolutions whose groups are numbered through, or
interleaved::

    Z[n, t, o] = sum[k, c](W[o, k, c] * X[n, t + k, o % C // D * D + c])
    Z[n, t, o] = sum[k, c](W[o, k, c] * X[n, t + k, c * G + o % G])

The same is done to an axis of which the condition has one digit and a factor the other one, such as the rows of sparse
blocks, so that the rows of a tile have one condition
(:mod:`nautilus.scalar.analysis.contractions.factor_digits`)::

    Y[i, n] = sum[z, k | ptr[i // B] <= z and z < ptr[i // B + 1]](val[z, i % B, k] * X[col[z] * B + k, n])

The first of these rules holds for a summed axis too.  Its digits may then be summed one after the other
(``order-contractions``).  It applies to an axis that sums use as ``o // B`` and ``o % B``, in no tensor as both, where
B divides the extent; inputs may also be read at ``o`` itself.  A temp that does not depend on one of its axes loses it.
Where no temp of numbers does, and no other order of the sums is faster, the axes stay.

An elementwise definition that combines the elements of a group for each of its members has them too, so that a thread
has a group::

    Y[c] = X[c // 2 * 2] * w(c % 2, 0) + X[c // 2 * 2 + 1] * w(c % 2, 1)

So has the summed axis that numbers the terms of a window in two directions, whose lines are then a loop::

    Y[y, x] = sum[k: 49](X[y + k // 7, x + k % 7] * W[y, x, k])

And so has the summed axis of a product with frames of a signal, which begin every H elements and overlap.  With digits
by H the signal is a matrix, whose rows copy units load, and the frames are those of a convolution over its rows::

    Y[t, f] = sum[n](X[t * H + n] * B[f, n])
    Y[t, f] = sum[n_group, n_member](X[t + n_group, n_member] * B[f, n_group, n_member])

A temp that a definition reads at ``B * x + y`` has an axis for each digit in any case, as where gradients are sums over
the heads of a group::

    dV[g, j, d] = sum[i, y: B](P[g * B + y, i, j] * dO[g * B + y, i, d])

A dimension of an input or output of which every position is ``B * x + y`` with ``y`` below B becomes two
(:attr:`~nautilus.core.buffers.Buffer.view_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import gcd

from nautilus.core.buffers import Space
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, children, free_vars, rewrite
from nautilus.core.expr.products import strip_conversions
from nautilus.core.index.linear import linear
from nautilus.core.records import dataclass
from nautilus.core.schedule import PackPlan, Schedule, parts_allowed
from nautilus.core.types import DType
from nautilus.scalar.analysis.axes import unify
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.contractions.factor_digits import separating_digit
from nautilus.scalar.analysis.contractions.promises import Promises
from nautilus.scalar.analysis.contractions.scales import unscaled
from nautilus.scalar.analysis.definitions import Def, read_defs
from nautilus.scalar.analysis.definitions import size as size_of
from nautilus.scalar.analysis.windows import slides
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.axes.delinearize import sum_digits
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.operands.order_contractions import OrderContractions
from nautilus.scalar.passes.pack import pack
from nautilus.scalar.rewriting import find_defs, turned
from nautilus.scalar.rewriting.digits import read_by_digits, viewed
from nautilus.targets.limits import MMA_DEPTH, limits
from nautilus.targets.records import DEFAULT_TARGET

_PLAIN = ("", 0)  # a use of an axis that is no digit


@dataclass(frozen=True, slots=True)
class SeparateDigits:
    """Give the digits of such axes axes of their own.

    ``spec``: says which inputs are finite, for other orders.  ``arch``: the target, whose copy units load frames where
    it has warpgroup MMAs; ``schedule`` and ``precision`` may forbid parts of operands of f32.
    """

    spec: Promises | None = None
    arch: str = DEFAULT_TARGET
    precision: str = "fast"
    schedule: Schedule | None = None

    name = "separate-digits"

    def apply(self, program: Program) -> Program:
        """The program with more axes; the same object where factors read no digits."""
        live = Dead().apply(program)
        while (plan := read_by_digits(live)) is not None:
            program = live = viewed(pack(live, plan), plan.size)
        frames = _frames(self.arch, parts_allowed(self.precision, self.schedule))
        while (plan := _between_factors(live, frames)) is not None:
            program = live = _by_digits(pack(live, plan), plan.size)
        for alone in (False, True):
            made = live
            while (plan := _first(made, alone)) is not None:
                made = viewed(pack(made, plan), plan.size)
            smaller = _without_idle_axes(made)
            orders = OrderContractions(spec=self.spec)
            if made is not live and (_less_work(made) or (not alone and orders.apply(smaller) is not smaller)):
                return smaller
        return program


def _frames(arch: str, in_parts: bool) -> frozenset[DType]:
    """The types of the signals whose frames copy units load."""
    if not limits(arch).warpgroup:
        return frozenset()
    return frozenset(t for t in DType if t.is_half or (t is DType.F32 and in_parts))


def _between_factors(program: Program, frames: frozenset[DType]) -> PackPlan | None:
    """The first axis of which the factors of a sum have different digits, so that the sum is a product by digits.

    Or one of the product of a signal of ``frames``, or one of an elementwise definition that reads such a sum at both
    digits, or several elements of a group for each of its members.
    """
    defs = find_defs(program)
    for d in defs.values():
        for axis in d.par:
            size = separating_digit(d, axis)
            if size is None and not d.is_reduction:
                read = (sum_digits(ld, axis.name, defs.get(ld.buffer)) for ld in d.reads())
                size = next((n for n in (*read, _group(d, axis)) if n is not None and _divides(n, axis)), None)
            if size is not None:
                return PackPlan(d.name, axis.name, size)
        for axis in d.red:
            size = _sliding(d, axis) or _hop(program, d, axis, frames)
            if size is not None and _divides(size, axis):
                return PackPlan(d.name, axis.name, size)
    return None


def _sliding(d: Def, axis: Axis) -> int | None:
    """The size by which ``axis`` has both digits of the terms of a window, each of which slides with a kept axis."""
    kept, extent = {a.name for a in d.par}, size_of(axis)
    indices = [e for ld in d.reads() for e in ld.index]
    for n in sorted({n for e in indices for op, n in _uses(e, axis.name) if op == "floordiv"}):
        line, place = (calc(op, Var(axis.name), n) for op in ("floordiv", "mod"))
        counts = {line: (extent or n) // n, place: n}
        if all(any(slides(e, kept, digit, count) for e in indices) for digit, count in counts.items()):
            return n
    return None


def _hop(program: Program, d: Def, axis: Axis, types: frozenset[DType]) -> int | None:
    """The divisor of ``axis`` by which the frames of an input that the product ``d`` sums over are rows of a matrix.

    All operands have the axis at positions that a tensor with rows of so many elements has in one row.  Frames that are
    computed, as under a window, are no operands that copy units load.
    """
    signals = [ld for ld in _tensors(d) if ld.dtype in types and any(_is_frame(d, e, axis) for e in ld.index)]
    if not signals or not multiplies_matrices(d):
        return None
    found = size_of(axis) or 1
    for ld in d.reads():
        shape = program.buffer(ld.buffer).shape
        for e, extent in zip(ld.index, shape, strict=True):
            if axis.name not in free_vars(e):
                continue
            place = linear(e)
            if place.slope(axis.name) != 1 or not isinstance(extent, int) or ld.buffer in find_defs(program):
                return None
            steps = (n for a, n in place.terms.items() if a != Var(axis.name))
            found = gcd(found, extent, place.const, *steps)
    return found if found >= MMA_DEPTH else None


def _tensors(d: Def) -> list[Load]:
    """The factors of the sum of products ``d`` that are elements of tensors."""
    value = unscaled(d)
    parts = children(value) if d.op == "sum" and isinstance(value, Op) and value.op == "mul" else ()
    return [e for e in map(strip_conversions, parts) if isinstance(e, Load)]


def _is_frame(d: Def, e: Expr, axis: Axis) -> bool:
    """Whether index ``e`` adds ``axis`` to multiples of a kept axis, fewer than it has elements."""
    kept, place, extent = {a.name for a in d.par}, linear(e), size_of(axis) or 0
    steps = (abs(n) for a, n in place.terms.items() if isinstance(a, Var) and a.name in kept)
    return place.slope(axis.name) == 1 and any(MMA_DEPTH <= n < extent for n in steps)


def _group(d: Def, axis: Axis) -> int | None:
    """The size of groups along ``axis`` of which ``d`` reads several elements of one tensor for each member.

    As in ``Y[c] = x[c // 4 * 4] * w(c % 4, 0) + x[c // 4 * 4 + 1] * w(c % 4, 1) + ..``, where tensors have the axis in
    no other form, but for one element alone.
    """
    uses: dict[str, dict[Load, set[tuple[str, int]]]] = {}
    for ld in d.reads():
        found = {u for e in ld.index for u in _uses(e, axis.name)}
        whole = any(isinstance(e, Op) and e.op == "floordiv" and axis.name in free_vars(e) for e in ld.index)
        if whole and not any(isinstance(e, Const) for e in ld.index):
            return None  # the group is one element, such as a byte of packed elements
        if found and found != {_PLAIN}:
            uses.setdefault(ld.buffer, {})[ld] = found
    groups = [us for us in uses.values() if len(us) > 1]
    sizes = {u for us in groups for found in us.values() for u in found}
    members = {u for e in _values(d) for u in _uses(rewrite(e, _without_index), axis.name)}
    size = next((n for _, n in sizes), 0)
    inside = bool(members) and all(op == "mod" and n and size % n == 0 for op, n in members)
    return size if sizes == {("floordiv", size)} and inside else None


def _by_digits(program: Program, size: int) -> Program:
    """``program`` with two dimensions where positions have digits, by ``size`` or by the extent of another axis."""
    sizes = {n for d in find_defs(program).values() for a in d.axes if (n := size_of(a)) is not None and n > 1}
    for n in sorted(sizes | {size}):
        program = viewed(program, n)
    return program


def _divides(size: int, axis: Axis) -> bool:
    return isinstance(axis.extent, int) and axis.extent % size == 0 < size < axis.extent


def _first(program: Program, alone: bool) -> PackPlan | None:
    """The first axis of a sum that is used as two digits, with the number of values of the last one.

    ``alone``: or as one of them; scales of groups, which inputs have at ``a // B`` alone, stay in a whole product.
    """
    try:
        original = read_defs(program)
    except ScheduleError:
        return None
    nodes = (n for d in original.values() for e in _values(d) for n in _nodes(e))
    if not any(isinstance(n, Op) and n.op in ("floordiv", "mod") for n in nodes):
        return None
    unified = unify(tuple(original.values()), tuple(p.name for p in program.params))
    defs = {d.name: d for d in unified.defs}
    for axis, extent in unified.extents.items():
        d = next((d for d in defs.values() if d.op == "sum" and d.axis(axis) is not None), None)
        if d is None or not isinstance(extent, int):
            continue
        size = _size(defs, axis, alone)
        if size is not None and extent % size == 0 and 1 < size < extent:
            place = [a.name for a in d.axes].index(axis)
            return PackPlan(d.name, original[d.name].axes[place].name, size)
    return None


def _size(defs: Mapping[str, Def], axis: str, alone: bool) -> int | None:
    """B where ``defs`` use ``axis`` as ``axis // B`` and ``axis % B`` only, and no tensor is read at both; else None.

    A temp that has the axis may be read at it, and so may inputs.  ``alone``: one of the digits is enough.
    """
    found = set[tuple[str, int]]()
    for d in defs.values():
        if d.axis(axis) is None:
            continue
        for ld in d.reads():
            own = defs[ld.buffer].par if ld.buffer in defs and defs[ld.buffer].at is None else ()
            inside = ld.buffer not in defs
            kept = [e for n, e in enumerate(ld.index) if inside or not (e == Var(axis) and _has(own, n, axis))]
            uses = {u for e in kept for u in _uses(e, axis)} - ({_PLAIN} if inside else set())
            if len(uses) > 1:
                return None
            found |= uses
        found |= {u for e in _values(d) for u in _uses(rewrite(e, _without_index), axis)}
    sizes = {n for _, n in found}
    return sizes.pop() if len(found) >= 2 - alone and len(sizes) == 1 and _PLAIN not in found else None


def _has(axes: tuple[Axis, ...], place: int, axis: str) -> bool:
    return place < len(axes) and axes[place].name == axis


def _without_index(e: Expr) -> Expr | None:
    return replace(e, index=()) if isinstance(e, Load) else None


def _values(d: Def) -> tuple[Expr, ...]:
    return (d.value,) if d.guard is None else (d.value, d.guard)


def _nodes(e: Expr) -> Iterator[Expr]:
    yield e
    for x in children(e):
        yield from _nodes(x)


def _uses(e: Expr, axis: str) -> Iterator[tuple[str, int]]:
    """The digits of ``axis`` in ``e``, each as its operation and number, and :data:`_PLAIN` for another use."""
    match e:
        case Op(op="floordiv" | "mod" as op, args=(Var(name=name), Const(value=value))) if name == axis:
            yield op, int(value)
        case Var(name=name) if name == axis:
            yield _PLAIN
        case _:
            for x in children(e):
                yield from _uses(x, axis)


def _less_work(program: Program) -> bool:
    """Whether a reduced temp has an axis on which its elements do not depend.

    That of a condition does not count: whether a row has a term at all is little work, and the axes of the tensors of
    numbers would be smaller because of it.
    """
    return any(d.op not in ("any", "all") and _used_axes(d) is not None for d in find_defs(program).values())


def _without_idle_axes(program: Program) -> Program:
    """``program`` in which reduced temps have no axis on which their elements do not depend."""
    for name in find_defs(program):
        d = find_defs(program)[name]  # whose temps may have lost axes before
        places = _used_axes(d)
        if places is not None:
            program = turned(program, d, places)
    return program


def _used_axes(d: Def) -> list[int] | None:
    """The axes on which the elements of a reduced temp depend, where they are some of its axes and not all."""
    used = frozenset[str]().union(*map(free_vars, _values(d)))
    places = [n for n, a in enumerate(d.par) if a.name in used]
    reduced = d.buffer.space is Space.TEMP and d.is_reduction and d.at is None
    return places if reduced and 0 < len(places) < len(d.par) else None

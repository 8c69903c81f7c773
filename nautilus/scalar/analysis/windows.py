"""Windows: an operand that a product reads at shifted or strided places, as the rows of a matrix (im2col).

A convolution reads an element of its tensor at places such as ``X[b, c, 2 * y + r - 1]``.  :func:`windows` describes a
temp whose elements have places with unit steps along the axes of the result, which copies of boxes load::

    T[p, b, c, y] = X[b, c, 2 * y + p - 1]          (2 * y + r - 1 is at p = r % 2, y + r // 2)

* An axis of the result with step ``S`` has ``S`` residues, and the contracted axes that shift it add their quotient.
  Steps that the shifts share with ``S`` have no residues.
* ``inner``: the contracted axes that become one axis of the temp, so that each element of a window has a place of its
  own; ``T[b, x, r * C + c] = X[b, x + r, c]``.
* Axes that both factors have, and contracted axes that no axis of the result accompanies, are digits of one axis with
  the residues.

The axes of the result may have sizes that are known only at launch, those of windows and of digits have not.

Elements whose place is outside of the tensor are 0 (:attr:`~nautilus.core.buffers.Buffer.support`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from math import gcd, lcm, prod

from nautilus.core.expr.build import calc, integer, within
from nautilus.core.expr.conditions import TRUE, conjunction
from nautilus.core.expr.nodes import Axis, Expr, Load, Var, free_vars, substitute
from nautilus.core.index.linear import Linear, linear
from nautilus.core.index.simplify import bounds, simplify
from nautilus.core.index.sizes import Extent, nominal, rounded_up, total, volume
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.targets.limits import TENSOR_MAP_AXES, VECTOR_BYTES

INNER = "%inner"  # a variable: the position in a window; no name of a spec


@dataclass(frozen=True, slots=True)
class Windows:
    """The temp of the windows of a load.

    ``shape``: of the temp.  ``place``: the index of the tensor, over the temp's place (:func:`at`) and the axes of
    ``inner``.  ``index``: the index of the temp in the product, over its axes and :data:`INNER`.  ``at``: the axis of
    the temp that is that of ``inner``.  ``lines``: the axis of the result along which neighbours are contiguous, or
    None.  ``transposed``: neighbours in the temp are none in the tensor.
    """

    shape: tuple[Extent, ...]
    place: tuple[Expr, ...]
    index: tuple[Expr, ...]
    at: int
    lines: str | None
    transposed: bool

    @property
    def elements(self) -> int:
        """The number of elements of the temp, at the nominal values of sizes that are known only at launch."""
        return prod(map(nominal, self.shape))


def at(n: int) -> Var:
    """The place along axis ``n`` of the temp."""
    return Var(f"%{n}")


def extent(a: Axis) -> int:
    """The number of positions of ``a``, which is known."""
    assert isinstance(a.extent, int)
    return a.extent


def length(a: Axis) -> int:
    """The number of positions of ``a``, where it may be known only at launch: the nominal one."""
    return nominal(a.extent)


def digits(position: Expr, axes: Sequence[Axis]) -> Iterator[tuple[str, Expr]]:
    """The position along each of ``axes`` at ``position`` of the axis that they become."""
    lengths = [extent(a) for a in axes]
    for n, a in enumerate(axes):
        stride = prod(lengths[n + 1 :])
        e = calc("floordiv", position, stride) if stride > 1 else position
        yield a.name, calc("mod", e, lengths[n]) if n and lengths[n] > 1 else integer(0) if lengths[n] == 1 else e


def slides(e: Expr, kept: Collection[str], digit: Expr, count: int) -> bool:
    """Whether index ``e`` adds ``digit``, which has ``count`` values, to one of the axes ``kept``, so that the windows
    of neighbours overlap: ``X[y + p]``, and not ``X[7 * y + p]`` of windows of 7, nor ``X[at[y] + p]``."""
    x = linear(e)
    reach = abs(x.terms.get(digit, 0)) * count
    return any(isinstance(a, Var) and a.name in kept and abs(c) < reach for a, c in x.terms.items())


def outside(
    place: Sequence[Expr], shape: Sequence[Extent], ranges: Mapping[str, tuple[int, int]], facts: Sequence[Expr]
) -> Expr | None:  # fmt: skip
    """The condition that ``place`` is inside of a tensor of ``shape``; None where it always is.

    ``ranges`` and ``facts``: what holds of the variables.
    """
    found = (c for e, n in zip(place, shape, strict=True) for c in within(e, n))
    return conjunction(c for c in found if simplify(c, ranges, facts) != TRUE)


@dataclass(slots=True)
class _Work:
    """What :func:`windows` has found: the digits of the first axis, and the axes of the result in order."""

    lead: list[tuple[int, Expr]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)  # axis -> its digit
    lines: list[tuple[Axis, Extent, Expr, bool]] = field(default_factory=list)  # axis, extent, index, is shifted


def windows(
    ld: Load, rows: Collection[str], inner: Sequence[Axis], axes: Mapping[str, Axis], last: bool, multiple: int = 1
) -> Windows | None:
    """The windows of ``ld``, whose index is affine in its lines and in ``inner``; None where they need over five axes.

    ``rows``: the axes of the result that only ``ld`` has; ``last``: the axis of ``inner`` is contiguous; ``multiple``:
    of elements that the contiguous axis has, besides those of :data:`~nautilus.targets.limits.VECTOR_BYTES`.
    """
    forms = [linear(e) for e in ld.index]
    names, work = {a.name for a in inner}, _Work()
    places: list[tuple[Linear, int | None, int, int, int]] = []
    before = 0  # lines in front of the last axis of the tensor that is none
    for form in forms:
        found = _dimension(form, rows, names, axes, work)
        if found is None:
            return None
        places.append(found)
        if found[1] is None:
            before = len(work.lines)
    if len({a.name for a, *_ in work.lines}) != len(work.lines) or {a.name for a, *_ in work.lines} != {*rows}:
        return None
    return _assembled(work, places, inner, before, last, multiple)


def _dimension(
    form: Linear, rows: Collection[str], inner: Collection[str], axes: Mapping[str, Axis], work: _Work
) -> tuple[Linear, int | None, int, int, int] | None:
    """One axis of the tensor: what ``inner`` adds, the line (or None), its step, that of residues, and their digit."""
    named = {a.name: c for a, c in form.terms.items() if isinstance(a, Var)}
    line = [x for x in named if x in rows]
    own = Linear({a: c for a, c in form.terms.items() if isinstance(a, Var) and a.name in inner})
    outer = Linear({a: c for a, c in form.terms.items() if not (isinstance(a, Var) and a.name in {*inner, *rows})})
    used = frozenset[str]().union(*map(free_vars, outer.terms))
    if len(line) > 1 or any(named[x] <= 0 for x in line) or not used <= axes.keys() - {*inner, *rows}:
        return None
    if not line:
        for v in outer.terms:
            if not isinstance(v, Var) or not isinstance(axes[v.name].extent, int):
                return None
            if v.name not in work.names:
                work.names[v.name] = len(work.lead)
                work.lead.append((extent(axes[v.name]), v))
        return (own + outer).shift(form.const), None, 0, 0, -1
    if not all(isinstance(axes[x].extent, int) for x in used):
        return None
    axis, step = axes[line[0]], named[line[0]]
    low, high = bounds(_expr(outer), {x: (0, extent(axes[x]) - 1) for x in used})
    if low is None or high is None:
        return None
    shared = gcd(step, *outer.terms.values())
    low -= low % shared
    residues = step // shared if outer.terms else 1
    digit = -1
    index: Expr = Var(axis.name)
    if outer.terms:
        moved = Linear({v: c // shared for v, c in outer.terms.items()}, -low // shared)
        shift = _expr(moved)
        if residues > 1:
            digit = len(work.lead)
            work.lead.append((residues, calc("mod", shift, residues)))
            shift = calc("floordiv", shift, residues)
        index = calc("add", index, shift)
    work.lines.append((axis, total(axis.extent, (high - low) // step), index, bool(outer.terms)))
    return own.shift(form.const + low), len(work.lines) - 1, step, shared, digit


def _assembled(
    work: _Work, places: Sequence[tuple[Linear, int | None, int, int, int]], inner: Sequence[Axis],
    before: int, last: bool, multiple: int,
) -> Windows | None:  # fmt: skip
    lengths = [n for _, n, _, _ in work.lines]
    index = [e for _, _, e, _ in work.lines]
    size = prod(map(extent, inner))
    line: str | None = None
    each = lcm(multiple, VECTOR_BYTES // DType.BF16.bytes)  # parts of f32 are stored as bf16
    if last:
        size, before = -(-size // each) * each, len(lengths)
    elif work.lines[-1][3]:
        return None  # boxes would not start at multiples of 16 bytes
    else:
        lengths[-1] = rounded_up(lengths[-1], each)
        line, before = work.lines[-1][0].name, min(before, len(lengths) - 1)
    many = prod(n for n, _ in work.lead)
    merged = many > 1 and not work.lines[0][3] and len(lengths) + 3 > TENSOR_MAP_AXES  # one axis is left for parts
    shape, where = [*lengths], [*index]
    moved = int(many > 1 and not merged)  # the first axis is that of the digits
    position: Expr = integer(0)
    for n, e in work.lead:
        position = calc("add", calc("mul", position, n), e)
    position = simplify(position)
    lines: list[Expr] = [at(n + moved + (n >= before)) for n in range(len(lengths))]
    number: Expr = at(0)
    if merged:
        lines[0], number = calc("mod", at(0), lengths[0]), calc("floordiv", at(0), lengths[0])
        where[0] = calc("add", calc("mul", position, lengths[0]), index[0])
        shape[0] = volume((shape[0], many))
    shape.insert(before, size)
    where.insert(before, Var(INNER))
    if moved:
        shape.insert(0, many)
        where.insert(0, position)
    if len(shape) > TENSOR_MAP_AXES:
        return None
    place = tuple(_place(p, work, lines, number) for p in places)
    transposed = last == (places[-1][1] is not None)
    return Windows(tuple(shape), place, tuple(where), before + moved, line, transposed)


def _place(place: tuple[Linear, int | None, int, int, int], work: _Work, lines: Sequence[Expr], number: Expr) -> Expr:
    """The place along one axis of the tensor, over the place in the temp and the axes of ``inner``."""
    rest, line, step, shared, digit = place
    sizes = [n for n, _ in work.lead]
    values = dict(digits(number, [Axis(str(n), s) for n, s in enumerate(sizes)]))
    e = substitute(_expr(rest), {x: values[str(n)] for x, n in work.names.items()})
    if digit >= 0:
        e = calc("add", calc("mul", values[str(digit)], shared), e)
    if line is not None:
        e = calc("add", calc("mul", lines[line], step), e)
    return simplify(e)


def _expr(x: Linear) -> Expr:
    made: Expr = integer(x.const)
    for v, c in x.terms.items():
        made = calc("add", made, calc("mul", v, c))
    return simplify(made)

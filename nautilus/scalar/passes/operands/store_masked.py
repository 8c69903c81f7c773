"""``store-masked``: an operand of which a condition leaves out elements becomes a tensor with zeros there.

The product with a triangular or banded matrix has a condition on an axis of its rows and the contracted one::

    Y[i, m] sum= L[i, k] * X[k, m] where k <= i

``partition`` ends the loop where the condition ends, but tiles on the diagonal need a mask, and copy units load boxes
without one.  So the elements that the condition leaves out are stored as 0, which the temp states as its support
(:attr:`~nautilus.core.buffers.Buffer.support`)::

    Y_left[i, k] = L[i, k] if k <= i else 0     ;   Y[i, m] sum= Y_left[i, k] * X[k, m] where k <= i

The condition stays: it shortens the loop, and the support says that it needs no mask.  The pass applies where

* all axes of the condition are axes of the operand, which is read at axes of the product, each by itself.  The parts of
  a conjunction may be about different operands, as in a product of two triangular matrices;
* an operand of 16 bits is only converted, to types that hold all of its values, or is computed from inputs that are not
  much smaller and rounded to 16 bits.  With f32, both operands are tensors, whose parts are stored (``store-parts``);
* the operand is not computed from results of reductions, as probabilities are: one kernel may compute both;
* the condition has no number that is known only at launch, because the share of the terms that it leaves decides.  It
  may read inputs, as that of a dropout does; the estimate then assumes that it leaves all terms.

The other operand's inf and NaN stay out of the sum as those of any masked product do (``recompute-masked``).

The pass applies where warpgroup MMAs are predicted to be faster by a margin, although the temp is written and read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Param, Var, free_vars, identity, loads, substitute, walk
from nautilus.core.expr.products import strip_lossless_conversions
from nautilus.core.index.sizes import nominal, volume
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import dense_product
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.domains import admitted_share
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs
from nautilus.targets import matrix_rates, part_rates, window_rates
from nautilus.targets.limits import limits
from nautilus.targets.records import DEFAULT_TARGET

_SPREAD = 4  # elements of an operand for each one of the largest tensor that it is made from
_POINTS = 64  # positions along an axis at which a condition is evaluated


@dataclass(frozen=True, slots=True)
class StoreMasked:
    """Store masked operands.  ``arch``: the target; without warpgroup MMAs, masked tiles load as fast."""

    arch: str = DEFAULT_TARGET

    name = "store-masked"

    def apply(self, program: Program) -> Program:
        """The program with one more definition for each such operand."""
        if not limits(self.arch).warpgroup:
            return program
        for d in find_defs(program).values():
            inputs = frozenset(b.name for b in program.buffers if b.space is Space.INPUT)
            sides = _masked(d, inputs)
            if sides and _is_faster(d, sides) and not any(_is_spread(program, d, side) for side in sides):
                program = _stored(program, d, sides)
        return program


def _masked(d: Def, inputs: frozenset[str]) -> dict[int, Expr]:
    """The conditions of product ``d`` by the operand that has all of their axes; none where one has no such operand."""
    product = dense_product(d)
    if product is None or d.guard is None or not isinstance(d.value, Op):
        return {}
    if any(isinstance(e, Param) or (isinstance(e, Load) and e.buffer not in inputs) for e in walk(d.guard)):
        return {}
    elements = [_element(e) for e in d.value.args]
    types = {e.dtype for e in elements if e is not None}
    if None in elements or (DType.F32 in types and len(types) > 1):
        return {}
    red = {a.name for a in d.red}
    found: dict[int, list[Expr]] = {}
    for c in conjuncts(d.guard):
        used = free_vars(c)
        own = (product.rows, product.columns)
        sides = [n for n in (0, 1) if used & red and used & own[n] and _has_axes(elements[n], used, inputs)]
        if not sides:
            return {}
        found.setdefault(sides[0], []).append(c)
    return {side: whole for side in sorted(found) if (whole := conjunction(found[side])) is not None}


def _has_axes(e: Expr | None, used: frozenset[str], inputs: frozenset[str]) -> bool:
    """Whether the operand ``e`` is read at axes of the product, each by itself, and ``used`` are among them.

    It is a tensor, or computed from ``inputs``.
    """
    index = e.index if isinstance(e, Load) else ()
    return (
        e is not None
        and used <= free_vars(e)
        and (isinstance(e, Load) or all(ld.buffer in inputs for ld in loads(e)))
        and all(isinstance(x, Var) for x in index)
        and len(set(index)) == len(index)
    )


def _element(factor: Expr) -> Expr | None:
    """The element that a factor is: in memory, or rounded to 16 bits; None for another one."""
    if isinstance(factor, Load):
        return factor if factor.dtype is DType.F32 else None
    e = factor.args[0] if isinstance(factor, Op) and factor.op == "cast" else factor
    if not isinstance(e, Op) or isinstance(strip_lossless_conversions(e), Load):
        e = strip_lossless_conversions(factor)
    held = isinstance(e, Load) or (isinstance(e, Op) and e.op in ("narrow", "cast"))
    return e if held and e.dtype.bits == 16 and e.dtype.is_float else None


def _is_faster(d: Def, sides: Mapping[int, Expr]) -> bool:
    """Whether the product by warpgroups and the stores take less time than the product by warps, by a margin."""
    assert isinstance(d.value, Op) and d.guard is not None
    read = loads(d.guard)
    operations = 2.0 * _volume(d.axes) * (1.0 if read else admitted_share(d.guard, d.axes, _POINTS))
    wide = isinstance(d.value.args[0], Load)
    sizes = [_volume([a for a in d.axes if a.name in free_vars(e)]) for e in d.value.args]
    each = (DType.F32.bytes if wide else 2) + sum(ld.dtype.bytes for ld in read)
    stored = matrix_rates.store_seconds(each * sum(sizes[n] for n in sides), len(sides))
    if wide:
        product = part_rates.stored_seconds(operations, 1.0, sum(sizes))
    else:
        product = operations / window_rates.RATE
    by_warps = operations / (matrix_rates.MASKED_F32 if wide else matrix_rates.MASKED)
    return product + stored <= matrix_rates.MATRICES_SHARE * by_warps


def _is_spread(program: Program, d: Def, side: int) -> bool:
    """Whether the operand has many elements for each one that it is made from, as the windows of an image have."""
    assert isinstance(d.value, Op)
    operand = d.value.args[side]
    read = max((volume(program.buffer(ld.buffer).shape) for ld in loads(operand)), key=nominal, default=1)
    return _volume([a for a in d.axes if a.name in free_vars(operand)]) > _SPREAD * nominal(read)


def _converted(e: Expr, dtype: DType) -> Expr:
    return e if e.dtype is dtype else Op("cast", (e,), dtype, e.span)


def _stored(program: Program, d: Def, sides: Mapping[int, Expr]) -> Program:
    assert isinstance(d.value, Op)
    parts = list(d.value.args)
    temps: list[Def] = []
    copies: dict[tuple[str, Expr], Def] = {}  # of a tensor, by the condition at its places
    for side, condition in sides.items():
        ld = _element(parts[side])
        assert ld is not None
        sizes = {a.name: a for a in d.axes}
        index = [e.name for e in ld.index if isinstance(e, Var)] if isinstance(ld, Load) else []
        axes = tuple(sizes[x] for x in (index or [x for x in sizes if x in free_vars(ld)]))
        support = substitute(condition, {a.name: Var(f"i{n}") for n, a in enumerate(axes)})
        temp = copies.get((ld.buffer, support)) if isinstance(ld, Load) else None
        if temp is None:
            name = fresh_name(program, f"{d.name}_{('left', 'right')[side]}", [t.name for t in temps])
            element = _converted(ld, ld.dtype.compute)
            value = calc("select", condition, element, identity("sum", element.dtype))
            buffer = Buffer(name, ld.dtype, tuple(a.extent for a in axes), Space.TEMP, ld.span, support=support)
            temp = Def(name, buffer, axes, (), None, value, None, ld.span)
            temps.append(temp)
        if isinstance(ld, Load):
            copies[ld.buffer, support] = temp
        place = tuple(Var(a.name) for a in axes)
        parts[side] = _converted(Load(temp.name, place, ld.dtype, ld.span), parts[side].dtype)
    return put_defs(program, d.name, (*temps, replace(d, value=replace(d.value, args=tuple(parts)))))


def _extent(a: Axis) -> int:
    return size(a) or 1


def _volume(axes: tuple[Axis, ...] | list[Axis]) -> int:
    return prod(map(_extent, axes))

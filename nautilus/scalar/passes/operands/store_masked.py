"""``store-masked``: an operand of which a condition leaves out elements becomes a tensor with zeros there.

The product with a triangular or banded matrix has a condition on an axis of its rows and the contracted one::

    Y[i, m] sum= L[i, k] * X[k, m] where k <= i

``partition`` ends the loop where the condition ends, but tiles on the diagonal need a mask, and copy units load boxes
without one.  So the elements that the condition leaves out are stored as 0, which the temp states as its support
(:attr:`~nautilus.core.buffers.Buffer.support`)::

    Y_left[i, k] = L[i, k] if k <= i else 0     ;   Y[i, m] sum= Y_left[i, k] * X[k, m] where k <= i

The condition stays: it shortens the loop, and the support says that it needs no mask.  All axes of the condition are
axes of the operand, which is read at axes of the product, each by itself, and is converted to types that hold all of
its values, or is computed from inputs that are not much smaller and rounded to 16 bits.  An operand that is computed
from results of reductions, as probabilities are, stays: one kernel may compute both.  The condition has no number
that is known at launch only, because the share of the terms that it leaves decides.  It may read inputs, as that of a
dropout does, and is then taken to leave all terms.  The other operand's inf and NaN stay out of the sum as those of any
masked product do (``recompute-masked``).

The pass applies where warpgroup MMAs are predicted to be faster by a margin, although the temp is written and read.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Param, Var, free_vars, identity, loads, substitute, walk
from nautilus.core.expr.products import strip_lossless_conversions
from nautilus.core.index.sizes import nominal, volume
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.dense import dense_product
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.domains import admitted_share
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs
from nautilus.targets import matrix_rates, window_rates
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
            side = _masked(d, inputs)
            if side is not None and _is_faster(d, side) and not _is_spread(program, d, side):
                program = _stored(program, d, side)
        return program


def _masked(d: Def, inputs: frozenset[str]) -> int | None:
    """The operand of product ``d`` that has all axes of its condition; None where there is none."""
    product = dense_product(d)
    if product is None or d.guard is None or not isinstance(d.value, Op):
        return None
    if any(isinstance(e, Param) or (isinstance(e, Load) and e.buffer not in inputs) for e in walk(d.guard)):
        return None
    used, red = free_vars(d.guard), {a.name for a in d.red}
    found = [_element(e) for e in d.value.args]
    if None in found:
        return None
    for side, own in enumerate((product.rows, product.columns)):
        e = found[side]
        assert e is not None
        index = e.index if isinstance(e, Load) else ()
        plain = all(isinstance(x, Var) for x in index) and len(set(index)) == len(index)
        made = isinstance(e, Load) or all(ld.buffer in inputs for ld in loads(e))
        if plain and made and used & red and used & own and used <= free_vars(e):
            return side
    return None


def _element(factor: Expr) -> Expr | None:
    """The element of 16 bits that a factor is, in memory or rounded; None for another one."""
    e = factor.args[0] if isinstance(factor, Op) and factor.op == "cast" else factor
    if not isinstance(e, Op) or isinstance(strip_lossless_conversions(e), Load):
        e = strip_lossless_conversions(factor)
    held = isinstance(e, Load) or (isinstance(e, Op) and e.op in ("narrow", "cast"))
    return e if held and e.dtype.bits == 16 and e.dtype.is_float else None


def _is_faster(d: Def, side: int) -> bool:
    """Whether the product by warpgroups and the store take less time than the product by warps, by a margin."""
    assert isinstance(d.value, Op) and d.guard is not None
    mine = free_vars(d.value.args[side])
    read = loads(d.guard)
    operations = 2.0 * _volume(d.axes) * (1.0 if read else admitted_share(d.guard, d.axes, _POINTS))
    bytes_each = 2 + sum(ld.dtype.bytes for ld in read)
    stored = matrix_rates.store_seconds(bytes_each * _volume([a for a in d.axes if a.name in mine]), 1)
    by_warps = operations / matrix_rates.MASKED
    return operations / window_rates.RATE + stored <= matrix_rates.MATRICES_SHARE * by_warps


def _is_spread(program: Program, d: Def, side: int) -> bool:
    """Whether the operand has many elements for each one that it is made from, as the windows of an image have."""
    assert isinstance(d.value, Op)
    operand = d.value.args[side]
    read = max((volume(program.buffer(ld.buffer).shape) for ld in loads(operand)), key=nominal, default=1)
    return _volume([a for a in d.axes if a.name in free_vars(operand)]) > _SPREAD * nominal(read)


def _stored(program: Program, d: Def, side: int) -> Program:
    assert isinstance(d.value, Op) and d.guard is not None
    factors = list(d.value.args)
    ld = _element(factors[side])
    assert ld is not None
    sizes = {a.name: a for a in d.axes}
    names = [e.name for e in ld.index if isinstance(e, Var)] if isinstance(ld, Load) else sizes.keys() & free_vars(ld)
    axes = tuple(sizes[x] for x in (names if isinstance(ld, Load) else sizes) if x in names)
    name = fresh_name(program, f"{d.name}_{('left', 'right')[side]}")
    element = Op("cast", (ld,), ld.dtype.compute, ld.span)
    value = calc("select", d.guard, element, identity("sum", element.dtype))
    support = substitute(d.guard, {a.name: Var(f"i{n}") for n, a in enumerate(axes)})
    buffer = Buffer(name, ld.dtype, tuple(a.extent for a in axes), Space.TEMP, ld.span, support=support)
    temp = Def(name, buffer, axes, (), None, value, None, ld.span)
    load = Load(name, temp.index, ld.dtype, ld.span)
    factors[side] = Op("cast", (load,), factors[side].dtype, ld.span)
    return put_defs(program, d.name, (temp, replace(d, value=replace(d.value, args=tuple(factors)))))


def _extent(a: Axis) -> int:
    return size(a) or 1


def _volume(axes: tuple[Axis, ...] | list[Axis]) -> int:
    return prod(map(_extent, axes))

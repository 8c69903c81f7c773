"""Operands of convolutions that are computed become tensors, of which the windows are then those of any tensor.

Every tap computes the element of an operand again, and no copy unit loads it::

    Y[b, k, y, x] sum= relu(X[b, c, y + r, x + s] * g[c]) * F[k, c, r, s]

    Y_places[b, c, u, v] = relu(X[b, c, u, v] * g[c])
    Y[b, k, y, x] sum= Y_places[b, c, y + r, x + s] * F[k, c, r, s]

So does a tensor that is read at a function of the position, as with reflected or circular padding, and a factor beside
windows of a tensor, such as a basis of a transform that is computed from positions.

So is a tensor that the product converts, such as pixels of 8 bits, or one of 16 bits beside weights of f32.

The type of the stored tensor is the one that the product reads, so that nothing is rounded twice.  The operand is
stored where each element is one of :data:`AGAIN` terms at least, the product has :data:`TERMS`, and every place is an
element of the tensors that it is computed from.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.nodes import Expr, Load, Op, Var, free_vars, loads
from nautilus.core.expr.products import strip_conversions
from nautilus.core.index.linear import linear
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import dense_product
from nautilus.scalar.analysis.definitions import Def, points
from nautilus.scalar.analysis.masking import certainly_in_range
from nautilus.scalar.analysis.ranges.precision import SHORT
from nautilus.scalar.analysis.ranges.window_places import Places, window_places
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import equal_temp, find_defs, fresh_name, put_defs

AGAIN = 64  # terms of which an element is an operand
TERMS = 1 << 27  # terms of the smallest product: warps take longer for it than two launches


def with_computed_windows(program: Program, name: str, in_parts: bool) -> Program:
    """``program`` where the product ``name`` reads tensors in windows; ``in_parts``: those of f32 have parts."""
    for side in (0, 1):
        program = _stored(program, name, side, in_parts)
    return program


def _stored(program: Program, name: str, side: int, in_parts: bool) -> Program:
    d = find_defs(program)[name]
    if dense_product(d) is None or not isinstance(d.value, Op):
        return program
    factor, other = d.value.args[side], d.value.args[1 - side]
    dtype = _dtype(factor, other, in_parts) or _padded(factor, in_parts)
    found = None if dtype is None else window_places(d, factor) or _beside_windows(d, factor, other)
    if dtype is None or found is None or all(a.name in found.positions for a in found.red):
        return program  # without channels, a tile has the rows of a Toeplitz matrix
    used = free_vars(found.element)
    axes = [a for a in (*found.par, *found.red) if a.name in used]
    terms, shapes = points(d.axes), {b.name: b.shape for b in program.buffers}
    if terms < max(TERMS, AGAIN * points(axes)):
        return program
    if not certainly_in_range(found.element, shapes, {a.name: a.extent for a in axes}):
        return program
    largest = max(loads(found.element), key=lambda ld: len(free_vars(ld)), default=None)
    place = {x: n for n, e in enumerate(largest.index if largest is not None else ()) for x in free_vars(e)}
    axes.sort(key=lambda a: place.get(a.name, -1))
    made = fresh_name(program, f"{name}_places", [a.name for a in d.axes])
    buffer = Buffer(made, dtype, tuple(a.extent for a in axes), Space.TEMP, factor.span)
    temp = replace(
        d, name=made, buffer=buffer, par=tuple(axes), red=(), op=None, value=found.element, guard=None, at=None
    )
    known = equal_temp(program, temp, name)
    index = tuple(found.positions.get(a.name, Var(a.name)) for a in axes)
    read: Expr = Load(known or made, index, dtype, factor.span)
    if dtype is not factor.dtype:
        read = Op("cast", (read,), factor.dtype, factor.span)
    factors = tuple(read if n == side else e for n, e in enumerate(d.value.args))
    product = replace(d, value=replace(d.value, args=factors))
    return put_defs(program, name, (product,) if known else (temp, product))


def _beside_windows(d: Def, factor: Expr, other: Expr) -> Places | None:
    """``factor`` over its axes, where it has no windows and the ``other`` factor of ``d`` is a tensor that has some."""
    par, red = ({a.name for a in axes} for axes in (d.par, d.red))

    def slides(e: Expr) -> bool:
        return any(free_vars(x) & par and free_vars(x) & red for ld in loads(e) for x in ld.index)

    tensor = isinstance(strip_conversions(other), Load)
    return Places(factor, None, d.par, d.red, {}) if tensor and slides(other) and not slides(factor) else None


def _padded(factor: Expr, in_parts: bool) -> DType | None:
    """The type of a tensor that is read at functions of positions, as with reflected padding; None for others."""
    ld = strip_conversions(factor)
    atoms = (a for e in (ld.index if isinstance(ld, Load) else ()) for a in linear(e).terms)
    if not any(not isinstance(a, Var) and not loads(a) for a in atoms):
        return None
    return ld.dtype if ld.dtype.is_half or (ld.dtype is DType.F32 and in_parts) else None


def _dtype(factor: Expr, other: Expr, in_parts: bool) -> DType | None:
    """The type of ``factor`` in memory, where it is computed or converted; None for a tensor that the product reads.

    ``other``: the factor beside it, with which a tensor of another type becomes one of f32.
    """
    own, beside, tensor = _rounded(factor), _rounded(other), strip_conversions(factor)
    if own is not None or not isinstance(factor, Op) or factor.dtype is not DType.F32:
        return own
    if beside is not None and isinstance(tensor, Load):  # 16 bits hold a tensor of 8 exactly
        return beside if tensor.dtype in SHORT else None
    wide = not isinstance(tensor, Load) or strip_conversions(other).dtype is DType.F32
    return DType.F32 if in_parts and wide else None


def _rounded(factor: Expr) -> DType | None:
    """The type of 16 bits to which ``factor`` is rounded; None where it is none."""
    match factor:
        case Op(op="cast", args=(Op(op="narrow" | "cast", dtype=dtype),)) if dtype.is_half:
            return dtype
    return None

"""``sink-masks``: removes masks after masked loads, and that of an exponential whose argument is masked to -inf.

A load gives 0 where its mask is false, and a conversion keeps that, so ``select c, cast(load X[i] where c and d), 0``
is the conversion.

Where a running maximum is taken over masked scores, the scores are masked twice::

    y = select c, x, -inf;  M = max(_, reduce max y over j);  r = select(M == -inf, 0, M)
    e = exp2(fma x, k, r * -k);  z = select c, e, 0

With k > 0 the first mask implies the second: ``z = exp2(fma y, k, r * -k)`` is exp2(-inf) = 0 wherever c is false,
because ``r * -k`` is never +inf (the inner select excludes r = -inf).  If r is NaN or +inf, so is some score that c
admits, in this block or in the carried maximum, and the sums over j that read z are NaN with and without the second
mask.  Therefore all readers of z must be such sums.  The pass saves one select on every masked element, and the live
range of the mask through the reduction.
"""

from __future__ import annotations

from nautilus.core.index.simplify import conjuncts
from nautilus.core.records import dataclass
from nautilus.vr_tile.ir import (
    DotOp,
    ForOp,
    IndexOp,
    LoadOp,
    MapOp,
    ReduceOp,
    TileKernel,
    TileModule,
    TileOp,
    Value,
    operands,
    walk_ops,
)
from nautilus.vr_tile.rewriting import Peephole, each_kernel


@dataclass(frozen=True, slots=True)
class SinkMasks:
    """Remove masks of exponentials whose arguments are masked."""

    name = "sink-masks"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with masks after exponentials of masked scores removed."""
        return each_kernel(module, _kernel)


def _kernel(k: TileKernel) -> TileKernel:
    readers: dict[str, list[TileOp]] = {}
    for op in walk_ops(k.body):
        read = (*operands(op), *op.yields) if isinstance(op, ForOp) else operands(op)
        for v in read:
            readers.setdefault(v.name, []).append(op)
    return Peephole(k).run(lambda p, op: _rule(p, op, readers))


def _rule(p: Peephole, op: TileOp, readers: dict[str, list[TileOp]]) -> Value | None:
    """The value that replaces ``select c, x, 0``, or None."""
    if not (isinstance(op, MapOp) and op.op == "select" and _is_zero(p, op.args[2])):
        return None
    if _is_zero_without(p, op.args[0], op.args[1]) and op.args[1].type == op.result.type:
        return op.args[1]
    return _exponential(p, op, readers)


def _is_zero(p: Peephole, v: Value) -> bool:
    made = p.producer(v)
    return p.constant(made.args[0] if isinstance(made, MapOp) and made.op in ("cast", "narrow") else v) == 0.0


def _is_zero_without(p: Peephole, cond: Value, x: Value) -> bool:
    """Whether ``x`` is a load, maybe converted, whose mask excludes all that ``cond`` excludes."""
    test, made = p.producer(cond), p.producer(x)
    while isinstance(made, MapOp) and made.op == "cast":
        made = p.producer(made.args[0])
    if not (isinstance(test, IndexOp) and isinstance(made, LoadOp) and made.mask is not None):
        return False
    return set(conjuncts(test.expr)) <= set(conjuncts(made.mask))


def _exponential(p: Peephole, op: MapOp, readers: dict[str, list[TileOp]]) -> Value | None:
    """The value that replaces ``select c, exp2(fma x k b), 0``, or None."""
    cond = op.args[0]
    power = p.producer(op.args[1])
    if not (isinstance(power, MapOp) and power.op == "exp2"):
        return None
    affine = p.producer(power.args[0])
    if not (isinstance(affine, MapOp) and affine.op == "fma"):
        return None
    x, k, bias = affine.args
    scale = p.constant(k)
    masked = _masked(p, cond, x)
    if scale is None or scale <= 0 or masked is None:
        return None
    axes = _bounded_by(p, bias, masked)
    if axes is None or not _only_summed(op.result, axes, readers):
        return None
    return p.map("exp2", [p.map("fma", [masked, k, bias])])


def _masked(p: Peephole, cond: Value, x: Value) -> Value | None:
    """An earlier value that is ``select cond, x, -inf``, or None."""
    for op in p.defs.values():
        if not isinstance(op, MapOp) or op.op != "select" or op.args[:2] != (cond, x):
            continue
        if p.constant(op.args[2]) == float("-inf"):
            return op.result
    return None


def _bounded_by(p: Peephole, bias: Value, masked: Value) -> frozenset[str] | None:
    """The axes of the maximum over ``masked`` from which ``bias`` is computed with a guard against -inf, or None."""
    product = p.producer(bias)
    if not (isinstance(product, MapOp) and product.op == "mul"):
        return None
    factor = p.constant(product.args[1])
    guarded = p.producer(product.args[0])
    if factor is None or factor >= 0 or not (isinstance(guarded, MapOp) and guarded.op == "select"):
        return None
    test, zero, top = guarded.args
    compare = p.producer(test)
    if p.constant(zero) != 0.0 or not (isinstance(compare, MapOp) and compare.op == "eq" and compare.args[0] == top):
        return None
    if p.constant(compare.args[1]) != float("-inf"):
        return None
    return _maximum_of(p, top, masked)


def _maximum_of(p: Peephole, top: Value, masked: Value) -> frozenset[str] | None:
    """The axes over which ``top`` is the maximum of ``masked`` (scaled by positive constants) and other values."""
    op = p.producer(top)
    match op:
        case ReduceOp(combiner="max", arg=arg, axes=axes) if arg == masked:
            return frozenset(axes)
        case MapOp(op="max", args=(a, b)):
            return _maximum_of(p, a, masked) or _maximum_of(p, b, masked)
        case MapOp(op="mul", args=(a, b)):
            c = p.constant(b)
            return _maximum_of(p, a, masked) if c is not None and c > 0 else None
        case _:
            return None


def _only_summed(z: Value, axes: frozenset[str], readers: dict[str, list[TileOp]]) -> bool:
    """Whether every reader of ``z``, also through casts, sums over ``axes``."""
    for op in readers.get(z.name, []):
        match op:
            case ReduceOp(combiner="sum", axes=over) if axes <= set(over):
                continue
            case DotOp(axes=over, acc=acc) if axes <= set(over) and acc != z:
                continue
            case MapOp(op="narrow" | "cast") if _only_summed(op.result, axes, readers):
                continue
        return False
    return True

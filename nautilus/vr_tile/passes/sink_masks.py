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

The reference may be ``max(u, r)`` with a ``u`` that does not depend on the scores, such as a sink.  ``u = +inf`` gives
exp2(-inf) as well.  A ``u`` that is NaN makes z NaN in rows where c admits nothing, so each sum must be added to
``mul(_, f)``, where f is NaN wherever the reference is: then the total is NaN in such a row with the second mask too.

A scale after the guard makes r = -inf only where it makes each admitted score -inf.  Their exponentials are then inf,
so that a total is not finite with and without the second mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    maps: dict[str, MapOp] = {}
    for op in walk_ops(k.body):
        read = (*operands(op), *op.yields) if isinstance(op, ForOp) else operands(op)
        for v in read:
            readers.setdefault(v.name, []).append(op)
        if isinstance(op, MapOp):
            maps[op.result.name] = op
    uses = _Uses(readers, maps)
    return Peephole(k).run(lambda p, op: _rule(p, op, uses))


@dataclass(frozen=True, slots=True)
class _Uses:
    """The readers of each value, and the maps that make values, those behind an op too, by name."""

    readers: Mapping[str, Sequence[TileOp]]
    maps: Mapping[str, MapOp]


def _rule(p: Peephole, op: TileOp, uses: _Uses) -> Value | None:
    """The value that replaces ``select c, x, 0``, or None."""
    if not (isinstance(op, MapOp) and op.op == "select" and _is_zero(p, op.args[2])):
        return None
    if _is_zero_without(p, op.args[0], op.args[1]) and op.args[1].type == op.result.type:
        return op.args[1]
    return _exponential(p, op, uses)


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


def _exponential(p: Peephole, op: MapOp, uses: _Uses) -> Value | None:
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
    found = _reference(p, bias, masked)
    if found is None or not _only_summed(op.result, found, uses):
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


@dataclass(frozen=True, slots=True)
class _Reference:
    """``value`` is at least the maximum over ``axes`` of the masked scores, times positive constants.

    Where that maximum is -inf, 0 stands for it.  ``apart``: the value may be NaN where no score is.
    """

    value: Value
    axes: frozenset[str]
    apart: bool


def _reference(p: Peephole, bias: Value, masked: Value) -> _Reference | None:
    """The reference that ``bias`` has with a negative factor, or None."""
    product = p.producer(bias)
    if not (isinstance(product, MapOp) and product.op == "mul"):
        return None
    factor = p.constant(product.args[1])
    return _guarded(p, product.args[0], masked) if factor is not None and factor < 0 else None


def _guarded(p: Peephole, v: Value, masked: Value) -> _Reference | None:
    """``v`` as the maximum over ``masked`` with a guard against -inf, maybe scaled or beside another value."""
    match p.producer(v):
        case MapOp(op="max", args=(a, b)):
            found = _guarded(p, a, masked) or _guarded(p, b, masked)
            return found and _Reference(v, found.axes, apart=True)
        case MapOp(op="mul", args=(a, b)):
            c = p.constant(b)
            found = _guarded(p, a, masked) if c is not None and c > 0 else None
            return found and _Reference(v, found.axes, found.apart)
        case MapOp(op="select", args=(test, zero, top)):
            compare = p.producer(test)
            if p.constant(zero) != 0.0 or not (isinstance(compare, MapOp) and compare.op == "eq"):
                return None
            if compare.args[0] != top or p.constant(compare.args[1]) != float("-inf"):
                return None
            axes = _maximum_of(p, top, masked)
            return None if axes is None else _Reference(v, axes, apart=False)
        case _:
            return None


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


def _only_summed(z: Value, found: _Reference, uses: _Uses) -> bool:
    """Whether every reader of ``z``, also through casts, sums over the axes and is NaN where it has to be."""
    for op in uses.readers.get(z.name, ()):
        match op:
            case ReduceOp(combiner="sum", axes=over) if found.axes <= set(over):
                if not found.apart or _is_added(op.result, found, uses):
                    continue
            case DotOp(axes=over, acc=acc) if found.axes <= set(over) and acc != z:
                if not found.apart or (acc is not None and _is_rescaled(acc, found, uses)):
                    continue
            case MapOp(op="narrow" | "cast") if _only_summed(op.result, found, uses):
                continue
        return False
    return True


def _is_added(total: Value, found: _Reference, uses: _Uses) -> bool:
    """Whether every reader of ``total`` adds it to a rescaled sum."""
    return all(
        isinstance(r, MapOp) and r.op == "add" and any(a != total and _is_rescaled(a, found, uses) for a in r.args)
        for r in uses.readers.get(total.name, ())
    )


def _is_rescaled(v: Value, found: _Reference, uses: _Uses) -> bool:
    """Whether ``v`` is a product with a factor that is NaN where the reference is."""
    made = uses.maps.get(v.name)
    return made is not None and made.op == "mul" and any(_is_nan_with(a, found, uses) for a in made.args)


def _is_nan_with(v: Value, found: _Reference, uses: _Uses) -> bool:
    """Whether ``v`` is NaN wherever the reference is: it is made from it by operations that keep NaN."""
    todo, seen = [v], set[str]()
    while todo:
        x = todo.pop()
        if x == found.value:
            return True
        made = uses.maps.get(x.name)
        if x.name not in seen and made is not None and made.op in ("add", "sub", "mul", "fma", "neg", "exp2"):
            todo += made.args
        seen.add(x.name)
    return False

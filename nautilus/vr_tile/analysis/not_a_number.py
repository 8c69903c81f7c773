"""Where the NaN of a value is still seen at the end of a kernel.

A NaN stays one through additions, products and quotients.  :func:`finished` follows a value through such operations and
through loops that carry it.  A ``select`` that leaves a value out where a condition is false, such as one of rows,
loses only what nothing depends on, if nothing else uses the value.
"""

from __future__ import annotations

from collections import Counter

from nautilus.vr_tile.ir import DotOp, ForOp, MapOp, TileKernel, TileOp, Value, operands, results, walk_ops

#: functions that are NaN where one of their arguments is
_KEEP = frozenset({"add", "sub", "mul", "div", "fma", "neg", "mul_unless_one"})


def finished(k: TileKernel, v: Value) -> Value | None:
    """A value outside of all loops of ``k`` that is NaN wherever ``v`` was NaN, and used, in any iteration.

    None if none is known.  ``v`` is defined by an op of ``k``.
    """
    uses = Counter(x.name for op in walk_ops(k.body) for x in (*operands(op), *_yields(op)))
    found = _outside(k.body, v, uses)
    return None if found is None else _later(k.body, found, uses)


def _yields(op: TileOp) -> tuple[Value, ...]:
    return op.yields if isinstance(op, ForOp) else ()


def _outside(body: tuple[TileOp, ...], v: Value, uses: Counter[str]) -> Value | None:
    """The value of ``body`` in which ``v``, defined in it or in its loops, ends."""
    for op in body:
        if v in results(op):
            return v
        if isinstance(op, ForOp) and (inner := _outside(op.body, v, uses)) is not None:
            return _yielded(op, inner, uses)
    return None


def _yielded(loop: ForOp, v: Value, uses: Counter[str]) -> Value | None:
    """The result of ``loop`` that is NaN where ``v``, defined in its body, was NaN in any iteration."""
    kept = _keepers(loop.body, v, uses)
    for result, (arg, _), y in zip(loop.results, loop.carried, loop.yields, strict=True):
        if y.name in kept and y.name in _keepers(loop.body, arg, uses):
            return result
    return None


def _later(body: tuple[TileOp, ...], v: Value, uses: Counter[str]) -> Value:
    """The result of the last loop of ``body`` that carries ``v`` on, else ``v``."""
    for op in body:
        if isinstance(op, ForOp):
            for result, (arg, init), y in zip(op.results, op.carried, op.yields, strict=True):
                kept, within = _keepers(body, v, uses), _keepers(op.body, arg, uses)
                if init.name in kept and y.name in within and y.type == v.type:
                    v = result
    return v


def _keepers(body: tuple[TileOp, ...], v: Value, uses: Counter[str]) -> set[str]:
    """``v`` and the values of ``body`` that are NaN at each point where ``v`` is NaN and used.

    ``uses``: of each value in the kernel.
    """
    found, alone = {v.name}, {v.name}  # alone: all that depends on v is one value after the other up to this one
    for op in body:
        alone = {n for n in alone if uses[n] == 1}
        match op:
            case MapOp(op="select", args=(_, *args), result=r):
                carrying = [a.name for a in args if a.name in found and a.type.axes == r.type.axes]
                kept = len(carrying) == 2 or any(n in alone for n in carrying)
            case MapOp(op=name, args=args, result=r):
                carrying = [a.name for a in args if a.name in found and a.type.axes == v.type.axes]
                kept = name in _KEEP and bool(carrying) and r.type.axes == v.type.axes
            case DotOp(acc=acc, result=r) if acc is not None and acc.name in found:
                carrying, kept = [acc.name], True
            case _:
                continue
        if kept:
            found.add(r.name)
            if alone.issuperset(carrying):
                alone.add(r.name)
    return found

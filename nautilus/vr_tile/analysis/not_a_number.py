"""Where the NaN of a value is still seen at the end of a kernel.

A NaN stays one through additions, products and quotients.  :func:`finished` follows a value through such operations and
through loops that carry it.
"""

from __future__ import annotations

from nautilus.vr_tile.ir import DotOp, ForOp, MapOp, TileKernel, TileOp, Value, results

#: functions that are NaN where one of their arguments is
_KEEP = frozenset({"add", "sub", "mul", "div", "fma", "neg", "mul_unless_one"})


def finished(k: TileKernel, v: Value) -> Value | None:
    """A value outside of all loops of ``k`` that is NaN wherever ``v`` was NaN in any iteration; None if none is known.

    ``v`` is defined by an op of ``k``.
    """
    found = _outside(k.body, v)
    return None if found is None else _later(k.body, found)


def _outside(body: tuple[TileOp, ...], v: Value) -> Value | None:
    """The value of ``body`` in which ``v``, defined in it or in its loops, ends."""
    for op in body:
        if v in results(op):
            return v
        if isinstance(op, ForOp) and (inner := _outside(op.body, v)) is not None:
            return _yielded(op, inner)
    return None


def _yielded(loop: ForOp, v: Value) -> Value | None:
    """The result of ``loop`` that is NaN where ``v``, defined in its body, was NaN in any iteration."""
    kept = _keepers(loop.body, v)
    for result, (arg, _), y in zip(loop.results, loop.carried, loop.yields, strict=True):
        if y.name in kept and y.name in _keepers(loop.body, arg):
            return result
    return None


def _later(body: tuple[TileOp, ...], v: Value) -> Value:
    """The result of the last loop of ``body`` that carries ``v`` on, else ``v``."""
    for op in body:
        if isinstance(op, ForOp):
            for result, (arg, init), y in zip(op.results, op.carried, op.yields, strict=True):
                if init.name in _keepers(body, v) and y.name in _keepers(op.body, arg) and y.type == v.type:
                    v = result
    return v


def _keepers(body: tuple[TileOp, ...], v: Value) -> set[str]:
    """``v`` and the values of ``body`` that are NaN at each point where ``v`` is."""
    found = {v.name}
    for op in body:
        match op:
            case MapOp(op=name, args=args, result=r):
                carries = name in _KEEP and any(a.name in found and a.type.axes == v.type.axes for a in args)
                if carries and r.type.axes == v.type.axes:
                    found.add(r.name)
            case DotOp(acc=acc, result=r) if acc is not None and acc.name in found:
                found.add(r.name)
    return found

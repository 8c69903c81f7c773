"""Faults of a module, one at a time: an operator, a constant, an index, a mask, a bound, a combiner, operand order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from nautilus.core.expr.nodes import Const, Op, Var
from nautilus.core.types import DType
from nautilus.scalar.ir import Kernel, Loop, Store, Update
from nautilus.vr_tile.ir import ConstOp, ForOp, LoadOp, MapOp, ReduceOp, StoreOp, TileKernel

_OTHER = {
    "add": "sub", "sub": "add", "mul": "add", "div": "mul", "max": "min", "min": "max", "exp": "exp2", "exp2": "exp",
    "lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "and": "or", "rcp": "neg", "neg": "abs", "fma": "fma",
    "floordiv": "mod", "mod": "floordiv", "sqrt": "rsqrt", "rsqrt": "sqrt", "tanh": "sigmoid", "sigmoid": "tanh",
}  # fmt: skip
_OTHER_COMBINER = {"sum": "max", "max": "min", "min": "max", "prod": "sum", "any": "all", "all": "any"}
_ONE_WAY = frozenset({"sub", "div", "floordiv", "mod", "lt", "le", "gt", "ge", "fma", "select", "pow"})


@dataclass(frozen=True)
class Fault:
    """What was changed, and the module with the fault."""

    kind: str
    at: str
    module: Any


def faults(module: Any) -> Iterator[Fault]:
    """Every module that differs from ``module`` by one fault in a kernel."""
    for k, kernel in enumerate(module.kernels):
        for kind, at, changed in inside(kernel):
            kernels = (*module.kernels[:k], changed, *module.kernels[k + 1 :])
            yield Fault(kind, at, replace(module, kernels=kernels))


def inside(node: Any) -> Iterator[tuple[str, str, Any]]:
    """``node`` with one fault in itself or in a part of it."""
    yield from ((kind, type(node).__name__, new) for kind, new in _own(node))
    if isinstance(node, tuple):
        for k, item in enumerate(node):
            for kind, at, new in inside(item):
                yield kind, at, (*node[:k], new, *node[k + 1 :])
    elif is_dataclass(node) and not isinstance(node, DType):
        for f in fields(node):
            if f.name in ("span", "locals", "axes", "result", "results", "type", "yields", "carried"):
                continue
            for kind, at, new in inside(getattr(node, f.name)):
                yield kind, at, replace(node, **{f.name: new})  # type: ignore[type-var]


def _own(node: Any) -> Iterator[tuple[str, Any]]:
    match node:
        case Const(value=bool()) | Kernel() | TileKernel():
            return
        case Const(value=v) | ConstOp(value=v) if not isinstance(v, bool):
            if v in (float("inf"), float("-inf")):
                yield "constant", replace(node, value=0.0)
            else:
                yield "constant", replace(node, value=v + 1)
                if isinstance(v, float) and v != 0.0:
                    yield "constant", replace(node, value=v * (1 + 2.0**-14))
        case Op(op=op, args=args) | MapOp(op=op, args=args):
            if op in _OTHER and _OTHER[op] != op:
                yield "operator", replace(node, op=_OTHER[op])
            if op in _ONE_WAY and args[-1] != args[-2] and _same_type(args[-1], args[-2]):
                swapped: Any = (*args[:-2], args[-1], args[-2])
                yield "operand order", replace(node, args=swapped)
        case Var(dtype=dtype):
            yield "index", Op("add", (node, Const(1, dtype)), dtype)
        case Update(op=op):
            yield "combiner", replace(node, op=_OTHER_COMBINER[op])
        case ReduceOp(combiner=op):
            yield "combiner", replace(node, combiner=_OTHER_COMBINER[op])
        case Loop(hi=hi) | ForOp(hi=hi):
            yield "bound", replace(node, hi=Op("sub", (hi, Const(1, hi.dtype)), hi.dtype))
    match node:
        case Store(guard=guard) | Update(guard=guard) if guard is not None:
            yield "mask", replace(node, guard=None)
            yield "mask", replace(node, guard=Op("not", (guard,), DType.BOOL))
        case LoadOp(mask=mask) | StoreOp(mask=mask) if mask is not None:
            yield "mask", replace(node, mask=Op("not", (mask,), DType.BOOL))


def _same_type(a: Any, b: Any) -> bool:
    return bool(a.dtype == b.dtype) if hasattr(a, "dtype") else bool(a.type.dtype == b.type.dtype)


def leaves(node: Any) -> Iterator[tuple[str, Any]]:
    """``node``, which is JSON data, with one leaf changed; the path of the leaf."""
    match node:
        case dict():
            for key, value in node.items():
                yield from ((f".{key}{path}", {**node, key: new}) for path, new in leaves(value))
        case list():
            for k, value in enumerate(node):
                yield from ((f"[{k}]{path}", [*node[:k], new, *node[k + 1 :]]) for path, new in leaves(value))
            yield "[]", [*node, *node[-1:]] if node else [""]
        case str():
            yield "", node + " "
        case int() | float():
            yield "", node + 1

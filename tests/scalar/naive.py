"""A second, simple interpreter of the Scalar IR for tests, in which all loops are Python loops.

Works over the reals (float64): ``narrow`` and rounding casts between floats are skipped.  Reading
an element that was never written is an error, as the IR's contract says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from nautilus.core.buffers import Buffer, extents
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Var
from nautilus.core.types import DType
from nautilus.scalar.ir import Kind, Loop, Program, Stmt, Store, Update

_BINARY = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "floordiv": "({} // {})", "mod": "({} % {})",
    "lt": "({} < {})", "le": "({} <= {})", "gt": "({} > {})", "ge": "({} >= {})", "eq": "({} == {})",
    "ne": "({} != {})", "and": "({} and {})", "or": "({} or {})", "not": "(not {})", "neg": "(-{})",
    "select": "({1} if {0} else {2})",
}  # fmt: skip


def _div(a: float, b: float) -> float:
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def _exp(a: float, base: float = math.e) -> float:
    try:
        return math.exp(a) if base == math.e else 2.0**a
    except OverflowError:
        return math.inf


def _log(a: float) -> float:
    return math.log(a) if a > 0 else (-math.inf if a == 0 else math.nan)


def _peak(a: Any, b: Any, sign: int) -> Any:
    if a != a or b != b:
        return math.nan
    return max(a, b) if sign > 0 else min(a, b)


_NAMES: dict[str, Any] = {
    "div": _div, "exp": _exp, "exp2": lambda a: _exp(a, 2.0), "log": _log, "log2": lambda a: _log(a) / math.log(2),
    "max": lambda a, b: _peak(a, b, 1), "min": lambda a, b: _peak(a, b, -1), "sqrt": math.sqrt,
    "rsqrt": lambda a: _div(1.0, math.sqrt(a)), "rcp": lambda a: _div(1.0, a), "tanh": math.tanh, "pow": pow,
    "sigmoid": lambda a: 1 / (1 + _exp(-a)), "abs": abs, "erf": math.erf, "sin": math.sin, "cos": math.cos,
    "sign": lambda a: (a > 0) - (a < 0), "floor": math.floor, "ceil": math.ceil, "round": round,
    "fma": lambda a, b, c: a * b + c, "inf": math.inf, "nan": math.nan, "check": None,
}  # fmt: skip


def _text(e: Expr) -> str:
    match e:
        case Const(value=v):
            return repr(v) if not isinstance(v, float) or math.isfinite(v) else f"({v!r})"
        case Var(name=n) | Param(name=n):
            return f"v_{n}"
        case Load(buffer=b, index=index):
            return f"g_{b}[{_at(index)}]"
        case Op(op="cast", args=(a,)):
            if e.dtype.is_int and e.args[0].dtype.is_float:
                return f"int({_text(a)})"
            return f"float({_text(a)})" if e.dtype.is_float else f"int({_text(a)})" if e.dtype.is_int else _text(a)
        case Op(op="narrow", args=(a,)):
            return _text(a)
        case Op(op=op, args=args):
            texts = [_text(a) for a in args]
            return _BINARY[op].format(*texts) if op in _BINARY else f"{op}({', '.join(texts)})"
    raise TypeError(type(e))


def _at(index: tuple[Expr, ...]) -> str:
    return "(" + "".join(_text(e) + ", " for e in index) + ")"


def _inside(indices: tuple[int, ...], size: int) -> bool:
    return min(indices) >= 0 and max(indices) < size


class Elements(dict[tuple[int, ...], Any]):
    """A buffer by element. Reading an element that is not written is a KeyError with a message.

    What is written out of range is an IndexError where the buffer is left, at the end of a block or a kernel: a check
    of each write would take most of the time, as sums write an element once for each term.
    """

    def __init__(self, buffer: Buffer, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.name = buffer.name
        self.shape = extents(buffer.shape, sizes)

    def __missing__(self, key: tuple[int, ...]) -> Any:
        raise KeyError(f"{self.name}{list(key)} was never written (shape {self.shape})")

    def verify(self) -> None:
        axes = [*zip(*self, strict=True)]  # the smallest and the largest of each: one comparison a key takes long
        if self and not (len(axes) == len(self.shape) and all(map(_inside, axes, self.shape))):
            raise IndexError(f"an element of {self.name} lies outside {self.shape}")

    def clear(self) -> None:
        self.verify()
        super().clear()


def _lines(s: Stmt, depth: int, locals_: tuple[Buffer, ...]) -> list[str]:
    pad = "    " * depth
    if isinstance(s, Loop):
        reset = []
        if s.kind is Kind.GRID:
            reset = [f"{pad}    g_{b.name}.clear()" for b in locals_]
        body = [line for inner in s.body for line in _lines(inner, depth + 1, locals_)]
        return [f"{pad}for v_{s.var} in range({_text(s.lo)}, {_text(s.hi)}):", *reset, *body]
    out = []
    if s.guard is not None:
        out.append(f"{pad}if {_text(s.guard)}:")
        pad += "    "
    match s:
        case Store():
            out.append(f"{pad}g_{s.buffer}[{_at(s.index)}] = {_text(s.value)}")
        case Update():
            out.append(f"{pad}at = {_at(s.index)}")
            cell = f"g_{s.buffer}[at]"
            form = {"sum": "{} + {}", "prod": "{} * {}", "max": "max({}, {})", "min": "min({}, {})"}
            form |= {"any": "{} or {}", "all": "{} and {}"}
            out.append(f"{pad}{cell} = " + form[s.op].format(cell, f"({_text(s.value)})"))
    return out


def _places(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return product(*map(range, shape))


def run(program: Program, inputs: Mapping[str, Any], params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The outputs of ``program`` as float64 (int64) arrays."""
    values = {p.name: p.default for p in program.params} | dict(params or {})
    names = dict(_NAMES) | {f"v_{k}": v for k, v in values.items()}
    memory: dict[str, Elements] = {}
    for b in program.buffers:
        memory[b.name] = Elements(b, values)
        if b.name in inputs:
            array = np.asarray(inputs[b.name])
            memory[b.name].update(zip(_places(array.shape), array.reshape(-1).tolist(), strict=True))
        names[f"g_{b.name}"] = memory[b.name]
    for k in program.kernels:
        scope = names | {f"g_{b.name}": Elements(b, values) for b in k.locals}
        lines = [line for s in k.body for line in _lines(s, 1, k.locals)]  # in a function: its variables are faster
        exec(compile("\n".join(["def kernel():", *lines, "    pass", "kernel()"]), k.name, "exec"), scope)
        for elements in scope.values():
            if isinstance(elements, Elements):
                elements.verify()
    out: dict[str, np.ndarray[Any, Any]] = {}
    for b in program.buffers:
        if b.space.value == "output":
            kind = np.float64 if b.dtype.is_float else np.bool_ if b.dtype is DType.BOOL else np.int64
            elements = memory[b.name]
            out[b.name] = np.array([elements[i] for i in _places(elements.shape)], kind).reshape(elements.shape)
    return out

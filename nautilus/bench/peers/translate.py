"""Translates a Spec to a Python function on torch tensors, which serves as the eager peer and as the reference.

The function is straight-line code with one statement a value, so ``torch.compile`` captures it as one graph.  A
value has a dimension for each index variable that it depends on, in a fixed order.  Leading dimensions of size 1 are
omitted, because broadcasting adds them.  Sums of products become ``torch.matmul``, or ``addmm`` with a bias.

* ``exact``: f64 wherever the spec has f32, because "f32 or better" is what it says, and for products of integers, with
  every reduction as written, but for convolutions.
* ``native``: the usual torch program.  Tensors keep their element types, so products of 16-bit
  tensors give 16-bit results.  Elementwise work is in the outputs' type, which is f32 if an output is f32.
  A computed factor of a product is rounded to the type of the tensor that it is multiplied by.  A sub-expression
  with a function in the library (a softmax, a norm, a GELU) becomes a call, found by :mod:`.patterns`, and a
  convolution one found by :mod:`.convolve`.
  Values that depend on indices alone (masks) are computed once, outside the timed function.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from nautilus.bench.contenders import NotApplicable
from nautilus.bench.peers import convolve, patterns
from nautilus.bench.peers.algebra import constant_factor, fold, strip_casts
from nautilus.bench.peers.text import TYPES, number, operation
from nautilus.core.expr.nodes import (
    COMPARISONS,
    Axis,
    Const,
    Expr,
    Load,
    Op,
    Param,
    Reduce,
    Var,
    free_vars,
    identity,
    walk,
)
from nautilus.core.expr.products import indexed_factors
from nautilus.core.records import dataclass
from nautilus.core.types import HALVES, DType
from nautilus.frontend.spec import Definition, Spec


@dataclass(frozen=True, slots=True)
class Value:
    """Python text of a tensor (``is_number``: of a number) with a dimension for each of ``names``.

    ``dtype`` is the tensor's; ``fixed``: it depends on no input.
    """

    text: str
    names: tuple[str, ...]
    dtype: DType
    fixed: bool = False
    is_number: bool = False


@dataclass(frozen=True)
class Function:
    """``setup(device)`` gives the values made once; ``main(inputs..., *values)`` gives the outputs."""

    setup: str
    main: str


def translate(spec: Spec, scalars: Mapping[str, float | int | bool], mode: str, hoist: bool = True) -> Function:
    """The function of ``spec``. ``mode``: exact or native; ``hoist``: the setup computes values of indices alone."""
    return _Writer(spec, scalars, mode, hoist).function()


@dataclass
class _Writer:
    spec: Spec
    scalars: Mapping[str, float | int | bool]
    mode: str
    hoist: bool
    lines: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    buffers: dict[str, Value] = field(default_factory=dict)
    results: dict[str, Value] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.native = self.mode == "native"
        floats = {t.dtype for t in self.spec.outputs if t.dtype.is_float}
        low = next(iter(floats)) if len(floats) == 1 else DType.F32
        self.low = low if self.native and low in HALVES else DType.F32

    # ---- the function
    def function(self) -> Function:
        names: dict[str, str] = {}
        for n, t in enumerate(self.spec.inputs):
            names[t.name] = f"in{n}"
            axes = tuple(f"%{p}" for p in range(len(t.shape)))
            given = Value(f"in{n}", axes, t.dtype)
            wide = self.computed(t.dtype)
            same = wide is t.dtype
            self.buffers[t.name] = given if same else self.emit(f"in{n}.to({TYPES[wide]})", axes, wide, False)
        for d in self.spec.definitions:
            self.define(d)
        outputs = ", ".join(self.output(t.name, t.dtype) for t in self.spec.outputs)
        text = "\n".join([*self.lines, outputs])
        made = [name for line in self.setup if re.search(rf"\b{(name := line.split(' = ', 1)[0])}\b", text)]
        arguments = ", ".join([*names.values(), *made])
        first = ["device = in0.device"] if names and any("device=device" in x for x in self.lines) else []
        main = [f"def main({arguments}):", *(f"    {x}" for x in (*first, *self.lines)), f"    return ({outputs},)"]
        setup = ["def setup(device):", *(f"    {x}" for x in self.setup)]
        setup.append(f"    return ({', '.join(made)}{',' if made else ''})")
        return Function("\n".join(setup) + "\n", "\n".join(main) + "\n")

    def computed(self, dtype: DType) -> DType:
        """The type in which values of ``dtype`` are computed."""
        return DType.F64 if not self.native and dtype in (DType.F32, DType.TF32) else dtype

    def define(self, d: Definition) -> None:
        if d.recurrence is not None:
            raise NotApplicable("a recurrence has no counterpart in torch")
        body = _Body(self, d)
        value = body.spread(body.value(fold(d.expr)), tuple(a.name for a in d.axes))
        self.results[d.name] = value
        stored = value.dtype if d.dtype is None else self.computed(d.dtype)
        if d.is_output and value.dtype is not stored:
            value = self.emit(f"{value.text}.to({TYPES[stored]})", value.names, stored, value.fixed)
        self.buffers[d.name] = value

    def output(self, name: str, dtype: DType) -> str:
        if self.native or not dtype.is_float:
            return self.buffers[name].text
        return f"{self.results[name].text}.to(torch.float64)"  # not rounded, because the comparison rounds

    def emit(self, text: str, names: tuple[str, ...], dtype: DType, fixed: bool) -> Value:
        """A statement; gives its value."""
        once = fixed and self.hoist
        name = f"{'c' if once else 'v'}{self.count}"
        self.count += 1
        (self.setup if once else self.lines).append(f"{name} = {text}")
        return Value(name, names, dtype, fixed)


class _Body:
    """One definition."""

    def __init__(self, writer: _Writer, d: Definition) -> None:
        self.w = writer
        self.extents = {a.name: self.size(a) for a in d.axes}
        for e in walk(d.expr):
            if isinstance(e, Reduce):
                self.extents |= {a.name: self.size(a) for a in e.axes}
        self.order = {name: n for n, name in enumerate(self.extents)}
        self.memo: dict[Expr, Value] = {}

    @staticmethod
    def size(a: Axis) -> int:
        if not isinstance(a.extent, int):
            raise NotApplicable("a size of the spec is known only at launch")
        return a.extent

    # ---- dimensions
    def union(self, *values: Value) -> tuple[str, ...]:
        return tuple(sorted({n for v in values for n in v.names}, key=self.order.__getitem__))

    def line_up(self, v: Value, names: Sequence[str]) -> str:
        """``v`` in a form that broadcasts over ``names``, an ordered superset of its own names."""
        first = names.index(v.names[0]) if v.names else len(names)
        index = [":" if n in v.names else "None" for n in names[first:]]
        return v.text if "None" not in index else f"{v.text}[{', '.join(index)}]"

    def spread(self, v: Value, names: tuple[str, ...]) -> Value:
        """``v`` with exactly the dimensions ``names``, in that order."""
        if v.is_number:
            v = self.w.emit(f"torch.tensor({v.text}, dtype={TYPES[v.dtype]}, device=device)", (), v.dtype, True)
        text = v.text
        ordered = tuple(n for n in names if n in v.names)
        if ordered != v.names:
            text = f"{text}.permute({', '.join(str(v.names.index(n)) for n in ordered)})"
        if ordered != names:
            text = self.line_up(replace(v, text=text, names=ordered), names)
            text = f"{text}.expand({', '.join(str(self.extents[n]) for n in names)})"
        return v if text == v.text else self.w.emit(text, names, v.dtype, v.fixed)

    # ---- values
    def value(self, e: Expr) -> Value:
        if e not in self.memo:
            self.memo[e] = self.compute(e)
        return self.memo[e]

    def compute(self, e: Expr) -> Value:
        if self.w.native:
            call = patterns.library_call(e, tuple(self.extents))
            if call is not None:
                made = self.call(call)
                if made is not None:
                    return made
        match e:
            case Const(value=value, dtype=dtype):
                return Value(number(value), (), dtype, True, True)
            case Param(name=name, dtype=dtype):
                return Value(number(self.w.scalars[name]), (), dtype, True, True)
            case Var(name=name):
                text = f"torch.arange({self.extents[name]}, device=device)"
                return self.w.emit(text, (name,), DType.I64, True)
            case Load():
                return self.load(e)
            case Op(op="cast", args=(x,), dtype=dtype):
                return self.cast(x, dtype)
            case Op(op=op, args=args):
                return self.op(op, args, e)
            case Reduce():
                return self.reduce(e)
        raise NotApplicable(f"{type(e).__name__} has no counterpart in torch")

    def cast(self, x: Expr, dtype: DType) -> Value:
        v, dtype = self.value(x), dtype if dtype is DType.TF32 else self.w.computed(dtype)
        if v.is_number:
            kind = "float" if dtype.is_float else "int" if dtype.is_int else "bool"
            return replace(v, text=v.text if dtype is v.dtype else f"{kind}({v.text})", dtype=dtype)
        widens = dtype is DType.F32 and v.dtype in HALVES
        if v.dtype is dtype or (widens and self.w.low is v.dtype):
            return v
        if dtype.is_int and v.dtype.is_int and dtype in (DType.I32, DType.I64):
            dtype = DType.I64
        return self.w.emit(f"{v.text}.to({TYPES[dtype]})", v.names, dtype, v.fixed)

    def op(self, op: str, args: tuple[Expr, ...], e: Op) -> Value:
        if self.w.native and op == "add" and (made := self.product_plus(args)) is not None:
            return made
        values = [self.value(a) for a in args]
        names = self.union(*values)
        texts = [v.text if v.is_number else self.line_up(v, names) for v in values]
        numbers = [v.is_number for v in values]
        if all(numbers) and op != "select":
            texts = [self.tensor(v) for v in values]
            numbers = [False] * len(texts)
        boolean = op in COMPARISONS or e.dtype is DType.BOOL
        dtype = DType.BOOL if boolean else _joined([v for v in values if v.dtype is not DType.BOOL], e.dtype)
        return self.w.emit(operation(op, texts, numbers), names, dtype, all(v.fixed for v in values))

    def tensor(self, v: Value) -> str:
        """A tensor of a number; in exact mode in 64 bits, since ``1 - b ** t`` loses most digits of 32."""
        dtype = "" if self.w.native or not v.dtype.is_float else ", dtype=torch.float64"
        return f"torch.tensor({v.text}{dtype}, device=device)"

    # ---- loads
    def load(self, e: Load) -> Value:
        source = self.w.buffers[e.buffer]
        shape = self.shape(e.buffer)
        plain = [i.name for i in e.index if isinstance(i, Var)]
        values = [None if isinstance(i, (Var, Const)) else self.value(i) for i in e.index]
        computed = [n for v in values if v is not None for n in v.names]
        if len(set(plain)) < len(plain) or len(set(computed) | set(plain)) < len(computed) + len(plain):
            return self.gather(e, source, shape)
        if any(v is not None and len(v.names) != 1 for v in values):
            return self.gather(e, source, shape)
        text = source.text
        names: list[str] = []
        for p, (i, v) in enumerate(zip(e.index, values, strict=True)):
            axis = len(names)
            if isinstance(i, Const):
                text = f"{text}.select({axis}, {i.value})"
                continue
            name = i.name if isinstance(i, Var) else v.names[0] if v is not None else ""
            names.append(name)
            if isinstance(i, Var):
                short = self.extents[name] < shape[p]
                text = f"{text}.narrow({axis}, 0, {self.extents[name]})" if short else text
            elif v is not None:
                times = _repeats(i, self.extents, shape[p])
                repeated = f"{text}.repeat_interleave({times}, {axis})"
                picked = f"{text}.index_select({axis}, {v.text}.clamp(0, {shape[p] - 1}))"
                text = repeated if times else picked
        ordered = tuple(sorted(names, key=self.order.__getitem__))
        if list(ordered) != names:
            text = f"{text}.permute({', '.join(str(names.index(n)) for n in ordered)})"
        if text == source.text:
            return Value(text, ordered, source.dtype, source.fixed)
        fixed = source.fixed and all(v is None or v.fixed for v in values)
        return self.w.emit(text, ordered, source.dtype, fixed)

    def gather(self, e: Load, source: Value, shape: Sequence[int]) -> Value:
        values = [self.value(i) for i in e.index]
        names = self.union(*values)
        index = []
        for v, n in zip(values, shape, strict=True):
            index.append(v.text if v.is_number else f"{self.line_up(v, names)}.clamp(0, {n - 1})")
        fixed = source.fixed and all(v.fixed for v in values)
        return self.w.emit(f"{source.text}[{', '.join(index)}]", names, source.dtype, fixed)

    def shape(self, name: str) -> tuple[int, ...]:
        tensor = self.w.spec.tensors.get(name)
        found = tensor.shape if tensor is not None else self.w.spec.definition(name).shape
        return tuple(n if isinstance(n, int) else 0 for n in found)

    # ---- reductions
    def reduce(self, e: Reduce) -> Value:
        made = self.convolution(e) or self.product(e)
        if made is not None:
            return made
        v = self.value(e.body)
        c = None if e.cond is None else self.value(e.cond)
        axes = [a.name for a in e.axes]
        named = Value("", tuple(axes), v.dtype)
        names = self.union(v, named, *([c] if c is not None else []))
        text = v.text if v.is_number else self.line_up(v, names)
        dtype = v.dtype if v.dtype is not DType.BOOL or e.op in ("any", "all") else e.dtype
        if c is not None:
            start = identity(e.op, DType.F32 if v.dtype.is_float else e.dtype).value
            if v.is_number:
                text = self.tensor(v)
            text = f"torch.where({self.line_up(c, names)}, {text}, {number(start)})"
        elif not set(axes) <= set(v.names):
            text = f"({text} + torch.zeros((), dtype={TYPES[dtype]}, device=device))"
            text = f"{text}.expand({', '.join(str(self.extents[n]) for n in names)})"
        positions = [names.index(a) for a in axes]
        kept = tuple(n for n in names if n not in axes)
        fixed = v.fixed and (c is None or c.fixed)
        return self.w.emit(_reduction(e.op, text, positions), kept, dtype, fixed)

    def as_convolution(self, e: Reduce) -> convolve.Convolution | None:
        return convolve.match(e, self.extents, {n: self.shape(n) for n in self.w.buffers})

    def convolution(self, e: Reduce, bias: Value | None = None) -> Value | None:
        """A sum as one convolution (plus ``bias``); None where that is not possible."""
        found = self.as_convolution(e)
        if found is None:
            return None
        dtype = self.operand_type([found.image, found.filter], e.dtype)
        image, filter_ = (self.converted(self.w.buffers[x.buffer], dtype) for x in (found.image, found.filter))
        if bias is not None and (found.scale != 1.0 or bias.names != found.channel or bias.dtype is not dtype):
            return None
        text = found.call(image.text, filter_.text, "" if bias is None else bias.text)
        return self.ordered(text if found.scale == 1.0 else f"({text}) * {number(found.scale)}", found.names, dtype)

    def product(self, e: Reduce, bias: Value | None = None) -> Value | None:
        """A sum of products of two values as one matrix product (plus ``bias``); None where that is not possible."""
        parts = indexed_factors(e.body) if e.op == "sum" and e.cond is None else []
        scale = constant_factor(e.body, parts)
        if len(parts) != 2 or scale is None or self.as_convolution(e) is not None:
            return None
        dtype = self.operand_type(parts, e.dtype)
        a, b = (self.operand(p, dtype) for p in parts)
        axes = [x.name for x in e.axes]
        shared = [n for n in a.names if n in b.names]
        if not set(axes) <= set(shared):
            return None
        batch = [n for n in shared if n not in axes]
        rows = [n for n in a.names if n not in shared]
        columns = [n for n in b.names if n not in shared]
        flat = len(rows) == 1 and len(columns) == 1 and len(axes) == 1
        left, right = self.arrange(a, batch, rows, axes, flat), self.arrange(b, batch, axes, columns, flat)
        names = (*batch, *rows, *columns)
        if bias is not None:
            if scale != 1.0 or batch or not flat or bias.names != tuple(columns) or bias.dtype is not dtype:
                return None
            return self.ordered(f"torch.addmm({bias.text}, {left}, {right})", names, dtype)
        call = "torch._int_mm" if dtype is DType.I8 else "torch.matmul"
        text = f"{call}({left}, {right})" + ("" if scale == 1.0 else f" * {number(scale)}")
        if not flat:
            text = f"({text}).reshape(({''.join(f'{self.extents[n]}, ' for n in names).rstrip()}))"  # () for a number
        if dtype is DType.I8:
            dtype = DType.I32
        elif e.dtype.is_int:
            text, dtype = f"({text}).to(torch.int64)", DType.I64
        return self.ordered(text, names, dtype)

    def ordered(self, text: str, names: tuple[str, ...], dtype: DType) -> Value:
        order = tuple(sorted(names, key=self.order.__getitem__))
        if order != names:
            text = f"({text}).permute({', '.join(str(names.index(n)) for n in order)})"
        return self.w.emit(text, order, dtype, False)

    def operand_type(self, parts: Sequence[Expr], compute: DType) -> DType:
        """The element type in which a product is computed."""
        if compute.is_int:
            both = {p.dtype for p in parts} == {DType.I8} and all(isinstance(p, Load) for p in parts)
            return DType.I8 if self.w.native and both else DType.F64
        if not self.w.native:
            return self.w.computed(compute)
        stored = [t for t in HALVES if t in {self.stored(p) for p in parts}]
        return DType(stored.pop()) if len(stored) == 1 else compute

    def stored(self, e: Expr) -> DType | None:
        e = strip_casts(e)
        return self.w.buffers[e.buffer].dtype if isinstance(e, Load) else None

    def operand(self, e: Expr, dtype: DType) -> Value:
        return self.converted(self.value(e), dtype)

    def converted(self, v: Value, dtype: DType) -> Value:
        return v if v.dtype is dtype else self.w.emit(f"{v.text}.to({TYPES[dtype]})", v.names, dtype, v.fixed)

    def arrange(self, v: Value, batch: list[str], first: list[str], second: list[str], flat: bool) -> str:
        """``v`` as [batch..., first, second], groups of several or no axes flattened."""
        order = (*batch, *first, *second)
        text = v.text
        if order != v.names:
            text = f"{text}.permute({', '.join(str(v.names.index(n)) for n in order)})"
        if flat:
            return text
        sizes = [str(self.extents[n]) for n in batch]
        for group in (first, second):
            total = 1
            for n in group:
                total *= self.extents[n]
            sizes.append(str(total))
        return f"{text}.reshape({', '.join(sizes)})"

    def product_plus(self, args: tuple[Expr, ...]) -> Value | None:
        """A matrix product with a bias on its columns as ``addmm``, a convolution with one on its channels."""
        for product, other in (args, args[::-1]):
            other = strip_casts(other)
            if isinstance(product, Reduce) and isinstance(other, Load) and len(free_vars(other)) == 1:
                bias = self.value(other)
                made = self.convolution(product, bias) or self.product(product, bias)
                if made is not None:
                    return made
        return None

    # ---- calls of the library
    def call(self, call: patterns.Call) -> Value | None:
        """The call of a library function; None where the library's conditions do not hold."""
        values = {n: self.value(strip_casts(x) if isinstance(strip_casts(x), Load) else x)
                  for n, x in call.operands.items()}  # fmt: skip
        x = values["X"]
        if x.is_number or (call.axis and call.axis not in x.names):
            return None
        position = x.names.index(call.axis) if call.axis else -1
        if call.last and position != len(x.names) - 1:
            return None
        texts = {n: v.text for n, v in values.items()}
        for n, v in values.items():
            if n in ("W", "Z") and (v.names != x.names[-1:] or v.dtype is not x.dtype):
                return None
        if "C" in values:
            texts["C"] = self.line_up(values["C"], x.names)
            if not set(values["C"].names) <= set(x.names):
                return None
        numbers = {n: self.value(e).text for n, e in call.numbers.items()}
        names = tuple(n for n in x.names if n != call.axis) if call.reduces else x.names
        if x.dtype is not self.w.low and self.w.low is DType.F32:
            texts["X"] = f"{x.text}.to(torch.float32)"
            if "W" in texts:
                return None
        dtype = self.w.low if self.w.low is DType.F32 else x.dtype
        size = self.extents.get(call.axis, 0)
        text = call.text.format(**texts, **numbers, axis=position, size=size)
        return self.w.emit(text, names, dtype, False)


def _joined(values: Sequence[Value], fallback: DType) -> DType:
    """The type of an operation on ``values`` in torch, where Python numbers do not widen a float tensor."""
    tensors = [v.dtype for v in values if not v.is_number] or [v.dtype for v in values] or [fallback]
    floats = {t for t in tensors if t.is_float}
    if not floats:
        return fallback if fallback.is_float else DType.I64
    if DType.F64 in floats:
        return DType.F64
    return next(iter(floats)) if len(floats) == 1 else DType.F32


def _repeats(i: Expr, extents: Mapping[str, int], size: int) -> int:
    """``n`` where index ``i`` is ``v // n`` over all of ``v`` and of the dimension; else 0."""
    match i:
        case Op(op="floordiv", args=(Var(name=name), Const(value=n))) if extents[name] == size * n:
            return int(n)
    return 0


def _reduction(op: str, text: str, positions: Sequence[int]) -> str:
    dims = f"({', '.join(map(str, positions))},)"
    match op:
        case "sum":
            return f"torch.sum({text}, {dims})"
        case "max" | "min":
            return f"torch.a{op}({text}, {dims})"
        case "prod" | "any" | "all":
            for p in sorted(positions, reverse=True):
                text = f"torch.{op}({text}, {p})"
            return text
    raise KeyError(op)

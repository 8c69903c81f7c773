"""The text form of the VR-tile IR: ``parse(format(m)) == m`` for every module (grammar: ``vr_tile.ir``).

Types of operands are not repeated at their uses: a value's type stands at its definition, a carried
argument has the type of its initial value, a loop's results those of the arguments.
"""

from __future__ import annotations

from nautilus.core.expr.nodes import OPS, Const, Expr
from nautilus.core.source import Source
from nautilus.core.text.declarations import Declarations, format_buffer, format_param
from nautilus.core.text.expressions import ExprParser, format_expr, format_list
from nautilus.core.text.tokens import TokenStream, format_number
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.vr_tile.ir import (
    ConstOp,
    DotOp,
    ForOp,
    GridAxis,
    IndexOp,
    LoadOp,
    MapOp,
    ParamOp,
    ReduceOp,
    StoreOp,
    TileKernel,
    TileModule,
    TileOp,
    Value,
)

_STEP = "  "


def format_type(t: TileType) -> str:
    """``f32[i: 128, j: 64]``; no brackets for a single element."""
    if not t.axes:
        return str(t.dtype)
    return f"{t.dtype}[{_axes(t.axes)}]"


def format(m: TileModule) -> str:
    """The text of a module."""
    lines = [f"module {m.name} {{"]
    lines += [_STEP + format_buffer(b) for b in m.buffers]
    lines += [_STEP + format_param(p) for p in m.params]
    for k in m.kernels:
        grid = ", ".join(f"{g.var}: {format_expr(g.extent)}" for g in k.grid)
        lines.append(f"{_STEP}kernel {k.name} grid({grid}) axes({_axes(k.axes)}) {{")
        lines += format_ops(k.body, 2)
        lines.append(f"{_STEP}}}")
    lines.append("}")
    return "\n".join(lines) + "\n"


def format_ops(body: tuple[TileOp, ...], depth: int = 0) -> list[str]:
    """The lines of a block of ops."""
    pad = _STEP * depth
    out: list[str] = []
    for op in body:
        if isinstance(op, ForOp):
            out.append(pad + _for_head(op))
            out += format_ops(op.body, depth + 1)
            yields = _values(op.yields)
            out.append(f"{pad}{_STEP}yield {yields}".rstrip())
            out.append(pad + "}")
        else:
            out.append(pad + format_op(op))
    return out


def format_op(op: TileOp) -> str:
    """One op as one line (a loop: its head)."""
    match op:
        case StoreOp():
            where = "" if op.mask is None else f" where {format_expr(op.mask)}"
            return f"store {op.buffer}[{format_list(op.index)}], %{op.value.name}{where}"
        case ForOp():
            return _for_head(op)
        case _:
            return f"%{op.result.name} = {_right(op)} : {format_type(op.result.type)}"


def _right(op: ConstOp | IndexOp | ParamOp | LoadOp | MapOp | ReduceOp | DotOp) -> str:
    match op:
        case ConstOp():
            return f"const {format_number(op.value, op.result.type.dtype)}"
        case IndexOp():
            return f"index {format_expr(op.expr)}"
        case ParamOp():
            return f"param {op.param}"
        case LoadOp():
            where = "" if op.mask is None else f" where {format_expr(op.mask)}"
            return f"load {op.buffer}[{format_list(op.index)}]{where}"
        case MapOp():
            return f"{op.op} {_values(op.args)}"
        case ReduceOp():
            return f"reduce {op.combiner} %{op.arg.name} over {', '.join(op.axes)}"
        case DotOp():
            acc = "" if op.acc is None else f" + %{op.acc.name}"
            return f"dot %{op.a.name}, %{op.b.name}{acc} over {', '.join(op.axes)}"


def _for_head(op: ForOp) -> str:
    left = f"{_values(op.results)} = " if op.results else ""
    chain = "" if op.chain is None else f" chain {op.chain}"
    carry = ", ".join(f"%{arg.name} = %{init.name}" for arg, init in op.carried)
    return f"{left}for {op.var} in {format_expr(op.lo)}..{format_expr(op.hi)}{chain} carry({carry}) {{"


def _values(values: tuple[Value, ...]) -> str:
    return ", ".join(f"%{v.name}" for v in values)


def _axes(axes: tuple[TileAxis, ...]) -> str:
    return ", ".join(f"{a.name}: {a.size}" for a in axes)


def parse(text: str, name: str = "<vr-tile>") -> TileModule:
    """The module that ``text`` is, whole. Raises IRParseError."""
    ts = TokenStream(Source(name, text))
    module = _Parser(ts).module()
    ts.end()
    return module


class _Parser:
    """Recursive descent over the grammar of ``vr_tile.ir``; ``values`` maps the names in scope."""

    def __init__(self, ts: TokenStream) -> None:
        self.ts = ts
        self.params: dict[str, DType] = {}
        self.values: dict[str, Value] = {}
        self.dtypes: dict[str, DType] = {}
        self.exprs = ExprParser(ts, {}, self.params, self.dtypes)

    def module(self) -> TileModule:
        ts = self.ts
        ts.expect("module")
        name = ts.name()
        declared = Declarations(ts, self.params)
        kernels: list[TileKernel] = []
        with ts.braces() as more:
            while more():
                if declared.accept():
                    continue
                if ts.text != "kernel":
                    ts.fail(f"expected input, output, temp, param or kernel, found {ts.describe()}")
                kernels.append(self.kernel())
        return TileModule(name, declared.buffers, declared.params, tuple(kernels))

    def kernel(self) -> TileKernel:
        ts = self.ts
        span = ts.span()
        ts.expect("kernel")
        name = ts.name()
        self.values.clear()
        self.dtypes.clear()
        ts.expect("grid")
        grid = ts.brackets(self.grid_axis, "()")
        ts.expect("axes")
        axes = ts.brackets(self.tile_axis, "()")
        with ts.braces() as more:
            body: list[TileOp] = []
            while more():
                body.append(self.op())
        return TileKernel(name, grid, axes, tuple(body), span)

    def grid_axis(self) -> GridAxis:
        var = self.ts.name()
        self.ts.expect(":")
        return GridAxis(var, self.exprs.parse())

    def tile_axis(self) -> TileAxis:
        name = self.ts.name()
        self.ts.expect(":")
        return TileAxis(name, self.ts.integer())

    def type(self) -> TileType:
        dtype = self.ts.dtype()
        axes = self.ts.brackets(self.tile_axis) if self.ts.text == "[" else ()
        return TileType(dtype, axes)

    def use(self) -> Value:
        at = self.ts.pos
        name = self.ts.ref()
        if name not in self.values:
            self.ts.pos = at
            self.ts.fail(f"unknown value %{name}")
        return self.values[name]

    def define(self, name: str, t: TileType) -> Value:
        value = Value(name, t)
        self.values[name] = value
        self.dtypes[name] = t.dtype
        return value

    def mask(self) -> Expr | None:
        return self.exprs.parse() if self.ts.accept("where") else None

    def list_of_uses(self) -> tuple[Value, ...]:
        out = [self.use()]
        while self.ts.accept(","):
            out.append(self.use())
        return tuple(out)

    def list_of_names(self) -> tuple[str, ...]:
        out = [self.ts.name()]
        while self.ts.accept(","):
            out.append(self.ts.name())
        return tuple(out)

    def op(self) -> TileOp:
        ts = self.ts
        span = ts.span()
        if ts.accept("store"):
            buffer = ts.name()
            index = ts.brackets(self.exprs.parse)
            ts.expect(",")
            value = self.use()
            return StoreOp(buffer, index, value, self.mask(), span)
        if ts.text == "for":
            return self.loop(())
        names = [ts.ref()]
        while ts.accept(","):
            names.append(ts.ref())
        ts.expect("=")
        if ts.text == "for":
            return self.loop(tuple(names))
        if len(names) > 1:
            ts.fail("only a loop has several results")
        return self.simple(names[0])

    def simple(self, name: str) -> TileOp:
        ts = self.ts
        span = ts.span()
        at = ts.pos
        kind = ts.name()
        match kind:
            case "const":
                return self.const(name)
            case "index":
                expr = self.exprs.parse()
                return IndexOp(self.result(name), expr, span)
            case "param":
                param = ts.name()
                return ParamOp(self.result(name), param, span)
            case "load":
                buffer = ts.name()
                index = ts.brackets(self.exprs.parse)
                mask = self.mask()
                return LoadOp(self.result(name), buffer, index, mask, span)
            case "reduce":
                combiner = ts.name()
                arg = self.use()
                ts.expect("over")
                axes = self.list_of_names()
                return ReduceOp(self.result(name), combiner, arg, axes, span)
            case "dot":
                return self.dot(name)
        if kind not in OPS:
            ts.pos = at
            ts.fail(f"unknown operation {kind!r}")
        args = self.list_of_uses()
        return MapOp(self.result(name), kind, args, span)

    def const(self, name: str) -> ConstOp:
        ts = self.ts
        span = ts.span()
        negative = ts.accept("-")
        found: Const | None = ts.literal(negative)
        if found is None:
            ts.fail(f"expected a literal, found {ts.describe()}")
        result = self.result(name)
        value = found.value
        dtype = result.type.dtype
        if isinstance(value, bool) is not (dtype is DType.BOOL) or (dtype.is_int and isinstance(value, float)):
            ts.fail(f"the literal {value} is not of type {dtype}")
        return ConstOp(result, float(value) if dtype.is_float else value, span)

    def dot(self, name: str) -> DotOp:
        ts = self.ts
        span = ts.span()
        a = self.use()
        ts.expect(",")
        b = self.use()
        acc = self.use() if ts.accept("+") else None
        ts.expect("over")
        axes = self.list_of_names()
        return DotOp(self.result(name), a, b, acc, axes, span)

    def result(self, name: str) -> Value:
        self.ts.expect(":")
        return self.define(name, self.type())

    def carry(self) -> tuple[str, Value]:
        name = self.ts.ref()
        self.ts.expect("=")
        return name, self.use()

    def loop(self, names: tuple[str, ...]) -> ForOp:
        ts = self.ts
        span = ts.span()
        ts.expect("for")
        var = ts.name()
        ts.expect("in")
        lo = self.exprs.parse()
        ts.expect("..")
        hi = self.exprs.parse()
        chain = ts.name() if ts.accept("chain") else None
        ts.expect("carry")
        pairs = ts.brackets(self.carry, "()")
        if len(pairs) != len(names):
            ts.fail(f"{len(names)} result(s) for {len(pairs)} carried value(s)")
        outer = dict(self.values)
        carried = tuple((self.define(arg, init.type), init) for arg, init in pairs)
        body: list[TileOp] = []
        with ts.braces() as more:
            while more() and ts.text != "yield":
                body.append(self.op())
            ts.expect("yield")
            yields = self.list_of_uses() if ts.text != "}" else ()
        for inner in self.values.keys() - outer.keys():
            del self.values[inner], self.dtypes[inner]
        results = tuple(self.define(n, init.type) for n, (_, init) in zip(names, pairs, strict=True))
        return ForOp(results, var, lo, hi, carried, tuple(body), yields, chain, span)

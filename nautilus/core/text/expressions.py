"""The text form of expressions and numbers, which all IRs share.

Expressions print in infix notation and parse back to equal expressions with the same types::

    text                                meaning
    a + b * c,  a // 4,  a % 8,  -x     add mul floordiv mod neg (precedence as in Python)
    a <= b,  a and b,  not c            comparisons and logic; a comparison does not chain
    min(a, b), exp(x), select(c, a, b)  every other operation by name
    cast<f32>(x),  narrow<f16>(x)       conversions name their target
    Q[b, h // 4, i]                     a Load; its type is in the symbol table
    sum[j: 128 | j <= i](x)             a Reduce
    %name                               a Ref
    1  1i64  1.0  1.0f64  -inf  true    Const: i32, i64, f32, f64, f32, bool
    i                                   a Param if the symbol table has it, else an i32 Var
    i:i64  Q[i]:f16  %v:f32  $n:i32     explicit types (no space); ``$`` marks a Param.  Only an i64
                                        Var needs one, or a text read without a symbol table

Operation types are not written: ``core.expr.infer.result_dtype`` gives them.  ``-(1)`` is the operation
neg on the literal 1, ``-1`` a literal.  A space follows the mod operator,
because ``%8`` is a value.  A NaN literal is ``math.nan`` itself, so two NaN literals compare equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from nautilus.core.expr.infer import DTypeError, reduce_dtype, result_dtype
from nautilus.core.expr.nodes import COMBINERS, OPS, Axis, Const, Expr, Load, Op, Param, Reduce, Ref, Var
from nautilus.core.functions import BY_SYMBOL
from nautilus.core.source import Source
from nautilus.core.text.tokens import TokenStream, format_number
from nautilus.core.types import DType

#: names with their types; None: no names
Table: TypeAlias = Mapping[str, DType] | None

# -- expressions: printing --------------------------------------------------------------------

_OR, _AND, _NOT, _CMP, _ADD, _MUL, _UNARY, _ATOM = range(1, 9)
_LEVELS = {
    "or": _OR, "and": _AND, "<": _CMP, "<=": _CMP, ">": _CMP, ">=": _CMP, "==": _CMP, "!=": _CMP,
    "+": _ADD, "-": _ADD, "*": _MUL, "/": _MUL, "//": _MUL, "%": _MUL,
}  # fmt: skip
_INFIX: Mapping[str, tuple[str, int]] = {BY_SYMBOL[s].name: (s, level) for s, level in _LEVELS.items()}
_BY_SYMBOL: Mapping[str, tuple[str, int]] = {symbol: (op, level) for op, (symbol, level) in _INFIX.items()}
_LEVEL_OF: Mapping[str, int] = {op: level for op, (_, level) in _INFIX.items()} | {"neg": _UNARY, "not": _NOT}


def _const(e: Const) -> str:
    text = format_number(e.value, e.dtype)
    if e.dtype in (DType.F32, DType.I32, DType.BOOL):
        return text
    return f"{text}:{e.dtype}" if text[-1] in "fn" else f"{text}{e.dtype}"


def format_expr(e: Expr, typed: bool = False) -> str:
    """The text of ``e``. ``typed`` also writes the types of loads, params and refs."""
    return _format(e, 0, typed)


def format_list(items: tuple[Expr, ...], typed: bool = False) -> str:
    """Expressions separated by commas, as in an index."""
    return ", ".join([_format(i, 0, typed) for i in items])


def _format(e: Expr, level: int, typed: bool) -> str:
    """Text of ``e`` with parentheses if it binds weaker than ``level``."""
    if isinstance(e, Op):
        text = None if typed else getattr(e, "_text", None)
        if text is None:
            text = _format_op(e, typed)
            if not typed:  # on which its canonical place among other terms depends, again and again
                object.__setattr__(e, "_text", text)
        return f"({text})" if _LEVEL_OF.get(e.op, _ATOM) < level else text
    if isinstance(e, Load):
        return f"{e.buffer}[{format_list(e.index, typed)}]" + (f":{e.dtype}" if typed else "")
    if isinstance(e, Var):
        return e.name if e.dtype is DType.I32 else f"{e.name}:{e.dtype}"
    if isinstance(e, Const):
        text = _const(e)
        return f"({text})" if text[0] == "-" and level > _UNARY else text
    if isinstance(e, Param):
        return f"${e.name}:{e.dtype}" if typed else e.name
    if isinstance(e, Ref):
        return f"%{e.name}:{e.dtype}" if typed else f"%{e.name}"
    assert isinstance(e, Reduce)
    axes = ", ".join([f"{a.name}: {_extent(a.extent, typed)}" for a in e.axes])
    cond = "" if e.cond is None else f" | {_format(e.cond, 0, typed)}"
    return f"{e.op}[{axes}{cond}]({_format(e.body, 0, typed)})"


def _extent(extent: int | Expr, typed: bool) -> str:
    return str(extent) if isinstance(extent, int) else _format(extent, 0, typed)


def _format_op(e: Op, typed: bool) -> str:
    infix = _INFIX.get(e.op)
    if infix is not None:
        symbol, own = infix
        a, b = e.args
        return f"{_format(a, own + 1 if own == _CMP else own, typed)} {symbol} {_format(b, own + 1, typed)}"
    if e.op == "neg":
        (a,) = e.args
        return f"-({_const(a)})" if isinstance(a, Const) else f"-{_format(a, _UNARY, typed)}"
    if e.op == "not":
        return f"not {_format(e.args[0], _NOT, typed)}"
    target = f"<{e.dtype}>" if e.op in ("cast", "narrow") else ""
    return f"{e.op}{target}({format_list(e.args, typed)})"


# -- expressions: parsing ---------------------------------------------------------------------


class ExprParser:
    """A precedence-climbing parser over a token stream and symbol tables, which declarations extend."""

    __slots__ = ("buffers", "params", "sizes", "ts", "values")

    def __init__(self, ts: TokenStream, buffers: Table = None, params: Table = None, values: Table = None) -> None:
        self.ts = ts
        self.buffers, self.params, self.values = dict(buffers or {}), dict(params or {}), dict(values or {})
        # of the params that are runtime sizes: the largest and the least value, and a divisor of all values
        self.sizes: dict[str, tuple[int | None, int, int, bool, int | None]] = {}

    def expr(self) -> Expr:
        """Take one expression. Raises IRParseError."""
        try:
            return self._binary(_OR)
        except RecursionError:
            self.ts.fail("this expression is nested too deeply")

    def _op(self, op: str, args: tuple[Expr, ...], at: int, target: DType | None = None) -> Op:
        try:
            return Op(op, args, result_dtype(op, [a.dtype for a in args], target), self.ts.span())
        except DTypeError as err:
            self.ts.fail(str(err), at)

    def _binary(self, level: int) -> Expr:
        ts = self.ts
        left = self._prefix(level)
        while True:
            found = _BY_SYMBOL.get(ts.texts[ts.pos])
            if found is None or found[1] < level:
                return left
            op, own = found
            at = ts.pos
            ts.pos += 1
            left = self._op(op, (left, self._binary(own + 1)), at)
            if own == _CMP and _BY_SYMBOL.get(ts.text, ("", 0))[1] == _CMP:
                ts.fail("comparisons do not chain here; write 'and'")

    def _prefix(self, level: int) -> Expr:
        ts, at = self.ts, self.ts.pos
        if ts.accept("-"):
            literal = ts.literal(negative=True) if ts.glued(ts.pos) else None
            return literal or self._op("neg", (self._binary(_UNARY),), at)
        if level <= _NOT and ts.accept("not"):
            return self._op("not", (self._binary(_NOT),), at)
        if ts.accept("("):
            inner = self._binary(_OR)
            ts.expect(")")
            return inner
        return self._atom(ts.text, at)

    def _atom(self, text: str, at: int) -> Expr:
        ts = self.ts
        kind = ts.kinds[at]
        if kind == "name":
            following = ts.texts[at + 1]
            if following == "(" or (following == "<" and text in ("cast", "narrow")):
                return self._call(text, at)
            if following == "[":
                axis = ts.kinds[at + 2] == "name" and ts.texts[at + 3] == ":" and not ts.glued(at + 4)
                return self._reduce(text, at) if text in COMBINERS and axis else self._load(text, at)
            if text not in ("inf", "nan", "true", "false"):
                return self._variable(text)
        if (literal := ts.literal()) is not None:
            return literal
        if kind == "ref":
            ts.pos += 1
            return Ref(text[1:], self._known(self.values, text[1:], "value", at), ts.span())
        if kind == "param":
            ts.pos += 1
            dtype = self._known(self.params, text[1:], "param", at)
            return Param(text[1:], dtype, ts.span(), *self.sizes.get(text[1:], ()))
        ts.missing("an expression")

    def _known(self, table: Mapping[str, DType], name: str, what: str, at: int) -> DType:
        dtype = self.ts.annotation() or table.get(name)
        if dtype is None:
            self.ts.fail(f"unknown {what} {name!r}", at)
        return dtype

    def _variable(self, name: str) -> Expr:
        ts = self.ts
        span = ts.span()
        ts.pos += 1
        if name in self.params:
            return Param(name, self.params[name], span, *self.sizes.get(name, ()))
        return Var(name, ts.annotation() or DType.I32, span)

    def _load(self, name: str, at: int) -> Expr:
        ts = self.ts
        ts.pos += 1
        index = ts.brackets(self.expr)
        return Load(name, index, self._known(self.buffers, name, "buffer", at), ts.span())

    def _call(self, op: str, at: int) -> Expr:
        ts = self.ts
        if op not in OPS:
            ts.fail(f"unknown operation {op!r}")
        ts.pos += 1
        target = None
        if op in ("cast", "narrow"):
            ts.expect("<")
            target = ts.dtype()
            ts.expect(">")
        return self._op(op, ts.brackets(self.expr, "()"), at, target)

    def _reduce(self, op: str, at: int) -> Expr:
        ts = self.ts
        ts.pos += 2
        axes = ts.list(self._axis)
        cond = self.expr() if ts.accept("|") else None
        ts.expect("]")
        (body,) = ts.brackets(self.expr, "()")
        try:
            return Reduce(op, axes, cond, body, reduce_dtype(op, body.dtype), ts.span())
        except DTypeError as err:
            ts.fail(str(err), at)

    def _axis(self) -> Axis:
        ts = self.ts
        span = ts.span()
        name = ts.take()
        ts.expect(":")
        if ts.kind == "number":
            return Axis(name, ts.integer(), span)
        extent = self.expr()
        if not isinstance(extent, Param | Op):
            ts.fail("an extent is an integer or an expression over params")
        return Axis(name, extent, span)


def parse_expr(text: str, buffers: Table = None, params: Table = None, values: Table = None) -> Expr:
    """Parse ``text``, which must be one expression. Raises IRParseError."""
    ts = TokenStream(Source("<expr>", text))
    e = ExprParser(ts, buffers, params, values).expr()
    ts.end()
    return e

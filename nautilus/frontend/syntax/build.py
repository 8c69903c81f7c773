"""Parser callbacks: tokens and sub-trees to syntax-tree nodes, one method per grammar rule.

The parser calls them while it parses, without a parse tree and without recursion.  Children are nodes and tokens; all
tokens are kept for their positions.
"""

from __future__ import annotations

from typing import Any

from nautilus.core.errors import Diagnostic
from nautilus.core.records import dataclass
from nautilus.core.source import Source, Span
from nautilus.frontend.codes import MAX_DEPTH
from nautilus.frontend.syntax import ast
from nautilus.frontend.syntax.elsewhere import CONDITION


class SyntaxFault(Exception):
    """A statement that does not parse; caught by :mod:`nautilus.frontend.syntax.parse`."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


def token_span(source: Source, token: Any) -> Span:
    """The span of a token. A token without a position stands for the end of the text."""
    line, column = token.line or 1, token.column or 1
    return Span(source, line, column, token.end_line or line, token.end_column or column + 1)


@dataclass(frozen=True, slots=True)
class Bracket:
    """``[item, ... | cond]`` before its meaning is known.  An item is an expression, its size or the range's ends."""

    items: tuple[tuple[ast.Expr, ast.Expr | Ends | None], ...]
    cond: ast.Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Ends:
    """``lo .. hi``."""

    lo: ast.Expr
    hi: ast.Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Args:
    """A parenthesised list of expressions or, in a ``def``, names."""

    values: tuple[Any, ...]
    span: Span


_SLICE_HINT = (
    "a part of a tensor is read by an index variable of its own, as in 'sum[k: 2](X[i + k])'; a call needs '(...)'"
)
_INDEX_HINT = "a function call needs '(...)' after the brackets; a bitwise 'or' there is in parentheses, '[(a | b)]'"


def _fault(code: str, message: str, span: Span, hint: str | None = None) -> SyntaxFault:
    return SyntaxFault(Diagnostic(code, message, span, hint=hint))


def _height(span: Span, *kids: ast.Expr | None) -> int:
    depth = 1 + max((k.depth for k in kids if k is not None), default=0)
    if depth > MAX_DEPTH:
        raise _fault("N0105", f"the expression is nested more than {MAX_DEPTH} deep", span)
    return depth


class TreeBuilder:
    """The callbacks. ``source`` is set before each parse."""

    source: Source = Source("<none>", "")

    def _span(self, child: Any) -> Span:
        return child.span if hasattr(child, "span") else token_span(self.source, child)

    def _join(self, children: list[Any]) -> Span:
        a, b = self._span(children[0]), self._span(children[-1])
        return Span(a.source, a.line, a.column, b.end_line, b.end_column)

    def _name(self, token: Any) -> ast.Name:
        return ast.Name(str(token), token_span(self.source, token))

    # ---- expressions
    def number(self, c: list[Any]) -> ast.Num:
        """A number, ``true``, ``false`` or ``inf``. Raises SyntaxFault for one that is too large."""
        token = c[0]
        match token.type:
            case "INT":
                value: int | float | bool = int(token)
            case "TRUE" | "FALSE":
                value = token.type == "TRUE"
            case _:
                value = float(token)
                if token.type == "FLOAT" and value == float("inf"):
                    raise _fault("N0109", "the number is too large", self._span(token), "infinity is 'inf'")
        return ast.Num(value, self._span(token))

    def name(self, c: list[Any]) -> ast.Name:
        """A name as an expression."""
        return self._name(c[0])

    def paren(self, c: list[Any]) -> ast.Expr:
        """The expression in parentheses."""
        inner: ast.Expr = c[1]
        return inner

    def unary(self, c: list[Any]) -> ast.Unary:
        """An operator in front of an expression."""
        span = self._join(c)
        return ast.Unary(str(c[0]), c[1], span, _height(span, c[1]))

    def chain(self, c: list[Any]) -> ast.Chain:
        """Expressions between operators of one precedence, left to right."""
        span = self._join(c)
        return ast.Chain(tuple(str(t) for t in c[1::2]), tuple(c[::2]), span, _height(span, *c[::2]))

    def compare(self, c: list[Any]) -> ast.Compare:
        """A chain of comparisons."""
        span = self._join(c)
        return ast.Compare(tuple(str(t) for t in c[1::2]), tuple(c[::2]), span, _height(span, *c[::2]))

    def ternary(self, c: list[Any]) -> ast.Ternary:
        """``a if c else b``."""
        span = self._join(c)
        return ast.Ternary(c[0], c[2], c[4], span, _height(span, c[0], c[2], c[4]))

    def cmp_op(self, c: list[Any]) -> Any:
        """A comparison operator."""
        return c[0]

    shift_op = add_op = mul_op = cmp_op

    def call_args(self, c: list[Any]) -> Args:
        """Arguments in parentheses."""
        return Args(tuple(x for x in c[1:-1:2]), self._join(c))

    def item(self, c: list[Any]) -> tuple[ast.Expr, ast.Expr | Ends | None]:
        """An item in brackets: an expression, with its range or its ends."""
        if len(c) == 5:
            return (c[0], Ends(c[2], c[4], self._join(c[2:])))
        return (c[0], c[2] if len(c) == 3 else None)

    def bracket(self, c: list[Any]) -> Bracket:
        """Items in brackets, with the condition after ``|``."""
        items = tuple(x for x in c if isinstance(x, tuple))
        bar = any(getattr(x, "type", "") == "BAR" for x in c)
        return Bracket(items, c[-2] if bar else None, self._join(c))

    def index(self, c: list[Any]) -> ast.Index:
        """An element of a tensor."""
        span = self._join(c)
        items = self._indices(c[1], "an index", _INDEX_HINT)
        return ast.Index(self._name(c[0]), items, span, _height(span, *items))

    def call_expr(self, c: list[Any]) -> ast.Call:
        """A call with arguments alone."""
        span = self._join(c)
        return ast.Call(self._name(c[0]), c[1].values, span, _height(span, *c[1].values))

    def bound_call(self, c: list[Any]) -> ast.BoundCall:
        """A reduction, or a call that binds index variables."""
        span = self._join(c)
        binders, cond = self._binders(c[1]), self._condition(c[1])
        kids = (*c[2].values, cond, *(b.range for b in binders))
        return ast.BoundCall(self._name(c[0]), binders, cond, c[2].values, span, _height(span, *kids))

    def _indices(self, bracket: Bracket, what: str, hint: str) -> tuple[ast.Expr, ...]:
        if bracket.cond is not None:
            raise _fault("N0111", f"{what} takes no condition", bracket.cond.span, hint)
        for _, size in bracket.items:
            if size is not None:
                raise _fault("N0111", f"{what} takes no range", size.span, _SLICE_HINT)
        return tuple(e for e, _ in bracket.items)

    def _binders(self, bracket: Bracket) -> tuple[ast.Binder, ...]:
        if not bracket.items:
            raise _fault("N0111", "at least one index variable is expected", bracket.span)
        out = []
        for e, size in bracket.items:
            if not isinstance(e, ast.Name):
                hint = CONDITION if isinstance(e, ast.Compare) else None
                raise _fault("N0111", "an index variable's name is expected here", e.span, hint)
            out.append(ast.Binder(e.id, None if isinstance(size, Ends) else size, e.span))
        return tuple(out)

    def _condition(self, bracket: Bracket) -> ast.Expr | None:
        """The condition of a reduction or a call: ``lo <= j < hi`` for each range ``lo .. hi``, and what is written.

        The ranges come first, so that what is written is not evaluated outside of them.
        """
        parts: list[ast.Expr] = []
        for e, size in bracket.items:
            if isinstance(size, Ends) and isinstance(e, ast.Name):
                parts.append(ast.Within(e, size.lo, size.hi, size.span, _height(size.span, size.lo, size.hi)))
        parts += () if bracket.cond is None else (bracket.cond,)
        if len(parts) < 2:
            return parts[0] if parts else None
        return ast.Chain(("and",) * (len(parts) - 1), tuple(parts), bracket.span, _height(bracket.span, *parts))

    # ---- statements (a list of statements is returned as one group where the form allows several)
    def dim_item(self, c: list[Any]) -> ast.Dim:
        """One name of a ``dim`` statement."""
        runtime = len(c) >= 3 and getattr(c[2], "type", "") == "RUNTIME"
        value = c[2] if len(c) == 3 and not runtime else None
        return ast.Dim(self._name(c[0]), value, runtime, c[4] if len(c) == 5 else None, self._join(c))

    def const_item(self, c: list[Any]) -> ast.Const:
        """One name of a ``const`` statement."""
        return ast.Const(self._name(c[0]), c[2], self._join(c))

    def tensor(self, c: list[Any]) -> tuple[Any, ...]:
        """The parts of a tensor declaration: name, type, shape, span and strided axes."""
        shape: tuple[ast.Expr, ...] = ()
        if len(c) >= 4:
            shape = self._indices(c[3], "a shape", "a shape is a list of sizes")
        strided = tuple(self._name(t) for t in c[6:-1:2]) if len(c) >= 5 else None
        return (self._name(c[0]), self._name(c[2]), shape, self._join(c), strided)

    def scalar_item(self, c: list[Any]) -> ast.ScalarDecl:
        """One name of a ``scalar`` statement."""
        default = c[4] if len(c) == 5 else None
        return ast.ScalarDecl(self._name(c[0]), self._name(c[2]), default, self._join(c))

    def group(self, c: list[Any]) -> tuple[Any, ...]:
        """The items of a statement with commas."""
        return tuple(c[1::2])

    dim_stmt = const_stmt = scalar_stmt = group

    def input_stmt(self, c: list[Any]) -> tuple[ast.TensorDecl, ...]:
        """An ``input`` or ``output`` statement."""
        return tuple(ast.TensorDecl(c[0].type == "OUTPUT", *parts) for parts in c[1::2])

    output_stmt = input_stmt

    def params(self, c: list[Any]) -> Args:
        """The parameters of a function."""
        return Args(tuple(self._name(t) for t in c[1:-1:2]), self._join(c))

    def def_stmt(self, c: list[Any]) -> tuple[ast.Function]:
        """A ``def`` statement. Raises SyntaxFault for an index variable with a range."""
        indices: tuple[ast.Name, ...] = ()
        cond: ast.Name | None = None
        if isinstance(c[2], Bracket):
            binders = self._binders(c[2])
            for _, size in c[2].items:
                if size is not None:
                    raise _fault("N0111", "a function's index variable takes its caller's range", size.span)
            indices = tuple(ast.Name(b.name, b.span) for b in binders)
            if c[2].cond is not None and not isinstance(c[2].cond, ast.Name):
                hint = "write 'def f[j | c](x) = ...' and use 'c' in the body"
                raise _fault("N0111", "a name for the caller's condition is expected", c[2].cond.span, hint)
            cond = c[2].cond
        params = next(x for x in c if isinstance(x, Args)).values
        return (ast.Function(self._name(c[1]), indices, cond, params, c[-1], self._join(c)),)

    def include_stmt(self, c: list[Any]) -> tuple[ast.Include]:
        """An ``include`` statement."""
        return (ast.Include(str(c[1])[1:-1], self._span(c[1])),)

    def assume_stmt(self, c: list[Any]) -> tuple[ast.Assume]:
        """An ``assume`` statement."""
        return (ast.Assume(c[1], self._join(c)),)

    def define_stmt(self, c: list[Any]) -> tuple[ast.Define]:
        """A definition. Raises SyntaxFault for a condition, and for a range with two ends."""
        dtype = None
        if getattr(c[1], "type", "") == "COLON":
            dtype = self._name(c[2])
        axes: tuple[ast.Binder, ...] = ()
        bracket = next((x for x in c if isinstance(x, Bracket)), None)
        if bracket is not None:
            if bracket.cond is not None:
                hint = "a definition holds at every index: use 'value if condition else other'"
                raise _fault("N0111", "a definition takes no condition", bracket.cond.span, hint)
            for e, size in bracket.items:
                if isinstance(size, Ends):
                    hint = "a definition holds at every index: use 'value if lo <= {0} < hi else other'"
                    name = e.id if isinstance(e, ast.Name) else "i"
                    raise _fault("N0111", "a definition takes no range 'lo .. hi'", size.span, hint.format(name))
            axes = self._binders(bracket) if bracket.items else ()
        return (ast.Define(self._name(c[0]), dtype, axes, c[-1], self._join(c)),)

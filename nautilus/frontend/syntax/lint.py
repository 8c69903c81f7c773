"""Warnings about valid constructs that are rarely intended: hidden indices, sizes as names of indices, divisions by 0.

They need the syntax only.  A function that takes index variables, such as ``softmax[j](x)``, is about the index of its
caller, and so are the reductions in its body over that index.  Only the reductions of the language bind an index that
may hide another one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from nautilus.core.errors import Diagnostic, Note, Severity
from nautilus.core.source import Span
from nautilus.frontend.syntax import ast
from nautilus.frontend.syntax.ast import children

_COMPUTED: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv
}  # fmt: skip


def lint(statements: Iterable[ast.Statement], reductions: Collection[str]) -> list[Diagnostic]:
    """All warnings; ``reductions``: the names that bind index variables."""
    known = list(statements)
    sizes = {s.name.id: s.name.span for s in known if isinstance(s, (ast.Dim, ast.Const))}
    constants = dict[str, float]()
    for s in known:
        if isinstance(s, ast.Const) and (value := _number(s.value, constants)) is not None:
            constants[s.name.id] = value
    out: list[Diagnostic] = []
    for s in known:
        for d in s.defines if isinstance(s, ast.Recur) else (s,):
            if isinstance(d, ast.Define):
                out += _sizes(d.axes, sizes)
                out += _expr(d.expr, {b.name: b.span for b in d.axes}, sizes, reductions, constants)
            elif isinstance(d, ast.Function):
                out += _expr(d.body, {}, sizes, reductions, constants)
    return out


def _warning(code: str, message: str, span: Span, note: str, there: Span, hint: str) -> Diagnostic:
    return Diagnostic(code, message, span, (Note(note, there),), hint, Severity.WARNING)


def _sizes(binders: Iterable[ast.Binder], sizes: dict[str, Span]) -> Iterator[Diagnostic]:
    for b in binders:
        if b.name in sizes:
            message = f"index '{b.name}' has the name of a size, which it hides here"
            yield _warning("N0309", message, b.span, "the size", sizes[b.name], "give the index another name")


def _expr(
    e: ast.Expr, scope: dict[str, Span], sizes: dict[str, Span], reductions: Collection[str],
    constants: Mapping[str, float],
) -> Iterator[Diagnostic]:  # fmt: skip
    if isinstance(e, ast.BoundCall) and e.name.id in reductions:
        yield from _sizes(e.binders, sizes)
        for b in e.binders:
            if b.name in scope:
                message = f"index '{b.name}' of '{e.name.id}' hides the index of the same name"
                hint = "inside the brackets, the name means the inner index; give one of the two another name"
                yield _warning("N0308", message, b.span, "the hidden index", scope[b.name], hint)
        scope = scope | {b.name: b.span for b in e.binders}
    if isinstance(e, ast.Chain):
        for op, divisor in zip(e.ops, e.args[1:], strict=True):
            if op in ("/", "%") and _number(divisor, {n: v for n, v in constants.items() if n not in scope}) == 0:
                hint = "a number divided by zero is inf or NaN"
                yield Diagnostic("N0408", "division by zero", divisor.span, (), hint, Severity.WARNING)
    for child in children(e):
        yield from _expr(child, scope, sizes, reductions, constants)


def _number(e: ast.Expr, constants: Mapping[str, float]) -> float | None:
    """The value of an expression of numbers and ``constants``; None for another one."""
    match e:
        case ast.Num(value=value):
            return float(value) if abs(value) < 1 << 64 else None
        case ast.Name(id=name):
            return constants.get(name)
        case ast.Unary(op="-", arg=arg):
            found = _number(arg, constants)
            return None if found is None else -found
        case ast.Chain(ops=ops, args=args) if _COMPUTED.keys() >= set(ops):
            total, *rest = (_number(a, constants) for a in args)
            for op, x in zip(ops, rest, strict=True):
                total = None if total is None or x is None or (op == "/" and x == 0) else _COMPUTED[op](total, x)
            return total
    return None

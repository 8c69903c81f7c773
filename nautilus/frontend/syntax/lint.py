"""Warnings about what is valid and seldom meant: hidden indices, indices with the names of sizes, divisions by zero.

They need the syntax only.  A function that takes index variables, such as ``softmax[j](x)``, is about the index of its
caller, and so are the reductions in its body over that index.  Only the reductions of the language bind an index that
may hide another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields

from nautilus.core.errors import Diagnostic, Note, Severity
from nautilus.core.source import Span
from nautilus.frontend.syntax import ast


def lint(statements: Iterable[ast.Statement], reductions: Collection[str]) -> list[Diagnostic]:
    """All warnings; ``reductions``: the names that bind index variables."""
    known = list(statements)
    sizes = {s.name.id: s.name.span for s in known if isinstance(s, (ast.Dim, ast.Const))}
    out: list[Diagnostic] = []
    for s in known:
        for d in s.defines if isinstance(s, ast.Recur) else (s,):
            if isinstance(d, ast.Define):
                out += _sizes(d.axes, sizes)
                out += _expr(d.expr, {b.name: b.span for b in d.axes}, sizes, reductions)
            elif isinstance(d, ast.Function):
                out += _expr(d.body, {}, sizes, reductions)
    return out


def _warning(code: str, message: str, span: Span, note: str, there: Span, hint: str) -> Diagnostic:
    return Diagnostic(code, message, span, (Note(note, there),), hint, Severity.WARNING)


def _sizes(binders: Iterable[ast.Binder], sizes: dict[str, Span]) -> Iterator[Diagnostic]:
    for b in binders:
        if b.name in sizes:
            message = f"index '{b.name}' has the name of a size, which it hides here"
            yield _warning("N0309", message, b.span, "the size", sizes[b.name], "give the index another name")


def _expr(
    e: ast.Expr, scope: dict[str, Span], sizes: dict[str, Span], reductions: Collection[str]
) -> Iterator[Diagnostic]:
    if isinstance(e, ast.BoundCall) and e.name.id in reductions:
        yield from _sizes(e.binders, sizes)
        for b in e.binders:
            if b.name in scope:
                message = f"index '{b.name}' of '{e.name.id}' hides the index of the same name"
                hint = "inside the brackets it is the inner one; another name makes that clear"
                yield _warning("N0308", message, b.span, "the hidden index", scope[b.name], hint)
        scope = scope | {b.name: b.span for b in e.binders}
    if isinstance(e, ast.Chain):
        for op, divisor in zip(e.ops, e.args[1:], strict=True):
            if op == "/" and isinstance(divisor, ast.Num) and divisor.value == 0:
                hint = "a number divided by zero is inf or NaN"
                yield Diagnostic("N0408", "division by zero", divisor.span, (), hint, Severity.WARNING)
    for child in _children(e):
        yield from _expr(child, scope, sizes, reductions)


def _children(node: ast.Expr) -> Iterator[ast.Expr]:
    for f in fields(node):
        value = getattr(node, f.name)
        for child in value if isinstance(value, tuple) else (value,):
            if isinstance(child, ast.Expr):
                yield child

"""What a spec says, whatever its sizes: a hash under which results for several sizes belong together.

Two files have the same *family* where their statements are equal once comments, layout and the values
of fixed dims are left out.  The functions that they call, of the prelude too, are part of it; those that
nobody calls are not.  The file's name is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace

from nautilus.frontend.syntax import ast

_SKIPPED = ("span", "depth")


def family(statements: Iterable[ast.Statement], functions: dict[str, ast.Function]) -> str:
    """16 hexadecimal digits; ``functions`` are all that may be called, by name."""
    parts: list[ast.Statement] = []
    for s in statements:
        if isinstance(s, ast.Dim):
            s = s if s.runtime else replace(s, value=None)
        if not isinstance(s, (ast.Function, ast.Include)):
            parts.append(s)
    called = sorted(_reached(parts, functions))
    text = "\n".join([*(_text(p) for p in parts), *(_text(functions[name]) for name in called)])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _reached(parts: list[ast.Statement], functions: dict[str, ast.Function]) -> set[str]:
    found: set[str] = set()
    todo: list[object] = list(parts)
    while todo:
        for node in _nodes(todo.pop()):
            if isinstance(node, (ast.Call, ast.BoundCall)) and node.name.id in functions and node.name.id not in found:
                found.add(node.name.id)
                todo.append(functions[node.name.id])
    return found


def _nodes(root: object) -> Iterator[object]:
    todo = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, tuple):
            todo.extend(node)
        elif is_dataclass(node):
            yield node
            todo.extend(getattr(node, f.name) for f in fields(node) if f.name not in _SKIPPED)


def _text(node: object) -> str:
    if isinstance(node, tuple):
        return "[" + " ".join(map(_text, node)) + "]"
    if is_dataclass(node):
        inner = " ".join(_text(getattr(node, f.name)) for f in fields(node) if f.name not in _SKIPPED)
        return f"({type(node).__name__} {inner})"
    return repr(node)

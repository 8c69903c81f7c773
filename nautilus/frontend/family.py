"""The family of a spec: a hash that is independent of sizes and groups the results of several sizes.

Two files have the same *family* if their statements are equal apart from comments, layout and the values of fixed dims.
The family includes the functions that the statements call, also those of the prelude.  It includes neither unused
functions nor the name of the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace

from nautilus.frontend.syntax import ast

_SKIPPED = ("span", "depth")
_LATER = ("strided", "device")  # added after families were stored; None counts as no such field


def family(statements: Iterable[ast.Statement], functions: dict[str, ast.Function]) -> str:
    """The family as 16 hexadecimal digits; ``functions`` holds all functions by name."""
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
        values = {f.name: getattr(node, f.name) for f in fields(node) if f.name not in _SKIPPED}
        inner = " ".join(_text(v) for name, v in values.items() if v is not None or name not in _LATER)
        return f"({type(node).__name__} {inner})"
    return repr(node)

"""References in docstrings name what there is: modules, functions, classes, constants, and members of classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.shipped import ROOT

_ROLE = re.compile(r":(?:func|class|data|meth|attr):`~?\.*([\w.]+)`")
_MODULE = re.compile(r":mod:`~?\.*([\w.]+)`")
_MEMBER = re.compile(r"``([A-Z]\w+)\.(\w+)``")
_LIBRARY = {"ctypes", "json"}


@cache
def trees() -> dict[Path, ast.Module]:
    return {p: ast.parse(p.read_text()) for p in sorted((ROOT / "nautilus").rglob("*.py"))}


@cache
def modules() -> frozenset[str]:
    """The modules by their full names and by every end of them."""
    paths = (p.relative_to(ROOT).with_suffix("") for p in trees())
    names = (".".join(p.parts).removesuffix(".__init__").split(".") for p in paths)
    return frozenset(".".join(parts[n:]) for parts in names for n in range(len(parts))) | _LIBRARY


def bound(node: ast.AST) -> Iterator[str]:
    """Every name that ``node`` and the nodes in it define."""
    for n in ast.walk(node):
        match n:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


@cache
def defined() -> frozenset[str]:
    return frozenset(name for tree in trees().values() for name in bound(tree))


@cache
def members() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for tree in trees().values():
        for n in ast.walk(tree):
            if isinstance(n, ast.ClassDef):  # several classes may have one name
                found.setdefault(n.name, set()).update(bound(n))
    return {name: frozenset(names) for name, names in found.items()}


def unknown(text: str) -> list[str]:
    """The references in ``text`` that name nothing."""
    missing = [m[0] for m in _MODULE.finditer(text) if m[1] not in modules()]
    missing += [m[0] for m in _ROLE.finditer(text) if m[1].rpartition(".")[2] not in defined()]
    return missing + [m[0] for m in _MEMBER.finditer(text) if m[2] not in members().get(m[1], {m[2]})]


def test_references_in_docstrings_name_what_there_is() -> None:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    found = [
        f"{path.relative_to(ROOT)}: {reference}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, documented)
        for reference in unknown(ast.get_docstring(node, clean=False) or "")
    ]
    assert not found


def test_unknown_references_are_found() -> None:
    text = ":mod:`nautilus.core.absent` :func:`no_such_function` ``KernelPlan.repair`` ``KernelPlan.phases``"
    assert unknown(text) == [":mod:`nautilus.core.absent`", ":func:`no_such_function`", "``KernelPlan.repair``"]

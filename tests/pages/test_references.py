"""References in docstrings name what there is: modules, functions, classes, constants, and members of classes."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.shipped import ROOT

_ROLE = re.compile(r":(?:func|class|data|meth|attr):`~?\.*([\w.]+)`")
_MODULE = re.compile(r":mod:`~?\.*([\w.]+)`")
_MEMBER = re.compile(r"``([A-Z]\w+)\.(\w+)``")
_LIBRARY = {"ctypes", "json"}


@dataclass(frozen=True)
class Known:
    """What the package defines. ``names``: all; ``members``: by class, several of which may have one name."""

    names: set[str]
    members: dict[str, set[str]]
    documented: list[tuple[Path, str]]  # the docstrings with their files


def paths() -> list[Path]:
    return sorted((ROOT / "nautilus").rglob("*.py"))


@cache
def modules() -> frozenset[str]:
    """The modules by their full names and by every end of them."""
    files = (p.relative_to(ROOT).with_suffix("") for p in paths())
    names = (".".join(p.parts).removesuffix(".__init__").split(".") for p in files)
    return frozenset(".".join(parts[n:]) for parts in names for n in range(len(parts))) | _LIBRARY


@cache
def known() -> Known:
    """One traversal of all files, whose trees are large."""
    found = Known(set(), {}, [])
    for path in paths():
        todo: list[tuple[ast.AST, tuple[set[str], ...]]] = [(ast.parse(path.read_text()), (found.names,))]
        while todo:
            node, inside = todo.pop()
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found.documented.append((path, ast.get_docstring(node, clean=False) or ""))
            if isinstance(node, ast.ClassDef):
                inside = (*inside, found.members.setdefault(node.name, set()))
            if name := bound(node):
                for names in inside:
                    names.add(name)
            todo += ((child, inside) for child in ast.iter_child_nodes(node) if _may_define(child))
    return found


def _may_define(node: ast.AST) -> bool:
    """Whether ``node`` may define what others refer to, as no values do, which are most of all nodes."""
    if isinstance(node, ast.expr):
        return isinstance(getattr(node, "ctx", None), ast.Store)
    return not isinstance(node, ast.expr_context | ast.operator)


def bound(node: ast.AST) -> str:
    """The name that ``node`` itself defines, if any."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
            return name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
    return ""


def unknown(text: str) -> list[str]:
    """The references in ``text`` that name nothing."""
    missing = [m[0] for m in _MODULE.finditer(text) if m[1] not in modules()]
    missing += [m[0] for m in _ROLE.finditer(text) if m[1].rpartition(".")[2] not in known().names]
    return missing + [m[0] for m in _MEMBER.finditer(text) if m[2] not in known().members.get(m[1], {m[2]})]


def test_references_in_docstrings_name_what_there_is() -> None:
    documented = known().documented
    assert not [f"{path.relative_to(ROOT)}: {x}" for path, text in documented for x in unknown(text)]


def test_unknown_references_are_found() -> None:
    text = ":mod:`nautilus.core.absent` :func:`no_such_function` ``KernelPlan.repair`` ``KernelPlan.phases``"
    assert unknown(text) == [":mod:`nautilus.core.absent`", ":func:`no_such_function`", "``KernelPlan.repair``"]

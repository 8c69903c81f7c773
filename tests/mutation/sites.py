"""The mutants of a source file, by the operators of cosmic-ray.

A site is a place in the text that an operator can change; an operator may have several variants there.  Some places
are left out because a change there has no meaning at run time or changes speed only: annotations, docstrings, options
of decorators, and ``strict=`` of ``zip``.  So are variants that exchange ``==`` and ``is``, and the last element in
place of the first one of what has one element.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: what is mutated: expressions and index algebra, the passes, the emitter, the checker, the planner
ROOMS = ("core", "scalar", "vr_tile", "ma_tile", "cuda", "check", "planner")
#: operators that need arguments, or make mutants of no interest
_LEFT_OUT = ("Variable", "RemoveDecorator", "_Is", "_Is_", "_IsNot")
#: leaves that no operator changes
_UNCHANGED = frozenset({"name", "string", "newline", "endmarker", "fstring_start", "fstring_string", "fstring_end"})
_PUNCTUATION = frozenset("()[]{},.:=") | {"->", ":=", "if", "else", "return", "for", "def", "import", "from", "class"}


@dataclass(frozen=True, slots=True)
class Site:
    """``operator`` applied to the ``occurrence``-th place of ``file`` that it can change; ``line`` counts from 1."""

    file: str
    line: int
    column: int
    operator: str
    occurrence: int


@dataclass(frozen=True, slots=True)
class Mutant:
    """The lines ``before`` of ``file``, from ``line`` (from 1), become ``after``; ``statement``: the lines around."""

    file: str
    line: int
    operator: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    statement: tuple[int, int]

    @property
    def key(self) -> str:
        """What the mutant is, without the number of its line, which other changes of the file move."""
        return f"{self.file} {' '.join(self.before)} => {' '.join(self.after)}"

    @property
    def text(self) -> str:
        """The text of the file with the change, which may have moved. Raises ValueError where its lines are gone."""
        lines, at = (ROOT / self.file).read_text("utf-8").splitlines(), self._first()
        lines[at : at + len(self.before)] = self.after
        return "\n".join(lines) + "\n"

    @property
    def placed(self) -> Mutant:
        """The mutant with the numbers of its lines in the file as it is. Raises ValueError where they are gone."""
        by, (first, end) = self._first() + 1 - self.line, self.statement
        return replace(self, line=self.line + by, statement=(first + by, end + by))

    def _first(self) -> int:
        """The index of the first line ``before`` in the file, the nearest one to ``line``."""
        lines, size = (ROOT / self.file).read_text("utf-8").splitlines(), len(self.before)
        places = [n for n in range(len(lines)) if tuple(lines[n : n + size]) == self.before]
        if not places:
            raise ValueError(f"{self.file} has no lines {self.before}")
        return min(places, key=lambda n: abs(n + 1 - self.line))


def sources() -> list[str]:
    """Paths of the files that are mutated, relative to the root."""
    found = [p for room in ROOMS for p in sorted((ROOT / "nautilus" / room).rglob("*.py"))]
    return [str(p.relative_to(ROOT)) for p in found if p.stat().st_size]


@cache
def _operators() -> dict[str, Any]:
    from cosmic_ray.plugins import get_operator, operator_names

    wanted = [n for n in operator_names() if not any(w in n.rpartition("/")[2] for w in _LEFT_OUT)]
    return {name: get_operator(name)() for name in wanted}


def sites(file: str) -> dict[tuple[int, int], list[Site]]:
    """The variants of each site of ``file``, by line and column."""
    from cosmic_ray.ast import get_ast

    text = (ROOT / file).read_text("utf-8")
    silent, only = _silent_spans(text), _only_elements(text)
    counts = dict.fromkeys(_operators(), 0)
    out: dict[tuple[int, int], list[Site]] = {}
    for node in _nodes(get_ast(text)):
        for name, operator in _operators().items():
            for n, (start, _end) in enumerate(operator.mutation_positions(node)):
                last = name.endswith("NumberReplacer") and n == 1 and start in only  # the first element is the last one
                if not last and not any(a <= start < b for a, b in silent):
                    out.setdefault(start, []).append(Site(file, start[0], start[1], name, counts[name]))
                counts[name] += 1
    return dict(sorted(out.items()))


def _nodes(node: Any) -> Iterator[Any]:
    """Those that an operator may change, in the order in which cosmic-ray counts occurrences."""
    if node.type not in _UNCHANGED and getattr(node, "value", "") not in _PUNCTUATION:
        yield node
    for child in getattr(node, "children", ()):
        yield from _nodes(child)


def mutant(site: Site) -> Mutant:
    """The mutant at ``site``."""
    from cosmic_ray.mutating import mutate_code

    old = (ROOT / site.file).read_text("utf-8")
    new = mutate_code(old, _operators()[site.operator], site.occurrence)
    before, after = old.splitlines(), str(new).splitlines()
    first = next(n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
    last = next(n for n, (a, b) in enumerate(zip(before[::-1], after[::-1], strict=False)) if a != b)
    lines = statement_lines(old).get(site.line, range(site.line, site.line + 1))
    changed = tuple(before[first : len(before) - last]), tuple(after[first : len(after) - last])
    return Mutant(site.file, first + 1, site.operator, *changed, (lines.start, lines.stop))


_Span = tuple[tuple[int, int], tuple[int, int]]


def _silent_spans(text: str) -> list[_Span]:
    """The spans of what is left out."""
    out = []
    for node in ast.walk(ast.parse(text)):
        parts: list[ast.AST | None] = []
        match node:
            case ast.FunctionDef():
                parts = [node.returns, *node.decorator_list]
            case ast.ClassDef():
                parts = [*node.decorator_list]
            case ast.arg() | ast.AnnAssign():
                parts = [node.annotation]
            case ast.keyword(arg="strict"):
                parts = [node.value]
            case ast.Assign(value=ast.Subscript(value=ast.Name(id="Callable" | "tuple" | "dict"))):
                parts = [node.value]  # an alias of a type
            case ast.Call(func=ast.Name(id="cast")):
                parts = [node.args[0]]
        out += [_span(p) for p in parts if p is not None]
    return out


def _only_elements(text: str) -> frozenset[tuple[int, int]]:
    """The places of each ``0`` in ``x[0]`` where a function asks whether ``x`` has one element."""
    out = set[tuple[int, int]]()
    for function in ast.walk(ast.parse(text)):
        nodes = [*ast.walk(function)] if isinstance(function, ast.FunctionDef) else []
        asked = set[str]()
        for node in nodes:
            match node:
                case ast.Compare(
                    left=ast.Call(func=ast.Name(id="len"), args=[x]),
                    ops=[ast.Eq() | ast.NotEq()],
                    comparators=[ast.Constant(value=1)],
                ):
                    asked.add(ast.dump(x))
        for node in nodes:
            match node:
                case ast.Subscript(value=x, slice=ast.Constant(value=0) as zero) if ast.dump(x) in asked:
                    out.add((zero.lineno, zero.col_offset))
    return frozenset(out)


def _span(node: Any) -> _Span:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def statement_lines(text: str) -> dict[int, range]:
    """The lines of the innermost statement around each line of ``text``; of a compound statement, its head."""
    out: dict[int, range] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            lines = range(node.lineno, max(last, node.lineno) + 1)
            for n in lines:
                if n not in out or len(lines) <= len(out[n]):
                    out[n] = lines
    return out


def function_lines(text: str) -> frozenset[int]:
    """The lines of ``text`` in bodies of functions."""
    bodies = (n.body for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(line for b in bodies for line in range(b[0].lineno, (b[-1].end_lineno or 0) + 1))


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """The statements of ``tree``, nested ones too; expressions, which are most of its nodes, are not visited."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            todo += getattr(node, part, ())


@cache
def imports() -> dict[str, frozenset[str]]:
    """By source file, the source files that it imports."""
    files = {str(p.relative_to(ROOT)) for p in (ROOT / "nautilus").rglob("*.py")}
    out = {}
    for file in files:
        names = set[str]()
        for node in statements(ast.parse((ROOT / file).read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
            elif isinstance(node, ast.Import):
                names |= {a.name for a in node.names}
        paths = {n.replace(".", "/") for n in names}
        out[file] = frozenset({f"{p}.py" for p in paths} | {f"{p}/__init__.py" for p in paths}) & files
    return out

"""The dependence order of definitions, and their cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nautilus.core.errors import Note
from nautilus.core.source import Span
from nautilus.frontend.semantics.symbols import Symbols
from nautilus.frontend.syntax import ast


def mentions(node: ast.Expr, hidden: frozenset[str]) -> Iterable[tuple[str, Span, bool]]:
    """(name, place, is a call) for every name in ``node`` that is not bound inside it or ``hidden``."""
    match node:
        case ast.Name(id=name, span=span):
            if name not in hidden:
                yield name, span, False
        case ast.Index(name=name, items=items):
            yield from mentions(name, hidden)
            for item in items:
                yield from mentions(item, hidden)
        case ast.Call(name=name, args=args):
            yield name.id, name.span, True
            for arg in args:
                yield from mentions(arg, hidden)
        case ast.BoundCall(name=name, binders=binders, cond=cond, args=args):
            yield name.id, name.span, True
            inner = hidden | {b.name for b in binders}
            for arg in (*args, *(() if cond is None else (cond,))):
                yield from mentions(arg, inner)
        case ast.Within(lo=lo, hi=hi):
            yield from mentions(lo, hidden)
            yield from mentions(hi, hidden)
        case ast.Unary(arg=arg):
            yield from mentions(arg, hidden)
        case ast.Chain(args=args) | ast.Compare(args=args):
            for arg in args:
                yield from mentions(arg, hidden)
        case ast.Ternary(then=then, test=test, other=other):
            for part in (then, test, other):
                yield from mentions(part, hidden)


def _cycles(graph: dict[str, list[tuple[str, Span]]]) -> tuple[list[str], list[list[tuple[str, Span]]]]:
    """Nodes in dependence order, and the cycles met: each a list of (node, place of its mention)."""
    order: list[str] = []
    state: dict[str, int] = {}  # 1: on the path, 2: done
    cycles: list[list[tuple[str, Span]]] = []
    for root in graph:
        if root in state:
            continue
        state[root] = 1
        stack = [(root, iter(graph[root]))]
        path: list[str] = [root]
        places: list[Span] = []
        while stack:
            name, edges = stack[-1]
            for target, span in edges:
                if state.get(target) == 1:
                    start = path.index(target)
                    spans = [*places[start:], span]
                    cycles.append(list(zip([*path[start + 1 :], target], spans, strict=True)))
                elif target not in state:
                    state[target] = 1
                    stack.append((target, iter(graph[target])))
                    path.append(target)
                    places.append(span)
                    break
            else:
                stack.pop()
                path.pop()
                if places:
                    places.pop()
                state[name] = 2
                order.append(name)
    return order, cycles


def broken_functions(sym: Symbols) -> None:
    """Report and remove functions that call themselves directly or indirectly."""
    graph: dict[str, list[tuple[str, Span]]] = {}
    for name, f in sym.functions.items():
        hidden = frozenset(n.id for n in (*f.indices, *f.params, *((f.cond,) if f.cond else ())))
        calls = (m for m in mentions(f.body, hidden) if m[2] and m[0] in sym.functions)
        graph[name] = [(n, span) for n, span, _ in calls]
    for cycle in _cycles(graph)[1]:
        _report(sym, cycle, lambda n: f"function '{n}' is defined from itself")
        for name, _ in cycle:
            body = sym.functions[name].body
            zero = ast.Num(0, body.span)
            f = sym.functions[name]
            sym.functions[name] = ast.Function(f.name, f.indices, f.cond, f.params, zero, f.span)


def dependence_order(sym: Symbols) -> list[tuple[str, ...]]:
    """Names of the definitions, each after those it reads; cycles are reported and left out.

    The definitions of one recurrence are one entry, and every other definition is one for itself.
    """
    through: dict[str, list[tuple[str, Span]]] = {}

    def tensors(node: ast.Expr, hidden: frozenset[str]) -> list[tuple[str, Span]]:
        out: dict[str, Span] = {}
        for name, span, call in mentions(node, hidden):
            if not call and name in sym.defines:
                out.setdefault(name, span)
            elif call and name in sym.functions:
                for inner, _ in functions(name):
                    out.setdefault(inner, span)
        return list(out.items())

    def functions(name: str) -> list[tuple[str, Span]]:
        if name not in through:
            f = sym.functions[name]
            through[name] = []
            hidden = frozenset(n.id for n in (*f.indices, *f.params, *((f.cond,) if f.cond else ())))
            through[name] = tensors(f.body, hidden)
        return through[name]

    first = {n: sym.recurrences[n].defines[0].name.id if n in sym.recurrences else n for n in sym.defines}
    members: dict[str, list[str]] = {}
    graph: dict[str, list[tuple[str, Span]]] = {}
    for name, d in sym.defines.items():
        found = tensors(d.expr, frozenset(b.name for b in d.axes))
        own = first[name] if name in sym.recurrences else None
        members.setdefault(first[name], []).append(name)
        graph.setdefault(first[name], []).extend((first[n], span) for n, span in found if first[n] != own)
    order, cycles = _cycles(graph)
    bad: set[str] = set()
    for cycle in cycles:
        _report(sym, cycle, lambda n: f"'{n}' is defined from its own value", _ONE if len(cycle) == 1 else _SEVERAL)
        bad |= {name for name, _ in cycle}
    return [tuple(members[n]) for n in order if n not in bad]


_ONE = "a definition that reads its own earlier values is a recurrence: 'recur h[t] = ... h[t - 1] ...'"
_SEVERAL = "tensors that read earlier values of each other stand in one block: 'recur { ... }'"


def _report(sym: Symbols, cycle: list[tuple[str, Span]], say: Callable[[str], str], hint: str | None = None) -> None:
    name, span = cycle[-1]
    notes = tuple(Note(f"by way of '{n}', used here", where) for n, where in cycle[:-1])
    sym.error("N0207", say(name), span, hint, *notes)

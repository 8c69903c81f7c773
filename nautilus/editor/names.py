"""Which name means what: every name in the statements of a spec, with the entity that it stands for.

Dims, consts, scalars, tensors and functions are entities of the whole spec.  Index variables and the arguments of
functions belong to the place that binds them.  A reduction binds its index variables anew.  Another function with index
variables is about those of its caller where they are bound, and binds them where they are not.  In the body of a
function, the formal index variables are those of the function also where a reduction binds them, because they stand
for those of the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.frontend.semantics.symbols import BUILTINS, CASTS, REDUCTIONS
from nautilus.frontend.semantics.types.packed import PACKED
from nautilus.frontend.syntax import ast
from nautilus.frontend.syntax.ast import children

#: the kinds of entities
VALUES = ("dim", "const", "scalar", "input", "output", "intermediate")
LOCALS = ("index", "formal", "argument", "condition")
FUNCTIONS = ("function", "built-in")
TYPES = frozenset({*CASTS, *PACKED})


@dataclass(frozen=True, slots=True)
class Entity:
    """What a name stands for.

    ``kind``: one of :data:`VALUES`, :data:`LOCALS`, :data:`FUNCTIONS`, ``type``, or ``unknown``.  ``bound``: where a
    local one is bound, None for one of the whole spec.
    """

    kind: str
    name: str
    bound: Span | None = None


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A name in the text. ``role``: ``declares``, ``defines`` (the left side of a definition), or ``uses``."""

    span: Span
    entity: Entity
    role: str = "uses"


_Scope = Mapping[str, Entity]


@dataclass(frozen=True, slots=True)
class _Globals:
    values: Mapping[str, Entity]
    functions: Mapping[str, Entity]


def occurrences(statements: Sequence[ast.Statement], prelude: Iterable[ast.Function]) -> Iterator[Occurrence]:
    """The names in ``statements``, each place once."""
    known = _globals(statements, prelude)
    seen: set[Span] = set()
    for s in statements:
        for found in _statement(s, known):
            if found.span not in seen:  # a range of an index names it twice in the tree and once in the text
                seen.add(found.span)
                yield found


def _globals(statements: Sequence[ast.Statement], prelude: Iterable[ast.Function]) -> _Globals:
    values: dict[str, Entity] = {}
    functions = {f.name.id: Entity("function", f.name.id) for f in prelude}
    for s in _flat(statements):
        match s:
            case ast.Dim():
                values.setdefault(s.name.id, Entity("dim", s.name.id))
            case ast.Const():
                values.setdefault(s.name.id, Entity("const", s.name.id))
            case ast.ScalarDecl():
                values.setdefault(s.name.id, Entity("scalar", s.name.id))
            case ast.TensorDecl():
                values.setdefault(s.name.id, Entity("output" if s.is_output else "input", s.name.id))
            case ast.Function():
                functions[s.name.id] = Entity("function", s.name.id)
    for s in _flat(statements):
        if isinstance(s, ast.Define):
            values.setdefault(s.name.id, Entity("intermediate", s.name.id))
    return _Globals(values, functions)


def _flat(statements: Iterable[ast.Statement]) -> Iterator[ast.Statement]:
    for s in statements:
        yield from s.defines if isinstance(s, ast.Recur) else (s,)


def _statement(s: ast.Statement, known: _Globals) -> Iterator[Occurrence]:
    match s:
        case ast.Dim(name=name, value=value, bound=bound):
            yield Occurrence(name.span, known.values[name.id], "declares")
            yield from _all((value, bound), {}, known)
        case ast.Const(name=name, value=value):
            yield Occurrence(name.span, known.values[name.id], "declares")
            yield from _expr(value, {}, known)
        case ast.ScalarDecl(name=name, dtype=dtype, default=default):
            yield Occurrence(name.span, known.values[name.id], "declares")
            yield _type(dtype)
            yield from _all((default,), {}, known)
        case ast.TensorDecl(name=name, dtype=dtype, shape=shape, strided=strided):
            yield Occurrence(name.span, known.values[name.id], "declares")
            yield _type(dtype)
            yield from _all(shape, {}, known)
            yield from (_value(n, {}, known) for n in strided or () if n.id in known.values)
        case ast.Recur(defines=defines):
            for d in defines:
                yield from _statement(d, known)
        case ast.Define():
            yield from _definition(s, known)
        case ast.Function():
            yield from _function(s, known)
        case ast.Assume(fact=fact):
            for found in _expr(fact, _implicit(fact, known), known):
                binds = found.entity.kind == "index" and found.entity.bound == found.span
                yield Occurrence(found.span, found.entity, "declares") if binds else found


def _definition(s: ast.Define, known: _Globals) -> Iterator[Occurrence]:
    yield Occurrence(s.name.span, known.values[s.name.id], "defines")
    if s.dtype is not None:
        yield _type(s.dtype)
    scope = {b.name: Entity("index", b.name, b.span) for b in reversed(s.axes)}
    for b in s.axes:
        yield Occurrence(b.span, scope[b.name], "declares" if scope[b.name].bound == b.span else "uses")
    yield from _all((b.range for b in s.axes), {}, known)
    yield from _expr(s.expr, scope, known)


def _function(s: ast.Function, known: _Globals) -> Iterator[Occurrence]:
    yield Occurrence(s.name.span, known.functions[s.name.id], "declares")
    scope: dict[str, Entity] = {}
    kinds = [*(("formal", n) for n in s.indices), *(("argument", n) for n in s.params)]
    kinds += [("condition", s.cond)] if s.cond is not None else []
    for kind, name in kinds:
        scope.setdefault(name.id, Entity(kind, name.id, name.span))
        yield Occurrence(name.span, scope[name.id], "declares")
    yield from _expr(s.body, scope, known)


def _implicit(fact: ast.Expr, known: _Globals) -> _Scope:
    """The index variables of a fact, which nothing binds: each is bound at its first place."""
    scope: dict[str, Entity] = {}
    for found in _expr(fact, {}, known):
        if found.entity.kind == "unknown" and found.entity.name not in scope:
            scope[found.entity.name] = Entity("index", found.entity.name, found.span)
    return scope


def _type(name: ast.Name) -> Occurrence:
    return Occurrence(name.span, Entity("type" if name.id in TYPES else "unknown", name.id))


def _value(name: ast.Name, scope: _Scope, known: _Globals) -> Occurrence:
    entity = scope.get(name.id) or known.values.get(name.id) or Entity("unknown", name.id)
    return Occurrence(name.span, entity)


def _called(name: ast.Name, known: _Globals) -> Occurrence:
    if name.id in TYPES:
        return Occurrence(name.span, Entity("type", name.id))
    if name.id in known.functions:
        return Occurrence(name.span, known.functions[name.id])
    return Occurrence(name.span, Entity("built-in" if name.id in BUILTINS else "unknown", name.id))


def _all(nodes: Iterable[ast.Expr | None], scope: _Scope, known: _Globals) -> Iterator[Occurrence]:
    for node in nodes:
        if node is not None:
            yield from _expr(node, scope, known)


def _expr(e: ast.Expr, scope: _Scope, known: _Globals) -> Iterator[Occurrence]:
    match e:
        case ast.Name():
            yield _value(e, scope, known)
        case ast.Index(name=name, items=items):
            tensors = {n: entity for n, entity in scope.items() if entity.kind == "argument"}
            yield _value(name, tensors, known)
            yield from _all(items, scope, known)
        case ast.Call(name=name, args=args):
            yield _called(name, known)
            yield from _all(args, scope, known)
        case ast.BoundCall():
            yield from _bound_call(e, scope, known)
        case ast.Within(index=index, lo=lo, hi=hi):
            yield _value(index, scope, known)
            yield from _all((lo, hi), scope, known)
        case _:
            yield from _all(children(e), scope, known)


def _bound_call(e: ast.BoundCall, scope: _Scope, known: _Globals) -> Iterator[Occurrence]:
    yield _called(e.name, known)
    inner = dict(scope)
    reduces = e.name.id in REDUCTIONS
    for b in e.binders:
        outer = scope.get(b.name)
        rebinds = outer is not None and (outer.kind == "formal" or (not reduces and outer.kind == "index"))
        if not rebinds and (b.name not in inner or inner[b.name] is outer):
            inner[b.name] = Entity("index", b.name, b.span)
        yield Occurrence(b.span, inner[b.name], "declares" if inner[b.name].bound == b.span else "uses")
    yield from _all((b.range for b in e.binders), scope, known)
    yield from _all((e.cond, *e.args), inner, known)

"""Matching of a Spec's expressions against templates that are specs themselves.

A template is a small ``.naut`` text, for example ``Y[i, j] = softmax[j](X[i, j])``.  The frontend expands it with the
prelude like any spec.  Its inputs match arbitrary expressions of the indices in their brackets, its scalars match
numbers, and the size :data:`SIZE` matches any size.  :func:`unify` compares a template with an expression up to the
names of bound variables.  A spec that uses the prelude therefore matches by construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from nautilus.core.expr.nodes import (
    Axis,
    Const,
    Expr,
    Load,
    Op,
    Param,
    Reduce,
    Var,
    children,
    free_vars,
    rewrite,
    substitute,
    with_children,
)
from nautilus.core.expr.simplify import simplify_value
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Definition, Spec

SIZE = 12347  # the size in a template that matches any size


@dataclass(frozen=True)
class Capture:
    """The expression ``expr`` that an input of a template matches, and the actual names of its bracketed indices."""

    expr: Expr
    names: tuple[str, ...]
    canonical: Expr


Found = dict[str, Capture]


@lru_cache(maxsize=64)
def template(text: str) -> Expr:
    """The expression of the last definition of the spec ``text``, constants folded."""
    spec = load_text(text, "template.naut")
    return fold(spec.definitions[-1].expr)


def fold(e: Expr) -> Expr:
    """``e`` with constant sub-expressions folded."""

    def rule(n: Expr) -> Expr | None:
        constant = isinstance(n, Op) and all(isinstance(a, Const) for a in n.args)
        return simplify_value(n) if constant else None

    return rewrite(e, rule)


def unify(pattern: Expr, e: Expr, env: Mapping[str, str], found: Found) -> bool:
    """Whether ``e`` is an instance of ``pattern``; adds the captures of its inputs to ``found``.

    ``env`` maps variables of the pattern to variables of ``e``; variables that it lacks occur only in brackets.
    """
    match pattern, e:
        case Load(buffer=name, index=index), _:
            return _capture(name, index, e, env, found)
        case Param(name=name), Const() | Param():
            return found.setdefault(name, Capture(e, (), e)).canonical == e
        case Const(value=value), Const(value=have) if value == SIZE:
            return _size(have, found)
        case Const(value=value), Const(value=have):
            return value == have
        case Var(name=name), Var(name=have):
            return env.get(name) == have
        case Op(), Op():
            same = pattern.op == e.op and len(pattern.args) == len(e.args)
            return same and all(unify(p, a, env, found) for p, a in zip(pattern.args, e.args, strict=True))
        case Reduce(), Reduce():
            return _unify_reduce(pattern, e, env, found)
    return False


def _unify_reduce(pattern: Reduce, e: Reduce, env: Mapping[str, str], found: Found) -> bool:
    if pattern.op != e.op or len(pattern.axes) != len(e.axes):
        return False
    for p, a in zip(pattern.axes, e.axes, strict=True):
        if p.extent == SIZE and not _size(a.extent if isinstance(a.extent, int) else -1, found):
            return False
    inner = {**env, **{p.name: a.name for p, a in zip(pattern.axes, e.axes, strict=True)}}
    if pattern.cond is not None and (e.cond is None or not unify(pattern.cond, e.cond, inner, found)):
        return False
    return (pattern.cond is None) == (e.cond is None) and unify(pattern.body, e.body, inner, found)


def _size(have: float, found: Found) -> bool:
    number = Const(int(have), DType.I32)
    return found.setdefault("%size", Capture(number, (), number)).canonical == number


def _capture(name: str, index: tuple[Expr, ...], e: Expr, env: Mapping[str, str], found: Found) -> bool:
    """Capture ``e`` as input ``name``; a second occurrence must match up to bound variables."""
    bracket = [i.name for i in index if isinstance(i, Var)]
    names = tuple(env[v] for v in bracket if v in env)
    hidden = {actual for v, actual in env.items() if v not in bracket} - set(names)
    if free_vars(e) & hidden:
        return False
    positions = {actual: Var(f"%{p}") for p, actual in enumerate(names)}
    made = Capture(e, names, nameless(substitute(e, positions)))
    return found.setdefault(name, made).canonical == made.canonical


def nameless(e: Expr, depth: int = 0) -> Expr:
    """``e`` with bound variables named by their binding depth, so equality ignores names."""
    if isinstance(e, Reduce):
        names = {a.name: Var(f"@{depth}.{n}") for n, a in enumerate(e.axes)}
        cond = None if e.cond is None else substitute(e.cond, names)
        axes = tuple(Axis(v.name, a.extent) for v, a in zip(names.values(), e.axes, strict=True))
        e, depth = replace(e, axes=axes, cond=cond, body=substitute(e.body, names)), depth + 1
    return with_children(e, tuple(nameless(c, depth) for c in children(e)))


# -- one expression for an output ----------------------------------------------------------------


def inlined(spec: Spec, output: str) -> Expr:
    """The expression of ``output`` with every definition that it reads inlined, and constants folded.

    An inlined output with a declared type keeps its rounding cast.
    """
    made: dict[str, Definition] = {}
    for d in spec.definitions:
        expr = _expand(_fresh(d), made)
        if d.is_output and d.dtype is not None and d.name != output:
            expr = Op("cast", (expr,), d.dtype)
        made[d.name] = replace(d, expr=expr)
    return fold(made[output].expr)


def _fresh(d: Definition) -> Expr:
    """The expression of ``d`` with bound variables that are unique to ``d``."""

    def rule(e: Expr, names: Mapping[str, str]) -> Expr:
        if isinstance(e, Var):
            return replace(e, name=names.get(e.name, e.name))
        if isinstance(e, Reduce):
            names = {**names, **{a.name: f"{d.name}.{a.name}" for a in e.axes}}
            e = replace(e, axes=tuple(Axis(names[a.name], a.extent, a.span) for a in e.axes))
        return with_children(e, tuple(rule(c, names) for c in children(e)))

    return rule(d.expr, {})


def _expand(e: Expr, made: Mapping[str, Definition]) -> Expr:
    def rule(n: Expr) -> Expr | None:
        if isinstance(n, Load) and n.buffer in made:
            d = made[n.buffer]
            return substitute(d.expr, {a.name: i for a, i in zip(d.axes, n.index, strict=True)})
        return None

    return rewrite(e, rule)


def strip_casts(e: Expr) -> Expr:
    """``e`` without outer conversions to f32, f64, i32 and i64."""
    while isinstance(e, Op) and e.op == "cast" and e.dtype in (DType.F32, DType.F64, DType.I32, DType.I64):
        e = e.args[0]
    return e


def constant_factor(body: Expr, parts: Sequence[Expr]) -> float | None:
    """The constant factor of a product besides ``parts``; None if it has other factors."""
    scale = 1.0
    stack = [body]
    while stack:
        node = stack.pop()
        if any(node is p for p in parts):
            continue
        if isinstance(node, Op) and node.op in ("mul", "neg", "cast"):
            scale = -scale if node.op == "neg" else scale
            stack.extend(node.args)
            if node.op == "cast" and node.dtype not in (DType.F32, DType.F64, DType.I32, DType.I64):
                return None
        elif isinstance(node, Const):
            scale *= float(node.value)
        else:
            return None
    return scale

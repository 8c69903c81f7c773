"""Facts that a spec states: ``assume N % 8 == 0``, ``assume M <= N``, ``assume 0 <= len[b] <= N``.

A fact about fixed sizes is checked here.  A fact about numbers that are given at launch is checked by the launcher, and
what it says of one runtime size alone becomes a part of the size: its least value, its bound and a divisor
(:class:`~nautilus.core.expr.nodes.Param`).  One about two sizes gives each of them the least value and the bound that
follow from those of the other.  A fact that reads a tensor is a promise of the caller.  The names in index
positions of such a fact that stand for nothing else are index variables; it holds at all of their values at which each
read is inside of its tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import lcm

from nautilus.core.expr.nodes import Axis, Load, Param, Reduce, Var, substitute, walk
from nautilus.core.index.sizes import MAX_DIM
from nautilus.core.types import DType, Number
from nautilus.frontend.semantics import constant, typed
from nautilus.frontend.semantics.alpha import tidy
from nautilus.frontend.semantics.expand import Expander, expand_definition
from nautilus.frontend.semantics.frames import Frame
from nautilus.frontend.semantics.symbols import Symbols
from nautilus.frontend.semantics.types.index_width import exact_indices
from nautilus.frontend.spec import Assumption
from nautilus.frontend.syntax import ast
from nautilus.frontend.syntax.unsupported import refusal

_SWAPPED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "==": "=="}


# ---- what facts say of one size
def note_sizes(sym: Symbols, assumed: int = 0) -> None:
    """Record ranges and divisors of runtime sizes; facts of other forms are left out.

    The last ``assumed`` facts are those of a variant, about single sizes.  What they say of others is left out: the
    launcher, which chooses the variant, compares these sizes alone.
    """
    own = len(sym.assumes) - assumed
    facts = [s.fact for s in sym.assumes]
    _note_each(sym, facts[:own])
    _note_pairs(sym, facts[:own])
    _note_each(sym, facts[own:])
    for name, dim in sym.dims.items():
        most = (sym.bounds.get(name) or MAX_DIM) // sym.multiples.get(name, 1) * sym.multiples.get(name, 1)
        if sym.values[name] is None and sym.least.get(name, 0) > most:
            sym.error("N0507", f"no size of '{name}' satisfies what is assumed about it", dim.span)


def _note_each(sym: Symbols, facts: Sequence[ast.Expr]) -> None:
    """Record what ``facts`` say of single sizes by numbers."""
    for fact in facts:
        if any(sym.dims[n.id].device for n in _names(fact) if n.id in sym.dims):
            continue
        for left, op, right in _comparisons(fact):
            _note(sym, left, op, right)
            if op in _SWAPPED:
                _note(sym, right, _SWAPPED[op], left)


def _comparisons(fact: ast.Expr) -> Iterator[tuple[ast.Expr, str, ast.Expr]]:
    match fact:
        case ast.Chain(ops=ops, args=args) if set(ops) == {"and"}:
            for a in args:
                yield from _comparisons(a)
        case ast.Compare(ops=ops, args=args):
            yield from zip(args, ops, args[1:], strict=False)


def _note(sym: Symbols, left: ast.Expr, op: str, right: ast.Expr) -> None:
    """Record ``left op right`` where ``left`` is a dim, or its remainder, and ``right`` is a number."""
    n = _number(sym, right)
    match left:
        case ast.Name(id=name) if name in sym.dims and n is not None:
            _narrow(sym, name, op, n, n)
        case ast.Chain(ops=("%",), args=(ast.Name(id=name), by)) if name in sym.dims and n == 0 and op == "==":
            divisor = _number(sym, by)
            if divisor is not None and 0 < divisor <= MAX_DIM:
                sym.multiples[name] = lcm(sym.multiples.get(name, 1), divisor)


def _narrow(sym: Symbols, name: str, op: str, low: int, high: int) -> None:
    """Record ``name op n`` for a number ``n`` between ``low`` and ``high``."""
    if op in (">=", ">", "=="):
        sym.least[name] = max(sym.least.get(name, 0), low + (op == ">"))
    if op in ("<=", "<", "==") and high - (op == "<") > 0:
        sym.bounds[name] = min(sym.bounds.get(name) or MAX_DIM, high - (op == "<"))


def _note_pairs(sym: Symbols, facts: Sequence[ast.Expr]) -> None:
    """Record what a fact about two sizes, as ``B1 == B + 1`` or ``M <= N``, says of each by the range of the other.

    A fact may narrow the range that an earlier one needs, so there are as many rounds as sizes.
    """
    found = list[tuple[str, str, str, int]]()  # size, comparison, another size, and what is added to that
    for left, op, right in (c for fact in facts for c in _comparisons(fact) if c[1] in _SWAPPED):
        (a, plus), (b, more) = _moved(sym, left), _moved(sym, right)
        if a is not None and b is not None and a != b:
            found += [(a, op, b, more - plus), (b, _SWAPPED[op], a, plus - more)]
    found = [f for f in found if not (sym.dims[f[0]].device or sym.dims[f[2]].device)]
    for _ in sym.dims if found else ():
        for a, op, b, by in found:
            most = sym.bounds.get(b)  # without a bound, only the least value of the other size is known
            _narrow(sym, a, op, sym.least.get(b, 0) + by, 0 if most is None else min(most + by, MAX_DIM))


def _moved(sym: Symbols, e: ast.Expr) -> tuple[str | None, int]:
    """The runtime size that ``e`` adds a number to, and the number; None for another expression."""
    match e:
        case ast.Name(id=name) if name in sym.dims and sym.values.get(name) is None:
            return name, 0
        case ast.Chain(ops=("+" | "-" as op,), args=(ast.Name(id=name), by)):
            n = _number(sym, by)
            if name in sym.dims and sym.values.get(name) is None and n is not None:
                return name, n if op == "+" else -n
    return None, 0


def _number(sym: Symbols, e: ast.Expr) -> int | None:
    """The integer that ``e`` is at compile time, or None."""

    def lookup(name: ast.Name) -> Number:
        value = sym.values.get(name.id)
        if value is None:
            raise constant.NotConstant("N0504", "", name.span)
        return value

    try:
        value = constant.evaluate(e, lookup)
    except typed.Fault:
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# ---- checked facts
def assumptions(sym: Symbols) -> tuple[Assumption, ...]:
    """The facts about what is not known before the launch; a fact that does not hold for fixed sizes is reported."""
    made = [_assumption(sym, s) for s in sym.assumes]
    return tuple(a for a in made if a is not None)


def _assumption(sym: Symbols, statement: ast.Assume) -> Assumption | None:
    variables = _variables(sym, statement.fact, frozenset())
    for node in _names(statement.fact):
        if node.id in variables and not _is_read(node, statement.fact):
            continue
        if node.id in sym.defines:
            what = f"'{node.id}' is computed; a fact is about sizes, scalars and inputs"
            sym.error("N0508", what, node.span)
            return None
        if node.id in sym.dims and sym.dims[node.id].device and sym.values[node.id] is None:
            sym.report(refusal("device", node.span))
            return None
    expander = Expander(sym)
    axes = [expander.fresh(name, node.span) for name, node in variables.items()]
    expr = expand_definition(expander, statement.fact, Frame({b.name: b for b in axes}))
    sizes = [expander.infer_range(b, quiet=expr is None) for b in axes]
    if expr is None or any(s is None for s in sizes):
        return None
    if expr.dtype is not DType.BOOL:
        sym.error("N0402", f"'assume' needs a condition, but got {expr.dtype}", statement.fact.span)
        return None
    extents = {b.var.name: s.extent for b, s in zip(axes, sizes, strict=True) if s is not None}
    expr = exact_indices(expr, extents)
    expr = substitute(expr, {b.var.name: Var(b.name, DType.I32, b.span) for b in axes})
    expr = tidy(expr, expander.names, {*(b.name for b in axes), *sym.names()})[0]
    kept = tuple(Axis(b.name, extents[b.var.name], b.span) for b in axes)
    return _checked(sym, Assumption(kept, expr, statement.span))


def _checked(sym: Symbols, fact: Assumption) -> Assumption | None:
    """``fact``, or None for one that needs no check at launch; reports one that does not hold for the known sizes."""
    from nautilus.core.expr.evaluate import evaluate  # it loads numpy

    if sym.placeholder or any(isinstance(n, Load | Reduce) for n in walk(fact.condition)):
        return fact
    known = {n: v for n, v in (*sym.overrides.items(), *sym.values.items()) if v is not None}
    try:
        holds = bool(evaluate(fact.condition, known))
    except KeyError:
        return fact
    if not holds:
        used = sorted({n.name for n in walk(fact.condition) if isinstance(n, Param)} | _named(sym, fact))
        where = ", ".join(f"{name} is {known[name]}" for name in used if name in known)
        sym.error("N0507", "this fact does not hold" + (f": {where}" if where else ""), fact.span)
    return fact if any(isinstance(n, Param) for n in walk(fact.condition)) else None


def _named(sym: Symbols, fact: Assumption) -> set[str]:
    statement = next(s for s in sym.assumes if s.span == fact.span)
    return {n.id for n in _names(statement.fact) if n.id in sym.dims}


def _variables(sym: Symbols, e: ast.Expr, bound: frozenset[str], inside: bool = False) -> Mapping[str, ast.Name]:
    """The index variables of a fact: names in index positions that stand for no number there.

    A tensor with axes is no number, so its name is an index variable, as it may be in a definition.
    """
    out: dict[str, ast.Name] = {}
    if isinstance(e, ast.Name):
        return {e.id: e} if inside and e.id not in bound and not _is_number(sym, e.id) else {}
    if isinstance(e, ast.BoundCall):
        bound = bound | {b.name for b in e.binders}
    for part in _parts(e):
        for name, node in _variables(sym, part, bound, inside or isinstance(e, ast.Index)).items():
            out.setdefault(name, node)
    return out


def _is_number(sym: Symbols, name: str) -> bool:
    """Whether ``name`` alone is a value: a dim, a constant, a scalar or a tensor without axes."""
    if name in sym.decls:
        return not sym.decls[name].shape
    return not sym.defines[name].axes if name in sym.defines else name in sym.names()


def _is_read(name: ast.Name, e: ast.Expr) -> bool:
    """Whether ``name`` is that of a tensor that ``e`` reads at some position."""
    if isinstance(e, ast.Index) and e.name is name:
        return True
    return any(_is_read(name, part) for part in _parts(e))


def _names(e: ast.Expr) -> Iterator[ast.Name]:
    """Every name that ``e`` mentions, also those of tensors."""
    if isinstance(e, ast.Name | ast.Index):
        yield e if isinstance(e, ast.Name) else e.name
    for part in _parts(e):
        yield from _names(part)


def _parts(e: ast.Expr) -> tuple[ast.Expr, ...]:
    match e:
        case ast.Index(items=items):
            return items
        case ast.Call(args=args) | ast.Chain(args=args) | ast.Compare(args=args):
            return args
        case ast.BoundCall(args=args, cond=cond):
            return args if cond is None else (*args, cond)
        case ast.Unary(arg=arg):
            return (arg,)
        case ast.Ternary(then=then, test=test, other=other):
            return (then, test, other)
    return ()

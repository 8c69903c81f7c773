"""Whether the conditions of a repair term hold in the module that the pass made.

The repair term of what equals a running extremum, ``t = select(old == new, a, identity)``, is right where the
conditions of its certificate hold: the element ``x0`` is bounded by ``old0``, and that by ``new0``; a NaN among them is
the extremum itself.  They are proved on the statements around the place at which ``t`` stands, with the buffers that it
reads there as ``old`` and ``new``:

* every update of ``a`` tests whether an element equals ``old`` or ``new``, and that extremum is made of all these
  elements: by updates in equal loops, under no further condition;
* what it tests as ``new`` is stored as ``old`` for the next iteration;
* ``new`` combines ``old``: it starts as a copy of ``old``, or ``old`` is an element of it.

A condition that a reference is not 0 holds where the module replaces 0 by 1 in what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, children, walk
from nautilus.core.records import dataclass
from nautilus.core.text.expressions import format_expr
from nautilus.core.types import DType
from nautilus.scalar.ir import Loop, Program, Stmt, Update

_BOUND = {"max": "le", "min": "ge"}


@dataclass(frozen=True)
class _Written:
    """A store or an update: its combiner ("": a store), what it writes, and the loops around it."""

    op: str
    buffer: str
    index: tuple[Expr, ...]
    value: Expr
    conditions: frozenset[Expr]
    loops: frozenset[tuple[str, Expr, Expr]]


def unproved(c: Certificate, after: object) -> str:
    """Why a condition of the repair certificate ``c`` is not proved for the module ``after``; '' if all are."""
    if not isinstance(after, Program):
        return ""
    statements = tuple(w for k in after.kernels for w in _statements(k.body, frozenset()))
    expressions = {n for w in statements for e in (w.value, *w.conditions) for n in walk(e)}
    kinds = {n.name: n for e in c.conditions for n in walk(e) if isinstance(n, Var)}
    held: set[Expr] = set()
    if any(_replaces_zero(e) for e in expressions):
        held |= {_compared("ne", v, Const(0.0, v.dtype)) for name, v in kinds.items() if name[:3] in ("old", "new")}
    t = dict(c.bindings).get("t")
    places = [at for e in expressions if t is not None and (at := _matched(t, e, {})) is not None]
    if {"x0", "old0", "new0"} <= kinds.keys():
        x, old, new = kinds["x0"], kinds["old0"], kinds["new0"]
        for op in _BOUND:
            if any(_bounds(op, at, statements) for at in places):
                held |= {_bounded(op, x, old), _bounded(op, old, new)}
    missing = next((e for e in c.conditions if e not in held), None)
    return "" if missing is None else f"no statement implies {format_expr(missing)}"


def _bounds(op: str, at: Mapping[str, Expr], statements: tuple[_Written, ...]) -> bool:
    """Whether the extremum ``old`` of ``at`` bounds what ``a`` was made of, and ``new`` bounds ``old``."""
    old, new, a = at.get("old0"), at.get("new0"), at.get("a")
    if not (isinstance(old, Load) and isinstance(new, Load) and isinstance(a, Load)):
        return False
    names = {old.buffer, new.buffer}
    asked = {_extremum(w, op, names, statements) for w in statements if w.op and w.buffer == a.buffer}
    if not asked or None in asked:
        return False
    if new.buffer in asked and not any(_copies(w, new.buffer, old.buffer) for w in statements if not w.op):
        return False
    combined = {w.op for w in statements if w.op and w.buffer == new.buffer}
    return combined == {op} and any(_copies(w, old.buffer, new.buffer) for w in statements)


def _extremum(w: _Written, op: str, names: set[str], statements: tuple[_Written, ...]) -> str | None:
    """Which extremum of ``names`` is made of all elements of the update ``w``, which equal it."""
    for condition in w.conditions:
        for x, r in _equal(condition):
            made = [u for u in statements if u.op and isinstance(r, Load) and u.buffer == r.buffer]
            if made and all(
                (u.op, u.value, u.index, u.loops) == (op, x, getattr(r, "index", ()), w.loops)
                and u.conditions <= w.conditions - {condition}
                for u in made
            ):
                return made[0].buffer if made[0].buffer in names else None
    return None


def _equal(c: Expr) -> Iterator[tuple[Expr, Expr]]:
    """The sides of an equality, in both orders, also where it holds for NaN too."""
    if isinstance(c, Op) and c.op == "or":
        same, nan = c.args
        yield from ((x, r) for x, r in _equal(same) if nan == _compared("ne", x, x))
    elif isinstance(c, Op) and c.op == "eq":
        yield c.args[0], c.args[1]
        yield c.args[1], c.args[0]


def _copies(w: _Written, source: str, target: str) -> bool:
    """Whether ``w`` writes an element of ``source``, as it is, to ``target``."""
    return w.buffer == target and isinstance(w.value, Load) and w.value.buffer == source


def _statements(body: tuple[Stmt, ...], loops: frozenset[tuple[str, Expr, Expr]]) -> Iterator[_Written]:
    for s in body:
        if isinstance(s, Loop):
            yield from _statements(s.body, loops | {(s.var, s.lo, s.hi)})
        else:
            op = s.op if isinstance(s, Update) else ""
            yield _Written(op, s.buffer, s.index, s.value, frozenset(_parts(s.guard)), loops)


def _parts(c: Expr | None) -> Iterator[Expr]:
    """The conditions of which ``c`` is the conjunction."""
    match c:
        case None:
            return
        case Op(op="and", args=args):
            for e in args:
                yield from _parts(e)
        case Op(op="select", args=(first, then, Const(value=False))):
            yield from _parts(first)
            yield from _parts(then)
        case _:
            yield c


def _matched(t: Expr, e: Expr, env: dict[str, Expr]) -> dict[str, Expr] | None:
    """The expressions that the variables of ``t`` stand for if it is ``e``; None if it is not."""
    if isinstance(t, Var):
        return env if env.setdefault(t.name, e) == e else None
    inner, theirs = children(t), children(e)
    if type(t) is not type(e) or len(inner) != len(theirs) or not _same_node(t, e):
        return None
    for a, b in zip(inner, theirs, strict=True):
        if _matched(a, b, env) is None:
            return None
    return env


def _same_node(t: Expr, e: Expr) -> bool:
    """Whether two nodes are the same but for what stands in them."""
    if isinstance(t, Op) and isinstance(e, Op):
        return (t.op, t.dtype) == (e.op, e.dtype)
    return t == e


def _replaces_zero(e: Expr) -> bool:
    match e:
        case Op(op="select", args=(Op(op="eq", args=(r, Const(value=zero))), Const(value=one), other)):
            return r == other and (zero, one) == (0.0, 1.0)
    return False


def _bounded(op: str, x: Expr, r: Expr) -> Expr:
    return Op("or", (_compared(_BOUND[op], x, r), _compared("ne", r, r)), DType.BOOL)


def _compared(op: str, a: Expr, b: Expr) -> Op:
    return Op(op, (a, b), DType.BOOL)

"""Index expressions and conditions in the syntax of isl, which has no ``select``.

An expression with a ``select`` is piecewise affine: it has one piece for each side, under the condition of that side.

isl reserves words such as ``mod`` and ``exists``, and every size that is known at launch has to be declared
before the set.  So variables and sizes have names of their own here, and :func:`sized` declares the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nautilus.core.expr.nodes import Const, Expr, Op, Param, Var, rewrite, walk
from nautilus.scalar.ir import Loop

RELATIONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "!="}
_MOST_PIECES = 16  # pieces of an index at most


class NotAffine(Exception):
    """An expression outside of Presburger arithmetic."""


def variable(name: str) -> str:
    """The name in isl of the variable ``name``: another one for each, and never one that isl reserves."""
    return f"v_{_spelled(name)}"


def _spelled(name: str) -> str:
    """``name`` in letters, digits and underscores, another text for each."""
    return "".join(c if c.isascii() and c.isalnum() else "__" if c == "_" else f"_{ord(c):x}_" for c in name)


def variables(names: Iterable[str]) -> str:
    """A tuple of variables."""
    return f"[{', '.join(map(variable, names))}]"


def _size(name: str) -> str:
    return f"p_{_spelled(name)}"


def sized(made: Callable[[str], Any], exprs: Iterable[Expr], text: str) -> Any:
    """The isl object that ``made`` makes of ``text``, at all sizes that a launch may have; ``exprs`` have them all."""
    import islpy

    sizes = {n.name: n for e in exprs for n in walk(e) if isinstance(n, Param)}
    names = f"[{', '.join(_size(name) for name in sorted(sizes))}]"
    ranges = " and ".join(_range(p) for p in sizes.values() if p.most is not None) or "true"
    return made(f"{names} -> {{ {text} }}").intersect_params(islpy.Set(f"{names} -> {{ : {ranges} }}"))


def _range(p: Param) -> str:
    """What is known of a size."""
    name = _size(p.name)
    return f"{p.least} <= {name} <= {p.most} and {name} mod {p.multiple} = 0"


def iterations(loop: Loop) -> str:
    """The condition that the variable of ``loop`` is within its bounds."""
    return _somewhere([loop.lo, loop.hi], lambda lo, hi: f"{isl_text(lo)} <= {variable(loop.var)} < {isl_text(hi)}")


def condition(e: Expr) -> str:
    """A condition in the syntax of isl. Raises NotAffine."""
    match e:
        case Const(value=value):
            return "true" if value else "false"
        case Op(op="and" | "or" as op, args=(a, b)):
            return f"({condition(a)} {op} {condition(b)})"
        case Op(op="not", args=(a,)):
            return f"(not {condition(a)})"
        case Op(op="select", args=(c, a, b)):
            return f"(({condition(c)} and {condition(a)}) or (not {condition(c)} and {condition(b)}))"
        case Op(op=op, args=(a, b)) if op in RELATIONS and a.dtype.is_int:
            return _somewhere([a, b], lambda x, y: f"{isl_text(x)} {RELATIONS[op]} {isl_text(y)}")
    raise NotAffine("a condition is not affine")


def _somewhere(pair: Sequence[Expr], relation: Callable[[Expr, Expr], str]) -> str:
    """The condition ``relation`` of two expressions that may be piecewise."""
    found = [" and ".join([*conditions, relation(*both)]) for conditions, both in pieces(pair)]
    return f"({' or '.join(f'({p})' for p in found)})" if len(found) > 1 else f"({found[0]})"


def pieces(exprs: Sequence[Expr]) -> list[tuple[list[str], tuple[Expr, ...]]]:
    """``exprs`` without ``select``, once for each of its sides, with the conditions under which they are these.

    Raises NotAffine.
    """
    chosen = next((n for e in exprs for n in walk(e) if isinstance(n, Op) and n.op == "select"), None)
    if chosen is None:
        return [([], tuple(exprs))]
    holds, *sides = condition(chosen.args[0]), *chosen.args[1:]
    out = []
    for text, side in zip((holds, f"(not {holds})"), sides, strict=True):
        rest = [rewrite(e, lambda n, x=side: x if n == chosen else None) for e in exprs]  # type: ignore[misc]
        out += [([text, *more], made) for more, made in pieces(rest)]
    if len(out) > _MOST_PIECES:
        raise NotAffine("an index has too many pieces")
    return out


def isl_text(e: Expr) -> str:
    """An affine expression in the syntax of isl. Raises NotAffine."""
    match e:
        case Const(value=value) if e.dtype.is_int:
            return str(int(value))
        case Var(name=name):
            return variable(name)
        case Param(name=name):
            return _size(name)
        case Op(op="add" | "sub" as op, args=(a, b)):
            return f"({isl_text(a)} {'+' if op == 'add' else '-'} {isl_text(b)})"
        case Op(op="neg", args=(a,)):
            return f"(-{isl_text(a)})"
        case Op(op="mul", args=(Const(value=n), a)) | Op(op="mul", args=(a, Const(value=n))):
            return f"({int(n)} * {isl_text(a)})"
        case Op(op="floordiv", args=(a, Const(value=n))) if n > 0:
            return f"floor({isl_text(a)} / {int(n)})"
        case Op(op="mod", args=(a, Const(value=n))) if n > 0:
            return f"({isl_text(a)} mod {int(n)})"
        case Op(op="cast", args=(a,)) if a.dtype.is_int and e.dtype.is_int and e.dtype.bits >= a.dtype.bits:
            return isl_text(a)
        case Op(op="min" | "max" as op, args=(a, b)):
            return f"{op}({isl_text(a)}, {isl_text(b)})"
    raise NotAffine("an index is not affine")

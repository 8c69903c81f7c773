"""Index expressions split into a term of the thread and a term of the register.

A position is ``base + offset(r)``: the base is one value in each thread, and the offset is a constant after the
register loop is unrolled.  A comparison of positions then compares one value of the thread with a constant, and the
conversion of a position to f32 is one conversion in each thread and one addition in each register.  An ``index`` op
that is ``split`` is spelled so if equality with the plain text is certain and the expression is linear in an axis.
"""

from __future__ import annotations

from nautilus.core.expr.nodes import Expr, Op, Var, walk
from nautilus.core.index import simplify as index
from nautilus.core.index.linear import Linear, build, linear
from nautilus.core.types import DType
from nautilus.cuda.registers import register_offset
from nautilus.cuda.writer import Writer

_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_EXACT = 1 << 24  # integers below it are exact in f32
_SAFE = 1 << 30  # sums of a few such positions do not overflow 32 bits


def condition(w: Writer, e: Expr, layout: str, r: str) -> str | None:
    """C text of a bool expression of positions, or None."""
    match e:
        case Op(op="and" | "or" as name, args=(a, b)):
            left, right = condition(w, a, layout, r), condition(w, b, layout, r)
            if left is None or right is None:
                return None
            return f"({left}) {'&&' if name == 'and' else '||'} ({right})"
        case Op(op=name, args=(a, b)) if name in _COMPARE and a.dtype is DType.I32 and b.dtype is DType.I32:
            parts = _cut(w, linear(a) - linear(b), layout, r, _SAFE)
            return None if parts is None else f"{parts[0]} {_COMPARE[name]} -({parts[1]})"
    return None


def as_float(w: Writer, e: Expr, layout: str, r: str) -> str | None:
    """C text of ``(float)e`` for an integer position, or None."""
    if e.dtype is not DType.I32:
        return None
    parts = _cut(w, linear(e), layout, r, _EXACT)
    return None if parts is None else f"(float)({parts[0]}) + (float)({parts[1]})"


def _cut(w: Writer, form: Linear, layout: str, r: str, limit: int) -> tuple[str, str] | None:
    """(thread part, register part) of ``form``, both smaller than ``limit``."""
    slopes = {a: form.slope(a) for a in w.tile_axes if form.slope(a)}
    others = [t for t in form.terms if not (isinstance(t, Var) and t.name in slopes)]
    if r == "0" or not slopes or any(isinstance(x, Var) and x.name in w.tile_axes for t in others for x in walk(t)):
        return None
    whole = build(form, DType.I32)
    low, high = index.bounds(whole, w.ranges)
    reach = sum(abs(c) * w.ranges[a][1] for a, c in slopes.items())
    if low is None or high is None or max(-low, high) + reach >= limit:
        return None
    offsets = [(c, register_offset(w.all_layouts[layout], a, r)) for a, c in slopes.items()]
    moved = _sum([(c, text) for c, text in offsets if text != "0"])
    if not moved:
        return None
    saved = dict(w.env)
    w.env.update({a: w.base(layout, a) for a in slopes})
    text = w.expr(whole)
    w.env = saved
    return text, moved


def _sum(terms: list[tuple[int, str]]) -> str:
    """C text of the sum of ``factor * text``, with positive factors first; each text is a sum of products."""
    text = ""
    for factor, x in sorted(terms, key=lambda t: t[0] < 0):
        sign = ("-" if factor < 0 else "") if not text else f" {'-' if factor < 0 else '+'} "
        bare = factor == 1 or (factor == -1 and text and " + " not in x)
        text += sign + (x if bare else f"({x})" if abs(factor) == 1 else f"{abs(factor)} * ({x})")
    return text

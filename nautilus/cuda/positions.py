"""Index expressions split into a term of the thread and a term of the register.

A position is ``base + offset(r)``: the base is one value in each thread, and the offset is a constant after the
register loop is unrolled.  A comparison of positions then compares one value of the thread with a constant, and the
conversion of a position to f32 is one conversion in each thread and one addition in each register.  An ``index`` op
that is ``split`` is spelled so if equality with the plain text is certain and the expression is linear in an axis.

A position divided by the step of registers, and its remainder, are digits of which one is a term of the thread alone.

A condition of several comparisons is spelled as bounds on the offset along one axis: all of several upper bounds hold
up to the least of them, and one of them up to the greatest.  The terms of the thread are variables in front of the
register loop, and ``&`` and ``|`` join what is left, because ptxas makes branches of many ``||``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from nautilus.core.expr.nodes import Const, Expr, Op, Var, rewrite, walk
from nautilus.core.index import simplify as index
from nautilus.core.index.linear import Linear, build, linear
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.cuda.ctypes import literal
from nautilus.cuda.registers import register_offset
from nautilus.cuda.writer import Writer
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.layout import FragLayout, Mode

_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_EXACT = 1 << 24  # integers below it are exact in f32
_SAFE = 1 << 30  # sums of a few such positions do not overflow 32 bits
_MOST = (1 << 31) - 1


def condition(w: Writer, e: Expr, layout: str, r: str) -> str | None:
    """C text of a bool expression at register ``r`` of ``layout``; None where it is not one of positions alone."""
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


def whole(w: Writer, e: Expr, layout: str, r: str) -> str:
    """C text of ``e`` at register ``r`` of ``layout``, where :func:`condition` has none.

    Positions below 2^30 that are nearer than a distance, ``abs(a - b) < c``, are one comparison of unsigned numbers.
    """
    match e:
        case Op(op="and" | "or" as name, args=args):
            return f" {'&' if name == 'and' else '|'} ".join(f"({whole(w, a, layout, r)})" for a in args)
        case Op(op="lt" | "le" as name, args=(Op(op="abs", args=(x,)), Const(value=most))):
            reach = int(most) - (name == "lt")
            low, high = index.bounds(x, w.ranges)
            if x.dtype is DType.I32 and reach >= 0 and low is not None and high is not None and max(-low, high) < _SAFE:
                return f"(u32)({_by_digits(w, x, layout, r)} + {reach}) <= {2 * reach}u"
    return _by_digits(w, e, layout, r)


def _by_digits(w: Writer, e: Expr, layout: str, r: str) -> str:
    """C text of ``e``, in which the digits of positions are variables."""
    names: dict[str, str] = {}

    def rule(n: Expr) -> Expr | None:
        match n:
            case Op(op="floordiv" | "mod" as name, args=(Var(name=axis), Const(value=base))) if axis in w.tile_axes:
                if not w.all_layouts[layout].is_digit(axis, int(base)):
                    return None
                digit = f"{axis} {name} {base}"
                names[digit] = _digit(w, layout, axis, int(base), name, r)
                last = w.ranges[axis][1] // int(base) if name == "floordiv" else int(base) - 1
                w.ranges.setdefault(digit, (0, last))
                return Var(digit, DType.I32)
        return None

    made = rewrite(e, rule)
    saved = dict(w.env)
    w.env.update(names)
    text = w.expr(made, w.all_layouts[layout], r)
    w.env = saved
    return text


def _digit(w: Writer, layout: str, axis: str, base: int, name: str, r: str) -> str:
    """C text of ``position // base`` or ``position % base`` of ``r``, by a term of the thread and one of ``r``."""
    thread, held = w.base(layout, axis), w.all_layouts[layout]

    def part(m: Mode) -> Mode:
        if m.axis == axis and (m.stride >= base) is (name == "floordiv"):
            return Mode(m.size, axis, m.stride // base if name == "floordiv" else m.stride)
        return Mode(m.size, None)

    moved = register_offset(FragLayout(tuple(part(m) for m in held.reg), (), ()), axis, r) if r != "0" else "0"
    fixed = "0" if thread == "0" else f"{thread} {'/' if name == 'floordiv' else '%'} {base}"
    return "(" + " + ".join([x for x in (fixed, moved) if x != "0"] or ["0"]) + ")"


def as_float(w: Writer, e: Expr, layout: str, r: str) -> str | None:
    """C text of ``(float)e`` for an integer position; None where it is no sum of a thread part and a register part."""
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


@dataclass(frozen=True, slots=True)
class _Bounds:
    """C texts of bounds on an offset, of which all hold, or one where they are not ``every``.

    ``most``: upper ones; ``least``: lower ones; ``more``: conditions of the other kind that join them.
    """

    every: bool
    most: tuple[str, ...] = ()
    least: tuple[str, ...] = ()
    more: tuple[_Bounds, ...] = ()

    def joined(self, x: _Bounds) -> _Bounds:
        """These bounds and ``x``."""
        if x.every is not self.every:
            if x.more or (x.most and x.least):
                return replace(self, more=(*self.more, x))
            x = _Bounds(self.every, x.sides()[0][1:] if x.most else (), x.sides()[0][1:] if x.least else ())
        return _Bounds(self.every, (*self.most, *x.most), (*self.least, *x.least), (*self.more, *x.more))

    def sides(self) -> list[tuple[str, str]]:
        """The bound on either side that decides, after its comparison."""
        inner, outer = ("min", "max") if self.every else ("max", "min")
        given = (("<=", inner, self.most), (">=", outer, self.least))
        return [(sign, _nested(function, xs)) for sign, function, xs in given if xs]

    def text(self, offset: str) -> str:
        """The condition on ``offset`` as C text."""
        parts = [*(f"{offset} {sign} {x}" for sign, x in self.sides()), *(x.text(offset) for x in self.more)]
        return parts[0] if len(parts) == 1 else (" & " if self.every else " | ").join(f"({p})" for p in parts)


def _nested(function: str, xs: tuple[str, ...]) -> str:
    return xs[0] if len(xs) == 1 else f"{function}({xs[0]}, {_nested(function, xs[1:])})"


def bounds(w: Writer, op: ma.IndexOp) -> str | None:
    """C text of the condition ``op`` as bounds, whose terms of the thread are declared now.

    None where it is no condition of several comparisons that bound one axis, or where :func:`condition` is as short.
    """
    layout = w.layout(op.result)
    forms = list(_forms(op.expr) or ())
    axes = [a for a in w.tile_axes if forms and all(abs(f.slope(a)) == 1 for f in forms)]
    if layout.registers == 1 or not axes:
        return None
    axis = max(axes, key=lambda a: prod(m.size for m in layout.reg if m.axis == a))
    alternatives = any(isinstance(n, Op) and n.op == "or" for n in walk(op.expr))
    if not alternatives and len({f.slope(axis) for f in forms}) == len(forms):
        return None
    sides = [_side(w, f, axis, op.result.layout) for f in forms]
    offset = register_offset(layout, axis, "r")
    if None in sides or offset == "0":
        return None
    texts = iter(_declared(w, op.result.name, f.slope(axis), *s) for f, s in zip(forms, sides, strict=True) if s)
    return _tree(op.expr, texts, iter(f.slope(axis) > 0 for f in forms)).text(f"{offset}")


def _forms(e: Expr) -> list[Linear] | None:
    """The comparisons of ``e`` in their order, each as a form that is at most 0; None where it has other parts."""
    match e:
        case Op(op="and" | "or", args=args):
            parts = [_forms(a) for a in args]
            return None if None in parts else [f for p in parts for f in p or ()]
        case Op(op="lt" | "le" | "gt" | "ge" as name, args=(a, b)) if a.dtype is DType.I32 and b.dtype is DType.I32:
            d = linear(a) - linear(b) if name[0] == "l" else linear(b) - linear(a)
            return [d.shift(1) if name[1] == "t" else d]
    return None


def _side(w: Writer, form: Linear, axis: str, layout: str) -> tuple[str, str] | None:
    """The bound on the offset along ``axis`` where ``form <= 0``: its terms of the thread and of the register.

    None where another axis is in no term of its own.
    """
    bound = form.scale(-form.slope(axis))
    others = {a: c for a in w.tile_axes if a != axis and (c := bound.slope(a))}
    inner = [x for t in bound.terms if not isinstance(t, Var) for x in walk(t)]
    if any(isinstance(x, Var) and x.name in w.tile_axes for x in inner):
        return None
    offsets = [(c, register_offset(w.all_layouts[layout], a, "r")) for a, c in others.items()]
    saved = dict(w.env)
    w.env.update({a: w.base(layout, a) for a in (axis, *others)})
    if _fits(bound, sum(abs(c) * w.ranges[a][1] for a, c in others.items()), w.ranges):
        text = w.expr(build(bound, DType.I32))
    else:  # a bound that is far from every offset has one result, so it is clamped
        least, most = (literal(x, DType.I64) for x in (-_SAFE, _SAFE))
        text = f"(int)min(max({w.expr(build(bound, DType.I64))}, {least}), {most})"
    w.env = saved
    return text, _sum([(c, x) for c, x in offsets if x != "0"])


def _fits(x: Linear, reach: int, ranges: index.Ranges) -> bool:
    """Whether no sum of terms of ``x``, and of ``reach`` more, leaves 32 bits."""
    for sign in (1, -1):
        part = Linear({t: c for t, c in x.terms.items() if c * sign > 0}, max(x.const * sign, 0) * sign)
        low, high = index.bounds(build(part, DType.I32), ranges)
        if low is None or high is None or max(-low, high) + reach > _MOST:
            return False
    return True


def _declared(w: Writer, name: str, slope: int, text: str, moved: str) -> str:
    """A bound of which the term of the thread is declared as a variable now."""
    if not text.lstrip("-").isalnum():
        variable = w.unique(f"{name}_{'most' if slope > 0 else 'least'}")
        w.line(f"const int {variable} = {text};")
        text = variable
    return f"{text} + {moved}" if moved else text


def _tree(e: Expr, texts: Iterator[str], upper: Iterator[bool]) -> _Bounds:
    """The bounds ``texts`` as ``e`` joins them; ``upper``: whether each of them is an upper one."""
    if not isinstance(e, Op) or e.op not in ("and", "or"):
        text = (next(texts),)
        return _Bounds(True, most=text) if next(upper) else _Bounds(True, least=text)
    out = _Bounds(e.op == "and")
    for a in e.args:
        out = out.joined(_tree(a, texts, upper))
    return out

"""Prints a Spec in the language of ``.naut`` files, with functions expanded and every conversion and range written.

The text parses back to an equal Spec, so the first dump of ``--dump-ir`` is a spec that a user can edit.
"""

from __future__ import annotations

from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Param, Reduce, Var, walk
from nautilus.core.index.sizes import Extent
from nautilus.core.index.strides import is_stride_param
from nautilus.frontend.spec import Definition, Spec, Tensor

#: operator -> (symbol, precedence of the whole, of the left side, of the right side); loosest is 0.
_INFIX = {
    "or": ("or", 1, 1, 2), "and": ("and", 2, 2, 3),
    "lt": ("<", 4, 5, 5), "le": ("<=", 4, 5, 5), "gt": (">", 4, 5, 5), "ge": (">=", 4, 5, 5),
    "eq": ("==", 4, 5, 5), "ne": ("!=", 4, 5, 5),
    "bit_or": ("|", 5, 5, 6), "bit_xor": ("^", 6, 6, 7), "bit_and": ("&", 7, 7, 8),
    "shift_left": ("<<", 8, 8, 9), "shift_right": (">>", 8, 8, 9),
    "add": ("+", 9, 9, 10), "sub": ("-", 9, 9, 10),
    "mul": ("*", 10, 10, 11), "div": ("/", 10, 10, 11), "floordiv": ("//", 10, 10, 11), "mod": ("%", 10, 10, 11),
    "pow": ("**", 12, 13, 11),
}  # fmt: skip
_SHIFT, _UNARY = 8, 11


def format_spec(spec: Spec) -> str:
    """The Spec as the text of a ``.naut`` file."""
    lines = [f"# spec {spec.name}"]
    for d in spec.dims:
        bound = "" if d.bound is None else f" <= {d.bound}"
        late = f"{'device' if d.device else 'runtime'}{bound}"
        lines.append(f"dim {d.name} = {late if d.value is None else d.value}")
    for s in spec.scalars:
        default = "" if s.default is None else f" = {_number(s.default)}"
        lines.append(f"scalar {s.name}: {s.dtype}{default}")
    lines += [f"assume {format_expr(f.condition)}" for f in spec.facts]
    lines += [f"input {_tensor(t)}" for t in spec.inputs]
    lines += [f"output {_tensor(t)}" for t in spec.outputs]
    for made in spec.definitions:
        lines += _recurrence(made, spec) if made.recurrence is not None else [_definition(made)]
    return "\n".join(lines) + "\n"


def format_expr(e: Expr) -> str:
    """One expression in the language."""
    return _expr(e, 0)


def _tensor(t: Tensor) -> str:
    text = f"{t.name}: {t.dtype}[{', '.join(_extent(s) for s in t.shape)}]"
    return text if t.strides is None else text + _strided(t.strides)


def _strided(strides: tuple[Extent, ...]) -> str:
    """The axes whose strides are given at launch, by number."""
    given = [n for n, s in enumerate(strides) if is_stride_param(s)]
    if len(given) == len(strides):
        return " strided(all)"
    if given == [*range(len(strides) - 1)]:
        return " strided"
    return f" strided({', '.join(map(str, given))})"


def _definition(d: Definition) -> str:
    axes = ", ".join(_axis(a) for a in d.axes)
    if d.dtype is None or d.is_output:
        return f"{d.name}[{axes}] = {format_expr(d.expr)}"
    assert isinstance(d.expr, Op) and d.expr.op == "cast"
    return f"{d.name}: {d.dtype}[{axes}] = {format_expr(d.expr.args[0])}"


def _recurrence(d: Definition, spec: Spec) -> list[str]:
    """The lines of the recurrence of which ``d`` is the first member, and none for its other members."""
    assert d.recurrence is not None
    members = d.recurrence.members
    if d.name != members[0]:
        return []
    if len(members) == 1:
        return [f"recur {_definition(d)}"]
    return ["recur {", *(f"    {_definition(spec.definition(n))}" for n in members), "}"]


def _axis(axis: Axis) -> str:
    return f"{axis.name}: {_extent(axis.extent)}"


def _extent(extent: Extent) -> str:
    return str(extent) if isinstance(extent, int) else format_expr(extent)


def _number(value: int | float | bool) -> str:
    return repr(value).lower() if isinstance(value, bool) else repr(value)


def _expr(e: Expr, outer: int) -> str:
    """``e``, in parentheses where its precedence is below ``outer``."""
    match e:
        case Const(value=value):
            text = _number(value)
            return f"({text})" if text.startswith("-") and outer > _UNARY else text
        case Var(name=name) | Param(name=name):
            return name
        case Load(buffer=buffer, index=index):
            return f"{buffer}[{', '.join(map(_position, index))}]"
        case Reduce(op=op, axes=axes, cond=cond, body=body):
            where = "" if cond is None else f" | {_expr(cond, 0)}"
            return f"{op}[{', '.join(_axis(a) for a in axes)}{where}]({_expr(body, 0)})"
        case Op(op="select", args=(test, then, other)):
            return _wrap(f"{_expr(then, 1)} if {_expr(test, 1)} else {_expr(other, 0)}", 0, outer)
        case Op(op="cast", args=(arg,), dtype=dtype):
            return f"{dtype}({_expr(arg, 0)})"
        case Op(op="neg" | "bit_not" as op, args=(arg,)):
            return _wrap(f"{'-' if op == 'neg' else '~'}{_expr(arg, _UNARY)}", _UNARY, outer)
        case Op(op="not", args=(arg,)):
            return _wrap(f"not {_expr(arg, 3)}", 3, outer)
        case Op(op=op, args=(a, b)) if op in _INFIX:
            symbol, whole, left, right = _INFIX[op]
            return _wrap(f"{_expr(a, left)} {symbol} {_expr(b, right)}", whole, outer)
        case Op(op=op, args=args):
            return f"{op}({', '.join(_expr(a, 0) for a in args)})"
    raise TypeError(f"{type(e).__name__} does not occur in a Spec")


def _position(e: Expr) -> str:
    """``e`` between square brackets, where ``|`` without parentheses begins a condition."""
    return _expr(e, _SHIFT if any(isinstance(n, Op) and n.op == "bit_or" for n in walk(e)) else 0)


def _wrap(text: str, own: int, outer: int) -> str:
    return f"({text})" if own < outer else text

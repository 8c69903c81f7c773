"""The checks of facts about numbers that are given at launch, in C++.

They use 64-bit integers and double; // and % round towards minus infinity, as they do in a spec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nautilus.core.buffers import Fact
from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.nodes import Const, Expr, Op, Param, walk
from nautilus.core.text.expressions import format_expr

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "and": "&&", "or": "||", "bit_and": "&", "bit_or": "|", "bit_xor": "^",
}  # fmt: skip
_PREFIX = {"neg": "-", "not": "!", "bit_not": "~"}
_CALLS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "exp": "exp", "log": "log"}

# a division by zero has no value; here it gives 0, as in the interpreters, and does not end the program
_MOD = "static long long floor_mod(long long a, long long b) { return b ? (a % b + b) % b : 0; }"
_DIV = "static long long floor_div(long long a, long long b) { return b ? (a - floor_mod(a, b)) / b : 0; }"


def fact_helpers(facts: Sequence[Fact]) -> list[str]:
    """The functions that the checks call."""
    if not facts:
        return []
    used = {n.op for f in facts for n in walk(f.condition) if isinstance(n, Op)}
    division = [_MOD] if used & {"mod", "floordiv"} else []
    return [*division, *([_DIV] if "floordiv" in used else [])]


def fact_checks(facts: Sequence[Fact], names: Mapping[str, str], spec: str) -> list[str]:
    """Lines of the launcher that refuse numbers for which a fact does not hold, with its text.

    Raises UnsupportedError for a fact that has no C text.
    """
    lines = list[str]()
    for f in facts:
        said = f"{spec}: '{f.said}' does not hold"
        said = said.replace("\\", "").replace('"', "'").replace("%", "%%")
        lines += [
            f"    if (!{_condition(f.condition, names)}) {{",
            f'        fprintf(stderr, "{said}\\n");',
            "        return cudaErrorInvalidValue;",
            "    }",
        ]
    return lines


def _condition(e: Expr, names: Mapping[str, str]) -> str:
    """C text of an expression of numbers given at launch, in parentheses."""
    match e:
        case Const(value=bool() as value):
            return "true" if value else "false"
        case Const(value=value):
            return f"{value}LL" if e.dtype.is_int else _double(float(value))
        case Param(name=name):
            wide = "long long" if e.dtype.is_int else "double" if e.dtype.is_float else "bool"
            return f"({wide}){names[name]}"
        case Op(op=op, args=(a, b)) if op in _INFIX:
            return f"({_condition(a, names)} {_INFIX[op]} {_condition(b, names)})"
        case Op(op="floordiv" | "mod" as op, args=(a, b)) if e.dtype.is_int:
            name = "floor_div" if op == "floordiv" else "floor_mod"
            return f"{name}({_condition(a, names)}, {_condition(b, names)})"
        case Op(op="min" | "max" as op, args=(a, b)):
            x, y = _condition(a, names), _condition(b, names)
            return f"({x} {'<' if op == 'min' else '>'} {y} ? {x} : {y})"
        case Op(op="select", args=(c, a, b)):
            return f"({_condition(c, names)} ? {_condition(a, names)} : {_condition(b, names)})"
        case Op(op="neg" | "not" | "bit_not" as op, args=(a,)):
            return f"({_PREFIX[op]}{_condition(a, names)})"
        case Op(op="shift_left" | "shift_right" as op, args=(a, Const(value=n))) if 0 <= n < 32:
            return f"({_condition(a, names)} {'<<' if op == 'shift_left' else '>>'} {n})"
        case Op(op="abs", args=(a,)):
            return f"fabs({_condition(a, names)})" if e.dtype.is_float else f"llabs({_condition(a, names)})"
        case Op(op="cast", args=(a,)):
            return f"({'long long' if e.dtype.is_int else 'double'}){_condition(a, names)}"
        case Op(op=op, args=(a,)) if op in _CALLS:
            return f"{_CALLS[op]}({_condition(a, names)})"
    what = f"'{format_expr(e)}' in a fact about numbers given at launch"
    raise UnsupportedError(what, "it has no text for the host", e.span)


def _double(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return "NAN" if value != value else "INFINITY" if value > 0 else "-INFINITY"
    return repr(value)

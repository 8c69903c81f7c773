"""Words of Python, numpy and PyTorch that the language does not have, with what to write instead.

The tables are read only where a spec has an error anyway, so every word may still be the name of a tensor or of a
function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_SUM = "a product-sum is written 'sum[k](A[i, k] * B[k, j])'"
_INDEX = "an index of the definition takes its place, as in 'Y[i, j] = X[j, i]'"
_RANGE = "an index variable is a value: 'Y[i: N] = i'"
_CHOICE = "a choice is written 'a if condition else b'"
CONDITION = "the condition of a reduction follows '|': 'sum[j | j <= i](x)'"

#: unknown function -> hint
FUNCTIONS: Mapping[str, str] = {
    **dict.fromkeys(("where", "select"), _CHOICE),
    "topk": "'argmax[j](x)' and 'max[j](x)' give the largest element; for more of them, exclude those that are found",
    "sort": "the language has no sort; 'argmax[j](x)' and 'argmin[j](x)' give positions",
    "argsort": "the language has no sort; 'argmax[j](x)' and 'argmin[j](x)' give positions",
    "clip": "write 'clamp(x, low, high)'",
    "power": "write 'x ** y'",
    **dict.fromkeys(("mod", "remainder"), "write 'x % y' for the sign of y, 'fmod(x, y)' for that of x"),
    "log10": "write 'log(x) / 2.302585092994046'",
    **dict.fromkeys(("trunc", "fix"), "write 'sign(x) * floor(abs(x))'"),
    **dict.fromkeys(("frac", "fract"), "write 'x - floor(x)'"),
    **dict.fromkeys(("isnan", "is_nan"), "write 'x != x'"),
    **dict.fromkeys(("isinf", "is_inf"), "write 'abs(x) == inf'"),
    **dict.fromkeys(("isfinite", "is_finite"), "write 'abs(x) < inf'"),
    "fma": "write 'a * b + c'",
    "lerp": "write 'a + t * (b - a)'",
    "rad2deg": "write 'x * 57.29577951308232'",
    "deg2rad": "write 'x * 0.017453292519943295'",
    "var": "write 'variance[j](x)'",
    "median": "the language has no sort; the rank of an element is 'sum[k](i32(X[k] < x))'",
    **dict.fromkeys(("popcount", "popc", "bitcount"), "write 'sum[k: 32](x >> k & 1)'"),
    **dict.fromkeys(("rand", "random", "randn"), "the language has no random numbers; they are an input"),
    "norm": "write 'sqrt(sum[j](x ** 2))'",
    "cumsum": "write 'sum[k | k <= i](X[k])'",
    "cumprod": "write 'prod[k | k <= i](X[k])'",
    "roll": "write 'X[(i + k) % N]'",
    "pad": "write 'X[i - p] if 0 <= i - p and i - p < N else 0'",
    **dict.fromkeys(("matmul", "dot", "mm", "bmm", "einsum", "tensordot", "linear"), _SUM),
    **dict.fromkeys(("transpose", "permute", "reshape", "view", "squeeze", "unsqueeze", "expand"), _INDEX),
    **dict.fromkeys(("arange", "range"), _RANGE),
    **dict.fromkeys(("zeros", "ones", "full"), "a number stands for a tensor of equal elements: 'Y[i: N] = 0'"),
    **dict.fromkeys(("float", "float32"), "write 'f32(x)'"),
    **dict.fromkeys(("int", "int32"), "write 'i32(x)'"),
    **dict.fromkeys(("double", "float64"), "write 'f64(x)'"),
    **dict.fromkeys(("u16", "uint16"), "write 'i32(x) & 65535'"),
    **dict.fromkeys(("u32", "uint32"), "i32 has the same bits; as a number it is 'i64(x) & 4294967295'"),
    **dict.fromkeys(("u64", "uint64"), "i64 has the same bits"),
    **dict.fromkeys(("complex", "complex64"), "the language has no complex numbers; both parts are tensors"),
    **dict.fromkeys(("float16", "half"), "write 'f16(x)'"),
    "bfloat16": "write 'bf16(x)'",
    "len": "the size of a dimension is its dim, such as 'N'",
}

#: unknown name in an expression -> hint
VALUES: Mapping[str, str] = {
    "True": "write 'true'", "False": "write 'false'", "pi": "write '3.141592653589793'",
    "None": "a value that does not matter is 0: 'x if condition else 0'",
}  # fmt: skip

#: first word of a statement that is no statement -> hint
_STATEMENTS: Mapping[str, str] = {
    **dict.fromkeys(("param", "arg", "float", "parameter"), "a number for the launch is 'scalar eps: f32 = 1e-5'"),
    **dict.fromkeys(("let", "var", "val", "auto"), "a definition has no keyword: 'S[i, j] = ...'"),
    **dict.fromkeys(("for", "while"), "a definition holds for every index: 'Y[i] = ...'; a sum is 'sum[k](...)'"),
    **dict.fromkeys(("import", "from", "use"), "another file is read by 'include \"norms.naut\"'"),
    **dict.fromkeys(("tensor", "buffer"), "a tensor is declared 'input X: f16[M, N]' or 'output Y: f16[M, N]'"),
    **dict.fromkeys(("return", "yield"), "a result is declared 'output Y: f16[M, N]' and defined 'Y[i, j] = ...'"),
    **dict.fromkeys(("fn", "func", "function", "lambda"), "a function is written 'def f(x) = ...'"),
    **dict.fromkeys(("size", "shape", "int"), "a size is declared 'dim N = 4096'"),
}

_BY_NAME = ("a function takes no arguments by name", "an axis is an index variable in brackets: 'softmax[j](x)'")
#: operators of other languages, of which the language has the half
_TWICE = {"&": "and", "|": "or"}
#: tokens behind which a value stands
_BEFORE_VALUES = frozenset({"=", "(", ",", "+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!="})


def statement_fault(tokens: Sequence[Any], bad: Any) -> tuple[str, str] | None:
    """Message and hint for a statement that does not parse at ``bad``, where it is written as elsewhere; else None."""
    place = next((n for n, t in enumerate(tokens) if t is bad), None)
    if place is None:
        return None
    before = tokens[place - 1] if place else None
    after = tokens[place + 1] if place + 1 < len(tokens) else None
    if place == 1 and str(before) in _STATEMENTS:
        return f"'{before}' begins no statement", _STATEMENTS[str(before)]
    if bad == "for":
        return "a spec has no generator expressions", "a reduction names its index variables: 'sum[k](X[i, k])'"
    if before == "lambda":
        return "'lambda' is no expression", "a function is written 'def f(x) = ...'"
    named = after is not None and after == "=" and bad.type in ("NAME", "DIM")
    if named and before is not None and before in (",", "("):
        return _BY_NAME
    if bad == "=" and before is not None and before.type == "NAME" and place > 2 and tokens[place - 2] in (",", "("):
        return _BY_NAME
    if bad == ">" and before == "<":
        return "'<>' is no operator", "inequality is written '!='"
    if bad == ">" and before == ">>":
        return "'>>>' is no operator", "with zeros from the left, 'x >> k' of an i32 is '(i64(x) & 4294967295) >> k'"
    if bad in _TWICE and before == bad:
        return f"'{bad}{bad}' is no operator", f"conditions are joined by '{_TWICE[str(bad)]}'"
    if bad == "//" and place == 0:
        return "a statement cannot start here", "a comment begins with '#'"
    if bad == "where":
        bracket = _open_bracket(tokens[:place])
        return "'where' is no operator", CONDITION if bracket is not None and bracket == "[" else _CHOICE
    if bad == "if" and before in _BEFORE_VALUES:
        return "'if' has no value before it", _CHOICE
    if bad == "]" and "if" in tokens[:place]:
        return "a conditional expression without 'else'", f"write 'a if condition else b'; {CONDITION}"
    if bad == "|" and before in _BEFORE_VALUES:
        return "'|' has no value before it", "a magnitude is written 'abs(x)'"
    if bad == ":" and tokens[0] == "def":
        return "'=' is missing", "write 'def f(x) = ...'"
    if bad == ":" and before == "]" and tokens[0].type == "NAME" and "=" not in tokens[:place]:
        return "the element type stands before the indices", "write 'S: f16[i, j] = ...'"
    if bad == "in":
        return "'in' is no operator", "the range of an index variable is written 'sum[j: N](x)'"
    if after is not None and after == "=" and bad in ("+", "-", "*", "/"):
        return f"'{bad}=' changes a tensor", "a tensor is defined once; a sum over an index is 'sum[k](...)'"
    if bad == ":" and before is not None and before in ("[", ",") and after is not None and after in ("]", ","):
        return "':' is no index", "a definition is about one element: 'Y[i, j] = X[i, j]'"
    if bad == "[" and before == "]":
        return "indices in two brackets", "all indices stand in one pair of brackets: 'X[i, j]'"
    return None


def _open_bracket(tokens: Sequence[Any]) -> Any:
    """The innermost bracket that is open behind ``tokens``, or None."""
    opened: list[Any] = []
    for token in tokens:
        if token in ("(", "["):
            opened.append(token)
        elif token in (")", "]") and opened:
            opened.pop()
    return opened[-1] if opened else None

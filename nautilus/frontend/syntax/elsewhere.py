"""Words and signs of other languages that this one does not have, with what to write instead.

The tables are read only where a spec has an error anyway, so every word may still be the name of a tensor or of a
function.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nautilus.core.errors import nearest

_SUM = "a product-sum is written 'sum[k](A[i, k] * B[k, j])'"
_INDEX = "an index of the definition takes its place, as in 'Y[i, j] = X[j, i]'"
_RANGE = "an index variable is a value: 'Y[i: N] = i'"
_SIZE = "the size of a dimension is its dim, such as 'N'"
_JOINED = "write 'Y[i: M + N] = A[i] if i < M else B[i - M]'"
_REPEATED = "an axis along which elements repeat has no index on the right: 'Y[i, j] = X[i]'"
_ELEMENT = "a definition is about one element: 'Y[i, j] = X[i, j]'"
_SQUARE = "index variables stand in square brackets: 'sum[k](x)'"
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
    **dict.fromkeys(("len", "size", "shape", "numel"), _SIZE),
    "ln": "write 'log(x)'",
    **dict.fromkeys(("concat", "concatenate", "cat", "hstack", "vstack", "append"), _JOINED),
    "stack": "the parts are chosen by an index: 'Y[p: 2, i] = A[i] if p == 0 else B[i]'",
    **dict.fromkeys(("gather", "take", "take_along_axis", "index_select", "embedding"), "write 'X[index[i], j]'"),
    **dict.fromkeys(
        ("scatter", "scatter_add", "index_add", "segment_sum", "bincount", "histogram"),
        "write 'sum[i | key[i] == s](x)'",
    ),
    **dict.fromkeys(("tril", "causal_mask"), "write 'X[i, j] if j <= i else 0'"),
    "triu": "write 'X[i, j] if j >= i else 0'",
    **dict.fromkeys(("eye", "identity", "one_hot", "onehot"), "write 'f32(i == j)'"),
    **dict.fromkeys(("diag", "diagonal"), "write 'X[i, i]'"),
    "trace": "write 'sum[i](X[i, i])'",
    "outer": "write 'X[i] * Y[j]'",
    **dict.fromkeys(("flip", "flipud", "fliplr", "rev", "reverse"), "write 'X[N - 1 - i]'"),
    **dict.fromkeys(("repeat", "tile", "broadcast_to", "expand_dims"), _REPEATED),
    **dict.fromkeys(("conv", "conv1d", "conv2d", "convolve"), "write 'sum[c, k: 3](X[c, i + k] * W[c, k])'"),
    "dropout": "the language has no random numbers; the mask is an input",
    **dict.fromkeys(("masked_fill", "nan_to_num"), _CHOICE),
    **dict.fromkeys(("cast", "astype", "convert"), "write 'f16(x)'"),
    **dict.fromkeys(("program_id", "thread_id", "load", "store"), "the compiler chooses threads, tiles and copies"),
    "vmap": "an index more of the definition is a batch: 'Y[b, i] = ...'",
}

#: unknown name in an expression -> hint
VALUES: Mapping[str, str] = {
    "True": "write 'true'", "False": "write 'false'", "pi": "write '3.141592653589793'",
    "None": "a value that does not matter is 0: 'x if condition else 0'",
    **dict.fromkeys(("infinity", "Inf", "INF", "Infinity", "INFINITY"), "write 'inf'"),
}  # fmt: skip

#: unbound index -> hint
_INDICES: Mapping[str, str] = {
    **dict.fromkeys(("None", "newaxis"), _REPEATED), "end": "the last position is the size less 1, such as 'N - 1'",
}  # fmt: skip

#: unknown element type -> hint
TYPES: Mapping[str, str] = {
    **dict.fromkeys(("float", "single"), "write 'f32'"),
    "double": "write 'f64'",
    "half": "write 'f16'",
    **dict.fromkeys(("bfloat16", "brain"), "write 'bf16'"),
    **dict.fromkeys(("int", "integer", "uint", "u32", "uint32"), "write 'i32'"),
    **dict.fromkeys(("long", "u64", "uint64", "size_t"), "write 'i64'"),
    "short": "write 'i16'",
    **dict.fromkeys(("char", "byte"), "write 'i8' or 'u8'"),
    "boolean": "write 'bool'",
    **dict.fromkeys(("fp8", "f8", "float8"), "write 'f8e4m3' or 'f8e5m2'"),
    **dict.fromkeys(("e4m3", "fp8e4m3", "fp8_e4m3", "float8_e4m3", "float8_e4m3fn"), "write 'f8e4m3'"),
    **dict.fromkeys(("e5m2", "fp8e5m2", "fp8_e5m2", "float8_e5m2"), "write 'f8e5m2'"),
    **dict.fromkeys(("fp4", "f4", "e2m1", "nvfp4", "mxfp4"), "write 'f4e2m1'"),
    **dict.fromkeys(("complex", "complex64", "c64"), "the language has no complex numbers; both parts are tensors"),
}

#: name after a dot -> hint
_ATTRIBUTES: Mapping[str, str] = {
    **dict.fromkeys(("T", "mT", "t"), "the transpose of 'X[i, j]' is 'X[j, i]'"), "shape": _SIZE, "ndim": _SIZE,
    "inf": "write 'inf'", "at": _CHOICE, "newaxis": _REPEATED,
}  # fmt: skip

#: character that is no part of the language -> hint
_CHARACTERS: Mapping[str, str] = {
    "!": "negation is written 'not', inequality '!='", "?": _CHOICE, ";": "a statement ends at the end of its line",
    "\\": "a statement goes on over a newline inside brackets", "@": _SUM,
    **dict.fromkeys("{}", "brackets are '(' ')' and '[' ']'"),
    **dict.fromkeys("$`", "a size, a scalar and a tensor are written by their names alone"),
    **dict.fromkeys("−‐‑‒–—", "write '-'"),
    **dict.fromkeys("×·⋅∗∙•⊙", "write '*'"), **dict.fromkeys("÷∕⁄", "write '/'"),
    "≤": "write '<='", "≥": "write '>='", "≠": "write '!='", "∞": "write 'inf'", "…": "write '..'",
    **dict.fromkeys("←⇐≔", "a definition is written with '='"),
    "∧": "write 'and'", "∨": "write 'or'", "¬": "write 'not'", "∈": "the range of an index is 'j: N'",
    **dict.fromkeys("∑Σ", "write 'sum[k](x)'"), **dict.fromkeys("∏Π", "write 'prod[k](x)'"),
    "√": "write 'sqrt(x)'", **dict.fromkeys("“”„«»", "text is written in straight double quotes"),
    **dict.fromkeys("²³¹", "a power is written 'x ** 2'"),
}  # fmt: skip

#: first word of a statement that is no statement -> hint
_STATEMENTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("param", "arg", "float", "parameter"),
        "a tensor is 'input W: f16[M, N]', a number for the launch 'scalar eps: f32 = 1e-5'",
    ),
    **dict.fromkeys(("let", "var", "val", "auto"), "a definition has no keyword: 'S[i, j] = ...'"),
    **dict.fromkeys(("for", "while"), "a definition holds for every index: 'Y[i] = ...'; a sum is 'sum[k](...)'"),
    **dict.fromkeys(("import", "from", "use"), "another file is read by 'include \"norms.naut\"'"),
    **dict.fromkeys(("tensor", "buffer"), "a tensor is declared 'input X: f16[M, N]' or 'output Y: f16[M, N]'"),
    **dict.fromkeys(("return", "yield"), "a result is declared 'output Y: f16[M, N]' and defined 'Y[i, j] = ...'"),
    **dict.fromkeys(("fn", "func", "function", "lambda"), "a function is written 'def f(x) = ...'"),
    **dict.fromkeys(("size", "shape", "int"), "a size is declared 'dim N = 4096'"),
    **dict.fromkeys(("in", "inputs", "placeholder", "f16", "f32", "bf16"), "a tensor is declared 'input X: f16[M, N]'"),
    **dict.fromkeys(("out", "outputs", "result"), "a result is declared 'output Y: f16[M, N]'"),
    **dict.fromkeys(("assert", "require", "where"), "a fact is stated 'assume N % 8 == 0'"),
    **dict.fromkeys(("RDom", "Var", "index", "axis"), "an index is declared by its use: 'Y[i] = sum[k](X[i, k])'"),
    "Func": "a tensor is defined 'T[i, j] = ...'",
}
_WORDS = ("dim", "const", "input", "output", "scalar", "def", "include", "assume", "recur")
_STATEMENT = "a statement is a declaration or 'name[i] = expression'"
_COMPARING = frozenset({"%", "==", "!=", "<", "<=", ">", ">="})

_BY_NAME = ("a function takes no arguments by name", "an axis is an index variable in brackets: 'softmax[j](x)'")
#: sign that other languages write twice -> what to write instead
_TWICE = {"&": "and", "|": "or"}
#: tokens behind which a value stands
_REDUCING = frozenset({"sum", "max", "min", "prod", "any", "all", "mean", "argmax", "argmin", "softmax", "logsumexp"})
_BEFORE_VALUES = frozenset({"=", "(", ",", "+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!="})


def statement_fault(tokens: Sequence[Any], bad: Any) -> tuple[str, str, Any] | None:
    """Message, hint and the token that is at fault in a statement with the form of another language.

    ``bad``: the first token that the grammar does not expect.  None for any other statement.
    """
    place = next((n for n, t in enumerate(tokens) if t is bad), None)
    if place is None:
        return None
    before = tokens[place - 1] if place else None
    after = tokens[place + 1] if place + 1 < len(tokens) else None
    if place == 1 and (fault := _at_keyword(tokens[0], bad)):
        return *fault, tokens[0]
    found = (
        _at_start(tokens, place, bad, after)
        or _at_name(tokens, place, bad, before, after)
        or _at_sign(tokens, place, bad, before, after)
    )
    return None if found is None else (*found, bad)


def _at_keyword(first: Any, bad: Any) -> tuple[str, str] | None:
    """A fault of a first word that begins no statement, before ``bad``."""
    if str(first) in _STATEMENTS and bad != "[":
        return f"'{first}' begins no statement", _STATEMENTS[str(first)]
    if first.type == bad.type == "NAME":
        plain = str(first).lower()
        near = f"write '{plain}'" if plain in _WORDS else nearest(plain, _WORDS)
        return f"'{first}' begins no statement", near or _STATEMENT
    return None


def _at_start(tokens: Sequence[Any], place: int, bad: Any, after: Any) -> tuple[str, str] | None:
    """A fault that the first tokens of the statement show."""
    first = tokens[0]
    if place == 0:
        comment = bad in ("//", "%") or (bad == "/" and after == "*")
        return ("a statement cannot start here", "a comment begins with '#'") if comment else None
    if place == 1 and first.type == "NAME" and bad == "(":
        return "'(' behind the name that is defined", f"indices stand in square brackets: '{first}[i, j] = ...'"
    if bad == "(" and first in ("input", "output"):
        return "unexpected '('", "a shape stands in square brackets: 'f16[M, N]'"
    if bad in _COMPARING and first in ("dim", "const") and "=" not in tokens[:place]:
        return f"unexpected '{bad}'", "a fact is stated 'assume N % 8 == 0'"
    if bad == ":" and first == "def":
        return "'=' is missing", "write 'def f(x) = ...'"
    if first.type == "NAME" and "=" not in tokens[:place] and after is not None:
        if (bad == "<" and after == "-") or (bad == ":" and after == "="):
            return f"'{bad}{after}' in a definition", "a definition is written with '='"
        if bad == ":" and tokens[place - 1] == "]":
            return "the element type stands before the indices", "write 'S: f16[i, j] = ...'"
    return None


def _at_name(tokens: Sequence[Any], place: int, bad: Any, before: Any, after: Any) -> tuple[str, str] | None:
    """A fault at a word, or at one that stands before a sign."""
    if bad == "for":
        return "a spec has no generator expressions", "a reduction names its index variables: 'sum[k](X[i, k])'"
    if before == "lambda":
        return "'lambda' is no expression", "a function is written 'def f(x) = ...'"
    named = after is not None and after == "=" and bad.type in ("NAME", "DIM")
    if named and before is not None and before in (",", "("):
        return _BY_NAME
    if bad == "=" and before is not None and before.type == "NAME" and place > 2:
        if tokens[place - 2] in (",", "("):
            return _BY_NAME
        if tokens[place - 2] == "[":
            return "'=' inside an expression", f"a range is written '{before}: 0 .. N'"
    if bad == "where":
        return "'where' is no operator", CONDITION if _open_bracket(tokens[:place]) == "[" else _CHOICE
    if bad == "if" and before in _BEFORE_VALUES:
        return "'if' has no value before it", _CHOICE
    if bad == "in":
        return "'in' is no operator", "the range of an index variable is written 'sum[j: N](x)'"
    if bad == "as":
        return "'as' is no operator", "an element is converted by a function: 'f16(x)'"
    if bad in ("AND", "OR", "NOT", "And", "Or", "Not", "xor"):
        return f"'{bad}' is no operator", "conditions are joined by 'and', 'or' and 'not'"
    if bad.type == "STRING" and before == "(" and tokens[place - 2] in FUNCTIONS:
        return f"unexpected {bad}", FUNCTIONS[str(tokens[place - 2])]
    caller = _called(tokens, place, "[")
    if before == "]" and caller in _REDUCING and bad.type in ("NAME", "INT", "FLOAT"):
        return f"the argument of '{caller}' stands in brackets", f"write '{caller}[k](...)'"
    return None


def _at_sign(tokens: Sequence[Any], place: int, bad: Any, before: Any, after: Any) -> tuple[str, str] | None:
    """A fault at an operator or a bracket."""
    if bad == ">" and before == "<":
        return "'<>' is no operator", "inequality is written '!='"
    if bad == ">" and before == ">>":
        return "'>>>' is no operator", "with zeros from the left, 'x >> k' of an i32 is '(i64(x) & 4294967295) >> k'"
    if bad in _TWICE and before == bad:
        return f"'{bad}{bad}' is no operator", f"conditions are joined by '{_TWICE[str(bad)]}'"
    if bad == "]" and before == ":":
        return "an index takes no range", _ELEMENT
    if bad == "]" and "if" in tokens[:place]:
        return "a conditional expression without 'else'", f"write 'a if condition else b'; {CONDITION}"
    if bad == "|" and before in _BEFORE_VALUES:
        return "'|' has no value before it", "a magnitude is written 'abs(x)'"
    if after is not None and after == "=" and bad in ("+", "-", "*", "/"):
        return f"'{bad}=' changes a tensor", "a tensor is defined once; a sum over an index is 'sum[k](...)'"
    if bad == ":" and before is not None and before in ("[", ",") and after is not None and after in ("]", ","):
        return "':' is no index", _ELEMENT
    if bad == ":" and _open_bracket(tokens[:place]) == "[" and place > 3 and tokens[place - 2] == ":":
        return "unexpected ':'", f"a range is written '{tokens[place - 3]}: {before} .. N'"
    if bad == "[" and before == "]":
        return "indices in two brackets", "all indices stand in one pair of brackets: 'X[i, j]'"
    if bad == "[" and before in _BEFORE_VALUES:
        return "a list is no value", _ELEMENT
    if bad == "[" and before == ")":
        instead = FUNCTIONS.get(_called(tokens, place, "("))
        return "a call gives one element, which has no indices", instead or "index the argument: 'exp(X[i, j])'"
    if bad == "(" and before == ")":
        return "a call of a call", FUNCTIONS.get(_called(tokens, place, "(")) or _SQUARE
    return None


def character_hint(text: str, at: int) -> str | None:
    """What to write instead of the character of ``text`` at ``at``, which is no part of the language."""
    char, before, behind = text[at], text[at - 1 : at], text[at + 1 : at + 40]
    if char == ".":
        if text[at - 2 : at] == "..":
            return "every dimension has an index of its own: 'X[b, i, j]'"
        if behind[:1] in ("*", "/", "^") and behind:
            return f"operators are about single elements: write '{behind[0].replace('^', '**')}'"
        name = re.match(r"\w*", behind)
        word = name[0] if name is not None else ""
        found = _ATTRIBUTES.get(word) or VALUES.get(word) or FUNCTIONS.get(word)
        return found or "functions have plain names, as in 'exp(x)', and tensors have no methods"
    if char == "'":
        if re.match(r"[-+]?inf", behind):
            return "write 'inf'"
        if re.search(r"\beinsum\s*\(\s*$", text[:at]):
            return FUNCTIONS["einsum"]
        return _ATTRIBUTES["T"] if re.match(r"[\w\])]", before) else "text is written in double quotes"
    if char in _CHARACTERS or char.isascii():
        return _CHARACTERS.get(char)
    import unicodedata  # seldom needed

    if unicodedata.category(char) in ("Zs", "Cf"):
        return "it looks like a space or like nothing; delete it, or write a space"
    plain = unicodedata.normalize("NFKC", char)
    if plain.isascii():
        return f"write '{plain}'"
    if char.isalpha():
        called = unicodedata.name(plain[0], "").rpartition(" ")[2].lower()
        greek = f", such as '{called}'" if "GREEK" in unicodedata.name(plain[0], "") else ""
        return f"a name has the letters a to z and A to Z, digits and '_'{greek}"
    return None


def number_hint(text: str, largest: int) -> str | None:
    """What to write instead of ``text``, which begins with a digit and is no number, such as ``0xff`` or ``1.0f``."""
    if re.fullmatch(r"[0-9.]+j", text):
        return FUNCTIONS["complex"]
    if re.fullmatch(r"[0-9.]+([eE][-+]?[0-9]+)?[fFlLhu]", text):
        return f"a number has no suffix: '{text[:-1]}'"
    try:
        value = int(text, 0)
    except ValueError:
        return None
    return f"numbers are written in decimal: {value}" if value <= largest else None


def unbound_hint(name: str) -> str:
    """What to do about the index ``name``, which nothing binds."""
    return _INDICES.get(name) or f"bind it on the left of '=', or by a reduction such as sum[{name}](...)"


def indexed(name: str, rank: int) -> str:
    """An element of the tensor ``name``, as it is written."""
    return f"{name}[{', '.join('ijklmn'[n] if rank <= 6 else f'i{n}' for n in range(rank))}]"


def _called(tokens: Sequence[Any], place: int, opening: str) -> str:
    """The name before the bracket ``opening`` that is closed before ``place``; empty where there is none."""
    depth = 0
    for n in range(place - 1, 0, -1):
        depth += (tokens[n] in (")", "]")) - (tokens[n] in ("(", "["))
        if depth == 0:
            return str(tokens[n - 1]) if tokens[n] == opening else ""
    return ""


def _open_bracket(tokens: Sequence[Any]) -> Any:
    """The innermost bracket that is open behind ``tokens``, or None."""
    opened: list[Any] = []
    for token in tokens:
        if token in ("(", "["):
            opened.append(token)
        elif token in (")", "]") and opened:
            opened.pop()
    return opened[-1] if opened else None

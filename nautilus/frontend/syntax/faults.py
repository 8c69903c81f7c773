"""Messages for statements that do not parse.

A table maps (parser state, offending token) to a message.  State numbers change with the grammar, so the table is
derived from examples: each example below is a faulty statement that the parser runs on the first error, and the pair at
which it fails gets the message of the example.  The same fault one bracket deeper or in another statement fails in the
same state, so one example is enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from nautilus.core.text.words import short
from nautilus.frontend.syntax.words import mark_bars

_ENDS = ("1", "x", "x[i]", "x[i, j]", "f(x)", "f(x, y)", "(x)")  # one value for each way in which a value may end
_BESIDE = ("an operator is missing between two values", "write an operator between them, such as '*'")
_EARLY = ("the expression is incomplete", "a value is expected after the operator")
_EQUALS = ("'=' inside an expression", "'==' compares")
_NO_ELSE = ("a conditional expression without 'else'", "write 'a if condition else b'")
_DECL = ("a declaration needs a type", "write 'input X: f16[M, N]'")
_BITS = ("&", "|", "^", "<<", ">>")
_KEYWORD = "'{token}' is a keyword and cannot be a name"

#: faulty statement -> (message, hint).
EXAMPLES: tuple[tuple[str, str, str | None], ...] = (
    *((f"O = {v} {w}", *_BESIDE) for v in _ENDS for w in ("y", "1", "1.0")),
    *((f"O = 1 {op}", *_EARLY) for op in ("+", "-", "*", "/", "//", "%", "**", "<", "==", "and", "or", *_BITS)),
    *((f"O = {op}", *_EARLY) for op in ("-", "not", "~")),
    ("O =", "nothing is defined", "an expression is expected after '='"),
    *((f"O = {v} = 1", *_EQUALS) for v in _ENDS),
    *((f"O = 1 if {v}", *_NO_ELSE) for v in _ENDS),
    *((f"O = ({v} if {v})", *_NO_ELSE) for v in _ENDS),
    ("O[i] == x", "'==' in a definition", "a definition is written with one '='"),
    ("O == x", "'==' in a definition", "a definition is written with one '='"),
    ("O: f32[i] == x", "'==' in a definition", "a definition is written with one '='"),
    ("O[i]", "a tensor's name alone is not a statement", "write 'O[i] = ...' to define it"),
    ("O", "a name alone is not a statement", "a statement is a declaration or 'name[i] = expression'"),
    ("O: f32[i]", "a typed name without a definition", "start with 'input' or 'output', or add '= ...'"),
    ("O: f32", "a typed name without a definition", "start with 'input' or 'output', or add '= ...'"),
    *((f"{kind} X", *_DECL) for kind in ("input", "output")),
    *((f"{kind}:", "unexpected ':'", _DECL[1]) for kind in ("input", "output")),
    ("O[i],", "a definition gives one tensor", "write one definition for each tensor"),
    ("O,", "a definition gives one tensor", "write one definition for each tensor"),
    ("input X[", *_DECL),
    ("input X f", *_DECL),
    ("input X =", *_DECL),
    ("input X: [", "the element type is missing", "write 'input X: f16[M, N]'"),
    ("input X: f16[M] =", "an input cannot have a value", None),
    ("scalar s =", "a declaration needs a type", "write 'scalar eps: f32 = 1e-5'"),
    ("scalar s", "a declaration needs a type", "write 'scalar eps: f32 = 1e-5'"),
    ("scalar s: f32[", "a scalar is a single number", "use 'input' for a tensor"),
    ("dim", "a dim needs a name", "write 'dim N = 128'"),
    ("dim 1", "a dim needs a name", "write 'dim N = 128'"),
    ("dim N:", "unexpected ':'", "write 'dim N = 128'"),
    ("dim N 1", "'=' is missing", "write 'dim N = 128'"),
    ("dim N y", "',' or '=' is missing", "write 'dim M = 64, N = 128'"),
    ("const N", "a const needs a value", "write 'const G = Hq // Hkv'"),
    ("const N:", "unexpected ':'", "write 'const G = Hq // Hkv'"),
    ("def f =", "a function needs its arguments", "write 'def f(x) = ...'"),
    ("def f[j] =", "a function needs its arguments", "write 'def f[j](x) = ...'"),
    ("def f(1", "an argument's name is expected", None),
    ("def f(x)", "a function needs a body", "write 'def f(x) = ...'"),
    ("include f", "the file name must be in double quotes", "write 'include \"norms.naut\"'"),
    ("include", "the file's name is missing", "write 'include \"norms.naut\"'"),
    ("1", "a statement cannot start here", "a statement is a declaration or 'name[i] = expression'"),
    ("(", "a statement cannot start here", "a statement is a declaration or 'name[i] = expression'"),
    ("O = f(,", "a value is missing before ','", None),
    ("O = f(x,)", "a value is missing after ','", None),
    ("O = x[i,]", "an index is missing after ','", None),
    ("O = x[,", "an index is missing before ','", None),
    ("O = ()", "the brackets are empty", None),
    ("O = sum[j |]", "the condition is missing after '|'", None),
    ("O = sum[|", "an index variable is missing before '|'", None),
    *((f"O = {v}, ", "a definition gives one value", "write one definition for each tensor") for v in _ENDS),
)

_SHOW = {
    "$END": "the end of the statement",
    "NAME": "a name",
    "INT": "a number",
    "FLOAT": "a number",
    "STRING": "a text in quotes",
}
_VALUES = {"NAME", "INT", "FLOAT", "INF", "TRUE", "FALSE", "LPAR"}
_WORDS = {"DIM", "CONST", "INPUT", "OUTPUT", "SCALAR", "DEF", "INCLUDE", "RUNTIME", "IF", "ELSE", "AND", "OR"}
_WORDS |= {"NOT", "INF", "TRUE", "FALSE"}


def explain(parser: Any, error: Any, accepts: Iterable[str]) -> tuple[str, str | None]:
    """Message and hint for Lark's ``UnexpectedToken``; ``accepts`` are the terminals that the parser accepts."""
    token = error.token
    known = _table(parser).get((error.state.position, token.type))
    if known is not None:
        return known
    accepted = set(accepts)
    if token.type in _WORDS and "NAME" in accepted and not accepted >= _VALUES:
        return _KEYWORD.format(token=token), None
    expected = _expected(parser, accepted)
    got = "end of the statement" if token.type == "$END" else f"'{short(str(token))}'"
    return f"unexpected {got}", f"expected {expected}" if expected else None


@lru_cache(maxsize=1)
def _table(parser: Any) -> dict[tuple[int, str], tuple[str, str | None]]:
    from lark.exceptions import UnexpectedToken

    table: dict[tuple[int, str], tuple[str, str | None]] = {}
    for text, message, hint in EXAMPLES:
        machine = parser.parse_interactive()
        tokens = list(parser.lex(text))
        mark_bars(tokens)
        try:
            for token in tokens:
                machine.feed_token(token)
            machine.feed_eof(tokens[-1])
        except UnexpectedToken as error:
            table.setdefault((error.state.position, error.token.type), (message, hint))
    return table


def _expected(parser: Any, accepts: set[str]) -> str:
    names: list[str] = []
    rest = set(accepts)
    if rest >= _VALUES:
        names.append("a value")
        rest -= _VALUES | {"NOT", "PLUS", "MINUS", "TILDE"}
    shown = {t.name: t.pattern.value for t in parser.terminals if t.pattern.type == "str"}
    names += sorted({_SHOW.get(t) or f"'{shown.get(t, t)}'" for t in rest})
    if len(names) > 6:
        return ""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1] if names else ""

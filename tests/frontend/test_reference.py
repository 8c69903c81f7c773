"""The language reference is correct and complete: every example runs, and every construct has an example.

``pytest --update-golden tests/frontend/test_reference.py`` rewrites the blocks of results and of messages, and the
table of built-in functions; read them before you commit.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lark import Lark, Token

from nautilus.core.errors import DiagnosticError, UnsupportedError
from nautilus.core.functions import NAMED, Types
from nautilus.core.index.sizes import MAX_DIM
from nautilus.core.types import DType
from nautilus.frontend import codes
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics import constant
from nautilus.frontend.semantics.check import load_spec
from nautilus.frontend.semantics.symbols import BUILTINS, CASTS, REDUCTIONS
from nautilus.frontend.spec import Spec
from nautilus.frontend.syntax import grammar, load
from nautilus.frontend.syntax.elsewhere import FUNCTIONS
from nautilus.frontend.syntax.words import mark_bars, mark_words
from tests.pages import blocks as reference_page
from tests.pages.blocks import Block, Example

PAGE = reference_page.PAGE.read_text(encoding="utf-8")
BLOCKS = reference_page.blocks(PAGE)
EXAMPLES = reference_page.examples(PAGE)
ROWS = reference_page.rows(PAGE)
(PREFIX,) = [b.text for b in BLOCKS if "prefix" in b.options]
INPUTS: dict[str, Any] = reference_page.values(next(b.text for b in BLOCKS if b.kind == "inputs"))

#: codes whose entry has no example: what is wrong is the file, not its text
WITHOUT_EXAMPLE = {"N0101", "N0102", "N0106"}
#: tokens that no statement holds; the reader reports them
NO_TOKENS = {"NEWLINE", "BAD_NUMBER", "BAD"}
_TABLE_HEAD = "| function | meaning | example | value |\n| --- | --- | --- | --- |\n"


def line_id(example: Example) -> str:
    return f"line-{example.spec.line}"


def write_spec(example: Example, folder: Path) -> Path:
    """The example as a file, with the prefix after it so that its lines keep their numbers."""
    for name, text in reference_page.files(BLOCKS).items():
        (folder / name).write_text(text)
    path = folder / "spec.naut"
    path.write_text(example.spec.text + (PREFIX if example.is_fragment else ""))
    return path


def load_example(example: Example, folder: Path) -> Spec:
    dims = {name: int(size) for name, size in example.given("--dim").items()}
    return load_spec(write_spec(example, folder), dims=dims)


def messages(example: Example, folder: Path) -> str:
    """The diagnostics of the example, without those of the prefix alone."""
    try:
        found = list(load_example(example, folder).warnings)
    except DiagnosticError as error:
        found = list(error.diagnostics)
    except UnsupportedError as error:
        return str(error).replace(f"{folder}{os.sep}", "").split("\n")[0] + "\n"
    own = len(example.spec.text.splitlines())
    kept = [d.text() for d in found if d.span.line <= own]
    return "\n".join(kept).replace(f"{folder}{os.sep}", "") + "\n"


def evaluate(example: Example, folder: Path) -> dict[str, Any]:
    """The outputs of the example. Inputs that the page does not state are small counting numbers."""
    spec = load_example(example, folder)
    given = INPUTS if example.is_fragment else {}
    inputs = {t.name: given.get(t.name, np.ones([int(str(s)) for s in t.shape])) for t in spec.inputs}
    return run_spec(spec, inputs, example.given("--set"))


def as_text(value: Any) -> str:
    """A number or an array as the page writes it."""
    array = np.asarray(value)
    if array.ndim:
        return "[" + ", ".join(as_text(v) for v in array) + "]"
    if array.dtype == bool:
        return str(bool(array)).lower()
    return np.format_float_positional(float(array), precision=6, trim="-") if np.isfinite(array) else str(float(array))


def rewrite(block: Block, text: str) -> None:
    page = reference_page.PAGE.read_text(encoding="utf-8")
    old = next(b for b in reference_page.blocks(page) if b.line == block.line + page.count("\n") - PAGE.count("\n"))
    reference_page.PAGE.write_text(page[: old.start] + text + page[old.end :], encoding="utf-8")


@pytest.mark.parametrize("example", EXAMPLES, ids=line_id)
def test_example(example: Example, tmp_path: Path, update_golden: bool) -> None:
    expected = example.expected
    if expected is not None and expected.kind == "error":
        got = messages(example, tmp_path)
        if update_golden:
            rewrite(expected, got)
        assert got == expected.text
        return
    outputs = evaluate(example, tmp_path)
    if expected is None:
        return
    if update_golden:
        rewrite(expected, "".join(f"{name} = {as_text(value)}\n" for name, value in outputs.items()))
    want = reference_page.values(expected.text)
    assert set(want) == set(outputs)
    for name, value in want.items():
        np.testing.assert_allclose(np.asarray(outputs[name], float), np.asarray(value, float), rtol=1e-6, atol=1e-6)


def test_a_row_shows_the_value_of_its_expression(tmp_path: Path) -> None:
    got = expression_values({str(row.line): row.expression for row in ROWS}, tmp_path)
    wrong = {
        f"line {row.line}: {row.expression}": value
        for row in ROWS
        if not np.isclose(value := float(got[str(row.line)]), row.value, rtol=2e-6, atol=1e-9)
    }
    assert wrong == {}


def test_every_function_and_reduction_and_type_has_a_row_that_uses_it() -> None:
    entries = {re.split(r"[\[(]", row.entry)[0] for row in ROWS}
    prelude = {f.name.id for f in load.prelude()}
    assert (BUILTINS | prelude) - entries == set()
    unused = [r.entry for r in ROWS if (name := re.match(r"(\w+)[\[(]", r.entry)) and name[1] not in r.expression]
    assert unused == []


def test_hints_are_for_functions_that_the_language_lacks() -> None:
    assert (BUILTINS | {f.name.id for f in load.prelude()}) & set(FUNCTIONS) == set()


def function_rows(heading: str) -> dict[str, tuple[str, str]]:
    """Name -> (entry, meaning) of the function table after the marker ``heading``."""
    rows = reference_page.rows(function_table(heading))
    return {re.split(r"[\[(]", row.entry)[0]: (row.entry, row.meaning) for row in rows}


def function_table(heading: str) -> str:
    """The text of the function table after the marker ``heading``."""
    return PAGE.split(f"<!-- functions: {heading} -->\n")[1].split("<!-- end -->")[0]


def expression_values(expressions: dict[str, str], folder: Path) -> dict[str, Any]:
    """The values of ``expressions`` over the inputs of the page, by name."""
    path = folder / "rows.naut"
    path.write_text("".join(f"output R_{n}: f64\nR_{n} = {e}\n" for n, e in expressions.items()) + PREFIX)
    spec = load_spec(path)
    got = run_spec(spec, {t.name: INPUTS[t.name] for t in spec.inputs})
    return {n: got[f"R_{n}"] for n in expressions}


def test_the_table_of_built_in_functions_is_that_of_the_code(update_golden: bool, tmp_path: Path) -> None:
    """Meanings and examples are those of ``core.functions``; the page may give the parameters other names."""
    shown = function_rows("built in")
    assert all(shown[n][0].count(",") + 1 == f.arity for n, f in NAMED.items() if n in shown)
    entries = {n: shown[n][0] if n in shown else f"{n}({', '.join('xyz'[: f.arity])})" for n, f in NAMED.items()}
    values = expression_values({n: f.example for n, f in NAMED.items()}, tmp_path)
    want = "".join(f"| `{entries[n]}` | {f.doc} | `{f.example}` | `{as_text(values[n])}` |\n" for n, f in NAMED.items())
    want = _TABLE_HEAD + want
    keep = f"`{' '.join(n for n, f in NAMED.items() if f.types is not Types.FLOAT)}` keep integers"
    if update_golden:
        page = reference_page.PAGE.read_text(encoding="utf-8")
        page = re.sub(r"`[^`]+` keep integers", keep, page.replace(function_table("built in"), want))
        reference_page.PAGE.write_text(page, encoding="utf-8")
        return
    assert function_table("built in") == want
    assert keep in PAGE


def test_the_tables_of_the_prelude_are_its_definitions() -> None:
    """The meanings are the comments above the definitions."""
    found = re.findall(r"((?:^# .*\n)+)def (\w+)", grammar.prelude_text(), re.MULTILINE)
    comments = {n: " ".join(line[2:] for line in text.splitlines() if "----" not in line) for text, n in found}
    for heading, over_index in (("prelude, of one number", False), ("prelude, over an index", True)):
        functions = [f for f in load.prelude() if bool(f.indices) == over_index]
        entries = {}
        for f in functions:
            binders = f"[{', '.join(i.id for i in f.indices)}]" if f.indices else ""
            entries[f.name.id] = f"{f.name.id}{binders}({', '.join(p.id for p in f.params)})"
        want = {name: (entry, comments[name]) for name, entry in entries.items()}
        assert function_rows(heading) == want


def test_the_table_of_element_types() -> None:
    want = [[t.value, str(t.bits), _kind(t), t.compute.value] for t in DType]
    assert reference_page.table_entries(PAGE, "## Element types") == want
    used = {d for e in EXAMPLES for d in re.findall(r": (\w+)\b", e.spec.text)}
    assert {t.value for t in DType} - used == set() and set(CASTS) == {t.value for t in DType}


def _kind(dtype: DType) -> str:
    return "float" if dtype.is_float else "integer" if dtype.is_int else "condition"


def test_the_table_of_limits() -> None:
    want = [codes.MAX_BYTES, codes.MAX_DEPTH, codes.MAX_NODES, codes.MAX_ERRORS, MAX_DIM, codes.MAX_ELEMENTS]
    assert [int(row[1]) for row in reference_page.table_entries(PAGE, "## Limits")] == want


def test_every_error_code_has_an_entry_with_an_example() -> None:
    entries = re.findall(r"^\*\*(N\d{4})\*\*: ", PAGE, re.MULTILINE)
    assert entries == sorted(codes.CODES)
    for code in entries:
        entry = re.split(r"^(?:\*\*N\d|### )", PAGE.split(f"**{code}**: ", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
        assert (f"[{code}]" in entry) == (code not in WITHOUT_EXAMPLE), code


def test_every_rule_and_every_token_of_the_grammar_occurs_in_an_example() -> None:
    text = grammar.grammar_file("naut.lark").read_text(encoding="utf-8")
    parser = Lark(text, start="statement", parser="lalr", lexer="basic", keep_all_tokens=True, maybe_placeholders=False)
    trees = [_tree(parser, statement) for statement in _statements()]
    found = {str(node.data) for tree in trees for node in tree.iter_subtrees()}
    tokens = {t.type for tree in trees for t in tree.scan_values(lambda v: isinstance(v, Token))}
    rules = set(re.findall(r"^([a-z_]+):", text, re.MULTILINE)) | set(re.findall(r"-> (\w+)", text))
    assert rules - found == set()
    assert set(re.findall(r"^([A-Z][A-Z_]+)(?:\.-\d)?:", text, re.MULTILINE)) - NO_TOKENS - tokens == set()


def _tree(parser: Lark, statement: str) -> Any:
    tokens = list(parser.lex(statement))
    mark_words(tokens)
    mark_bars(tokens)
    machine = parser.parse_interactive()
    for token in tokens:
        machine.feed_token(token)
    return machine.feed_eof(tokens[-1])


def _statements() -> list[str]:
    """The statements of all examples that the front end accepts, and the rows' expressions, one text each."""
    texts = [e.spec.text for e in EXAMPLES if e.expected is None or e.expected.kind == "result"]
    return [*(s for text in texts for s in split_statements(text)), *(f"O = {row.expression}" for row in ROWS)]


def split_statements(text: str) -> list[str]:
    """``text`` cut at newlines outside brackets, without comments, and without what marks a recurrence."""
    found, depth, current = [], 0, ""
    for line in re.sub(r"#[^\n]*|^recur {|^}|^recur (?=[A-Za-z])", "", text, flags=re.MULTILINE).splitlines():
        current += line + " "
        depth += sum(line.count(c) for c in "([") - sum(line.count(c) for c in ")]")
        if depth == 0:
            found.append(current.strip())
            current = ""
    return [s for s in found if s]


def test_the_lists_of_words_and_of_compile_time_functions() -> None:
    text = grammar.grammar_file("naut.lark").read_text(encoding="utf-8")
    words = re.search(r"These words are not names: `([^`]+)`", PAGE)
    assert words is not None
    assert set(words[1].split()) == set(re.findall(r'^[A-Z]+: "([a-z]+)"$', text, re.MULTILINE))
    casts = re.search(r"the casts `([^`]+)`", PAGE)
    assert casts is not None
    assert set(constant._CALLS) == {*casts[1].split(), *NAMED}


def test_reductions_have_their_own_table() -> None:
    entries = [row[0].split("[")[0] for row in reference_page.table_entries(PAGE, "## Reductions")]
    assert entries == sorted(REDUCTIONS, key=entries.index) and len(entries) == len(REDUCTIONS)

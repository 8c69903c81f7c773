"""Every diagnostic code has a file in ``errors/`` and its exact text beside it.

``pytest --update-golden tests/frontend/test_errors.py`` rewrites the texts; read them before you commit.
"""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path

import pytest

from nautilus.core.errors import DiagnosticError, Severity
from nautilus.frontend.codes import CODES, MAX_BYTES
from nautilus.frontend.semantics.check import load_spec, load_text
from nautilus.frontend.syntax.unsupported import INSTEAD
from tests.runtime.work import calls

FOLDER = Path(__file__).parent / "errors"
CASES = sorted(FOLDER.glob("N*.naut"))
ELSEWHERE = {"N0101", "N0102", "N0105", "N0106"}  # tested below, because a text file cannot produce them

GOOD = "dim M = 8\ninput X: f16[M]\noutput O: f16[M]\n"


def diagnostics(text: str, name: str = "t.naut", dims: dict[str, int] | None = None) -> tuple[str, list[str]]:
    """The rendered text and the codes of the errors and warnings of a spec."""
    try:
        found = load_text(text, name, dims=dims, folder=FOLDER).warnings
    except DiagnosticError as error:
        found = error.diagnostics
    return "\n".join(d.text() for d in found) + "\n", [d.code for d in found]


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_exact_text(path: Path, update_golden: bool) -> None:
    source = path.read_text()
    given = dict(re.findall(r"(\w+)=(\d+)", source.split("\n")[0])) if source.startswith("# dims:") else {}
    if path.stem == "N0108":  # a cycle needs a file, not a text
        with pytest.raises(DiagnosticError) as caught:
            load_spec(path)
        text = str(caught.value).replace(str(FOLDER) + os.sep, "") + "\n"
        codes = [d.code for d in caught.value.diagnostics]
    else:
        text, codes = diagnostics(source, path.name, {k: int(v) for k, v in given.items()})
        text = text.replace(str(FOLDER) + os.sep, "")
    golden = path.with_suffix(".txt")
    if update_golden:
        golden.write_text(text)
    assert path.stem in codes
    assert text == golden.read_text()


#: a line as users of other languages write it -> the hint of its error
HINTS = {
    "O[i] = X[i] \u2212 1": "write '-'", "O[i] = X[i] \xd7 2": "write '*'",
    "O[i] = X[i] if i \u2264 2 else 0": "write '<='", "include \u201ca.naut\u201d": "straight double quotes",
    "O[i] \uff1d X[i]": "write '='", "O[i] =\xa0X[i]": "looks like a space",
    "scalar \u03b5: f32": "such as 'epsilon'", "O[i] = X'[i]": "transpose", "O[i] = X.T[i]": "transpose",
    "O[i] = X[i] * $N": "names alone",
    "O[i] = X[i] .* 2": "write '*'", "O[i] = -np.inf": "write 'inf'", "O[i] = float('-inf')": "write 'inf'",
    "O[i] = np.where(i > 0, 1, 0)": "a choice is written", "O[i] = X[i] * 1.0f": "no suffix: '1.0'",
    "O[i] = X[i] * 1j": "complex", "O = X": "write 'O[i] = ...'", "O[i] = X + 1": "write 'X[i]'",
    "O[i] = X[end]": "size less 1", "O[i] = X[None]": "repeat", "O[i] = ln(X[i])": "write 'log(x)'",
    "inptu v: f32[M]": "did you mean 'input'?", "Input v: f32[M]": "write 'input'",
    "f32 v[M]": "'input X: f16[M, N]'", "assert M > 2": "assume", "dim K % 8 == 0": "assume",
    "O(i) = 1": "square brackets: 'O[i, j] = ...'", "input v: f32(M)": "square brackets",
    "O[i] <- X[i]": "written with '='", "O[i] := X[i]": "written with '='", "O[i] = sum(k)(X[k])": "square brackets",
    "O[i] = tril(X)[i]": "if j <= i", "O[i] = relu(X)[i]": "index the argument",
    "O[i] = sum[k=0..M](X[k])": "'k: 0 .. N'", "O[i] = sum[k: 0:M](X[k])": "'k: 0 .. N'", "% a": "'#'",
    "/* a */": "'#'", "O[i] = X[i] if i > 0 AND i < 2 else 0": "'and'", "O[i] = X[i] as f32": "'f16(x)'",
    "O = [1, 2]": "one element", 'O = einsum("i->i", X)': "product-sum", "O[i] = X[1:]": "one element",
    "input v: half[M]": "write 'f16'", "O[i] = rms_norm[i](X[i])": "write 'rms_norm[j](x, eps)'",
    "O[i] = X[i / 2]": "'//' divides integers",
    "O[i] = X[i - M / 2]": "'//' divides integers",
    "O[i] = einsum('i->i', X)": "product-sum", "O[i] = X[i] * 1e-3f": "no suffix: '1e-3'",
    "O[i], P = X[i], 1": "one definition for each tensor", "O[...] = X[0]": "an index of its own",
    "input: v: f32[M]": "'input X: f16[M, N]'", "O[M] = X[i]": "write 'i' in the place of one",
    "recur T[i: M, j: M] = T[i, j - 1] + T[i - 1, j] if i > 0 and j > 0 else X[i]": "a recurrence of its own",
}  # fmt: skip


@pytest.mark.parametrize("line", HINTS)
def test_habits_of_other_languages_have_a_hint(line: str) -> None:
    with pytest.raises(DiagnosticError) as caught:
        load_text(f"dim M = 8\ninput X: f16[M]\noutput O: f16[M]\n{line}\n", "t.naut")
    assert any(HINTS[line] in (d.hint or "") for d in caught.value.diagnostics)


def test_what_follows_from_an_error_is_not_said() -> None:
    declared = "dim M = 4, N = 8\ninput X: f16[M, N]\noutput O: f16[M, N]\n"
    assert diagnostics(declared + "O[i, j] = X[j, i]\n")[1] == ["N0303", "N0303"]
    assert diagnostics(declared + "O[i, j] = X[i, k] * X[j, k]\n")[1].count("N0302") == 1
    assert diagnostics(declared + "O[i, j] = einsum(X[i, k], X)\n")[1] == ["N0203"]
    text = diagnostics(declared + "O[i, j] = X[i, j - 1]\n")[0]
    assert "as in '... if j - 1 >= 0 else 0'" in text


def test_every_code_has_a_case() -> None:
    assert {p.stem for p in CASES} | ELSEWHERE == set(CODES)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.naut", "cannot read '{path}': No such file or directory"),
        ("folder", "cannot read '{path}': it is a directory"),
        ("nul\0name", "cannot read '{path}': embedded null byte"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / name
    with pytest.raises(DiagnosticError) as caught:
        load_spec(path)
    assert str(caught.value) == f"{path}: error[N0101]: " + message.format(path=path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"dim M = 4\ninput \xff", "is not UTF-8 text: byte 0xFF in line 2, byte 7"),
        (b"\x7fELF\x02\x01\x01\x00\x00", "is not text: it holds NUL bytes"),
    ],
)
def test_not_text(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "x.naut"
    path.write_bytes(data)
    with pytest.raises(DiagnosticError) as caught:
        load_spec(path)
    assert str(caught.value) == f"{path}: error[N0102]: '{path}' {message}"


def test_large_file(tmp_path: Path) -> None:
    path = tmp_path / "x.naut"
    path.write_bytes(b"O[i] = 1 + 2\n" * 80_000)
    with pytest.raises(DiagnosticError) as caught:
        load_spec(path)
    assert str(caught.value) == (
        f"{path}: error[N0106]: '{path}' is larger than {MAX_BYTES // 1024} KiB\n"
        "hint: a spec is a short text; is this the right file?"
    )


@pytest.mark.parametrize(
    "expr",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "-" * 5000 + "1",
        "not " * 5000 + "true",
        "1 ** " * 5000 + "1",
        "1 if true else " * 5000 + "1",
        "exp(" * 300 + "1" + ")" * 300,
        "[" * 100_000,
        "X[" * 250 + "0" + "]" * 250,
    ],
)
def test_deep_nesting(expr: str) -> None:
    _, codes = diagnostics(GOOD + f"O[i] = {expr}\n")
    assert "N0105" in codes


def test_deep_nesting_text() -> None:
    text, _ = diagnostics(GOOD + "O[i] = " + "-" * 300 + "X[i]\n")
    first = text.splitlines()[0]
    assert first == "t.naut:4:109: error[N0105]: the expression is nested more than 200 deep"


def test_expansion_is_bounded() -> None:
    nest = "".join(f"def f{i}[j](x) = softmax[j](f{i - 1}[j](x))\n" for i in range(1, 30))
    text = GOOD + "def f0[j](x) = softmax[j](x)\n" + nest + "O[i] = f29[i](X[i])\n"
    assert "N0105" in diagnostics(text)[1]
    double = "".join(f"def g{i}(x) = g{i - 1}(x) + g{i - 1}(x * 2)\n" for i in range(1, 40))
    text = GOOD + "def g0(x) = x\n" + double + "O[i] = g39(X[i])\n"
    assert "N0105" in diagnostics(text)[1]


def test_shared_expressions_are_bounded_as_trees() -> None:
    squares = "square(" * 60 + "X[i]" + ")" * 60
    text, codes = diagnostics(GOOD + f"O[i] = {squares}\n")
    assert codes == ["N0105"] and "operations when written out" in text


@pytest.mark.parametrize("line", ["O[i] = X[i] +\n", "A[i] = 1\n", "@\n", "const c = d\n", "O[i] = Q[i] + R[i]\n"])
def test_a_file_full_of_errors_is_quick(line: str) -> None:
    codes: list[str] = []
    assert calls(lambda: codes.extend(diagnostics(GOOD + line * (50_000 // len(line)))[1])) < 4_000_000
    assert 1 <= len(codes) <= 101


@pytest.mark.parametrize("op", [" + ", " * ", " - "])
def test_long_chains_are_legal(op: str) -> None:
    spec = load_text(GOOD + "O[i] = " + op.join(["X[i]"] * 5000) + "\n")
    assert len(spec.definitions) == 1


def test_long_chain_of_mixed_operators_is_refused() -> None:
    assert diagnostics(GOOD + "O[i] = X[i]" + " / 2 * 3" * 2000 + "\n")[1] == ["N0105"]


@pytest.mark.parametrize("construct", sorted(INSTEAD))
def test_unsupported_constructs_have_a_case(construct: str) -> None:
    text = (FOLDER / "N0112.txt").read_text()
    assert f"'{construct}'" in text and INSTEAD[construct] in text


@pytest.mark.parametrize("name", sorted(INSTEAD))
def test_names_of_unsupported_constructs_are_names(name: str) -> None:
    """A tensor and a dim may be called so."""
    spec = load_text(f"dim {name} = 8, N = {name}\ninput X: f16[N]\noutput O: f16[N]\nO[i] = X[i]\n")
    assert spec.outputs[0].shape == (8,)
    spec = load_text(GOOD + f"{name}[i] = X[i]\nO[i] = {name}[i]\n")
    assert [d.name for d in spec.definitions] == [name, "O"]


def test_a_block_of_recurrences_hides_no_other_error() -> None:
    text = GOOD + "recur {\n  O[i] = X[i] if i == 0 else O[i - 1] +\n  ?\n}\nP[i] = X[i] ?\n"
    assert diagnostics(text)[1] == ["N0104", "N0103", "N0103"]


def test_a_block_of_recurrences_ends() -> None:
    text = GOOD + "recur {\n  O[i] = X[i] if i == 0 else O[i - 1]\n"
    assert diagnostics(text)[1] == ["N0110"]


def test_all_errors_of_a_file_at_once() -> None:
    text = "dim M = 0\ninput X: f17[M]\noutput O: f16[M]\nO[i] = Y[i] +\nP[i: 3] = Q[i]\nR[i: 2] = sin(1, 2)\n"
    assert diagnostics(text)[1] == ["N0502", "N0405", "N0104", "N0212"]


def test_json_and_pickle() -> None:
    with pytest.raises(DiagnosticError) as caught:
        load_text(GOOD + "O[i] = Y[i]\n", "t.naut")
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.diagnostics == caught.value.diagnostics and str(again) == str(caught.value)
    error = next(d for d in again.diagnostics if d.severity is Severity.ERROR)
    assert json.loads(json.dumps(error.as_dict())) == {
        "code": "N0201", "severity": "error", "message": "unknown tensor 'Y'", "file": "t.naut",
        "line": 4, "column": 8, "end_line": 4, "end_column": 9, "notes": [],
            "hint": "declare it, as in 'input Y: f32[N]', or define it",
    }  # fmt: skip


def test_errors_in_the_prelude_point_at_the_call() -> None:
    text, codes = diagnostics(GOOD + "input B: bool[M]\nO[i] = softmax[i](B[i]) + X[i]\n")
    assert codes == ["N0401"] and text.startswith("t.naut:5:8: error[N0401]: 'max' needs numbers, but got bool")

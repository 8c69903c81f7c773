"""What editors ask of a spec: the meaning of names, messages, hover, definitions, rename and completion."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from nautilus.core.errors import DiagnosticError, InputError
from nautilus.editor.complete import completions
from nautilus.editor.document import Document
from nautilus.editor.hover import hover
from nautilus.editor.kernels import kernels
from nautilus.editor.names import Occurrence
from nautilus.editor.navigate import definitions, references, rename, renameable, replaced
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.syntax.parse import tokens
from tests.shipped import MORE, SPECS

ERRORS = sorted((Path(__file__).parents[1] / "frontend" / "errors").glob("*.naut"))
TEXT = """\
dim M = 2, N = 3
const half = N // 2
scalar eps: f32 = 1e-5
input X: f32[M, N], len: i32[M]
output O: f32[M]
assume 0 <= len[i] <= N
def twice(x) = 2 * x
def total[j | c](x, scale) = sum[j | c](x) * scale
# the sums
T[i, j] = twice(X[i, j]) + softmax[j](X[i, j])
O[i] = total[j | j < half](T[i, j], 1 / eps) + sum[i: N](i) + \\
max[j: 0 .. len[i]](X[i, j])
""".replace("\\\n", "")


def document(text: str = TEXT) -> Document:
    return Document(text, "x.naut")


def place(text: str, mark: str) -> tuple[int, int]:
    """Line and column of the ``^`` in ``mark``, which is the text of a part of a line with that sign in it."""
    before, _, after = mark.partition("^")
    for number, line in enumerate(text.split("\n"), start=1):
        if before + after in line:
            return number, line.index(before + after) + len(before) + 1
    raise AssertionError(mark)


def at(mark: str, text: str = TEXT) -> Occurrence:
    found = document(text).at(*place(text, mark))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("mark", "kind", "role"),
    [
        ("dim ^M", "dim", "declares"), ("const ^half", "const", "declares"), ("eps: ^f32", "type", "uses"),
        ("^X: f32", "input", "declares"), ("^T[i, j] =", "intermediate", "defines"), ("^O[i] =", "output", "defines"),
        ("twice^(X", "function", "uses"), ("^sum[i: N]", "built-in", "uses"), ("total[^j | c]", "formal", "declares"),
        ("sum[^j | c](x)", "formal", "uses"), ("(x, ^scale)", "argument", "declares"),
        ("| ^c](x)", "condition", "uses"),
        ("len[^i] <= N", "index", "declares"), ("softmax[^j](X", "index", "uses"),
        ("total[^j | j", "index", "declares"),
        ("sum[^i: N]", "index", "declares"), ("sum[i: ^N]", "dim", "uses"), ("1 / ^eps", "scalar", "uses"),
    ],
)  # fmt: skip
def test_meanings(mark: str, kind: str, role: str) -> None:
    found = at(mark)
    assert (found.entity.kind, found.role) == (kind, role)


def test_a_reduction_binds_anew_and_a_function_does_not() -> None:
    assert at("sum[i: N](^i)").entity != at("O[^i] =").entity
    assert at("T[^i, j], 1").entity == at("O[^i] =").entity
    assert at("softmax[^j](X").entity == at("T[i, ^j] =").entity == at("twice(X[i, ^j])").entity
    assert at("X[i, ^j])\n".rstrip()).entity != at("(T[i, ^j], 1").entity


@pytest.mark.parametrize("path", [*SPECS, *MORE[::5]], ids=lambda p: p.stem)
def test_every_name_of_the_shipped_specs_has_a_meaning(path: Path) -> None:
    found = Document(path.read_text(), str(path), path.parent)
    assert [o for o in found.occurrences if o.entity.kind == "unknown"] == []
    names = {(t.line, t.column) for t in tokens(found.source) if t.type == "NAME" and str(t) not in ("recur", "all")}
    assert names == {(o.span.line, o.span.column) for o in found.occurrences if found.owns(o.span)}


def test_messages_are_those_of_the_command_line() -> None:
    for path in ERRORS:
        try:
            shown = load_text(path.read_text(), "x.naut", folder=path.parent).warnings
        except DiagnosticError as error:
            shown = error.diagnostics
        found = Document(path.read_text(), "x.naut", path.parent).analysis.diagnostics
        assert [d.text() for d in found] == [d.text() for d in shown], path
        assert found or path.stem == "N0217", path  # which is about the command line


@pytest.mark.parametrize(
    ("mark", "parts"),
    [
        ("^X: f32", ("X: f32[M, N]", "input of 2 x 3 elements, 24 bytes")),
        ("^T[i, j], 1", ("T: f32[M, N]", "intermediate", "computed in line 10, by the kernel", "twice(X[i, j])")),
        ("O^: f32", ("O: f32[M]", "output", "computed in line 11")),
        ("T[i, ^j] =", ("`j`: index variable, 0 <= j < 3 (N)",)),
        ("sum[^i: N]", ("0 <= i < 3 (N)",)), ("O[^i] =", ("0 <= i < 2 (M)",)), ("total[^j | j", ("0 <= j < 3 (N)",)),
        ("len[^i] <= N", ("0 <= i < 2 (M)",)), ("| j < ^half", ("const half = 1",)), ("dim ^M", ("dim M = 2",)),
        ("/ ^eps", ("scalar eps: f32", "1e-05 where")), ("^softmax", ("def softmax[j | c](x)", "in the prelude")),
        ("^max[j:", ("`max[j](e)`: greatest", "`max(x, y)`")), ("= ^twice", ("def twice(x) = 2 * x",)),
        ("len: ^i32", ("`i32`: integer of 32 bits",)), ("^assume", ("states a condition",)),
        ("^dim", ("sizes that are",)),
    ],
)  # fmt: skip
def test_hover(mark: str, parts: tuple[str, ...]) -> None:
    own = document()
    found = hover(own, *place(TEXT, mark), lambda: kernels(own))
    assert found is not None
    for part in parts:
        assert part in found.text, found.text


def test_hover_of_a_spec_with_errors_and_of_nothing() -> None:
    text = TEXT + "Z[i] = Q[i]\ndim K = \n"
    own = document(text)
    found = hover(own, *place(text, "^X: f32"), lambda: kernels(own))
    assert found is not None and "2 x 3 elements" in found.text and kernels(own) == {}
    assert hover(own, *place(text, "# the ^sums")) is None and hover(own, 99, 1) is None
    assert hover(own, *place(text, "Z[i] = ^Q")) is None


def test_runtime_sizes() -> None:
    text = "dim N = runtime <= 64\ninput X: f16[N]\noutput Y: f16[N]\nY[i] = X[i]\n"
    for mark, part in (("Y[^i] =", "0 <= i < N"), ("dim ^N", "dim N = runtime <= 64"), ("^X: f16", "X: f16[N]")):
        found = hover(document(text), *place(text, mark))
        assert found is not None and part in found.text
    given = Document(text, "x.naut", dims=(("N", 8),))
    found = hover(given, *place(text, "^X: f16"))
    assert found is not None and "8 elements, 16 bytes" in found.text


def lines(mark: str, text: str = TEXT) -> list[tuple[int, int]]:
    return [(s.line, s.column) for s in definitions(document(text), *place(text, mark))]


def test_definitions() -> None:
    assert lines("(^T[i, j], 1") == [(10, 1)] and lines("^O: f32") == [(11, 1)] and lines("^O[i] =") == [(5, 8)]
    assert lines("twice^(X") == [(7, 5)] and lines("sum[i: N](^i)") == [place(TEXT, "sum[^i: N]")]
    assert lines("^sum[i") == [] and lines("# the ^sums") == []
    prelude = definitions(document(), *place(TEXT, "^softmax"))
    assert [s.source.name for s in prelude] == ["prelude.naut"]


def test_references() -> None:
    assert len(references(document(), *place(TEXT, "^X: f32"))) == 4
    assert len(references(document(), *place(TEXT, "^X: f32"), declarations=False)) == 3


def renamed(mark: str, name: str, text: str = TEXT) -> str:
    own = document(text)
    return replaced(own.source, rename(own, *place(text, mark), name), name)


def test_rename() -> None:
    assert renamed("^X: f32", "Data") == TEXT.replace("X", "Data")
    assert "T[i, k] = twice(X[i, k]) + softmax[k](X[i, k])\nO[i] = total[j |" in renamed("T[i, ^j] =", "k")
    assert "def total[q | c](x, scale) = sum[q | c](x) * scale\n" in renamed("total[^j | c]", "q")
    assert "assume 0 <= len[b] <= N\n" in renamed("len[^i] <= N", "b")


@pytest.mark.parametrize(
    ("mark", "name", "reason"),
    [
        ("^X: f32", "1x", "is no name"), ("^X: f32", "dim", "is no name"), ("^X: f32", "T", "is an input and cannot"),
        ("O[^i] =", "j", "ranges over"), ("sum[i: N](^i)", "eps", ""), ("T[^i, j] =", "j", "bound twice"),
        ("total[^j | j", "half", "means something else"), ("O[^i] =", "X", ""), ("^softmax", "s", "of the prelude"),
        ("^sum[i", "s", "only names that the spec declares"), ("eps: ^f32", "s", "only names"),
        ("def ^twice", "exp", "built in"), ("def ^twice", "softmax", "takes no index"), ("def ^twice", "relu", ""),
    ],
)  # fmt: skip
def test_a_name_that_changes_the_meaning_is_refused(mark: str, name: str, reason: str) -> None:
    if reason == "":
        assert renamed(mark, name).count(name) > TEXT.count(name)  # shadows nothing that is used in its scope
        return
    with pytest.raises(InputError, match=reason):
        renamed(mark, name)


def test_rename_needs_a_spec_without_errors_and_of_one_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a spec with errors"):
        renamed("^X: f32", "Y", TEXT + "dim =\n")
    (tmp_path / "f.naut").write_text("def f(x) = x + c\nconst c = 2\n")
    text = 'include "f.naut"\noutput O: f32[c]\nO[i] = f(i)\n'
    own = Document(text, str(tmp_path / "x.naut"), tmp_path)
    assert [Path(s.source.name).name for s in definitions(own, *place(text, "^f(i)"))] == ["f.naut"]
    with pytest.raises(InputError, match=r"stands in .*f\.naut too"):
        renameable(own, *place(text, "f32[^c]"))
    assert len(rename(own, *place(text, "O[^i]"), "k")) == 2


def test_rename_of_any_name_and_back() -> None:
    chance = random.Random(3)
    for path in chance.sample([*SPECS, *MORE], 12):
        own = Document(path.read_text(), "x.naut", path.parent)
        for o in chance.sample([o for o in own.occurrences if o.role != "uses" or o.entity.bound is not None], 4):
            line, column = o.span.line, o.span.column
            text = replaced(own.source, rename(own, line, column, "fresh_name"), "fresh_name")
            after = Document(text, "x.naut", path.parent)
            line, column = next((s.line, s.column) for x in after.occurrences if (s := x.span).line == line
                                and x.entity.name == "fresh_name")  # fmt: skip
            back = rename(after, line, column, o.entity.name)
            assert replaced(after.source, back, o.entity.name) == own.text


def labels(text: str) -> list[str]:
    """What may stand at the ``^`` of ``text``."""
    before, _, after = text.partition("^")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return [i.label for i in completions(document(before + after), line, column)]


def test_completion() -> None:
    assert {"dim", "recur", "assume"} <= set(labels("^")) and "exp" not in labels("^")
    assert labels("output O: f16\nO^")[-1] == "O"
    assert set(labels("input X: f^")) >= {"f16", "f4e2m1"} and "exp" not in labels("input X: ^")
    assert labels("dim N = 2\ninput X: f16[^") == ["N"] and labels("input X: f16[8] s^") == ["strided"]
    assert "runtime" in labels("dim N = r^") and "runtime" not in labels("const N = r^")
    found = labels(TEXT + "Z[a, b] = su^")
    assert {"a", "b", "X", "T", "half", "eps", "sum", "softmax", "twice", "if", "M"} <= set(found)
    assert not {"dim", "f99", "i"} & set(found) and "f16" in found
    assert "k" in labels("input X: f16[8]\noutput Y: f16\nY = sum[k](X[^")
    assert labels("dim N = 2  # a comment: ^") == []
    assert "N" in labels("dim N = 2\nY[i: ^") and labels("Y[^") == []
    assert {"t", "a"} <= set(labels("input a: f32[2]\nrecur {\n  h[t] = ^"))


def test_completion_of_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("x.naut", "norms.naut", "sub/more.naut", "other.txt"):
        (tmp_path / name).write_text("")
    own = Document('include "', str(tmp_path / "x.naut"), tmp_path)
    assert [i.label for i in completions(own, 1, 10)] == ["norms.naut", "sub/more.naut"]


def test_completion_never_fails() -> None:
    chance = random.Random(1)
    for path in chance.sample([*SPECS, *ERRORS], 8):
        text = path.read_text()
        for end in chance.sample(range(len(text)), min(len(text), 6)):
            assert isinstance(labels(text[:end] + "^" + text[end:].replace("^", "")), list)
            line, column = text[:end].count("\n") + 1, end - text[:end].rfind("\n")
            for name in (text, text[:end]):
                definitions(document(name), line, column)
                hover(document(name), line, column)

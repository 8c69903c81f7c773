"""The meaning of statements: sizes, includes, functions of the spec, facts and counts, tested with the interpreter."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from nautilus.core.errors import DiagnosticError, InputError
from nautilus.core.expr.nodes import Const, Load, Param, loads, walk
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec, load_text
from tests.frontend.semantics.evaluated import HEAD, X, rows
from tests.shapes import static


def test_order_of_definitions_is_free() -> None:
    lines = ["output O: f32[M]", "O[i] = T[i] + c * d", "T[i] = U[i] * 2", "const c = d + 1", "U[i] = X[i, 0]"]
    lines += ["input X: f32[M, N]", "dim N = M + 2", "const d = 2", "dim M = 5"]
    spec = load_text("\n".join(lines))
    assert [d.name for d in spec.definitions] == ["U", "T", "O"]
    np.testing.assert_allclose(run_spec(spec, {"X": X})["O"], X[:, 0] * 2 + 6)


def test_dims_override_and_consts_follow() -> None:
    text = "dim A = 8, B = 2\ndim C\nconst G = A // B\ninput X: f32[A, C]\noutput O: f32[A]\nO[i] = X[i, 0] * G\n"
    spec = load_text(text, dims={"A": 6, "C": 3})
    assert spec.inputs[0].shape == (6, 3) and spec.outputs[0].shape == (6,)
    assert [n.value for n in walk(spec.definitions[0].expr) if isinstance(n, Const) and n.dtype is DType.F32] == [3.0]
    assert [(d.name, d.value) for d in spec.dims] == [("A", 6), ("B", 2), ("C", 3)]


def test_runtime_dims() -> None:
    text = "dim M = 5\ndim N = runtime <= 100\ninput X: f32[M, N]\noutput O: f32[M]\noutput P: f32[N]\n"
    text += "O[i] = mean[j](X[i, j]) + N\nP[j] = sum[i](X[i, j] if j + 1 < N else 0)\n"
    spec = load_text(text)
    assert spec.inputs[0].shape == (5, Param("N", DType.I32))
    assert [(d.name, d.value, d.bound) for d in spec.runtime_dims] == [("N", None, 100)]
    for n in (1, 7):
        got = run_spec(spec, {"X": X[:, :n]})
        np.testing.assert_allclose(got["O"], X[:, :n].mean(1) + n)
        np.testing.assert_allclose(got["P"], np.r_[X[:, : n - 1].sum(0), 0])
    fixed = load_text(text, dims={"N": 7})
    assert fixed.runtime_dims == () and fixed.inputs[0].shape == (5, 7)
    with pytest.raises(InputError, match="allowed are 0 to 100"):
        run_spec(spec, {"X": np.zeros((5, 101))})


def test_scalars_and_rank_zero() -> None:
    text = HEAD + "scalar a: f32\nscalar b: i32 = -3\noutput O: f32[]\noutput P: f32\n"
    text += "T = a * b\nO = T + sum[i, j](X[i, j])\nP[] = O\n"
    spec = load_text(text)
    assert [(s.name, s.default) for s in spec.scalars] == [("a", None), ("b", -3)]
    got = run_spec(spec, {"X": X}, {"a": 2.5})
    np.testing.assert_allclose(got["O"], X.sum() - 7.5)
    with pytest.raises(InputError, match="'a' is not given"):
        run_spec(spec, {"X": X})


def test_include(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.naut").write_text('include "b.naut"\ninclude "../c.naut"\ndef twice(x) = both(x, x)\n')
    (tmp_path / "lib" / "b.naut").write_text("def both(x, y) = x + y\n")
    (tmp_path / "c.naut").write_text("const c = 3\r\n")
    main = tmp_path / "main.naut"
    main.write_bytes(
        b'\xef\xbb\xbfinclude "lib/a.naut"\r\ninclude "c.naut"\r\ninput X: f32[5, 7]\r\n'
        b"output O: f32[5]\r\nO[i] = sum[j](\r\n  twice(X[i, j])\r\n) * c\r\n"
    )
    spec = load_spec(main)
    assert spec.name == "main"
    np.testing.assert_allclose(run_spec(spec, {"X": X})["O"], X.sum(1) * 6)
    (tmp_path / "c.naut").write_text('include "main.naut"\n')
    with pytest.raises(DiagnosticError, match="N0108"):
        load_spec(main)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("/etc/passwd", "ends in .naut"),
        ("../secret.txt", "ends in .naut"),
        ("{folder}/c.naut", "is absolute"),
        ("pipe.naut", "no regular file"),
    ],
)
def test_an_include_reads_specs_alone(tmp_path: Path, written: str, why: str) -> None:
    os.mkfifo(tmp_path / "pipe.naut")
    (tmp_path / "c.naut").write_text("const c = 3\n")
    main = tmp_path / "main.naut"
    main.write_text(f'include "{written.format(folder=tmp_path)}"\n' + HEAD + "output O: f32[M]\nO[i] = X[i, 0]\n")
    with pytest.raises(DiagnosticError, match=why) as raised:
        load_spec(main)
    assert raised.value.diagnostics[0].code == "N0107"


def test_the_number_of_tensors_is_bounded() -> None:
    inputs = "".join(f"input T{k}: f32[M]\n" for k in range(1000))
    with pytest.raises(DiagnosticError, match="more than 1000 inputs and outputs"):
        load_text(f"dim M = 2\n{inputs}output O: f32[M]\nO[i] = T0[i]\n")


def test_a_spec_may_replace_a_function_of_the_prelude() -> None:
    np.testing.assert_allclose(rows("relu(X[i, 0])", "def relu(x) = x * 10"), X[:, 0] * 10)


def test_a_range_may_be_an_argument() -> None:
    np.testing.assert_allclose(rows("first(3) + first(N)", "def first(w) = sum[k: w](k)"), np.full(5, 24))


def test_a_spec_pickles() -> None:
    spec = load_text(HEAD + "output P: f32[M, N]\nP[i, j] = softmax[j](X[i, j])\n")
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_a_tensor_may_be_passed_to_a_function() -> None:
    np.testing.assert_allclose(rows("first(X, i)", "def first(T, k) = T[k, 0]"), X[:, 0])


def test_ranges_of_literal_sizes_agree_with_dims_of_the_same_size() -> None:
    text = "dim M = 4\ninput X: f32[M]\ninput Y: f32[4]\noutput O: f32[2 * 2]\nO[i] = X[i] + Y[i]\n"
    assert load_text(text).definitions[0].axes[0].extent == 4


def test_a_written_range_selects_a_prefix() -> None:
    text = "dim N = 7, W = 5\ninput X: f32[N]\noutput O: f32[W]\nO[i: W] = X[i] + X[i + 1] + X[i + 2]\n"
    np.testing.assert_allclose(run_spec(load_text(text), {"X": X[0]})["O"], X[0, :5] + X[0, 1:6] + X[0, 2:])


def test_spans_point_at_the_source() -> None:
    spec = load_text(HEAD + "output P: f32[M, N]\nP[i, j] = softmax[j](X[i, j]) * 2\n", "t.naut")
    (load,) = {repr(n.span) for n in loads(spec.definitions[0].expr)}
    assert load == "t.naut:4:22"
    assert all(
        n.span.source.name == "t.naut" for n in walk(spec.definitions[0].expr) if not isinstance(n, Load | Const)
    )


def test_chunked_evaluation_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    from nautilus.frontend import interp

    text = HEAD + "input Y: f32[M, N]\noutput O: f32[M, M]\noutput S: f32[]\noutput A: i32[M]\n"
    text += "O[i, k] = sum[j | j <= i + k](abs(X[i, j] - Y[k, j])) * max[j](X[i, j] * Y[k, j])\n"
    text += "S = sum[i, j](X[i, j] ** 2) + max[i, k, j](X[i, j] - Y[k, j])\nA[i] = argmax[j](Y[i, j])\n"
    spec = load_text(text)
    inputs = {"X": X, "Y": X[::-1].copy()}
    whole = run_spec(spec, inputs)
    for grid in (1, 7, 40):
        monkeypatch.setattr(interp, "_GRID", grid)
        for name, got in run_spec(spec, inputs).items():
            np.testing.assert_allclose(got, whole[name], rtol=1e-12)


def test_run_errors() -> None:
    spec = load_text(HEAD + "output O: f32[M]\nO[i] = X[i, 0]\n")
    for inputs, message in (
        ({}, "input 'X' is not given"),
        ({"X": X.T}, r"input 'X' has shape \[7, 5\], but \[5, 7\] is declared"),
        ({"X": X, "Y": X}, "'Y' is not an input"),
    ):
        with pytest.raises(InputError, match=message):
            run_spec(spec, inputs)


def test_the_example_of_the_language_page() -> None:
    text = """
# Causal attention with grouped queries (Llama-3-8B).
dim B = 1, Hq = 32, Hkv = 8, M = 4096, N = 4096, D = 128
const G = Hq // Hkv

input  Q: f16[B, Hq, M, D]
input  K: f16[B, Hkv, N, D]
input  V: f16[B, Hkv, N, D]
output O: f16[B, Hq, M, D]

S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h // G, j, d]) / sqrt(D)
P[b, h, i, j] = softmax[j | j - i <= N - M](S[b, h, i, j])
O[b, h, i, d] = sum[j](P[b, h, i, j] * V[b, h // G, j, d])
"""
    spec = load_text(text, dims={"Hq": 4, "Hkv": 2, "M": 9, "N": 5, "D": 3})
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.standard_normal(static(t.shape)) for t in spec.inputs}
    got = run_spec(spec, inputs)["O"]
    assert got.shape == (1, 4, 9, 3)
    assert (got[:, :, :4] == 0).all() and (got[:, :, 4:] != 0).all()  # the domains of the first four queries are empty


def test_an_index_of_a_fact_may_have_the_name_of_a_tensor_with_axes() -> None:
    """As in definitions; a tensor without axes is a number, and one that is read is no index."""
    text = (
        "dim B = 2, P = 4\ninput table: i32[B, P], s: i32\nassume 0 <= table[b, {}] < {}\n"
        "output O: i32[B]\np[b, j] = table[b, j] + s\nO[b] = max[j](p[b, j])\n"
    )
    (fact,) = load_text(text.format("p", "P")).facts
    assert [(a.name, a.extent) for a in fact.axes] == [("b", 2), ("p", 4)]
    assert [a.name for a in load_text(text.format("s", "P")).facts[0].axes] == ["b"]
    with pytest.raises(DiagnosticError, match="'p' is computed"):
        load_text(text.format("p", "p[b, 0]"))


def test_a_fact_about_two_sizes_bounds_each_by_the_other() -> None:
    """The fact of a variant is about one size alone, because the launcher compares no others."""
    text = (
        "dim B = runtime <= 1024, B1 = runtime, M = runtime <= 50, N = runtime <= 20, T = runtime\n"
        "assume M <= N and T - 2 > B1\nassume B1 == B + 1 and N >= 3\n"
        "input p: i32[B1], X: f32[M, N], Y: f32[T, B]\noutput O: f32[M]\nO[i] = sum[j](X[i, j]) + p[0] + Y[0, 0]\n"
    )
    ranges = {d.name: (d.least, d.bound) for d in load_text(text).dims}
    assert ranges == {"B": (0, 1024), "B1": (1, 1025), "M": (0, 20), "N": (3, 20), "T": (4, None)}
    variant = {d.name: d.bound for d in load_text(text, assumed=["B <= 16"]).dims}
    assert (variant["B"], variant["B1"]) == (16, 1025)
    with pytest.raises(DiagnosticError, match="no size of 'M' satisfies"):
        load_text(text.replace("N >= 3", "M >= 21"))


def test_a_definition_may_have_more_elements_than_a_tensor() -> None:
    """Scores of 64 sequences of 131072 positions at most, which no kernel stores."""
    text = (
        "dim B = runtime <= 64, N = runtime <= 131072\ninput K: f16[B, N, 2]\noutput M: f32[B, N]\n"
        "S[b, h: {}, i, j] = sum[d](K[b, i, d] * K[b, j, d]) + h\nM[b, i] = max[j](S[b, 3, i, j])\n"
    )
    assert load_text(text.format(32)).definitions[0].name == "S"
    with pytest.raises(DiagnosticError, match=r"'S' would hold \d+ elements; at most 2\^56 are allowed"):
        load_text(text.format("2 ** 20"))


def test_counts_are_those_of_the_grid_of_terms_and_elements() -> None:
    """A term is added at its key alone; beyond the keys it counts nowhere."""
    text = (
        "dim N = 57, A = 5, B = 7\ninput x: i32[N], y: u8[N], w: i8[N]\noutput c: i32[A, B], m: i32[A], t: i8[A]\n"
        "c[a: A, b: B] = sum[n | x[n] == a and y[n] == b and w[n] > 0](1 + w[n])\n"
        "m[a: A] = max[n | x[n] - 1 == a](w[n])\nt[a: A] = i8(sum[n | x[n] == a](w[n] * w[n] * 100000))\n"
    )
    random = np.random.default_rng(0)
    x, y, w = (random.integers(*ends, 57) for ends in ((-1, 7), (0, 9), (-128, 128)))
    found = run_spec(load_text(text), {"x": x, "y": y, "w": w})
    a, b = np.arange(5)[:, None], np.arange(7)[None, :, None]
    grid = (x == a[:, None]) & (y == b) & (w > 0)
    assert np.array_equal(found["c"], np.sum(np.where(grid, 1 + w, 0), axis=-1))
    assert np.array_equal(found["m"], np.max(np.where(x - 1 == a, w, -(2**31)), axis=-1))
    total = np.sum(np.where(x == a, w * w * 100000, 0), axis=-1)
    assert np.array_equal(found["t"], total.astype(np.int8))

"""The family of a spec is equal for all sizes, and differs for different maths."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.frontend.semantics.check import load_spec, load_text

TEXT = """\
dim M = 4, N = 8
input X: f16[M, N]
output Y: f16[M, N]
Y[i, j] = softmax[j](X[i, j])
"""


def family(text: str, **dims: int) -> str:
    return load_text(text, dims=dims).family


def test_sizes_comments_and_layout_do_not_matter() -> None:
    want = family(TEXT)
    assert len(want) == 16
    assert family(TEXT, M=3, N=77) == want
    assert family("# said twice\n" + TEXT.replace("M = 4", "M  =  512")) == want
    assert family(TEXT + "def unused(x) = x + 1\n") == want


@pytest.mark.parametrize(
    "change",
    [
        ("f16[M, N]\nY", "f32[M, N]\nY"),
        ("softmax[j]", "softmax[j | j <= i]"),
        ("(X[i, j])", "(2.0 * X[i, j])"),
        ("N = 8", "N = runtime <= 8"),
        ("output Y", "def softmax[j | c](x) = x / sum[j | c](x)\noutput Y"),
    ],
)
def test_mathematics_does(change: tuple[str, str]) -> None:
    changed = TEXT.replace(*change)
    assert changed != TEXT
    assert family(changed) != family(TEXT)


def test_the_name_of_the_file_does_not(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.naut").write_text(TEXT)
    assert load_spec(tmp_path / "a.naut").family == load_spec(tmp_path / "b.naut").family == family(TEXT)

"""Dumps on the command line: which are printed, that each one compiles to the same text, and edited ones."""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import Path

import pytest

from nautilus.cli.main import main
from nautilus.cli.options import dump_names
from nautilus.passes.pipelines import STAGES

SPEC = """
dim M = 64, N = 48, D = 32
input Q: f16[M, D]
input K: f16[N, D]
output P: f16[M, N]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / 50.0
E[i, j] = exp(S[i, j] - max[k](S[i, k]))
P[i, j] = E[i, j] / sum[k](E[i, k])
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spec") / "rows.naut"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="module")
def dumps(spec: Path) -> list[Path]:
    folder = spec.parent / "dumps"
    assert main([str(spec), "-o", str(spec.parent / "whole.cu"), "--dump-dir", str(folder)]) == 0
    return sorted(folder.iterdir())


@pytest.mark.parametrize("name", ["2d-conv", "a b", "caf\udce9", 'q"\n;'])
def test_a_dump_of_a_file_with_any_name_is_an_input(name: str, tmp_path: Path) -> None:
    path, dump = tmp_path / f"{name}.naut", tmp_path / "x.scalar"
    path.write_text("dim N = 4\ninput X: f32[N]\noutput Y: f32[N]\nY[i] = X[i]\n")
    assert main([str(path), "-o", str(dump), "--arch", "sm_80"]) == 0
    assert main([str(dump), "-o", str(tmp_path / "x.cu"), "-MD"]) == 0
    assert main([str(path), "-o", str(tmp_path / "y.cu"), "--arch", "sm_80", "-MD"]) == 0


def tokens(path: Path) -> list[str]:
    """CUDA text without comments, which say what the input is and how its statements are written."""
    return re.findall(r"\w+|[^\w\s]", re.sub(r"//.*", "", path.read_text()))


def same_text(made: Path, expected: Path) -> bool:
    """Whether the texts are the same, apart from comments and from names of values, which are numbers in a dump."""
    names: dict[str, str] = {}
    for token, wanted in zip_longest(tokens(made), tokens(expected)):
        if token == "__global__":
            names = {}  # each kernel has its own values
        if token != wanted and not (
            token and re.fullmatch(r"v\d+\w*", token) and names.setdefault(token, wanted) == wanted
        ):
            return False
    return len(set(names.values())) == len(names)


def test_every_step_is_dumped_and_numbered(dumps: list[Path]) -> None:
    steps = [("spec", "check", ".naut")]
    for stage in STAGES[1:]:
        steps += [(stage.name, name, stage.suffix) for name in ("lower", *stage.step_names)]
    assert [p.name for p in dumps] == [f"{i:03d}-{s}-{n}{x}" for i, (s, n, x) in enumerate(steps)]
    assert [p.name for p in dumps if "-simplify-2." in p.name] == ["020-scalar-simplify-2.scalar"]


def test_a_step_that_changed_nothing_says_so(dumps: list[Path]) -> None:
    texts = [(p, p.read_text()) for p in dumps if p.suffix not in (".naut", ".cu")]
    plain = ["\n".join(line for line in text.splitlines() if not line.startswith(";")) for _, text in texts]
    for i in range(1, len(texts)):
        same = texts[i][0].suffix == texts[i - 1][0].suffix and plain[i] == plain[i - 1]
        assert ("; (unchanged)\n" in texts[i][1]) == same, texts[i][0]


def test_every_dump_compiles_to_the_same_text(dumps: list[Path], spec: Path, tmp_path: Path) -> None:
    """Of passes that change nothing in one stage, the first one is enough: the others give the same program."""
    unchanged = set[str]()
    for dump in dumps:
        if dump.suffix in (".naut", ".cu"):
            continue
        if "; (unchanged)\n" in dump.read_text():
            if dump.suffix in unchanged:
                continue
            unchanged.add(dump.suffix)
        out = tmp_path / "again.cu"
        assert main([str(dump), "-o", str(out)]) == 0, dump
        assert same_text(out, spec.parent / "whole.cu"), dump


def test_the_checked_spec_compiles_too(dumps: list[Path], tmp_path: Path) -> None:
    renamed = tmp_path / "rows.naut"
    renamed.write_text(dumps[0].read_text())
    assert main([str(renamed), "-o", str(tmp_path / "rows.cu")]) == 0
    assert same_text(tmp_path / "rows.cu", dumps[0].parents[1] / "whole.cu")


@pytest.mark.parametrize(
    ("what", "titles"),
    [
        ("spec", ["spec after check"]),
        ("scalar,ma-tile", ["scalar after tile-recurrences", "ma-tile after approximate"]),
        ("all", ["spec after check", "scalar after tile-recurrences", "vr-tile after dce", "ma-tile after approximate",
                 "cuda after lower"]),
        ("rolling-update", ["scalar after rolling-update"]),
        ("simplify", [f"scalar after simplify{n}" for n in ("", "-2", "-3", "-4")]),
        ("simplify-1", ["scalar after simplify"]),
        ("scalar/simplify-3", ["scalar after simplify-3"]),
        ("vr-tile/lower", ["vr-tile after lower"]),
    ],
)  # fmt: skip
def test_dump_ir(spec: Path, what: str, titles: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(spec), "--dump-ir", what]) == 0
    said = capsys.readouterr()
    found = [line for line in said.err.splitlines() if line.startswith("; ----")]
    assert [line[7:-5].removesuffix(" (unchanged)") for line in found] == titles
    assert said.out == ""


@pytest.mark.parametrize("what", ["simplify-5", "scalar/dce", "nope", "scalar,nope", "fuse-2"])
def test_unknown_names_are_refused(spec: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert what not in dump_names()
    assert main([str(spec), "--dump-ir", what]) == 2
    assert f"unknown stage or pass {what.split(',')[-1]!r}" in capsys.readouterr().err


def test_no_way_leads_up(dumps: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(dumps[-2]), "-o", str(tmp_path / "k.scalar")]) == 2
    assert "is a dump of ma-tile, which comes after scalar" in capsys.readouterr().err


def pick(dumps: list[Path], name: str) -> Path:
    return next(p for p in dumps if name in p.name)


def test_an_edited_constant_reaches_the_kernel(dumps: list[Path], tmp_path: Path) -> None:
    lowered = pick(dumps, "scalar-lower")
    edited = tmp_path / "edited.scalar"
    edited.write_text(lowered.read_text().replace("50.0", "32.0"))
    assert main([str(edited), "-o", str(tmp_path / "e.cu")]) == 0
    assert main([str(lowered), "-o", str(tmp_path / "l.cu")]) == 0
    assert tokens(tmp_path / "e.cu") != tokens(tmp_path / "l.cu")


def test_an_edited_tile_runs_the_same(dumps: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = pick(dumps, "vr-tile-dce").read_text()
    grid, tile = re.search(r"i0: (\d+)", text), re.search(r"axes\(i: (\d+)", text)
    assert grid is not None and tile is not None
    blocks, size = int(grid[1]), int(tile[1])
    text = text.replace(f"i0: {blocks}", f"i0: {2 * blocks}").replace(f"i: {size}", f"i: {size // 2}")
    edited = tmp_path / "edited.vr"
    edited.write_text(text.replace(f"i0 * {size}", f"i0 * {size // 2}"))
    assert main([str(edited), "-o", str(tmp_path / "e.cu")]) == 0
    said = []
    for path in (pick(dumps, "vr-tile-dce"), edited):
        assert main(["run", str(path), "--stage", "vr-tile"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0].split(", min")[0] == said[1].split(", min")[0]


def test_a_fault_in_an_edited_dump_is_not_a_bug(
    dumps: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = pick(dumps, "synchronize").read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.strip() == "barrier")
    edited = tmp_path / "edited.ma"
    edited.write_text("".join(lines[:first] + lines[first + 1 :]))
    assert main(["run", str(edited), "--stage", "ma-tile"]) == 1
    said = capsys.readouterr().err
    assert "nautilusc: error: ma-tile: " in said and "internal" not in said


@pytest.mark.parametrize(
    ("name", "old", "new", "code", "message"),
    [
        ("scalar-fuse", r"; schedule.*\n", "", 4, "was dumped after fuse, but has no schedule line"),
        ("scalar-fuse", "after fuse", "after fusion", 1, "scalar has no pass 'fusion'"),
        ("scalar-fuse", '"arch"', '"arc"', 1, "cannot read this scalar file"),
        ("scalar-fuse", '"stages"', '"stagse"', 1, "mapping.stagse; did you mean 'stages'?"),
        ("scalar-fuse", r"program rows \{", "program rows", 1, "expected '{'"),
        ("vr-tile-dce", "\n +%", "\n    %%", 1, "error[N0901]"),
        ("synchronize", "target sm_\\w+", "target sm_12", 4, "target sm_12"),
    ],
)
def test_broken_dumps(
    dumps: list[Path], tmp_path: Path, name: str, old: str, new: str, code: int, message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    source = pick(dumps, name)
    edited = tmp_path / f"edited{source.suffix}"
    edited.write_text(re.sub(old, new, source.read_text(), count=1))
    assert edited.read_text() != source.read_text()
    assert main([str(edited)]) == code
    assert message in capsys.readouterr().err


def test_arch_and_precision_given_win_over_the_dump(dumps: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "k.cu"
    tile, memory = str(pick(dumps, "vr-tile-dce")), str(pick(dumps, "synchronize"))
    assert main([tile, "--arch", "sm_80", "--precision", "strict", "-o", str(out)]) == 0
    assert "for sm_80, precision strict." in out.read_text()
    assert main([tile, "-o", str(out)]) == 0
    assert "for sm_80" not in out.read_text()
    assert main([memory, "--arch", "sm_86"]) == 4
    assert main([memory, "--dim", "M=3"]) == 1


def test_the_output_is_never_the_input(dumps: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "a.scalar"
    copy.write_text(pick(dumps, "scalar-lower").read_text())
    before = copy.read_bytes()
    assert main([str(copy), "-o", str(tmp_path / "." / "a.scalar")]) == 2
    assert "output and input are the same file" in capsys.readouterr().err and copy.read_bytes() == before

"""The pages for people agree with the code: lengths, links, commands, excerpts of the IRs, and the gallery of specs."""

from __future__ import annotations

import re
import shlex
from functools import cache
from importlib import import_module
from pathlib import Path

import click
import pytest

from nautilus.bench.bench import PEERS
from nautilus.cli.main import cli
from nautilus.cli.options import normalize
from nautilus.driver import Request, Result, compile_file
from nautilus.frontend.semantics.check import load_spec
from nautilus.passes.manager import Context
from nautilus.passes.pipelines import STAGES, Stage
from nautilus.tune.database.lookup import tuned_schedule
from tests.pages import blocks as reference_page
from tests.shipped import SPECS

ROOT = Path(__file__).parents[2]
#: all pages but those of installed packages and of what was cloned beside the project
PAGES = sorted(
    p
    for p in (*ROOT.rglob("*.md"), *ROOT.glob(".github/*.md"))
    if not any(part.startswith(".") and part != ".github" for part in p.relative_to(ROOT).parts[:-1])
)
WORKED = ROOT / "specs" / "attention" / "causal_prefill.naut"
LEVELS = ("scalar", "vr-tile", "ma-tile", "cuda")


def page_id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_first_page_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_relative_links_lead_to_files_and_headings(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"(?<!\\)\]\(([^)]+)\)", _without_code(text)):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other.read_text()), target


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_files_that_a_page_names_exist(page: Path) -> None:
    """Paths in code spans: those that begin with a folder of the repository, and all files of Python in folders.

    The latter may be relative to the package or to the page.  A name in capitals is a placeholder.
    """
    text = page.read_text()
    spans = re.findall(r"`((?:nautilus|grammar|specs|tests)/[\w/.{},*-]+)`", text)
    spans += re.findall(r"`(\w+/[\w/]+\.py)`", text)
    named = [s for s in spans if not re.search(r"[A-Z]{3,}|\*|\{", s.replace("README", ""))]
    roots = (ROOT, ROOT / "nautilus", page.parent)
    assert [s for s in named if not any((r / s).exists() for r in roots)] == []


def _without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors that code hosts give the headings of a page."""
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", plain, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


# ---- commands
def commands(text: str) -> list[str]:
    """The command lines of ``nautilusc`` and ``make`` in indented or fenced blocks and in code spans."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    shown = [m[1] for line in lines if (m := re.match(r"(?: {4}|\$ )((?:nautilusc|make) .*)", line))]
    shown += re.findall(r"`(nautilusc [^\s`]+ [^`\n]*|make [^`\n]*)`", text)  # `nautilusc bench` alone is a name
    return [re.split(r"\s{2,}#|\s&$", line)[0].strip() for line in shown]


def test_the_commands_of_the_pages_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "specs").symlink_to(ROOT / "specs")
    monkeypatch.chdir(tmp_path)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    seen = 0
    pages = [p for p in PAGES if p.name != "CHANGELOG.md"]  # which also says what commands no longer do
    for line in {line for page in pages for line in commands(page.read_text())}:
        program, *words = shlex.split(line)
        if program == "make":
            assert words[0] in targets, line
        else:
            parse_command([_stand_in(word, tmp_path) for word in words], line)
        seen += 1
    assert seen >= 20


def _stand_in(word: str, folder: Path) -> str:
    """A word of a command line; a name in capitals becomes a real file, and a file that is read exists."""
    if re.fullmatch(r"SPEC(\.\.\.)?", word):
        return str(WORKED)
    if word in ("FILE", "COMMAND"):
        return {"FILE": "out.json", "COMMAND": "compile"}[word]
    name = word.rpartition("=")[2]
    if re.fullmatch(r"[\w./-]+\.(npy|json|jsonl|scalar|vr|ma|naut)", name) and not (folder / name).exists():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return word


def parse_command(words: list[str], line: str) -> None:
    """Parse ``words`` as the command line does, without running the command."""
    try:
        group: click.Context = cli.make_context("nautilusc", normalize(words))
        rest = [*group._protected_args, *group.args]
        command: click.Command | None = cli
        while isinstance(command, click.Group) and rest:
            name, command, rest = command.resolve_command(group, rest)
            assert command is not None
            if isinstance(command, click.Group):
                group = command.make_context(name, rest, parent=group)
                rest = [*group._protected_args, *group.args]
            else:
                command.make_context(name, rest, parent=group)
    except click.exceptions.Exit as ended:
        assert ended.exit_code == 0, line
    except click.ClickException as error:
        raise AssertionError(f"{line}: {error.format_message()}") from error


def test_the_page_of_the_command_line_names_every_command_and_real_options() -> None:
    page = (ROOT / "nautilus" / "cli" / "README.md").read_text()
    rows = [row[0] for row in reference_page.table_entries(page, "# The command line")]
    names = {row.split()[1] for row in rows}
    assert {"compile" if name == "SPEC" else name for name in names} == set(cli.commands)
    known = {o for command in cli.commands.values() for p in command.params for o in (*p.opts, *p.secondary_opts)}
    shown = [row[0].split()[0] for row in reference_page.table_entries(page, "These options are common:")]
    assert len(shown) >= 10 and set(shown) <= known


def test_the_page_of_measurements_names_every_peer() -> None:
    page = (ROOT / "nautilus" / "bench" / "README.md").read_text()
    assert [row[0] for row in reference_page.table_entries(page, "## The peers")] == list(PEERS)


# ---- the worked example
def compiled(spec: Path, until: str = "cuda") -> Result:
    """``spec`` as ``nautilusc SPEC --arch sm_90a`` compiles it: with the schedule of the tuning database."""
    schedule = tuned_schedule(load_spec(spec), Context("sm_90a"))
    return compile_file(Request(spec, arch="sm_90a", schedule=schedule, until=until))


@cache
def texts() -> dict[str, str]:
    """The text of the worked example at each level."""
    result = compiled(WORKED)
    return {stage.name: text_of(stage, result) for stage in STAGES}


def text_of(stage: Stage, result: Result) -> str:
    module, _, attribute = stage.format.partition(":")
    return str(getattr(import_module(module), attribute)(result.modules[stage.name]))


@pytest.mark.parametrize("level", LEVELS)
def test_the_excerpts_of_the_worked_example_are_current(level: str) -> None:
    """Every line of an excerpt stands in the text of that level, in order; ``...`` stands for anything."""
    (block,) = [b for b in reference_page.blocks((ROOT / "README.md").read_text()) if b.kind == level]
    rest = [line.strip() for line in texts()[level].splitlines()]
    for shown in block.text.splitlines():
        if shown.strip() == "...":
            continue
        pattern = ".*".join(re.escape(part) for part in shown.strip().split("..."))
        place = next((i for i, line in enumerate(rest) if re.fullmatch(pattern, line)), None)
        assert place is not None, f"not in the {level} text after the lines before it: {shown}"
        rest = rest[place + 1 :]


def test_the_worked_example_is_the_shipped_spec() -> None:
    (block,) = [b for b in reference_page.blocks((ROOT / "README.md").read_text()) if b.kind == "naut"]
    shipped = [line for line in WORKED.read_text().splitlines() if not line.startswith("#")]
    assert block.text.splitlines() == shipped


# ---- the gallery
def gallery() -> dict[str, list[str]]:
    """The rows of ``specs/README.md`` by spec."""
    found = re.findall(
        r"^\| \[`([\w/]+)`\]\(([\w/]+)\.naut\) \|(.*)\|$", (ROOT / "specs/README.md").read_text(), re.MULTILINE
    )
    assert all(name == link for name, link, _ in found)
    return {name: [cell.strip() for cell in cells.split("|")] for name, _, cells in found}


def test_every_spec_is_in_the_gallery() -> None:
    assert list(gallery()) == [p.relative_to(ROOT / "specs").with_suffix("").as_posix() for p in SPECS]


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
def test_the_gallery_states_the_kernels_of_a_spec(spec: Path) -> None:
    result = compiled(spec, "scalar")
    assert gallery()[spec.relative_to(ROOT / "specs").with_suffix("").as_posix()][1:3] == kernels(result)


def kernels(result: Result) -> list[str]:
    """The cells of the gallery: the number of kernels, and the tile of each."""
    assert result.context.schedule is not None
    plans = result.context.schedule.kernels
    tiles = [" x ".join(f"{a.name} {a.tile}" for a in k.axes if a.tile > 1) for k in plans]
    return [str(len(plans)), "; ".join(f"`{tile}`" for tile in tiles)]


@pytest.mark.parametrize("spec", [p for p in SPECS if p.stem.endswith("_decode")], ids=lambda p: p.stem)
def test_a_split_over_keys_is_one_kernel_in_the_end(spec: Path) -> None:
    """The gallery says so: what two planned kernels become is one."""
    result = compiled(spec)
    assert kernels(result)[0] == "2" and text_of(STAGES[-1], result).count("\n// kernel ") == 1

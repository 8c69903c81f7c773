"""The architecture page agrees with the code: grammars of the IRs, rooms, passes, glossary, recipes.

``pytest --update-golden tests/pages`` copies the grammars from the modules.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.passes.pipelines import STAGES
from tests.pages import blocks as reference_page
from tests.test_shape import ROOMS

ROOT = Path(__file__).parents[2]
PATH = ROOT / "nautilus" / "README.md"
PAGE = PATH.read_text(encoding="utf-8")
_MARKED = re.compile(r"<!-- grammar: (?P<module>[\w.:]+) -->\n```text\n(?P<text>.*?)```\n<!-- end -->", re.DOTALL)
TEXTS = ("scalar.text", "vr_tile.text", "ma_tile.text")
GRAMMARS = {m["module"]: m["text"] for m in _MARKED.finditer(PAGE)}


def grammar_of(module: str) -> str:
    """The first literal block of the docstring of ``module``, or what the function ``module:function`` gives."""
    if ":" in module:
        name, _, function = module.partition(":")
        return str(getattr(import_module(name), function)()).strip("\n") + "\n"
    found = re.search(r"::\n\n((?:(?: {4}.*)?\n)+)", (inspect.getdoc(import_module(module)) or "") + "\n")
    assert found is not None, module
    return dedent(found[1]).strip("\n") + "\n"


@pytest.mark.parametrize("module", GRAMMARS)
def test_the_page_shows_the_grammar_of_the_code(module: str, update_golden: bool) -> None:
    if update_golden:
        page = PATH.read_text(encoding="utf-8")
        head = f"<!-- grammar: {module} -->\n```text\n"
        start = page.index(head) + len(head)
        PATH.write_text(page[:start] + grammar_of(module) + page[page.index("```\n<!-- end -->", start) :])
        return
    assert GRAMMARS[module] == grammar_of(module)


def test_every_ir_shows_its_grammar() -> None:
    assert {
        "nautilus.frontend.spec",
        "nautilus.core.expr.nodes",
        *(f"nautilus.{text}:grammar" for text in TEXTS),
    } <= set(GRAMMARS)


@pytest.mark.parametrize("text", TEXTS)
def test_a_grammar_has_a_production_for_every_name(text: str) -> None:
    """Besides the text form of expressions, numbers and types."""
    shown = re.sub(r"'[^']*'", "", grammar_of(f"nautilus.{text}:grammar"))
    defined = set(re.findall(r"^(\w+) +:=", shown, re.MULTILINE))
    assert set(re.findall(r"\b[a-z]\w*", shown)) - defined == {"expr", "number", "dtype"}


def test_every_room_has_a_row() -> None:
    rooms = {row[0] for row in reference_page.table_entries(PAGE, "## The rooms")}
    folders = {p.name + "/" for p in (ROOT / "nautilus").iterdir() if (p / "__init__.py").exists()}
    assert rooms >= folders and all((ROOT / "nautilus" / r / "__init__.py").exists() for r in rooms - folders)


def test_the_import_rule() -> None:
    shown = {row[0].rstrip("/"): row[2] for row in reference_page.table_entries(PAGE, "## The rooms")}
    want = {room: ", ".join(r for r in ROOMS if r in rooms) for room, rooms in ROOMS.items()}
    assert {room: rooms for room, rooms in shown.items() if rooms != "any"} == want


def passes_of(section: str) -> str:
    """What the page says about the passes of an IR."""
    return PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0].split("**Passes.**")[1]


def test_the_passes_that_the_page_names_exist() -> None:
    cells = re.findall(r"^\| (`[^|]+`) \|", passes_of("Scalar IR"), re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)}
    assert len(named) >= 40 and named <= set(STAGES[1].step_names)
    said = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", passes_of("VR-tile IR")))
    assert said and said <= {name for stage in STAGES for name in stage.step_names}


def test_the_folders_of_passes_that_the_page_names_exist() -> None:
    folders = {p.parent.name for p in (ROOT / "nautilus" / "ma_tile" / "passes").glob("*/*.py")}
    assert set(re.findall(r"`(\w+)`", passes_of("MA-tile IR"))) == folders


def test_the_glossary_is_sorted_and_complete() -> None:
    rows = reference_page.table_entries(PAGE, "## Glossary")
    terms = [row[0].lower() for row in rows]
    assert terms == sorted(terms) and len(set(terms)) == len(terms)
    assert all(len(row) == 3 and all(row) for row in rows)


def test_the_files_of_the_recipes_exist() -> None:
    recipes = PAGE.split("## Recipes")[1].split("## Glossary")[0]
    named = re.findall(r"^\| `([\w/.]+)` \|", recipes, re.MULTILINE)
    roots = (ROOT, ROOT / "nautilus")
    missing = [n for n in named if "NAME" not in n and not any((r / n).exists() for r in roots)]
    missing = [n for n in missing if not any((r / f"{n}.py").exists() for r in roots)]
    assert len(named) >= 10 and missing == []

"""The specs beside the shipped ones: all are valid and listed; some, others every day, are compiled and checked.

``NAUTILUS_GALLERY=all`` takes all of them, and ``NAUTILUS_GALLERY=N`` those of day N.
"""

from __future__ import annotations

import os
import re
from datetime import date
from math import prod
from pathlib import Path

import pytest

from nautilus.core.errors import NautilusError
from nautilus.core.expr.nodes import Reduce, walk
from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_spec
from nautilus.frontend.spec import Spec
from nautilus.ma_tile.ir.ops import MmaOp, walk_ops
from tests.endtoend.support import at_all_levels, complaints
from tests.shipped import FOLDERS, MORE, ROOT

ASKED = os.environ.get("NAUTILUS_GALLERY", str(date.today().toordinal()))
COMPILED, CHECKED = 8, 24  # specs that are compiled on one day
TERMS = 1_200_000  # terms of a definition above which a spec is checked at smaller sizes

#: products that run without matrix instructions, and why
SCALAR = {
    "attention/decode/f8_cache": "the operands differ in type",
    "product/structured/csr": "a gather in each term",
    "convolution/2d/grouped": "groups of four channels and four filters",
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT / "specs").with_suffix("").as_posix().removeprefix("gallery/")


def today(count: int) -> list[Path]:
    """``count`` specs of the day, spread over all families."""
    if ASKED == "all":
        return MORE
    step = -(-len(MORE) // count)
    return MORE[int(ASKED) % step :: step]


@pytest.mark.parametrize("path", MORE, ids=name_of)
def test_valid_without_warnings_and_commented(path: Path) -> None:
    assert load_spec(path).warnings == ()
    assert path.read_text().startswith("# ")
    assert max(map(len, path.read_text().splitlines())) <= 120


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_the_page_lists_every_spec(folder: Path) -> None:
    listed = re.findall(r"^\| \[`\w+`\]\((.*)\.naut\) \| \S", (folder / "README.md").read_text(), re.MULTILINE)
    assert listed == sorted(p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.naut"))


def test_folders_are_small() -> None:
    folders = [p for folder in FOLDERS for p in (folder, *folder.rglob("*")) if p.is_dir()]
    assert [f for f in folders if sum(1 for x in f.iterdir() if x.suffix != ".md") > 13] == []


@pytest.mark.parametrize("path", today(COMPILED), ids=name_of)
def test_compiles_at_its_own_sizes(path: Path) -> None:
    """Products of stored tensors reach the matrix units."""
    result = compile_file(Request(path, "sm_90a"))
    scalar = [
        op.instr
        for k in result.modules["ma-tile"].kernels
        for op in walk_ops(k.body)
        if isinstance(op, MmaOp) and op.instr == "fma"
    ]
    assert not scalar or name_of(path) in SCALAR


def valid(path: Path, sizes: dict[str, int]) -> Spec | None:
    """The spec at ``sizes``; None where it is not valid there."""
    try:
        return load_spec(path, dims=sizes)
    except NautilusError:
        return None


def tiny(path: Path) -> dict[str, int] | None:
    """Sizes of a few elements at which the spec is valid: different ones where that is possible, else equal ones.

    Sizes that are known only at launch are left to the check.
    """
    dims = [d for d in load_spec(path).dims if d.value is not None]
    for least in (5, 6, 8, 12, 16, 32):
        for step in (1, 0):
            sizes = {d.name: min(d.value or 1, least + step * n) for n, d in enumerate(dims)}
            if (spec := valid(path, sizes)) is not None:
                return with_fewer_terms(path, spec, sizes)
    return None


def with_fewer_terms(path: Path, spec: Spec, sizes: dict[str, int]) -> dict[str, int]:
    """``sizes`` with the first ones from 3 to 5 where ``spec`` has many terms and stays valid."""
    for n, name in enumerate(sizes):
        if terms(spec) <= TERMS:
            break
        fewer = sizes | {name: min(sizes[name], 3 + n % 3)}
        if (found := valid(path, fewer)) is not None:
            spec, sizes = found, fewer
    return sizes


def terms(spec: Spec) -> int:
    """The terms of the longest definition of ``spec``, each dim that is known only at launch counted once."""
    found = [[*d.axes, *(a for e in walk(d.expr) if isinstance(e, Reduce) for a in e.axes)] for d in spec.definitions]
    return max((prod(a.extent for a in axes if isinstance(a.extent, int)) for axes in found), default=0)


@pytest.mark.parametrize("path", today(CHECKED), ids=name_of)
def test_every_level_agrees_at_tiny_sizes(path: Path) -> None:
    sizes = tiny(path)
    assert sizes is not None
    assert not complaints(at_all_levels(Request(path, "sm_90a", sizes)))

"""``simplify``: results stay the same for all specs. What the pass does: ``simplify.scalar``."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.simplify import Simplify
from tests.scalar.expect import sound
from tests.scalar.programs.specs import LANGUAGE, SHIPPED, agree, language, small


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_specs(path: Path) -> None:
    spec = small(path)
    p = Simplify().apply(lower(spec))
    sound(p)
    agree(spec, p)
    assert Simplify().apply(p) is p


@pytest.mark.parametrize("name", LANGUAGE)
def test_language(name: str) -> None:
    spec = language(name)
    p = Simplify().apply(lower(spec))
    sound(p)
    agree(spec, p)

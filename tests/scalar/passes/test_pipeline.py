"""Every pass of the level in order, on every spec: verified, printed and read back, and run after each."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.frontend.spec import Spec
from nautilus.planner.kernels import default_schedule
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.factor import Factor
from nautilus.scalar.passes.fuse import Fuse
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.narrow import Narrow
from nautilus.scalar.passes.partition import Partition
from nautilus.scalar.passes.reorder import Reorder
from nautilus.scalar.passes.rolling_update import RollingUpdate
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.passes.split import Split
from nautilus.scalar.verify import verify_tiled
from tests.scalar.expect import sound
from tests.scalar.programs.specs import LANGUAGE, SHIPPED, agree, language, small


def whole_pipeline(spec: Spec) -> None:
    p = lower(spec)
    for step in (Simplify(), Inline(), Simplify(), Factor(), Simplify(), Narrow(), Dead()):
        p = step.apply(p)
        sound(p)
        agree(spec, p)
    s = default_schedule(p)
    for planned in (Fuse(s), Split(s), Reorder(s), RollingUpdate(s), Partition(s)):
        p = planned.apply(p)
        sound(p)
        agree(spec, p)
    for k in p.kernels:
        verify_tiled(k)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_specs(path: Path) -> None:
    whole_pipeline(small(path))


@pytest.mark.parametrize("name", LANGUAGE)
def test_language(name: str) -> None:
    whole_pipeline(language(name))

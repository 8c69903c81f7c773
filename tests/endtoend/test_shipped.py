"""Every shipped spec at every level, at small odd sizes: Scalar, VR-tile and the physical MA-tile."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from nautilus.check.levels import Trace
from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_spec
from tests.endtoend.support import Compilation, complaints
from tests.shipped import DISTINCT

ODD = (77, 130, 197)
#: Few heads and short vectors, because the MA-tile interpreter runs every thread.
SMALL = {"B": 1, "H": 2, "Hq": 4, "Hkv": 2, "P": 2, "W": 50}


def sizes(path: Path, lengths: tuple[int, ...]) -> dict[str, int]:
    """A size for every dim of a spec; a query of one row stays one."""
    out: dict[str, int] = {}
    odd = iter(lengths)
    for dim in load_spec(path).dims:
        if dim.name in SMALL or dim.value == 1:
            out[dim.name] = SMALL.get(dim.name, 1)
        else:
            out[dim.name] = 20 if dim.name == "D" else next(odd)
    return out


@pytest.mark.parametrize("path", DISTINCT, ids=lambda p: p.stem)
@pytest.mark.parametrize("turn", range(3))
def test_every_level(path: Path, turn: int) -> None:
    lengths = ODD[turn:] + ODD[:turn]
    trace = Trace()
    result = compile_file(Request(path, ("sm_80", "sm_90")[turn % 2], sizes(path, lengths)), [trace])
    wrong = complaints(Compilation(result, tuple(trace.levels)), seed=turn)
    assert not wrong, "\n".join(wrong)


def test_sizes_cover_the_odd_ones() -> None:
    seen = {n for path, turn in product(DISTINCT, range(3)) for n in sizes(path, ODD[turn:] + ODD[:turn]).values()}
    assert set(ODD) <= seen

"""Measurements on one H200, as points of the search space, for tests of the cost model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from nautilus.core.schedule import Schedule
from nautilus.driver import Request
from nautilus.scalar.ir import Program
from nautilus.tune.search.trial_lowering import TrialLowering, trials_of
from nautilus.tune.space.schedules import Refused, Space, examine, schedule_of, space_of

SPECS = Path(__file__).parent.parent.parent / "specs"

#: (M, N, K) -> TFLOP/s of the library, which the percentages below are of
LIBRARY = {
    (4096, 4096, 4096): 744,
    (8192, 8192, 8192): 768,
    (16384, 4096, 4096): 757,
    (2048, 2048, 2048): 621,
    (4096, 14336, 4096): 772,
}
#: tile -> percent at those shapes
TILES = {
    "128x256/2": (100, 101.3, 100.8, 100.6, 99),
    "128x128*2": (98.4, 97.2, 99.3, 102.4, 97.5),
    "128x160*2": (92, 98.5, 100.1, 89, 101),
    "128x192*2": (91, 102.9, 100.3, 77, 98.9),
    "256x192/2": (93, 101.2, 101.6, 77, 95),
    "128x320/2": (83, 102, 101.1, 88, 102.5),
    "256x128/2": (98.5, 100, 99, 100, 98),
    "64x256*2": (97, 96, 98, 102, 97),
    "192x128/3": (88, 98, 97, 76, 92),
    "192x192/3": (90, 97, 99, 95, 95),
}


_TRIALS: list[TrialLowering] = []
_SPACES: list[tuple[TrialLowering, Space]] = []


@cache
def program(name: str, dims: tuple[tuple[str, int], ...] = (), arch: str = "sm_90a") -> Program:
    """The program of a shipped spec, ready to be scheduled."""
    trials, _ = trials_of(Request(SPECS / f"{name}.naut", arch=arch, dims=dict(dims)))
    _TRIALS.append(trials)
    return trials.program


def space(p: Program, arch: str) -> Space:
    """The space of a program, which is cached."""
    for trials, made in _SPACES:
        if trials.program is p and trials.arch == arch:
            return made
    origin = next((t.origin for t in _TRIALS if t.program is p), None)
    _SPACES.append((own := TrialLowering(p, arch, origin=origin), space_of(own)))
    return _SPACES[-1][1]


def product(m: int, n: int, k: int) -> Program:
    """A plain product in half precision."""
    return program("matmul/f16", (("M", m), ("N", n), ("K", k)))


def candidate(p: Program, arch: str, values: Mapping[str, object]) -> Schedule | Refused:
    """The schedule of the point ``values`` after a trial lowering, or the reason why it is refused."""
    own = space(p, arch)
    done = examine(own, values)
    return schedule_of(own, values) if done.ok else Refused(str(done.fault))

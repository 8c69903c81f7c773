"""Random valid specs of the structures that passes look for.  A seed always gives the same spec.

Sizes are around those of tiles, and those of scans around those of chunks.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.fuzz.structures import factors, integers, late, losses, masks, moments, places, scans, shifts, steps, tables

_FAMILIES: tuple[Callable[[random.Random], str], ...] = (
    *(masks.program, masks.program, shifts.program, shifts.program),
    *(scans.program, factors.program, factors.program, late.program),
)


_NEWER: tuple[Callable[[random.Random], str], ...] = (
    *(places.program, tables.program, tables.program, steps.program, moments.program),
)

_FORMS: tuple[Callable[[random.Random], str], ...] = (
    *(losses.program, losses.program, integers.program, scans.windows, steps.states),
)

_RULES: tuple[Callable[[random.Random], str], ...] = (
    *(steps.deltas, moments.counts, places.distances, masks.documents, tables.histograms),
)


def program(seed: int) -> str:
    """The text of a spec."""
    r = random.Random(seed)
    return r.choice(_FAMILIES)(r) + "\n"


def decisions(seed: int) -> str:
    """The text of a spec in which elements, means or earlier steps decide what is computed of others."""
    r = random.Random(seed)
    return r.choice(_NEWER)(r) + "\n"


def forms(seed: int) -> str:
    """The text of a spec in a form that one pass looks for: losses, windows, states of matrices, fields of words."""
    r = random.Random(seed)
    return r.choice(_FORMS)(r) + "\n"


def rules(seed: int) -> str:
    """The text of a spec for rules that find ranges, count terms, unroll short sums, scatter, or chunk delta rules."""
    r = random.Random(seed)
    return r.choice(_RULES)(r) + "\n"

"""What the measurements so far say about the cost model's error: a Gaussian process over schedules.

The model ranks well, but errs alike on like schedules.  So the logarithm of measured over estimated time is taken as
the sum of a constant, of what schedules of one structure share (:func:`structure_of`), and of what schedules share that
differ in few fields: its covariance falls by 1/e with every :data:`LENGTH` of them.  The process then corrects the
estimate of a schedule that nobody measured, and says how far to trust the correction: least where no schedule of that
structure was measured, so that a structure on which the model is wrong does not keep a search from all others
(C. E. Rasmussen, C. K. I. Williams: Gaussian Processes for Machine Learning, chapter 2).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from math import log
from typing import Any

import numpy as np

from nautilus.core.numerics import Array
from nautilus.core.schedule import Schedule, WarpPlan

LENGTH = 6.0  # fields
_CONSTANT, _STRUCTURE, _SHARED, _NOISE = 0.3, 0.15, 0.10, 0.01  # standard deviations of the logarithm
PRIOR = _CONSTANT**2 + _STRUCTURE**2 + _SHARED**2  # the variance of what nothing is known of
FAILED = 0.5  # a schedule that failed is taken to cost this much more, in the logarithm
_ABSENT = -1


@dataclass
class Fields:
    """Schedules as vectors of their fields, and how much two of them have in common."""

    _columns: dict[str, int] = field(default_factory=dict)  # of every path that was seen
    _codes: dict[tuple[str, str], int] = field(default_factory=dict)  # of its values
    _known: dict[str, dict[int, int]] = field(default_factory=dict)
    _structures: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, schedule: Schedule) -> None:
        """Remember ``schedule`` as ``name``."""
        if name not in self._known:
            self._structures[name] = structure_of(schedule)
            self._known[name] = {
                self._columns.setdefault(path, len(self._columns)): self._codes.setdefault(
                    (path, value), len(self._codes)
                )
                for path, value in _flat("", asdict(schedule))
            }

    def distances(self, a: Sequence[str], b: Sequence[str]) -> Array:
        """[len(a), len(b)]: in how many fields each of ``a`` differs from each of ``b``."""
        left, right = self._matrix(a), self._matrix(b)
        return np.array([(right != row).sum(axis=1) for row in left]).reshape(len(a), len(b))

    def covariance(self, a: Sequence[str], b: Sequence[str]) -> Array:
        """[len(a), len(b)]: of the model's errors on each of ``a`` and each of ``b``."""
        alike = np.exp(-self.distances(a, b) / LENGTH)
        same = [[self._structures[x] == self._structures[y] for y in b] for x in a]
        found: Array = _CONSTANT**2 + _STRUCTURE**2 * np.array(same).reshape(alike.shape) + _SHARED**2 * alike
        return found

    def _matrix(self, names: Sequence[str]) -> Array:
        out = np.full((len(names), len(self._columns)), _ABSENT)
        for row, name in zip(out, names, strict=True):
            found = self._known[name]
            row[list(found)] = list(found.values())
        return out


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """(path, value as text) of everything in ``value``."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _flat(f"{path}.{name}", part)
    elif isinstance(value, (list, tuple)) and any(isinstance(part, dict) for part in value):
        for n, part in enumerate(value):
            yield from _flat(f"{path}.{n}", part)
    else:
        yield path, json.dumps(value)


def structure_of(schedule: Schedule) -> str:
    """What kernels there are and how their blocks are organised, without any size."""
    kernels = [
        (m.engine, m.combine_in_block, m.cluster > 1)
        if isinstance(m, WarpPlan)
        else (m.engine, m.warp_specialised, m.tile_scheduling, m.persistent != "none", m.cluster > 1, m.ordered_mma)
        for m in (k.mapping for k in schedule.kernels)
    ]
    return grouping_of(schedule) + json.dumps(kernels)


def grouping_of(schedule: Schedule) -> str:
    """What kernels there are, without anything about them."""
    cuts = [(s.op, s.splits > 1, s.interleave > 1) for s in schedule.splits or ()]
    return json.dumps([schedule.inline, cuts, [k.ops for k in schedule.kernels]])


def corrections(own: Array, errors: Array, across: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of log(measured / estimated) of schedules that nobody measured.

    ``errors`` [n]: that logarithm of measured ones; ``own`` [n, n] and ``across`` [m, n]: their covariance with each
    other, and of those that are asked about with them.
    """
    centre = float(np.median(errors)) if len(errors) else 0.0
    noisy = own + _NOISE**2 * np.eye(len(errors))
    solved = np.linalg.solve(noisy, np.column_stack([errors - centre, across.T]))
    explained = np.einsum("ij,ji->i", across, solved[:, 1:])
    mean: Array = across @ solved[:, 0] + centre
    return mean, np.sqrt(np.maximum(PRIOR - explained, 0.0))


def errors_of(outcomes: Sequence[tuple[float | None, float | None]]) -> Array:
    """log(measured / estimated) of each pair of the model's and the measured seconds.

    One that failed has no measured seconds and counts as slow; one whose estimate is not told yet, because it is
    still on its way, counts as like the rest, so that the next one is sought elsewhere.
    """
    known = [log(s / e) for e, s in outcomes if e and s]
    centre = float(np.median(known)) if known else 0.0
    return np.array([log(s / e) if e and s else centre + (FAILED if s is None else 0.0) for e, s in outcomes])

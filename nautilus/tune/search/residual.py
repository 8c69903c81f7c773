"""The error of the cost model as a Gaussian process over schedules, conditioned on the measurements so far.

The error, log(measured / estimated), is similar for similar schedules.  It is modelled as the sum of three terms: a
constant, a term shared by schedules of one structure (:func:`structure_of`), and a term whose covariance falls by 1/e
with every :data:`LENGTH` fields in which two schedules differ.  The posterior gives the correction of an unmeasured
schedule's estimate and its standard deviation.  The deviation is largest where no schedule of that structure was
measured, so a structure that the cost model overrates does not keep the search from other structures (C. E. Rasmussen,
C. K. I. Williams: Gaussian Processes for Machine Learning, chapter 2).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, field
from math import log
from typing import Any

import numpy as np

from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpPlan

LENGTH = 6.0  # fields
_CONSTANT, _STRUCTURE, _SHARED, _NOISE = 0.3, 0.15, 0.10, 0.01  # standard deviations of the logarithm
PRIOR = _CONSTANT**2 + _STRUCTURE**2 + _SHARED**2  # prior variance
FAILED = 0.5  # added to the error of a schedule that failed
_ABSENT = -1


@dataclass
class Fields:
    """Schedules as vectors of their fields, and the covariance of two schedules."""

    _columns: dict[str, int] = field(default_factory=dict)  # by path of a field
    _codes: dict[tuple[str, str], int] = field(default_factory=dict)  # by path and value
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
        """The number of fields in which each of ``a`` differs from each of ``b``; shape [len(a), len(b)]."""
        left, right = self._matrix(a), self._matrix(b)
        return np.array([(right != row).sum(axis=1) for row in left]).reshape(len(a), len(b))

    def covariance(self, a: Sequence[str], b: Sequence[str]) -> Array:
        """The covariance of the cost model's errors on each of ``a`` and each of ``b``; shape [len(a), len(b)]."""
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
    """The kernels of ``schedule`` and the organisation of their blocks as text, without sizes."""
    kernels = [
        (m.engine, m.combine_in_block, m.cluster > 1)
        if isinstance(m, WarpPlan)
        else (m.engine, m.warp_specialised, m.tile_scheduling, m.persistent != "none", m.cluster > 1, m.ordered_mma)
        for m in (k.mapping for k in schedule.kernels)
    ]
    return grouping_of(schedule) + json.dumps(kernels)


def grouping_of(schedule: Schedule) -> str:
    """The grouping of definitions into kernels as text, without the kernels' own fields."""
    cuts = [(s.op, s.splits > 1, s.interleave > 1) for s in schedule.splits or ()]
    return json.dumps([schedule.inline, cuts, [k.ops for k in schedule.kernels]])


def corrections(own: Array, errors: Array, across: Array) -> tuple[Array, Array]:
    """Posterior mean and standard deviation, each of shape [m], of log(measured / estimated) of m unmeasured schedules.

    ``errors`` [n] holds this logarithm of the n measured schedules, ``own`` [n, n] their covariance, and ``across``
    [m, n] the covariance of the unmeasured with the measured schedules.
    """
    centre = float(np.median(errors)) if len(errors) else 0.0
    noisy = own + _NOISE**2 * np.eye(len(errors))
    solved = np.linalg.solve(noisy, np.column_stack([errors - centre, across.T]))
    explained = np.einsum("ij,ji->i", across, solved[:, 1:])
    mean: Array = across @ solved[:, 0] + centre
    return mean, np.sqrt(np.maximum(PRIOR - explained, 0.0))


def errors_of(outcomes: Sequence[tuple[float | None, float | None]]) -> Array:
    """log(measured / estimated) of each pair of estimated and measured seconds; shape [len(outcomes)].

    A failed schedule has no measured seconds and counts as slow by :data:`FAILED`.  A schedule that is still being
    measured has no estimate and counts as the median, so that the search does not propose its neighbours again.
    """
    known = [log(s / e) for e, s in outcomes if e and s]
    centre = float(np.median(known)) if known else 0.0
    return np.array([log(s / e) if e and s else centre + (FAILED if s is None else 0.0) for e, s in outcomes])

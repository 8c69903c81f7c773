"""The op ``scan``, and how a layout distributes the axis that it runs along.

Meaning.  A scan has four steps, from the least significant digit of the position to the most significant one.

1. A thread combines its *low* registers in order, which are neighbours along the axis.
2. The lanes that split the axis exchange the totals of step 1 by shuffles: log2(lanes) steps.
3. The warps that split the axis write their totals to ``scratch``, a barrier, every warp reads all.
4. A thread combines what steps 2 and 3 found before its elements with each of its *high* registers in order.

With factors, elements and totals are linear maps in place of numbers: the factor and the rest of some steps.  Where all
steps have one factor, those of as many steps are one number, a power of it.

With states that need each other, the maps have a matrix in place of a factor.  All states are registers of one thread.
A thread that meets an element of a matrix above :func:`nautilus.core.common_ops.largest_factor`, or what is not finite,
says so in step 3, and the block computes one step after another.

The result has the layout of the operand with the axis renamed.  A layout whose digits along the axis have another order
has no :class:`ScanLevels`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from nautilus.core.common_ops import CommonScan
from nautilus.core.ops import declare, op
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.layout import FragLayout, Ints, Mode
from nautilus.ma_tile.ir.values import MA, SCRATCH, Frag


@op(
    MA,
    "scan $combiner $arg( by $by)?( states $states by $factors at $places)?"
    " over $axis into $into( $reverse)?( $exclusive)?( scratch $scratch)?",
)
class ScanOp(CommonScan[Frag]):
    """``scratch``: one element for each warp, total and lane, where warps split the axis.

    That of states has the numbers of :meth:`StateMatrix.exchanged` for each warp, or for each of its lanes where these
    have other elements too.
    """

    scratch: str | None = declare(SCRATCH, default=None)


@dataclass(frozen=True, slots=True)
class Digit:
    """A digit of a position: the number of its values, and how far one is from the next.

    The distance is in registers, lanes or warps.
    """

    size: int = 1
    step: int = 1


@dataclass(frozen=True, slots=True)
class ScanLevels:
    """The digits of the scanned axis, least significant first, and those of the other registers of a thread."""

    low: Digit
    lanes: Digit
    warps: Digit
    high: Digit
    others: tuple[Digit, ...]

    @property
    def totals(self) -> int:
        """Totals of a thread after step 1: one for each high register of each other element."""
        count = self.high.size
        for d in self.others:
            count *= d.size
        return count

    def registers(self, reverse: bool) -> Ints:
        """The register numbers [total, position in it] in the order of the scan."""
        out = np.zeros(1, np.int64)
        for d in (self.high, *self.others):
            out = (out[None, :] + d.step * np.arange(d.size)[:, None]).reshape(-1)
        found: Ints = out[:, None] + self.low.step * np.arange(self.low.size)[None, :]
        if not reverse:
            return found
        return found.reshape(-1, self.high.size, self.low.size)[:, ::-1, ::-1].reshape(found.shape)

    @property
    def steps(self) -> int:
        """The size of the axis."""
        return self.low.size * self.lanes.size * self.warps.size * self.high.size

    @property
    def whole_lanes(self) -> bool:
        """Whether all lanes of a warp are along the axis where warps are: they combine the maps of warps."""
        return self.warps.size == 1 or self.lanes.size == 32


@dataclass(frozen=True, slots=True)
class StateMatrix:
    """The matrices of a scan of states that need each other.

    ``size``: states whose earlier values are read, which come first; ``entries``: (row, column, number of the factor);
    ``steady``: all steps have one matrix.
    """

    size: int
    entries: tuple[tuple[int, int, int], ...]
    steady: bool

    def row(self, number: int) -> tuple[tuple[int, int], ...]:
        """The columns and the factors of a row."""
        return tuple((c, n) for r, c, n in self.entries if r == number)

    def exchanged(self, totals: int) -> int:
        """Numbers of a warp in the scratch: of each total the matrix, if it differs, and the rests; and a flag."""
        return totals * self.size * (1 if self.steady else self.size + 1) + 1


def state_matrix(op: CommonScan[Frag]) -> StateMatrix:
    """The matrices of ``op``, a scan of states."""
    rows = next(a.size for a in op.arg.type.axes if a.name == op.states)
    entries = tuple((*divmod(p, rows), n) for n, p in enumerate(op.places))
    return StateMatrix(1 + max(c for _, c, _ in entries), entries, all(op.axis not in f.type.names for f in op.factors))


def exchanged(op: CommonScan[Frag], levels: ScanLevels) -> int:
    """The elements of the scratch for each warp and lane."""
    if op.states is None:
        return levels.totals if op.by is None else 2 * levels.totals
    numbers = state_matrix(op).exchanged(levels.totals)
    return -(-numbers // 32) if levels.whole_lanes else numbers


def state_levels(layout: FragLayout, axis: str, states: str) -> tuple[ScanLevels, Digit] | None:
    """The digits of ``axis`` for each of the ``states``, and that of the states; None where threads share them."""
    levels = scan_levels(layout, axis)
    step, others, own = 1, list[Digit](), list[Digit]()
    for m in layout.reg:
        if m.axis != axis:
            (own if m.axis == states else others).append(Digit(m.size, step))
        step *= m.size
    if levels is None or len(own) != 1 or any(m.axis == states and m.size > 1 for m in (*layout.lane, *layout.warp)):
        return None
    return replace(levels, others=tuple(others)), own[0]


def levels_of(op: CommonScan[Any], layout: FragLayout) -> ScanLevels | None:
    """The digits of the axis of ``op`` in ``layout``; of each of its states, if it has some."""
    if op.states is None:
        return scan_levels(layout, op.axis)
    found = state_levels(layout, op.axis, op.states)
    return None if found is None else found[0]


def scan_levels(layout: FragLayout, axis: str) -> ScanLevels | None:
    """The digits of ``axis`` in ``layout``; None where they do not have the order that a scan needs."""
    digits = sorted(
        ((stride, place, digit) for place in _PLACES for stride, digit in _own(getattr(layout, place), axis)),
        key=lambda found: found[0],
    )
    names = ["low" if n == 0 and place == "reg" else _NAMES[place] for n, (_, place, _) in enumerate(digits)]
    levels = ("low", "lanes", "warps", "high")
    if names != [x for x in levels if x in names]:
        return None
    found = {name: digit for name, (_, _, digit) in zip(names, digits, strict=True)}
    low, lanes, warps, high = (found.get(x, Digit()) for x in levels)
    if lanes.size & (lanes.size - 1):
        return None
    step, others = 1, list[Digit]()
    for m in layout.reg:
        if m.axis != axis:
            others.append(Digit(m.size, step))
        step *= m.size
    return ScanLevels(low, lanes, warps, high, tuple(others))


_PLACES = ("reg", "lane", "warp")
_NAMES = {"reg": "high", "lane": "lanes", "warp": "warps"}


def _own(modes: tuple[Mode, ...], axis: str) -> Iterator[tuple[int, Digit]]:
    """The digits of ``axis`` in ``modes``, each with what it adds to the position."""
    step = 1
    for m in modes:
        if m.axis == axis and m.size > 1:
            yield m.stride, Digit(m.size, step)
        step *= m.size

"""The op ``scan``, and how a layout distributes the axis that it runs along.

Meaning.  A scan has four steps, from the least significant digit of the position to the most significant one.

1. A thread combines its *low* registers in order, which are neighbours along the axis.
2. The lanes that split the axis exchange the totals of step 1 by shuffles: log2(lanes) steps.
3. The warps that split the axis write their totals to ``scratch``, a barrier, every warp reads all.
4. A thread combines what steps 2 and 3 found before its elements with each of its *high* registers in order.

With factors, elements and totals are linear maps in place of numbers: the factor and the rest of some steps.  Where all
steps have one factor, those of as many steps are one number, a power of it.

The result has the layout of the operand with the axis renamed.  A layout whose digits along the axis have another order
has no :class:`ScanLevels`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nautilus.core.common_ops import CommonScan
from nautilus.core.ops import declare, op
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.layout import FragLayout, Ints, Mode
from nautilus.ma_tile.ir.values import MA, SCRATCH, Frag


@op(MA, "scan $combiner $arg( by $by)? over $axis into $into( $reverse)?( $exclusive)?( scratch $scratch)?")
class ScanOp(CommonScan[Frag]):
    """``scratch``: one element for each warp, total and lane, where warps split the axis."""

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
    def whole_lanes(self) -> bool:
        """Whether all lanes of a warp are along the axis where warps are: a scan with factors demands it."""
        return self.warps.size == 1 or self.lanes.size == 32


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

"""What the printers of all scans share: the registers, lanes and warps of the digits of an axis, and shuffles."""

from __future__ import annotations

from collections.abc import Iterator

from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.cuda.ctypes import memory_type
from nautilus.cuda.ops.reduction import combine
from nautilus.cuda.registers import digit as digit_text
from nautilus.cuda.registers import times
from nautilus.cuda.writer import Writer
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.scan import Digit, ScanLevels


@dataclass(frozen=True, slots=True)
class Scan:
    """The scan that is printed: ``name`` is the array of the result, ``start`` the identity."""

    w: Writer
    op: ma.ScanOp
    levels: ScanLevels
    name: str
    start: str

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self.op.result.type.dtype

    @property
    def ctype(self) -> str:
        """The type of the elements in C."""
        return self.w.array(self.op.result).type

    def combine(self, a: str, b: str) -> str:
        """``a`` and then ``b``."""
        return combine(self.w, self.op.combiner, a, b, self.dtype)

    def register(self, total: str, low: str) -> str:
        """The register at position ``low`` of total number ``total`` in the order of the scan."""
        parts = [self._term(low, self.levels.low, 1, True, self.op.reverse)]
        div, digits = 1, (self.levels.high, *self.levels.others)
        for n, d in enumerate(digits):
            last = all(x.size == 1 for x in digits[n + 1 :])
            parts.append(self._term(total, d, div, last, self.op.reverse and n == 0))
            div *= d.size
        return " + ".join(p for p in parts if p != "0") or "0"

    def _term(self, number: str, d: Digit, div: int, last: bool, reverse: bool) -> str:
        if d.size == 1:
            return "0"
        value = digit_text(number, div, d.size, last)
        if reverse:
            value = f"({d.size - 1} - {value})"
        elif not value.isidentifier():
            value = f"({value})"
        return value if d.step == 1 else f"{value} * {d.step}"

    def place(self, number: str, d: Digit) -> str:
        """The place of a lane or warp in the order of the scan."""
        value = f"{number} % {d.size}" if d.step == 1 else f"{number} / {d.step} % {d.size}"
        return f"{d.size - 1} - {value}" if self.op.reverse else value

    @property
    def from_earlier(self) -> str:
        """The shuffle that reads a lane which is earlier in the order of the scan."""
        return "__shfl_down_sync" if self.op.reverse else "__shfl_up_sync"

    @property
    def last_lane(self) -> str:
        """The number of the last lane in the order of the scan, among those that have a part of the same elements."""
        d = self.levels.lanes
        mask = (d.size - 1) * d.step
        return f"{self.w.lane} & {31 - mask}" if self.op.reverse else f"{self.w.lane} | {mask}"

    @property
    def first_warp(self) -> str:
        """The number of the first warp among those that have a part of the same elements."""
        d = self.levels.warps
        return f"{self.w.warp} - {times(digit_text(self.w.warp, d.step, d.size, False), d.step)}"

    def warps_in_order(self, first: str) -> Iterator[str]:
        """The numbers of the warps in the order of the scan; ``first``: a name that has :attr:`first_warp`."""
        d = self.levels.warps
        for n in range(d.size):
            at = (d.size - 1 - n if self.op.reverse else n) * d.step
            yield f"({first} + {at})" if at else first

    def print_scratch(self) -> None:
        """Declare the pointer to the scratch through which warps exchange their totals."""
        assert self.op.scratch is not None, "the verifier demands scratch where warps split the axis"
        ctype, at = memory_type(self.dtype), self.w.place(self.op.scratch)
        self.w.line(f"{ctype}* partial = reinterpret_cast<{ctype}*>({self.w.pointer} + {at});")


def distances(size: int) -> Iterator[int]:
    """The powers of two below ``size``: how far the steps of a scan of so many lanes read."""
    distance = 1
    while distance < size:
        yield distance
        distance *= 2


def shuffle(s: Scan, function: str, x: str, by: str) -> str:
    """``x`` of another lane."""
    if s.dtype is DType.BOOL:
        return f"({function}(0xffffffffu, (int){x}, {by}) != 0)"
    return f"{function}(0xffffffffu, {x}, {by})"

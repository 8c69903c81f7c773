"""Printing of ``scan``: low registers, lanes, warps through shared memory, high registers (``ma_tile.ir.scan``)."""

from __future__ import annotations

from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.nodes import identity
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.cuda.ctypes import literal, memory_type
from nautilus.cuda.ops.reduction import combine, scratch_element
from nautilus.cuda.registers import digit as digit_text
from nautilus.cuda.registers import times
from nautilus.cuda.writer import Printers, Writer
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.scan import Digit, ScanLevels, scan_levels


@dataclass(frozen=True, slots=True)
class _Scan:
    """The scan that is printed: ``name`` is the array of the result, ``start`` the identity."""

    w: Writer
    op: ma.ScanOp
    levels: ScanLevels
    name: str
    start: str

    @property
    def dtype(self) -> DType:
        return self.op.result.type.dtype

    @property
    def ctype(self) -> str:
        return self.w.array(self.op.result).type

    def combine(self, a: str, b: str) -> str:
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


def print_scan(w: Writer, op: ma.ScanOp) -> None:
    """Print a scan. Equal steps in all threads give all copies of an element the same bits. Raises UnsupportedError."""
    levels = scan_levels(w.layout(op.arg), op.axis)
    if levels is None:
        raise UnsupportedError("a scan along an axis whose digits have another order", op.axis, op.span)
    name = w.declare(op.result)
    s = _Scan(w, op, levels, name, literal(identity(op.combiner, op.result.type.dtype).value, op.result.type.dtype))
    with w.braces(""):
        split = levels.lanes.size > 1 or levels.warps.size > 1
        if split or levels.high.size > 1:
            w.line(f"{s.ctype} total[{levels.totals}];")
        _low(s)
        if split:
            w.line(f"{s.ctype} before[{levels.totals}];")
        if levels.lanes.size > 1:
            _lanes(s)
        if levels.warps.size > 1:
            _warps(s)
        if split or levels.high.size > 1:
            _high(s, split)


def _low(s: _Scan) -> None:
    """The running results of neighbouring registers, and their totals."""
    w, op = s.w, s.op
    with w.registers("t", s.levels.totals) as t:
        w.line(f"{s.ctype} run = {s.start};")
        with w.registers("k", s.levels.low.size) as k:
            r = s.register(t, k)
            x = w.element(op.arg, w.layout(op.arg), r)
            if op.exclusive:
                w.line(f"{s.ctype} x = {x};")
                w.line(f"{s.name}[{r}] = run;")
                w.line(f"run = {s.combine('run', 'x')};")
            else:
                w.line(f"run = {s.combine('run', x)};")
                w.line(f"{s.name}[{r}] = run;")
        if s.levels.lanes.size > 1 or s.levels.warps.size > 1 or s.levels.high.size > 1:
            w.line(f"total[{t}] = run;")


def _shuffle(s: _Scan, function: str, x: str, by: str) -> str:
    if s.dtype is DType.BOOL:
        return f"({function}(0xffffffffu, (int){x}, {by}) != 0)"
    return f"{function}(0xffffffffu, {x}, {by})"


def _lanes(s: _Scan) -> None:
    """The running result before each lane, and the total of all lanes."""
    w, d = s.w, s.levels.lanes
    earlier = "__shfl_down_sync" if s.op.reverse else "__shfl_up_sync"
    w.line(f"const int lane_place = {s.place(w.lane, d)};")
    mask = (d.size - 1) * d.step
    last = f"{w.lane} & {31 - mask}" if s.op.reverse else f"{w.lane} | {mask}"
    with w.registers("t", s.levels.totals) as t:
        w.line(f"{s.ctype} other;")
        distance = 1
        while distance < d.size:
            w.line(f"other = {_shuffle(s, earlier, f'total[{t}]', str(distance * d.step))};")
            w.line(f"if (lane_place >= {distance}) total[{t}] = {s.combine('other', f'total[{t}]')};")
            distance *= 2
        w.line(f"other = {_shuffle(s, earlier, f'total[{t}]', str(d.step))};")
        w.line(f"before[{t}] = lane_place >= 1 ? other : {s.start};")
        w.line(f"other = {_shuffle(s, '__shfl_sync', f'total[{t}]', last)};")
        w.line(f"total[{t}] = other;")


def _warps(s: _Scan) -> None:
    """The running result before each warp: each writes its totals to scratch, and after a barrier it reads all."""
    w, d = s.w, s.levels.warps
    assert s.op.scratch is not None, "the verifier demands scratch where warps split the axis"
    ctype, count = memory_type(s.dtype), s.levels.totals
    w.line(f"{ctype}* partial = reinterpret_cast<{ctype}*>({w.pointer} + {w.place(s.op.scratch)});")
    with w.registers("t", count) as t:
        w.line(f"{scratch_element(w, w.warp, count, t)} = total[{t}];")
    w.line("__syncthreads();")
    w.line(f"const int warp_place = {s.place(w.warp, d)};")
    w.line(f"const int first_warp = {w.warp} - {times(digit_text(w.warp, d.step, d.size, False), d.step)};")
    with w.registers("t", count) as t:
        w.line(f"{s.ctype} earlier = {s.start}, every = {s.start};")
        for n in range(d.size):
            at = (d.size - 1 - n if s.op.reverse else n) * d.step
            load = scratch_element(w, f"(first_warp + {at})" if at else "first_warp", count, t)
            load = f"({load} != 0)" if s.dtype is DType.BOOL else load
            with w.braces(""):
                w.line(f"const {s.ctype} part = {load};")
                w.line(f"if (warp_place > {n}) earlier = {s.combine('earlier', 'part')};")
                w.line(f"every = {s.combine('every', 'part')};")
        if s.levels.lanes.size > 1:
            w.line(f"before[{t}] = {s.combine('earlier', f'before[{t}]')};")
        else:
            w.line(f"before[{t}] = earlier;")
        w.line(f"total[{t}] = every;")


def _high(s: _Scan, split: bool) -> None:
    """Every element with what lanes, warps and earlier high registers have before it."""
    w, high = s.w, s.levels.high.size
    if high > 1:
        w.line(f"{s.ctype} carry = {s.start};")
    with w.registers("t", s.levels.totals) as t:
        if high > 1 and s.levels.totals > high:
            w.line(f"if ({t} % {high} == 0) carry = {s.start};")
        front = f"before[{t}]" if high == 1 else s.combine("carry", f"before[{t}]") if split else "carry"
        w.line(f"const {s.ctype} front = {front};")
        with w.registers("k", s.levels.low.size) as k:
            target = f"{s.name}[{s.register(t, k)}]"
            w.line(f"{target} = {s.combine('front', target)};")
        if high > 1:
            w.line(f"carry = {s.combine('carry', f'total[{t}]')};")


#: op class -> what prints it
PRINTERS: Printers = {
    ma.ScanOp: print_scan,
}

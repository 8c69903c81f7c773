"""Printing of ``scan``: low registers, lanes, warps through shared memory, high registers (``ma_tile.ir.scan``)."""

from __future__ import annotations

from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.nodes import identity
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.cuda.ctypes import literal
from nautilus.cuda.ops.reduction import scratch_element
from nautilus.cuda.ops.scans.printed import Scan, distances, shuffle
from nautilus.cuda.ops.scans.states import StateScan, print_states
from nautilus.cuda.registers import times
from nautilus.cuda.writer import Printers, Writer
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.scan import levels_of, state_levels, state_matrix


def print_scan(w: Writer, op: ma.ScanOp) -> None:
    """Print a scan. Equal steps in all threads give all copies of an element the same bits. Raises UnsupportedError."""
    levels = levels_of(op, w.layout(op.arg))
    if levels is None:
        raise UnsupportedError("a scan along an axis whose digits have another order", op.axis, op.span)
    name = w.declare(op.result)
    if op.states is not None:
        found = state_levels(w.layout(op.arg), op.axis, op.states)
        assert found is not None, "levels are those of states"
        print_states(StateScan(w, op, levels, name, "0", state_matrix(op), found[1]))
        return
    if op.by is not None:
        _print_recurrence(_Recurrence(w, op, levels, name, "0"), op.by)
        return
    s = Scan(w, op, levels, name, literal(identity(op.combiner, op.result.type.dtype).value, op.result.type.dtype))
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


def _low(s: Scan) -> None:
    """The running results of neighbouring registers, and their totals."""
    w, op = s.w, s.op
    with w.registers("t", s.levels.totals) as t:
        w.line(f"{s.ctype} run = {s.start};")
        with w.registers("k", s.levels.low.size) as k:
            r = s.register(t, k)
            x = w.element(op.arg, w.layout(op.arg), r)
            if op.exclusive:
                term = w.unique("x")
                w.line(f"{s.ctype} {term} = {x};")
                w.line(f"{s.name}[{r}] = run;")
                w.line(f"run = {s.combine('run', term)};")
            else:
                w.line(f"run = {s.combine('run', x)};")
                w.line(f"{s.name}[{r}] = run;")
        if s.levels.lanes.size > 1 or s.levels.warps.size > 1 or s.levels.high.size > 1:
            w.line(f"total[{t}] = run;")


def _lanes(s: Scan) -> None:
    """The running result before each lane, and the total of all lanes."""
    w, d = s.w, s.levels.lanes
    w.line(f"const int lane_place = {s.place(w.lane, d)};")
    with w.registers("t", s.levels.totals) as t:
        w.line(f"{s.ctype} other;")
        for distance in distances(d.size):
            w.line(f"other = {shuffle(s, s.from_earlier, f'total[{t}]', str(distance * d.step))};")
            w.line(f"if (lane_place >= {distance}) total[{t}] = {s.combine('other', f'total[{t}]')};")
        w.line(f"other = {shuffle(s, s.from_earlier, f'total[{t}]', str(d.step))};")
        w.line(f"before[{t}] = lane_place >= 1 ? other : {s.start};")
        w.line(f"other = {shuffle(s, '__shfl_sync', f'total[{t}]', s.last_lane)};")
        w.line(f"total[{t}] = other;")


def _warps(s: Scan) -> None:
    """The running result before each warp: each writes its totals to scratch, and after a barrier it reads all."""
    w, d = s.w, s.levels.warps
    count = s.levels.totals
    s.print_scratch()
    with w.registers("t", count) as t:
        w.line(f"{scratch_element(w, w.warp, count, t)} = total[{t}];")
    w.line("__syncthreads();")
    w.line(f"const int warp_place = {s.place(w.warp, d)};")
    w.line(f"const int first_warp = {s.first_warp};")
    with w.registers("t", count) as t:
        w.line(f"{s.ctype} earlier = {s.start}, every = {s.start};")
        for n, warp in enumerate(s.warps_in_order("first_warp")):
            load = scratch_element(w, warp, count, t)
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


def _high(s: Scan, split: bool) -> None:
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


# -- linear recurrences ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Recurrence(Scan):
    """A scan with factors: in place of a result, steps have a linear map, its factor and its rest."""

    @property
    def is_steady(self) -> bool:
        """Whether all steps have one factor, which is not inf: maps of as many steps differ in their rests alone."""
        return self.op.by is not None and self.op.axis not in self.op.by.type.names

    def raise_to(self, target: str, base: str, count: int) -> None:
        """Print the power of ``base``, a variable that is overwritten, that is a map of ``count`` equal ones."""
        self.w.line(f"{self.ctype} {target} = 1;")
        while count:
            if count & 1:
                self.w.line(f"{target} = {self.product(target, base)};")
            count >>= 1
            if count:
                self.w.line(f"{base} = {self.product(base, base)};")

    def product(self, a: str, b: str) -> str:
        """The product of two factors."""
        if not self.dtype.is_float:
            return f"{a} * {b}"
        return f"{self.w.speller.use(f'product_of_factors_{self.dtype}')}({a}, {b})"

    def moved(self, factor: str, rest: str, state: str) -> str:
        """The state after the steps of a map, from ``state``."""
        moved = self.w.speller.op("fma", [factor, state, rest], [self.dtype] * 3, self.dtype)
        return f"isinf({factor}) ? {rest} : {moved}" if self.dtype.is_float and not self.is_steady else moved

    def follow(self, first: str, second: str) -> None:
        """Make the map ``second``, which is two variables, that of ``first`` and then ``second``."""
        self.w.line(f"{second}_rest = {self.moved(f'{second}_factor', f'{second}_rest', f'{first}_rest')};")
        self.w.line(f"{second}_factor = {self.product(f'{first}_factor', f'{second}_factor')};")

    def exchange(self, name: str, function: str, at: str, by: str) -> None:
        """Declare the map ``name`` as that of map ``at`` in another lane."""
        for part in ("factor", "rest"):
            self.w.line(f"const {self.ctype} {name}_{part} = {shuffle(self, function, f'scan_{part}[{at}]', by)};")


def _print_recurrence(s: _Recurrence, by: ma.Frag) -> None:
    """Print a scan with factors."""
    w, levels = s.w, s.levels
    steady = _steady_totals, _steady_lanes, _steady_warps
    totals, lanes, warps = steady if s.is_steady else (_totals, _map_lanes, _map_warps)
    warps = warps if levels.whole_lanes else _warps_in_order
    with w.braces(""):
        w.line(f"{s.ctype} scan_factor[{levels.totals}], scan_rest[{levels.totals}];")
        w.line(f"{s.ctype} scan_before_factor[{levels.totals}], scan_before_rest[{levels.totals}];")
        totals(s, by)
        if levels.lanes.size > 1:
            lanes(s)
        if levels.warps.size > 1:
            warps(s)
        _states(s, by)


def _steps(s: _Recurrence, by: ma.Frag, r: str) -> tuple[str, str]:
    """The factor and the rest of the step at register ``r``."""
    layout = s.w.layout(s.op.arg)
    return s.w.element(by, layout, r), s.w.element(s.op.arg, layout, r)


def _totals(s: _Recurrence, by: ma.Frag) -> None:
    """The map of neighbouring registers, and the one before them, which is none yet."""
    w = s.w
    with w.registers("t", s.levels.totals) as t:
        w.line(f"{s.ctype} scan_all_factor = 1, scan_all_rest = 0;")
        with w.registers("k", s.levels.low.size) as k:
            factor, rest = _steps(s, by, s.register(t, k))
            w.line(f"const {s.ctype} scan_step_factor = {factor}, scan_step_rest = {rest};")
            w.line(f"scan_all_rest = {s.moved('scan_step_factor', 'scan_step_rest', 'scan_all_rest')};")
            w.line(f"scan_all_factor = {s.product('scan_all_factor', 'scan_step_factor')};")
        _keep_total(s, t)


def _steady_totals(s: _Recurrence, by: ma.Frag) -> None:
    """:func:`_totals` where all steps have one factor."""
    w = s.w
    with w.registers("t", s.levels.totals) as t:
        factor, _ = _steps(s, by, s.register(t, "0"))
        w.line(f"{s.ctype} scan_power = {factor}, scan_all_rest = 0;")
        with w.registers("k", s.levels.low.size) as k:
            _, rest = _steps(s, by, s.register(t, k))
            w.line(f"scan_all_rest = {s.moved('scan_power', rest, 'scan_all_rest')};")
        s.raise_to("scan_all_factor", "scan_power", s.levels.low.size)
        _keep_total(s, t)


def _keep_total(s: _Recurrence, t: str) -> None:
    """The map of all registers of total ``t``, and the one before them, which is none yet."""
    s.w.line(f"scan_factor[{t}] = scan_all_factor;")
    s.w.line(f"scan_rest[{t}] = scan_all_rest;")
    s.w.line(f"scan_before_factor[{t}] = 1;")
    s.w.line(f"scan_before_rest[{t}] = 0;")


def _steady_lanes(s: _Recurrence) -> None:
    """:func:`_map_lanes` where all lanes have one factor: that of a number of lanes is its power."""
    w, d = s.w, s.levels.lanes
    w.line(f"const int scan_lane_place = {s.place(w.lane, d)};")
    with w.registers("t", s.levels.totals) as t:
        w.line(f"{s.ctype} scan_other, scan_power = scan_factor[{t}], scan_lanes = 1;")
        for distance in distances(d.size):
            w.line(f"scan_other = {shuffle(s, s.from_earlier, f'scan_rest[{t}]', str(distance * d.step))};")
            moved = s.moved("scan_power", f"scan_rest[{t}]", "scan_other")
            w.line(f"if (scan_lane_place >= {distance}) scan_rest[{t}] = {moved};")
            w.line(f"if (scan_lane_place & {distance}) scan_lanes = {s.product('scan_lanes', 'scan_power')};")
            w.line(f"scan_power = {s.product('scan_power', 'scan_power')};")
        w.line(f"scan_other = {shuffle(s, s.from_earlier, f'scan_rest[{t}]', str(d.step))};")
        w.line(f"scan_before_factor[{t}] = scan_lanes;")
        w.line(f"scan_before_rest[{t}] = scan_lane_place >= 1 ? scan_other : 0;")
        w.line(f"scan_factor[{t}] = scan_power;")
        w.line(f"scan_other = {shuffle(s, '__shfl_sync', f'scan_rest[{t}]', s.last_lane)};")
        w.line(f"scan_rest[{t}] = scan_other;")


def _steady_warps(s: _Recurrence) -> None:
    """:func:`_map_warps` where all warps have one factor."""
    w, d = s.w, s.levels.warps
    count = s.levels.totals
    s.print_scratch()
    with w.registers("t", count) as t:
        w.line(f"{scratch_element(w, w.warp, 2 * count, t)} = scan_rest[{t}];")
    _read_warps(s)
    with w.registers("t", count) as t:
        load = scratch_element(w, "scan_read_warp", 2 * count, t)
        w.line(f"{s.ctype} scan_other, scan_part = {w.lane} < {d.size} ? {load} : 0;")
        w.line(f"{s.ctype} scan_power = scan_factor[{t}], scan_earlier = 1;")
        for distance in distances(d.size):
            w.line(f"scan_other = {shuffle(s, '__shfl_up_sync', 'scan_part', str(distance))};")
            moved = s.moved("scan_power", "scan_part", "scan_other")
            w.line(f"if ({w.lane} >= {distance}) scan_part = {moved};")
            w.line(f"if (scan_warp_place & {distance}) scan_earlier = {s.product('scan_earlier', 'scan_power')};")
            w.line(f"scan_power = {s.product('scan_power', 'scan_power')};")
        earlier = shuffle(s, "__shfl_sync", "scan_part", "(scan_warp_place + 31) % 32")
        w.line(f"scan_other = {earlier};")
        w.line("scan_other = scan_warp_place > 0 ? scan_other : 0;")
        w.line(f"scan_rest[{t}] = {shuffle(s, '__shfl_sync', 'scan_part', str(d.size - 1))};")
        moved = s.moved(f"scan_before_factor[{t}]", f"scan_before_rest[{t}]", "scan_other")
        w.line(f"scan_before_rest[{t}] = {moved};")
        w.line(f"scan_before_factor[{t}] = {s.product('scan_earlier', f'scan_before_factor[{t}]')};")
        if d.size & (d.size - 1):
            w.line(f"scan_power = scan_factor[{t}];")
            s.raise_to("scan_whole", "scan_power", d.size)
            w.line("scan_power = scan_whole;")
        w.line(f"scan_factor[{t}] = scan_power;")


def _map_lanes(s: _Recurrence) -> None:
    """The map before each lane, and that of all lanes."""
    w, d = s.w, s.levels.lanes
    w.line(f"const int scan_lane_place = {s.place(w.lane, d)};")
    with w.registers("t", s.levels.totals) as t:
        for distance in distances(d.size):
            with w.braces(""):
                s.exchange("scan_other", s.from_earlier, t, str(distance * d.step))
                w.line(f"{s.ctype} scan_own_factor = scan_factor[{t}], scan_own_rest = scan_rest[{t}];")
                s.follow("scan_other", "scan_own")
                w.line(f"scan_factor[{t}] = scan_lane_place >= {distance} ? scan_own_factor : scan_factor[{t}];")
                w.line(f"scan_rest[{t}] = scan_lane_place >= {distance} ? scan_own_rest : scan_rest[{t}];")
        with w.braces(""):
            s.exchange("scan_other", s.from_earlier, t, str(d.step))
            w.line(f"scan_before_factor[{t}] = scan_lane_place >= 1 ? scan_other_factor : 1;")
            w.line(f"scan_before_rest[{t}] = scan_lane_place >= 1 ? scan_other_rest : 0;")
        with w.braces(""):
            s.exchange("scan_all", "__shfl_sync", t, s.last_lane)
            w.line(f"scan_factor[{t}] = scan_all_factor;")
            w.line(f"scan_rest[{t}] = scan_all_rest;")


def _map_warps(s: _Recurrence) -> None:
    """The map before each warp, and that of all: each warp writes its own to scratch, factors before rests.

    After a barrier, a lane reads the map of one warp, and the lanes combine them.
    """
    w, d = s.w, s.levels.warps
    count = s.levels.totals
    s.print_scratch()
    with w.registers("t", count) as t:
        w.line(f"{scratch_element(w, w.warp, 2 * count, t)} = scan_factor[{t}];")
        w.line(f"{scratch_element(w, w.warp, 2 * count, f'({t} + {count})')} = scan_rest[{t}];")
    _read_warps(s)
    with w.registers("t", count) as t:
        for part, at, none in (("factor", t, 1), ("rest", f"({t} + {count})", 0)):
            load = scratch_element(w, "scan_read_warp", 2 * count, at)
            w.line(f"{s.ctype} scan_part_{part} = {w.lane} < {d.size} ? {load} : {none};")
        for distance in distances(d.size):
            with w.braces(""):
                for part in ("factor", "rest"):
                    other = shuffle(s, "__shfl_up_sync", f"scan_part_{part}", str(distance))
                    w.line(f"const {s.ctype} scan_other_{part} = {other};")
                w.line(f"{s.ctype} scan_own_factor = scan_part_factor, scan_own_rest = scan_part_rest;")
                s.follow("scan_other", "scan_own")
                w.line(f"scan_part_factor = {w.lane} >= {distance} ? scan_own_factor : scan_part_factor;")
                w.line(f"scan_part_rest = {w.lane} >= {distance} ? scan_own_rest : scan_part_rest;")
        for part, none in (("factor", 1), ("rest", 0)):
            earlier = shuffle(s, "__shfl_sync", f"scan_part_{part}", "(scan_warp_place + 31) % 32")
            w.line(f"const {s.ctype} scan_before_all_{part} = {earlier};")
            w.line(f"const {s.ctype} scan_earlier_{part} = scan_warp_place > 0 ? scan_before_all_{part} : {none};")
            w.line(f"scan_{part}[{t}] = {shuffle(s, '__shfl_sync', f'scan_part_{part}', str(d.size - 1))};")
        w.line(f"{s.ctype} scan_own_factor = scan_before_factor[{t}], scan_own_rest = scan_before_rest[{t}];")
        s.follow("scan_earlier", "scan_own")
        w.line(f"scan_before_factor[{t}] = scan_own_factor;")
        w.line(f"scan_before_rest[{t}] = scan_own_rest;")


def _warps_in_order(s: _Recurrence) -> None:
    """:func:`_map_warps` where the lanes of a warp have other elements too: each thread reads the maps of all warps.

    They are combined one after another.
    """
    w, d = s.w, s.levels.warps
    count = s.levels.totals
    s.print_scratch()
    with w.registers("t", count) as t:
        if not s.is_steady:
            w.line(f"{scratch_element(w, w.warp, 2 * count, t)} = scan_factor[{t}];")
        w.line(f"{scratch_element(w, w.warp, 2 * count, f'({t} + {count})')} = scan_rest[{t}];")
    w.line("__syncthreads();")
    w.line(f"const int scan_warp_place = {s.place(w.warp, d)};")
    w.line(f"const int scan_first_warp = {s.first_warp};")
    with w.registers("t", count) as t:
        w.line(f"{s.ctype} scan_earlier_factor = 1, scan_earlier_rest = 0, scan_every_factor = 1, scan_every_rest = 0;")
        for n, warp in enumerate(s.warps_in_order("scan_first_warp")):
            factor = f"scan_factor[{t}]" if s.is_steady else scratch_element(w, warp, 2 * count, t)
            rest = scratch_element(w, warp, 2 * count, f"({t} + {count})")
            with w.braces(""):
                w.line(f"{s.ctype} scan_part_factor = {factor}, scan_part_rest = {rest};")
                if n:
                    for part in ("factor", "rest"):
                        every, earlier = f"scan_every_{part}", f"scan_earlier_{part}"
                        w.line(f"{earlier} = scan_warp_place == {n} ? {every} : {earlier};")
                    s.follow("scan_every", "scan_part")
                w.line("scan_every_factor = scan_part_factor;")
                w.line("scan_every_rest = scan_part_rest;")
        w.line(f"{s.ctype} scan_own_factor = scan_before_factor[{t}], scan_own_rest = scan_before_rest[{t}];")
        s.follow("scan_earlier", "scan_own")
        for part in ("factor", "rest"):
            w.line(f"scan_before_{part}[{t}] = scan_own_{part};")
            w.line(f"scan_{part}[{t}] = scan_every_{part};")


def _read_warps(s: _Recurrence) -> None:
    """The barrier after which maps of other warps may be read, and the warp whose map a lane reads."""
    w, d = s.w, s.levels.warps
    w.line("__syncthreads();")
    w.line(f"const int scan_warp_place = {s.place(w.warp, d)};")
    turned = f"{d.size - 1} - {w.lane}" if s.op.reverse else w.lane
    w.line(f"const int scan_read_warp = {s.first_warp} + {times(f'({turned})', d.step)};")


def _states(s: _Recurrence, by: ma.Frag) -> None:
    """Every state from the one before its registers."""
    w, high = s.w, s.levels.high.size
    w.line(f"{s.ctype} scan_carry = 0;")
    with w.registers("t", s.levels.totals) as t:
        if s.levels.totals > high:
            w.line(f"if ({t} % {high} == 0) scan_carry = 0;" if high > 1 else "scan_carry = 0;")
        w.line(f"{s.ctype} scan_state = {s.moved(f'scan_before_factor[{t}]', f'scan_before_rest[{t}]', 'scan_carry')};")
        with w.registers("k", s.levels.low.size) as k:
            r = s.register(t, k)
            factor, rest = _steps(s, by, r)
            w.line(f"const {s.ctype} scan_step_factor = {factor}, scan_step_rest = {rest};")
            w.line(f"scan_state = {s.moved('scan_step_factor', 'scan_step_rest', 'scan_state')};")
            w.line(f"{s.name}[{r}] = scan_state;")
        w.line(f"scan_carry = {s.moved(f'scan_factor[{t}]', f'scan_rest[{t}]', 'scan_carry')};")


#: op class -> what prints it
PRINTERS: Printers = {
    ma.ScanOp: print_scan,
}

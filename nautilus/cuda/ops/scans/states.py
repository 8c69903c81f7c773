"""Printing of ``scan`` of states that need each other (:mod:`nautilus.ma_tile.ir.scan`).

A map of steps has a variable for each element: ``NAME_m01`` of its matrix, and ``NAME_v0`` of its vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from nautilus.core.common_ops import largest_factor
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.cuda.ctypes import literal
from nautilus.cuda.ops.scans.printed import Scan, distances, shuffle
from nautilus.cuda.registers import times
from nautilus.ma_tile.ir.scan import Digit, StateMatrix

_ALL = "0xffffffffu"


@dataclass(frozen=True, slots=True)
class StateScan(Scan):
    """A scan of states: its ``matrix`` of factors, and the ``digit`` of its states, registers of one thread.

    The register of a position is that of its state 0.
    """

    matrix: StateMatrix
    digit: Digit

    @property
    def columns(self) -> range:
        """The states that steps read."""
        return range(self.matrix.size)

    @property
    def each(self) -> int:
        """Numbers of a warp in the scratch."""
        return self.matrix.exchanged(self.levels.totals)

    def partial(self, warp: str, number: str) -> str:
        """The element of the scratch with a number of ``warp``: of each lane, where lanes have other elements."""
        at = f"{warp} * {self.each} + {number}"
        return f"partial[{at}]" if self.levels.whole_lanes else f"partial[({at}) * 32 + {self.w.lane}]"

    def flag(self, warp: str) -> str:
        """The number of the element of the scratch that says that ``warp`` met too large a number."""
        at = f"{warp} * {self.each} + {self.each - 1}"
        return at if self.levels.whole_lanes else f"({at}) * 32"

    @property
    def writes(self) -> str:
        """The condition under which a lane writes numbers of its warp; "" where all do."""
        return f"{self.w.lane} == 0" if self.levels.whole_lanes else ""

    @property
    def split(self) -> bool:
        """Whether threads share the steps."""
        return self.levels.lanes.size > 1 or self.levels.warps.size > 1

    def elements(self, of: str) -> list[str]:
        """The variables of the matrix of a map."""
        return [f"{of}_m{r}{c}" for r, c in product(self.columns, self.columns)]

    def vector(self, of: str) -> list[str]:
        """The variables of the vector of a map, or of states."""
        return [f"{of}_v{r}" for r in self.columns]

    def exchanged(self, of: str) -> list[str]:
        """The variables of a map that differ between maps of as many steps."""
        return self.vector(of) if self.matrix.steady else [*self.elements(of), *self.vector(of)]

    @property
    def none(self) -> list[str]:
        """Those of no step."""
        zeros = ["0" for _ in self.columns]
        return zeros if self.matrix.steady else [*self.identity(), *zeros]

    def fma(self, a: str, b: str, c: str) -> str:
        """``a * b + c``, rounded once."""
        return self.w.speller.op("fma", [a, b, c], [self.dtype] * 3, self.dtype)

    def rest(self, t: str, k: str, row: int) -> str:
        """The rest of a state at a register."""
        return self.w.element(self.op.arg, self.w.layout(self.op.arg), self.at(t, k, row))

    def at(self, t: str, k: str, row: int) -> str:
        """The register of a state."""
        found = self.register(t, k)
        return found if row == 0 else f"{found} + {row * self.digit.step}"

    def print_factors(self, t: str, k: str, rows: int) -> None:
        """Declare the factors of the first ``rows`` of the step at a register."""
        layout = self.w.layout(self.op.arg)
        for n in sorted({n for r, _, n in self.matrix.entries if r < rows}):
            text = self.w.element(self.op.factors[n], layout, self.register(t, k))
            self.w.line(f"const {self.ctype} scan_f{n} = {text};")

    def moved(self, row: int, rest: str, states: Sequence[str]) -> str:
        """State ``row`` after the step whose factors are declared, from ``states``."""
        for column, n in self.matrix.row(row):
            rest = self.fma(f"scan_f{n}", states[column], rest)
        return rest

    def assign(self, targets: Sequence[str], values: Sequence[str], when: str = "") -> None:
        """Assign to all of ``targets`` at once, which ``values`` may read."""
        w = self.w
        with w.braces(""):
            for n, v in enumerate(values):
                w.line(f"const {self.ctype} scan_new{n} = {v};")
            for n, target in enumerate(targets):
                w.line(f"{target} = {when} ? scan_new{n} : {target};" if when else f"{target} = scan_new{n};")

    def product(self, a: str, b: str) -> list[str]:
        """The elements of the matrix of map ``b`` and then ``a``."""
        out = []
        for r, c in product(self.columns, self.columns):
            text = f"{a}_m{r}0 * {b}_m0{c}"
            for j in self.columns[1:]:
                text = self.fma(f"{a}_m{r}{j}", f"{b}_m{j}{c}", text)
            out.append(text)
        return out

    def applied(self, a: str, states: Sequence[str], rests: Sequence[str]) -> list[str]:
        """The matrix of map ``a`` times ``states``, plus ``rests``."""
        out = list(rests)
        for r, j in product(self.columns, self.columns):
            out[r] = self.fma(f"{a}_m{r}{j}", states[j], out[r])
        return out

    def declare(self, names: Sequence[str], values: Sequence[str]) -> None:
        """Declare variables with their values."""
        self.w.line(f"{self.ctype} {', '.join(f'{n} = {v}' for n, v in zip(names, values, strict=True))};")

    def kept(self, of: str, t: str, matrix: bool = True) -> tuple[list[str], list[str]]:
        """The elements of the arrays that hold the map ``of`` of total ``t``."""
        size = self.matrix.size
        m = [f"scan_{of}_matrix[{_at(t, size * size, n)}]" for n in range(size * size)] if matrix else []
        return m, [f"scan_{of}_vector[{_at(t, size, n)}]" for n in self.columns]

    def load(self, name: str, of: str, t: str) -> None:
        """Declare the map ``name`` as the one that arrays hold."""
        m, v = self.kept(of, t)
        self.declare([*self.elements(name), *self.vector(name)], [*m, *v])

    def keep(self, name: str, of: str, t: str) -> None:
        """Write the map ``name`` to arrays."""
        m, v = self.kept(of, t)
        for target, value in zip((*m, *v), (*self.elements(name), *self.vector(name)), strict=True):
            self.w.line(f"{target} = {value};")

    def identity(self) -> list[str]:
        """The elements of the matrix of no step."""
        return ["1" if r == c else "0" for r, c in product(self.columns, self.columns)]

    def raise_to(self, base: str, count: int, target: str) -> None:
        """Declare ``target`` as the matrix of ``base``, which is overwritten, to the power ``count``."""
        made = False
        while count:
            if count & 1 and made:
                self.assign(self.elements(target), self.product(base, target))
            elif count & 1:
                self.declare(self.elements(target), self.elements(base))
                made = True
            count >>= 1
            if count:
                self.assign(self.elements(base), self.product(base, base))


def _at(t: str, count: int, n: int) -> str:
    at = "" if t == "0" else t if count == 1 else f"{t} * {count}"
    return f"{at} + {n}" if at and n else at or str(n)


def print_states(s: StateScan) -> None:
    """Print the scan."""
    w, size, totals = s.w, s.matrix.size, s.levels.totals
    with w.braces(""):
        for of in ("all", "before"):
            if s.split or (of == "all" and s.levels.high.size > 1):
                w.line(f"{s.ctype} scan_{of}_matrix[{totals * size * size}], scan_{of}_vector[{totals * size}];")
        if s.split:
            w.line(f"{s.ctype} scan_large = 0, scan_check = 0;")
        if s.split or s.levels.high.size > 1:
            _totals(s)
        if s.levels.lanes.size > 1:
            w.line(f"const int scan_lane_place = {s.place(w.lane, s.levels.lanes)};")
            _lanes(s)
        if s.levels.warps.size > 1:
            _warps(s)
        _states(s)
        if s.split:
            _one_by_one(s)


def _totals(s: StateScan) -> None:
    """The map of neighbouring registers, and the one before them, which is none yet."""
    w = s.w
    with w.registers("t", s.levels.totals) as t:
        w.line(f"{s.ctype} {', '.join((*s.elements('scan'), *s.vector('scan')))};")
        with w.registers("k", s.levels.low.size) as k:
            s.print_factors(t, k, s.matrix.size)
            rests = [s.rest(t, k, r) for r in s.columns]
            first = dict.fromkeys(product(s.columns, s.columns), "0")
            first |= {(r, c): f"scan_f{n}" for r, c, n in s.matrix.entries if r < s.matrix.size}
            moved = [s.moved(r, rests[r], s.vector("scan")) for r in s.columns]
            if not s.matrix.steady:
                columns = [[f"scan_m{j}{c}" for j in s.columns] for c in s.columns]
                moved = [_without_rest(s, r, columns[c]) for r, c in product(s.columns, s.columns)] + moved
            with w.braces("" if k == "0" else f"if ({k} == 0)"):
                s.assign([*s.elements("scan"), *s.vector("scan")], [*first.values(), *rests])
            if k != "0":
                with w.braces("else"):
                    s.assign(s.exchanged("scan"), moved)
        if s.matrix.steady and s.levels.low.size > 1:
            s.raise_to("scan", s.levels.low.size, "scan_power")
            s.assign(s.elements("scan"), s.elements("scan_power"))
        if s.split:
            _note_large(s, "scan")
        s.keep("scan", "all", t)
        if s.split:
            m, v = s.kept("before", t)
            for target, value in zip((*m, *v), (*s.identity(), *("0" for _ in v)), strict=True):
                w.line(f"{target} = {value};")


def _without_rest(s: StateScan, row: int, states: Sequence[str]) -> str:
    """State ``row`` after the step whose factors are declared, from ``states``, without its rest."""
    text = ""
    for column, n in s.matrix.row(row):
        text = s.fma(f"scan_f{n}", states[column], text) if text else f"scan_f{n} * {states[column]}"
    return text or "0"


def _note_large(s: StateScan, of: str) -> None:
    """Note whether a matrix has too large elements, or what is no number."""
    size, largest = ("fabsf", "fmaxf") if s.dtype is DType.F32 else ("fabs", "fmax")
    for e in s.elements(of):
        s.w.line(f"scan_large = {largest}(scan_large, {size}({e}));")
        s.w.line(f"scan_check = {s.fma(e, literal(0.0, s.dtype), 'scan_check')};")


def _lanes(s: StateScan) -> None:
    """The map before each lane, and that of all lanes."""
    w, d = s.w, s.levels.lanes
    with w.registers("t", s.levels.totals) as t:
        s.load("scan", "all", t)
        if s.matrix.steady:
            s.declare(s.elements("scan_lanes"), s.identity())
        _inclusive(s, "scan", "scan_lane_place", distances(d.size), s.from_earlier, d.step, "scan_lanes")
        values, (m, v) = s.exchanged("scan"), s.kept("before", t)
        for target, value, start in zip(v if s.matrix.steady else (*m, *v), values, s.none, strict=True):
            with w.braces(""):
                w.line(f"const {s.ctype} scan_other = {shuffle(s, s.from_earlier, value, str(d.step))};")
                w.line(f"{target} = scan_lane_place >= 1 ? scan_other : {start};")
        if s.matrix.steady:
            for target, value in zip(m, s.elements("scan_lanes"), strict=True):
                w.line(f"{target} = {value};")
        for value in values:
            w.line(f"{value} = {shuffle(s, '__shfl_sync', value, s.last_lane)};")
        s.keep("scan", "all", t)


def _inclusive(
    s: StateScan, name: str, place: str, reach: Iterable[int], function: str, step: int, powers: str
) -> None:
    """Make the map ``name`` that of all places up to its own.

    Where all steps have one matrix, that of ``name`` becomes the one of all places, and ``powers`` the one before.
    """
    w = s.w
    values, others = s.exchanged(name), s.exchanged("scan_other")
    for distance in reach:
        with w.braces(""):
            s.declare(others, [shuffle(s, function, x, str(distance * step)) for x in values])
            moved = s.applied(name, s.vector("scan_other"), s.vector(name))
            if not s.matrix.steady:
                s.assign(values, [*s.product(name, "scan_other"), *moved], f"{place} >= {distance}")
                continue
            s.assign(values, moved, f"{place} >= {distance}")
            s.assign(s.elements(powers), s.product(name, powers), f"({place} & {distance})")
            s.assign(s.elements(name), s.product(name, name))


def _warps(s: StateScan) -> None:
    """The map before each warp, and that of all: each warp writes its own to scratch.

    After a barrier, a lane reads the map of one warp, and the lanes combine them.
    """
    w, d, size = s.w, s.levels.warps, s.matrix.size
    count = size if s.matrix.steady else size * (size + 1)
    s.print_scratch()
    with w.braces(f"if ({s.writes})" if s.writes else ""), w.registers("t", s.levels.totals) as t:
        m, v = s.kept("all", t, not s.matrix.steady)
        for n, value in enumerate((*m, *v)):
            w.line(f"{s.partial(w.warp, _at(t, count, n))} = {value};")
    w.line("__syncthreads();")
    w.line(f"const int scan_warp_place = {s.place(w.warp, d)};")
    w.line(f"const int scan_first_warp = {s.first_warp};")
    if not s.levels.whole_lanes:
        _warps_in_order(s, count)
        return
    turned = f"({d.size - 1} - {w.lane})" if s.op.reverse else w.lane
    w.line(f"const int scan_read_warp = {w.lane} < {d.size} ? scan_first_warp + {times(turned, d.step)} : {w.warp};")
    with w.registers("t", s.levels.totals) as t:
        names = s.exchanged("scan")
        s.declare(names, [f"partial[scan_read_warp * {s.each} + {_at(t, count, n)}]" for n in range(count)])
        if s.matrix.steady:
            s.declare(s.elements("scan"), s.kept("all", t)[0])
            s.declare(s.elements("scan_whole"), s.elements("scan"))
            s.declare(s.elements("scan_powers"), s.identity())
            _steady_warps(s)
        else:
            _inclusive(s, "scan", w.lane, distances(d.size), "__shfl_up_sync", 1, "")
        earlier = s.exchanged("scan_earlier")
        s.declare(earlier, [shuffle(s, "__shfl_sync", n, "(scan_warp_place + 31) % 32") for n in names])
        for target, start in zip(earlier, s.none, strict=True):
            w.line(f"{target} = scan_warp_place > 0 ? {target} : {start};")
        if s.matrix.steady:
            s.declare(s.elements("scan_earlier"), s.elements("scan_powers"))
        for value in names:
            w.line(f"{value} = {shuffle(s, '__shfl_sync', value, str(d.size - 1))};")
        _after_earlier(s, t)
        if s.matrix.steady and d.size & (d.size - 1):
            s.raise_to("scan_whole", d.size, "scan_all")
            s.assign(s.elements("scan"), s.elements("scan_all"))
        s.keep("scan", "all", t)


def _warps_in_order(s: StateScan, count: int) -> None:
    """The map before each warp, and that of all, where each thread combines those of all warps one after another."""
    w = s.w
    with w.registers("t", s.levels.totals) as t:
        own = s.kept("all", t)[0]
        s.declare([*s.elements("scan_earlier"), *s.vector("scan_earlier")], [*s.identity(), *("0" for _ in s.columns)])
        every = [*s.elements("scan_every"), *s.vector("scan_every")]
        w.line(f"{s.ctype} {', '.join(every)};")
        for n, warp in enumerate(s.warps_in_order("scan_first_warp")):
            read = [s.partial(warp, _at(t, count, k)) for k in range(count)]
            values = [*own, *read] if s.matrix.steady else read
            with w.braces(""):
                s.declare([*s.elements("scan_part"), *s.vector("scan_part")], values)
                if n == 0:
                    s.assign(every, [*s.elements("scan_part"), *s.vector("scan_part")])
                    continue
                s.assign([*s.elements("scan_earlier"), *s.vector("scan_earlier")], every, f"scan_warp_place == {n}")
                after = s.applied("scan_part", s.vector("scan_every"), s.vector("scan_part"))
                s.assign(every, [*s.product("scan_part", "scan_every"), *after])
        _after_earlier(s, t)
        s.keep("scan_every", "all", t)


def _after_earlier(s: StateScan, t: str) -> None:
    """The map before a thread, of its own warp, also after that of the warps before it."""
    s.load("scan_before", "before", t)
    s.assign(
        [*s.elements("scan_before"), *s.vector("scan_before")],
        [*s.product("scan_before", "scan_earlier"),
         *s.applied("scan_before", s.vector("scan_earlier"), s.vector("scan_before"))],
    )  # fmt: skip
    _note_large(s, "scan_before")
    s.keep("scan_before", "before", t)


def _steady_warps(s: StateScan) -> None:
    """The vectors of the warps up to that of each lane, and the matrix of the warps before that of the thread."""
    for distance in distances(s.levels.warps.size):
        with s.w.braces(""):
            others = s.vector("scan_other")
            s.declare(others, [shuffle(s, "__shfl_up_sync", x, str(distance)) for x in s.vector("scan")])
            moved = s.applied("scan", others, s.vector("scan"))
            s.assign(s.vector("scan"), moved, f"{s.w.lane} >= {distance}")
            powers = s.product("scan", "scan_powers")
            s.assign(s.elements("scan_powers"), powers, f"(scan_warp_place & {distance})")
            s.assign(s.elements("scan"), s.product("scan", "scan"))


def _states(s: StateScan) -> None:
    """Every state from those before its registers."""
    w, high, rows = s.w, s.levels.high.size, s.digit.size
    s.declare(s.vector("scan_carry"), ["0" for _ in s.columns])
    with w.registers("t", s.levels.totals) as t:
        if s.levels.totals > high:
            with w.braces(f"if ({t} % {high} == 0)" if high > 1 else ""):
                w.line(" ".join(f"{c} = 0;" for c in s.vector("scan_carry")))
        states = s.vector("scan_state")
        before = s.vector("scan_carry")
        if s.split:
            s.load("scan_before", "before", t)
            before = s.applied("scan_before", s.vector("scan_carry"), s.vector("scan_before"))
        s.declare(states, before)
        with w.registers("k", s.levels.low.size) as k:
            s.print_factors(t, k, rows)
            for r in range(rows):
                w.line(f"const {s.ctype} scan_now{r} = {s.moved(r, s.rest(t, k, r), states)};")
            for r in range(rows):
                w.line(f"{s.name}[{s.at(t, k, r)}] = scan_now{r};")
                if s.split:
                    w.line(f"scan_check = {s.fma(f'scan_now{r}', literal(0.0, s.dtype), 'scan_check')};")
            for r in s.columns:
                w.line(f"{states[r]} = scan_now{r};")
        if high > 1:
            s.load("scan_all", "all", t)
            moved = s.applied("scan_all", s.vector("scan_carry"), s.vector("scan_all"))
            s.assign(s.vector("scan_carry"), moved)


def _one_by_one(s: StateScan) -> None:
    """The steps one after another, where a number says that they must not be combined."""
    w, warps = s.w, s.levels.warps
    largest = literal(largest_factor(s.levels.steps), s.dtype)
    w.line(f"bool scan_odd = __any_sync({_ALL}, !(scan_large <= {largest} && scan_check == 0)) != 0;")
    if warps.size > 1:
        count = w.layout(s.op.arg).warps
        w.line(f"if ({w.lane} == 0) partial[{s.flag(w.warp)}] = scan_odd ? 1 : 0;")
        w.line("__syncthreads();")
        read = f"{w.lane} < {count} && partial[{s.flag(w.lane)}] != 0"
        w.line(f"scan_odd = __any_sync({_ALL}, {read}) != 0;")
    with w.braces("if (scan_odd)"):
        s.declare(s.vector("scan_carry"), ["0" for _ in s.columns])
        with w.registers("t", s.levels.totals) as t:
            first = f"{t} % {s.levels.high.size} == 0" if s.levels.high.size < s.levels.totals else f"{t} == 0"
            loop = w.braces(f"for (int i = 0; i < {warps.size}; ++i)" if warps.size > 1 else "")
            with loop:
                if warps.size > 1:
                    with w.braces("if (scan_warp_place == i)"):
                        _lane_by_lane(s, t, first, "i == 0")
                    _hand_over(s)
                else:
                    _lane_by_lane(s, t, first, "")


def _lane_by_lane(s: StateScan, t: str, *first: str) -> None:
    """The steps of the lanes of a warp; under the conditions ``first``, the first one has no state before it."""
    w, d, rows = s.w, s.levels.lanes, s.digit.size
    with w.braces(f"for (int n = 0; n < {d.size}; ++n)"):
        states = s.vector("scan_state")
        s.declare(states, s.vector("scan_carry"))
        with w.registers("k", s.levels.low.size) as k:
            s.print_factors(t, k, rows)
            alone = " && ".join(x for x in (*first, "n == 0", f"{k} == 0") if x and x != "0 == 0")
            w.line(f"const bool scan_first = {alone};")
            for r in range(rows):
                rest = s.rest(t, k, r)
                w.line(f"const {s.ctype} scan_now{r} = scan_first ? {rest} : {s.moved(r, rest, states)};")
            for r in range(rows):
                guard = "if (scan_lane_place == n) " if d.size > 1 else ""
                w.line(f"{guard}{s.name}[{s.at(t, k, r)}] = scan_now{r};")
            for r in s.columns:
                w.line(f"{states[r]} = scan_now{r};")
        ahead = "scan_lane_place - n" if s.op.reverse else "n - scan_lane_place"
        for carry, state in zip(s.vector("scan_carry"), states, strict=True):
            source = f"{w.lane} + ({ahead}) * {d.step}"
            w.line(f"{carry} = {shuffle(s, '__shfl_sync', state, source) if d.size > 1 else state};")


def _hand_over(s: StateScan) -> None:
    """Give the states after the steps of warp ``i`` in the order of the scan to all warps."""
    w, d = s.w, s.levels.warps
    with w.braces(f"if (scan_warp_place == i{s.writes and f' && {s.writes}'})"):
        for n, carry in enumerate(s.vector("scan_carry")):
            w.line(f"{s.partial(w.warp, str(n))} = {carry};")
    w.line("__syncthreads();")
    turned = f"({d.size - 1} - i)" if s.op.reverse else "i"
    for n, carry in enumerate(s.vector("scan_carry")):
        w.line(f"{carry} = {s.partial(f'(scan_first_warp + {times(turned, d.step)})', str(n))};")
    w.line("__syncthreads();")

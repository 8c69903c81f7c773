"""The rank of each row among the rows that are not behind it and have its key, in chunks of rows.

The places of rows among rows sorted by their key follow from counts: of the rows with a smaller key, of those with the
same key in chunks before, and of those in the same chunk and before the row.  There are two ways to count them.

:class:`Comparisons` compares keys in pairs and scatters a one for each row.  :class:`Masks` is for keys of few bits: it
stores bit ``b`` of 32 keys as one word, and finds all of 32 rows that have a key with one operation for each bit::

    bits[w, b]   = sum[v]((key[32 * w + v] >> b & 1) << v)
    alike(w, k)  = (bits[w, 0] ^ (k & 1) - 1) & (bits[w, 1] ^ (k >> 1 & 1) - 1) & ..
    count[q, e]  = sum[u](ones(alike(W * q + u, e)))
    before[r]    = sum[u](ones(alike(W * (r // C) + u, key[r]) & rows before r))

with ``W`` words in a chunk of ``C = 32 * W`` rows.  Bits of rows after the last one are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial, reduce

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import short_circuit
from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Var
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import fresh_name

WORD = 32  # bits
WORDS = 1 << 31  # least number of keys with rows that an i32 does not hold


@dataclass(frozen=True, slots=True)
class Names:
    """Makes definitions of integers of an order of the terms of ``d``, which join ``made``."""

    program: Program
    d: Def
    made: list[Def]

    def __call__(
        self, what: str, par: Sequence[Axis], value: Expr, red: Axis | None = None, guard: Expr | None = None
    ) -> Def:
        """The definition of ``what``: ``value``, or its sum over ``red``."""
        name = fresh_name(self.program, f"{self.d.name}_{what}", [m.name for m in self.made])
        buffer = Buffer(name, value.dtype, tuple(a.extent for a in par), Space.TEMP, self.d.span)
        reduced = ((red,), "sum") if red is not None else ((), None)
        self.made.append(Def(name, buffer, tuple(par), reduced[0], reduced[1], value, guard, self.d.span))
        return self.made[-1]


@dataclass(slots=True)
class Ranks:
    """Counts of the values of a ``key`` of ``rows``, for each chunk of ``length`` rows and each of ``elements``."""

    named: Names
    rows: Axis
    elements: Axis
    length: int
    key: Callable[[Expr], Expr]
    dtype: DType
    count: Def = field(init=False)

    @property
    def chunks(self) -> Axis:
        """The axis that numbers the chunks."""
        return Axis(self._axis("q"), -(-(size(self.rows) or 0) // self.length))

    @property
    def last(self) -> int:
        """The last chunk."""
        return (size(self.chunks) or 1) - 1

    def _axis(self, name: str) -> str:
        return unused(name, [a.name for a in self.named.d.axes], first=2)

    def before(self) -> Def:
        """The rows of its chunk that are before a row and have its key."""
        raise NotImplementedError

    def total(self) -> Def:
        """The rows of each element."""
        read = read_of(self.count, Var(self.chunks.name), Var(self.elements.name))
        return self.named("total", (self.elements,), read, self.chunks)

    def earlier(self) -> Def:
        """The rows of each element in the chunks before a chunk."""
        q, x = self.chunks, Axis(self._axis("x"), self.chunks.extent)
        counted = read_of(self.count, Var(x.name), Var(self.elements.name))
        return self.named("earlier", (q, self.elements), counted, x, calc("lt", Var(x.name), Var(q.name)))

    def place(self, start: Def, earlier: Def, known: Expr) -> Expr:
        """The place of a row of element ``known``, of which the first one has place ``start``."""
        r = self.rows.name
        chunk = calc("floordiv", Var(r), self.length)
        sums = (read_of(start, known), read_of(earlier, chunk, known), read_of(self.before(), Var(r)))
        return reduce(lambda a, b: calc("add", a, b), sums)


@dataclass(slots=True)
class Comparisons(Ranks):
    """Ranks of keys of any type, which are compared."""

    def __post_init__(self) -> None:
        q, v, number = self.chunks.name, self.inside.name, size(self.rows) or 0
        place = calc("add", calc("mul", Var(q), self.length), Var(v))
        there: Expr = make("eq", self.key(place), converted(Var(self.elements.name), self.dtype))
        there = there if number % self.length == 0 else short_circuit(calc("lt", place, number), there)
        self.count = self.named("count", (self.chunks, self.elements), integer(1), self.inside, there)

    @property
    def inside(self) -> Axis:
        """The axis of the rows of a chunk."""
        return Axis(self._axis("v"), self.length)

    def before(self) -> Def:
        """The rows of its chunk that are before a row and have its key."""
        r, v = self.rows.name, self.inside.name
        first = calc("mul", calc("floordiv", Var(r), self.length), self.length)
        nearer = calc("lt", Var(v), calc("mod", Var(r), self.length))
        alike = make("eq", self.key(calc("add", first, Var(v))), self.key(Var(r)))
        return self.named("before", (self.rows,), integer(1), self.inside, short_circuit(nearer, alike))


@dataclass(slots=True)
class Masks(Ranks):
    """Ranks of the integers ``key``, of a few bits, from words of each of their bits."""

    stored: Def = field(init=False)

    def __post_init__(self) -> None:
        w, b, v, number = self._axis("w"), self._axis("b"), Axis(self._axis("v"), WORD), size(self.rows) or 0
        row = calc("add", calc("mul", Var(w), WORD), Var(v.name))
        bit = calc("shift_left", calc("bit_and", calc("shift_right", self.key(row), Var(b)), 1), Var(v.name))
        there = None if number % WORD == 0 else calc("lt", row, number)
        axes = Axis(w, -(-number // WORD)), Axis(b, self.bits)
        self.stored = self.named("bits", axes, bit, v, there)
        q, u, e = Var(self.chunks.name), Axis(self._axis("u"), self.length // WORD), Var(self.elements.name)
        word = calc("add", calc("mul", q, self.length // WORD), Var(u.name))
        alike, inside = self._alike(word, e), None
        if number % WORD:
            alike = calc("bit_and", alike, _first(calc("sub", number, calc("mul", word, WORD))))
        if number % self.length:
            inside = calc("lt", word, -(-number // WORD))
        self.count = self.named("count", (self.chunks, self.elements), calc("ctpop", alike), u, inside)

    @property
    def bits(self) -> int:
        """The bits of a key."""
        return ((size(self.elements) or 1) - 1).bit_length()

    def _alike(self, word: Expr, key: Expr) -> Expr:
        """The rows of ``word`` that have ``key``, a bit for each."""
        found = list[Expr]()
        for b in range(self.bits):
            bit = calc("bit_and", calc("shift_right", key, b), 1)
            found.append(calc("bit_xor", read_of(self.stored, word, integer(b)), calc("sub", bit, 1)))
        return reduce(lambda x, y: calc("bit_and", x, y), found)

    def before(self) -> Def:
        """The rows of its chunk that are before a row and have its key."""
        r, number = Var(self.rows.name), size(self.rows) or 0
        u = Axis(self._axis("u"), self.length // WORD)
        word = calc("add", calc("mul", calc("floordiv", r, self.length), u.extent), Var(u.name))
        earlier = _first(calc("sub", calc("mod", r, self.length), calc("mul", Var(u.name), WORD)))
        value = calc("ctpop", calc("bit_and", self._alike(word, self.key(r)), earlier))
        inside = calc("lt", word, -(-number // WORD)) if number % self.length else None
        return self.named("before", (self.rows,), value, u, inside)


def _first(n: Expr) -> Expr:
    """A word whose first ``n`` bits are set; none where ``n`` is negative, all where it is 32 or more."""
    return calc("sub", calc("shift_left", integer(1), calc("max", n, 0)), 1)


@dataclass(frozen=True, slots=True)
class Codes:
    """What is left of the keys of rows in the order of their digits so far: ``count`` numbers, with the row of each.

    ``of``: the number at a place.  After the first digit it is that of the other digits times a power of two, ``unit``,
    plus the row.  In the end it is the row.
    """

    of: Callable[[Expr], Expr]
    row: Var
    count: int
    rows: int
    unit: int = 1
    name: str = ""

    def digit(self, values: int, place: Expr) -> Expr:
        """The lowest one of the digits of ``values`` at ``place``."""
        found = self._above(self.of(place), self.unit)
        if values < self.count:
            found = make("bit_and", found, Const(values - 1, found.dtype))
        return converted(found, DType.I32)

    def moved(self, values: int, store: Callable[[Expr], Def]) -> Codes:
        """These after one more digit of ``values``; ``store`` makes the definition that has a number at its place."""
        number, left = self.of(self.row), -(-self.count // values)
        whole = 1 << max(1, (self.rows - 1).bit_length())
        row: Expr = self.row if self.unit == 1 else make("bit_and", number, Const(self.unit - 1, number.dtype))
        if left == 1:
            stored = store(converted(row, DType.I32))
            return replace(self, of=partial(read_of, stored), count=1, unit=1, name=stored.name)
        dtype = DType.I32 if left * whole < WORDS else DType.I64
        rest = converted(self._above(number, self.unit * values), dtype)
        shifted = make("shift_left", rest, Const(whole.bit_length() - 1, dtype))
        stored = store(make("add", shifted, converted(row, dtype)))
        return replace(self, of=partial(read_of, stored), count=left, unit=whole, name=stored.name)

    @staticmethod
    def _above(number: Expr, unit: int) -> Expr:
        shift = Const(unit.bit_length() - 1, number.dtype)
        return number if unit == 1 else make("shift_right", number, shift)


def read_of(of: Def, *index: Expr) -> Expr:
    """The integer that ``of`` has at ``index``."""
    return Load(of.name, index, of.buffer.dtype, of.span)


def converted(e: Expr, dtype: DType) -> Expr:
    """``e`` in type ``dtype``."""
    return e if e.dtype is dtype else make("cast", e, dtype=dtype)

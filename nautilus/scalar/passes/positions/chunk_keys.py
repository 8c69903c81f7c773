"""``chunk-keys``: running results of the terms with the key of the result are found in chunks.

The number of earlier tokens of the same expert, or a running sum for each group, compares every pair of positions::

    y[t] = op_u x(u)    where u <= t and key(u) == key(t)

Where few keys are possible, the results of earlier chunks of ``C`` positions are a table with an element for each key,
and only positions of one chunk are compared::

    T[c, k] = op_u x(c * C + u)                  for u < C, where key(c * C + u) == k
    B[c, k] = op_d T[d, k]                       where d < c
    L[c, p] = op_u x(c * C + u)                  for u < C, where u <= p and key(c * C + u) == key(c * C + p)
    y[t] = B[t // C, key(t)] op L[t // C, t % C]

The same without the element itself, ``u < t``, from the last element on, and under more conditions on ``u`` or on ``t``
alone.  Several keys are one, whose digits they are.  Keys have a range by their type, by what they are computed from or
by a fact of the spec; a key outside of a promised range reads the nearest element of the table.

``C`` is as large as makes the table and the pairs of a chunk cost alike, and the rewrite is for axes on which both are
fewer than all pairs.  ``T`` is a reduction by key, which ``scatter`` knows, and ``B`` a scan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isqrt, prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import COMBINERS, Axis, Const, Expr, Load, Op, Reduce, Var, free_vars, substitute
from nautilus.core.index.prefixes import Prefix, prefix
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.tiles import ceil_pow2
from nautilus.core.types import DType, value_limits
from nautilus.scalar.analysis.contractions.promises import Promises, promised_ranges
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs

SHORTEST, LONGEST = 64, 1024  # positions of a chunk
LEAST = 2048  # positions of an axis that is cut
TABLE = 8  # comparisons that take as long as an element of the table, which is written and read twice
GAIN = 2  # how many times fewer comparisons are worth more kernels
_MOST = 1 << 20  # keys


@dataclass(frozen=True, slots=True)
class ChunkKeys(CertifyingPass[Program]):
    """Cut every such result; ``length``: positions of a chunk, of any longer axis (for tests).

    ``spec``: the Spec, whose facts bound keys.
    """

    spec: Promises | None = None
    length: int | None = None

    name = "chunk-keys"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with such results in chunks, and a certificate for each of them."""
        certificates: list[Certificate] = []
        given = promised_ranges(self.spec)
        for d in find_defs(program).values():
            defs = find_defs(program)
            found = _running(d, Ranges(defs, d.axes, given=given))
            length = 0 if found is None else self._length(d, found)
            if found is not None and length:
                program = put_defs(program, d.name, _Chunks(program, d, found, length).definitions())
                certificates.append(_certificate(d, found, length))
        return program, tuple(certificates)

    def _length(self, d: Def, x: _Running) -> int:
        """The positions of a chunk; 0 where all pairs are compared in less time."""
        n = size(x.t) or 0
        if self.length is not None:
            return self.length if n > self.length else 0
        length = min(LONGEST, max(SHORTEST, ceil_pow2(isqrt(TABLE * x.count))))
        pairs = n * length + TABLE * x.count * -(-n // length)
        return length if n >= LEAST and GAIN * pairs <= n * n // 2 else 0


@dataclass(frozen=True, slots=True)
class _Key:
    """An integer of a position ``u``, from ``low`` on, which is one of ``count``."""

    value: Expr
    low: int
    count: int

    def number(self, names: Mapping[str, Expr], inside: bool) -> Expr:
        """Its place among the values that it may have; ``inside``: the nearest one where a promise is broken."""
        e = substitute(self.value, names)
        if inside:
            e = Op("max", (e, Const(self.low, e.dtype)), e.dtype)
            e = Op("min", (e, Const(self.low + self.count - 1, e.dtype)), e.dtype)
        e = e if e.dtype is DType.I32 else Op("cast", (e,), DType.I32)
        return calc("add", e, -self.low) if self.low else e


@dataclass(frozen=True, slots=True)
class _Running:
    """A reduction over the positions ``u`` up to ``t`` whose keys are those of ``t``.

    ``bound`` is the condition that is a prefix, ``terms`` are those on ``u`` alone, and ``outer`` those on results.
    """

    u: Axis
    t: Axis
    bound: Expr
    prefix: Prefix
    keys: tuple[_Key, ...]
    terms: tuple[Expr, ...]
    outer: tuple[Expr, ...]

    @property
    def count(self) -> int:
        """The number of keys that are possible."""
        return prod(k.count for k in self.keys)


def _running(d: Def, ranges: Ranges) -> _Running | None:
    """The running result by key that ``d`` is; None for another definition."""
    if d.op is None or d.at is not None or len(d.red) != 1 or d.guard is None or d.op not in COMBINERS:
        return None
    (u,), parts = d.red, conjuncts(d.guard)
    for t in d.par:
        bounds = [(c, p) for c in parts if (p := prefix(c, u.name, t.name)) is not None and p.scans]
        if len(bounds) != 1 or t.extent != u.extent or size(t) is None or t.name in free_vars(d.value):
            continue
        bound, found = bounds[0]
        rest = [c for c in parts if c is not bound]
        both = [c for c in rest if {u.name, t.name} <= free_vars(c)]
        keys = [_key(c, u, t, ranges) for c in both]
        known = tuple(k for k in keys if k is not None)
        if not known or len(known) < len(keys) or prod(k.count for k in known) > _MOST:
            continue
        terms = tuple(c for c in rest if u.name in free_vars(c) and c not in both)
        outer = tuple(c for c in rest if u.name not in free_vars(c))
        return _Running(u, t, bound, found, known, terms, outer)
    return None


def _key(condition: Expr, u: Axis, t: Axis, ranges: Ranges) -> _Key | None:
    """The key that ``condition`` compares at ``u`` and at ``t``; None for another one, or one without a range."""
    match condition:
        case Op(op="eq", args=(a, b)) if a.dtype.is_int and a.dtype is b.dtype:
            mine, other = (a, b) if u.name in free_vars(a) else (b, a)
        case _:
            return None
    if t.name in free_vars(mine) or substitute(mine, {u.name: Var(t.name)}) != other:
        return None
    (low, high), (lowest, largest) = ranges.of(mine), value_limits(mine.dtype)
    least, most = max(low, lowest), min(high, largest)
    return _Key(mine, int(least), int(most - least) + 1) if most - least < _MOST else None


class _Chunks:
    """The definitions that take the place of ``d``."""

    def __init__(self, program: Program, d: Def, x: _Running, length: int) -> None:
        self.program, self.d, self.x, self.length = program, d, x, length
        self.n = size(x.t) or 0
        self.taken = {a.name for a in d.axes}
        self.chunk = self.axis(f"{x.u.name}_chunk", -(-self.n // length))
        self.place = self.axis(f"{x.t.name}_place", length)
        self.before = self.axis(f"{x.u.name}_before", self.chunk.extent)
        self.keys = tuple(self.axis(f"{x.u.name}_key", k.count) for k in x.keys)

    def axis(self, name: str, extent: int | Expr) -> Axis:
        """A new axis."""
        name = fresh_name(self.program, name, self.taken)
        self.taken.add(name)
        assert isinstance(extent, int)
        return Axis(name, extent, self.x.u.span)

    def definitions(self) -> tuple[Def, ...]:
        """The tables, the results inside of the chunks, and the whole results."""
        d, x, chunk = self.d, self.x, Var(self.chunk.name)
        others = tuple(a for a in d.par if a is not x.t)
        short = replace(x.u, extent=self.length)
        at = {x.u.name: self.position(chunk, Var(x.u.name))}
        inside = () if self.n % self.length == 0 else (calc("lt", at[x.u.name], self.n),)
        terms = [substitute(c, at) for c in x.terms]
        value = substitute(d.value, at)
        by_key = [calc("eq", k.number(at, False), Var(a.name)) for k, a in zip(x.keys, self.keys, strict=True)]
        axes = (*others, self.chunk, *self.keys)
        totals = self.define("by_key", axes, (short,), value, (*inside, *terms, *by_key))
        named = {self.chunk.name: Var(self.before.name)}
        element = Load(totals.name, tuple(substitute(Var(a.name), named) for a in axes), totals.buffer.dtype, d.span)
        pair = (self.chunk, self.before) if x.prefix.reverse else (self.before, self.chunk)
        carry = self.define("carry", axes, (self.before,), element, (calc("lt", *(Var(a.name) for a in pair)),))
        here = {x.u.name: self.position(chunk, Var(self.place.name))}
        same = [calc("eq", substitute(k.value, at), substitute(k.value, here)) for k in x.keys]
        ordered = (Var(x.u.name), Var(self.place.name))
        ordered = ordered[::-1] if x.prefix.reverse else ordered
        bound = calc("lt" if x.prefix.exclusive else "le", *ordered)
        exists = () if not inside else (calc("lt", here[x.u.name], self.n),)
        local = self.define(
            "local", (*others, self.chunk, self.place), (short,), value, (*exists, *inside, bound, *terms, *same)
        )
        return totals, carry, local, self.whole(others, carry, local)

    def position(self, chunk: Expr, place: Expr) -> Expr:
        """The position ``place`` of ``chunk``."""
        return calc("add", calc("mul", chunk, self.length), place)

    def define(
        self, suffix: str, par: tuple[Axis, ...], red: tuple[Axis, ...], value: Expr, guard: Sequence[Expr]
    ) -> Def:  # fmt: skip
        """A reduction to a new temp."""
        name, dtype = fresh_name(self.program, f"{self.d.name}_{suffix}"), self.d.value.dtype
        dtype = self.d.buffer.dtype if dtype is DType.BOOL else dtype
        buffer = Buffer(name, dtype, tuple(a.extent for a in par), Space.TEMP)
        return Def(name, buffer, par, red, self.d.op, value, conjunction(guard), self.d.span)

    def whole(self, others: tuple[Axis, ...], carry: Def, local: Def) -> Def:
        """What the table and the chunk of a position give together."""
        d, x = self.d, self.x
        t, chunk = Var(x.t.name), calc("floordiv", Var(x.t.name), self.length)
        rest = tuple(Var(a.name) for a in others)
        keys = tuple(k.number({x.u.name: t}, True) for k in x.keys)
        front = Load(carry.name, (*rest, chunk, *keys), carry.buffer.dtype, d.span)
        own = Load(local.name, (*rest, chunk, calc("mod", t, self.length)), local.buffer.dtype, d.span)
        value: Expr = Op(COMBINERS[d.op or ""].binary, (front, own), local.buffer.dtype)
        present = conjunction(x.outer)
        value = value if present is None else calc("select", present, value, d.init())
        return replace(d, red=(), op=None, guard=None, value=value)


def _certificate(d: Def, x: _Running, length: int) -> Certificate:
    """A domain is cut into the positions of earlier chunks and those of the chunk of the result."""
    op, dtype = d.op or "", d.value.dtype
    mine, theirs = (calc("floordiv", Var(a.name), length) for a in (x.t, x.u))

    def over(*conditions: Expr) -> Expr:
        return Reduce(op, d.red, conjunction((d.guard, *conditions)), d.value, dtype, d.span)

    earlier = calc("lt", mine, theirs) if x.prefix.reverse else calc("lt", theirs, mine)
    after = Op(COMBINERS[op].binary, (over(earlier), over(calc("eq", theirs, mine))), dtype)
    proof = f"terms of earlier chunks of {length} with the key of a result are those that have this key, whatever it is"
    return Certificate("chunk-keys", d.name, over(), after, (), (), (), proof, d.span)

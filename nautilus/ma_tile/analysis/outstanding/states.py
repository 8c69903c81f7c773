"""What is known of shared memory at a point of a program: accesses since the last barrier, and outstanding copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache

from nautilus.core.expr.nodes import Const, Expr, Op, Var, free_vars
from nautilus.core.index.linear import ZERO, Linear, atom, constant
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.access import affine

_DEPTH = 12  # outstanding groups that the analysis distinguishes; older ones count as the oldest of these
KNOWN = 4096  # accesses whose results are kept: each state of a loop asks for its accesses again


@dataclass(frozen=True, slots=True)
class Access:
    """One stage of a buffer: ``at`` modulo the stages, as a form of the enclosing loop variables.

    ``part``: the range of positions along the first axis; None: the whole stage.  Equal ones that :func:`access` makes
    are mostly one object, as sets of them are looked up many times.
    """

    buffer: str
    at: Linear
    part: tuple[int, int] | None = None
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.buffer, self.at, self.part)))

    def __hash__(self) -> int:
        return self._hash

    def rename(self, var: str, to: Linear, stages: int) -> tuple[Access, ...]:
        """The access with ``to`` for ``var``; an access to every stage where ``var`` stands inside of an atom."""
        return _renamed(self, var, to, stages) if self.at.terms else (self,)


@lru_cache(KNOWN)
def access(buffer: str, at: Linear, part: tuple[int, int] | None = None) -> Access:
    """The access with these fields."""
    return Access(buffer, at, part)


@lru_cache(KNOWN)
def _moved(x: Access, by: Linear) -> Access:
    """``x`` with its stage moved ``by`` a form."""
    return access(x.buffer, x.at + by, x.part)


@lru_cache(KNOWN)
def _renamed(x: Access, var: str, to: Linear, stages: int) -> tuple[Access, ...]:
    c = x.at.slope(var)
    rest = x.at - atom(Var(var)).scale(c)
    if any(var in free_vars(a) for a in rest.terms):
        return tuple(access(x.buffer, constant(k), x.part) for k in range(stages))
    return (access(x.buffer, rest + to.scale(c), x.part) if c else x,)


Accesses = frozenset[Access]
NONE: Accesses = frozenset()


@dataclass(frozen=True, slots=True)
class State:
    """Accesses since the last barrier, outstanding ``groups`` (youngest first), and ``open`` copies (not committed)."""

    written: Accesses = NONE
    read: Accesses = NONE
    groups: tuple[Accesses, ...] = ()
    open: Accesses = NONE

    def join(self, other: State) -> State:
        """The state after either of two paths."""
        n = max(len(self.groups), len(other.groups))
        pad = [(*s.groups, *([NONE] * (n - len(s.groups)))) for s in (self, other)]
        groups = tuple(a | b for a, b in zip(*pad, strict=True))
        return State(self.written | other.written, self.read | other.read, groups, self.open | other.open)

    def moved(self, buffers: frozenset[str], by: Linear) -> State:
        """The state with the stages of ``buffers`` moved ``by`` a form that is 0."""
        if not buffers:
            return self

        def f(xs: Accesses) -> Accesses:
            return frozenset(_moved(x, by) if x.buffer in buffers else x for x in xs)

        return State(f(self.written), f(self.read), tuple(map(f, self.groups)), f(self.open))

    def commit(self) -> State:
        """The state after the open copies are committed as a group."""
        groups = [self.open, *self.groups]
        if len(groups) > _DEPTH:
            groups = [*groups[: _DEPTH - 1], frozenset[Access]().union(*groups[_DEPTH - 1 :])]
        while groups and not groups[-1]:
            groups.pop()
        return State(self.written, self.read, tuple(groups))

    def wait(self, pending: int) -> State:
        """The state after a wait until at most ``pending`` groups are incomplete."""
        done = frozenset[Access]().union(*self.groups[pending:])
        return State(self.written | done, self.read, self.groups[:pending], self.open)

    def barrier(self) -> State:
        """The state after a barrier of all threads."""
        return State(groups=self.groups, open=self.open)


@dataclass(slots=True)
class Stages:
    """States with other forms of the stages of their accesses.  Each set of accesses is rewritten once.

    A loop asks for the same sets in each round of its fixed point.  Equal results are one object, whose hash is known.
    """

    count: Mapping[str, int]  # by buffer
    _renamed: dict[tuple[str, Linear], dict[Accesses, Accesses]] = field(init=False, default_factory=dict)
    _reduced: dict[Accesses, Accesses] = field(init=False, default_factory=dict)

    def renamed(self, state: State, var: str, to: Linear) -> State:
        """``state`` with ``to`` in place of the loop variable ``var``, reduced."""
        known = self._renamed.setdefault((var, to), {})

        def f(xs: Accesses) -> Accesses:
            if not xs:
                return xs
            found = known.get(xs)
            if found is None:
                made = frozenset(y for x in xs for y in x.rename(var, to, self.count[x.buffer]))
                found = known[xs] = self._modulo(made)
            return found

        return State(f(state.written), f(state.read), tuple(map(f, state.groups)), f(state.open))

    def reduced(self, state: State) -> State:
        """``state`` with coefficients modulo the number of stages, so that there are finitely many states."""
        f = self._modulo
        return State(f(state.written), f(state.read), tuple(map(f, state.groups)), f(state.open))

    def _modulo(self, xs: Accesses) -> Accesses:
        found = self._reduced.get(xs)
        if found is None:
            made = frozenset(x if x.at == ZERO else within(x, self.count[x.buffer]) for x in xs)
            found = self._reduced[xs] = self._reduced.setdefault(made, made)
        return found


def stage_number(e: Expr, stages: int) -> Linear:
    """The stage as a number modulo ``stages``."""
    match e:
        case Op(op="mod", args=(inner, Const(value=n))) if n == stages:
            e = inner
    return _modulo(affine(e), stages)


def _modulo(f: Linear, stages: int) -> Linear:
    return Linear({a: c % stages for a, c in f.terms.items() if c % stages}, f.const % stages)


@lru_cache(KNOWN)
def within(x: Access, stages: int) -> Access:
    """``x`` with its stage modulo ``stages``."""
    return access(x.buffer, _modulo(x.at, stages), x.part)

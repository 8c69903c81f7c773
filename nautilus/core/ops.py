"""Declarations of IR ops: the role of each field of an op, stated once at its class.

An op is a frozen, slotted dataclass made by :func:`op`, whose fields are declared with a :class:`FieldRole`::

    @op(MA, "st.shared $slot( block $block)?, $value vec $vec")
    class SharedStore:
        slot: Slot = declare(SLOT_WRITE)
        value: Frag = declare(OPERAND)
        vec: int = declare(INTEGER, default=1)
        block: int | None = declare(INTEGER, default=None)
        span: Span = SPAN

The printer and the parser (:mod:`nautilus.core.text.assembly`) and everything that traverses ops derive from it: what
an op reads, writes, defines and evaluates, the blocks inside it, and the op with parts of it replaced.  A field without
a role, a format that lacks a field, an op that neither defines nor touches anything and declares no effect, and an op
that is not in its level's union are errors at import.  Tables are made once a class, so that a look-up is one of a
dictionary.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, field, fields, replace
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar, dataclass_transform, get_args

from nautilus.core.records import dataclass
from nautilus.core.source import NO_SPAN
from nautilus.core.text.assembly import FORMS, Form, Forms, Syntax

T = TypeVar("T")
Read: TypeAlias = Callable[[Any], tuple[Any, ...]]


class Kind(enum.Enum):
    """What a field holds; a tuple of it, or None, is allowed everywhere."""

    RESULT = enum.auto()  # a value that the op defines
    OPERAND = enum.auto()  # a value that the op reads
    CARRIED = enum.auto()  # pairs of a value that is bound in the region and one that the op reads
    EXPR = enum.auto()  # an index expression that the op evaluates
    SLOT = enum.auto()  # one stage of a shared buffer; with an access also as an operand
    MEMORY = enum.auto()  # the name of a buffer in global memory, with an access
    SCRATCH = enum.auto()  # the name of a shared buffer that the op uses by itself
    BARRIER = enum.auto()  # the name of an mbarrier, or its name and a stage
    STATE = enum.auto()  # the name of a pipeline state
    VARIABLE = enum.auto()  # the name of a uniform variable that the op binds
    AXIS = enum.auto()  # the name of a tile axis
    LAYOUT = enum.auto()  # the name of a fragment layout
    ATTRIBUTE = enum.auto()  # a constant of the op
    REGION = enum.auto()  # ops that run inside the op
    PART = enum.auto()  # a declared part, whose fields count as the op's own
    PARTS = enum.auto()  # declared parts of the op with regions of their own
    SPAN = enum.auto()  # where the op stands in a text

    __hash__ = object.__hash__  # members are unique; that of Enum is a function of Python


class Access(enum.Enum):
    """How memory is used; ``COPY`` writes it at an unknown later time."""

    READ = enum.auto()
    WRITE = enum.auto()
    COPY = enum.auto()


class Effect(enum.Enum):
    """What an op does besides its results and accesses."""

    ARRIVE = enum.auto()  # counts the arrival of this thread at a barrier
    WAIT = enum.auto()  # blocks until other threads have arrived or copies have ended
    INITIALISE = enum.auto()  # makes barriers usable
    COMMIT = enum.auto()  # closes a group of asynchronous operations
    FENCE = enum.auto()  # orders accesses of this thread
    ADVANCE = enum.auto()  # changes uniform variables
    COUNT = enum.auto()  # changes the tile counter of the launch
    LEAVE = enum.auto()  # may end the loop around it


@dataclass(frozen=True, slots=True)
class FieldRole:
    """What a field is and how it is written (``syntax`` None: it is not); a flag is False where it is not written."""

    kind: Kind
    syntax: Syntax | None = None
    access: Access | None = None
    flag: bool = False


def declare(role: FieldRole, *, default: Any = MISSING) -> Any:
    """A field with its role."""
    return field(default=default, metadata={"role": role})


RESULT = FieldRole(Kind.RESULT)
SPAN: Any = field(default=NO_SPAN, compare=False, repr=False, metadata={"role": FieldRole(Kind.SPAN)})


class Declaration:
    """The tables of one declared class; each function takes an instance of it."""

    def __init__(self, cls: type, effects: frozenset[Effect]) -> None:
        self.cls, self.effects = cls, effects
        self.roles: dict[str, FieldRole] = {}
        for f in fields(cls):
            if "role" not in f.metadata:
                raise TypeError(f"{cls.__name__}.{f.name} has no role")
            self.roles[f.name] = f.metadata["role"]
        #: what the op itself reads (not what is inside it), in the order of its fields; slots may be among the values
        self.operands = self._collected("operands", Kind.OPERAND, Kind.CARRIED)
        #: the values for the ops after it, and those that only its region reads
        self.results = self._collected("results", Kind.RESULT)
        self.arguments: Read = self._collected("arguments", Kind.CARRIED, end=0)
        #: the expressions that the op evaluates itself, without those of its slots
        self.expressions = self._collected("expressions", Kind.EXPR, Kind.BARRIER)
        self.slots = self._collected("slots", Kind.SLOT)
        self.scratch = self._collected("scratch", Kind.SCRATCH)
        self.variables = self._collected("variables", Kind.VARIABLE)
        self.regions = tuple((n, r.kind) for n, r in self.roles.items() if r.kind in (Kind.REGION, Kind.PARTS))

        #: the op matters only to readers of its results
        self.pure = bool(self.names(Kind.RESULT)) and not (effects or self.regions or self.writes)

    @property
    def writes(self) -> bool:
        """The op writes memory."""
        return any(r.access in (Access.WRITE, Access.COPY) for r in self.roles.values())

    def names(self, kind: Kind, access: Access | None = None) -> tuple[str, ...]:
        """The fields of a kind (and with an access)."""
        return tuple(n for n, r in self.roles.items() if r.kind is kind and access in (None, r.access))

    def accessed(self, access: Access) -> Read:
        """What reads the memory that the op accesses as ``access`` says: slots, and for mixed fields also values."""
        names = [n for n, r in self.roles.items() if r.access is access and r.kind is not Kind.MEMORY]
        return _collector([(n, None) for n in names])

    def _collected(self, table: str, *kinds: Kind, end: int = 1) -> Read:
        """What reads the fields of these kinds: entry ``end`` of each pair, and of a part its own ``table``."""
        parts: list[tuple[str, int | str | None]] = []
        for name, role in self.roles.items():
            if role.kind is Kind.PART:
                parts.append((name, table))
            elif role.kind in kinds:
                parts.append((name, end if role.kind in (Kind.CARRIED, Kind.BARRIER) else None))
        return _collector(parts)


def _collector(parts: list[tuple[str, int | str | None]]) -> Read:
    """What reads the fields of ``parts``, with the items of tuples one by one.

    A number beside a field selects the entry of each pair that it holds; a text is the table of the part that it holds.
    """
    if not parts:
        return lambda _: ()
    if all(how is None for _, how in parts):
        return _plain_collector([name for name, _ in parts])

    def collect(x: Any) -> tuple[Any, ...]:
        out: list[Any] = []
        for name, how in parts:
            value = getattr(x, name)
            if value is None:
                continue
            if isinstance(how, str):
                out += getattr(declaration(type(value)), how)(value)
            elif how is not None:
                out += _ends(value, how)
            elif type(value) is tuple:
                out += value
            else:
                out.append(value)
        return tuple(out)

    return collect


def _plain_collector(names: list[str]) -> Read:
    """:func:`_collector` of fields that hold no pairs and no parts, as those of most ops, in less time."""
    get = attrgetter(*names)

    def collect_one(x: Any) -> tuple[Any, ...]:
        value = get(x)
        if type(value) is tuple:
            return value
        return () if value is None else (value,)

    def collect(x: Any) -> tuple[Any, ...]:
        out: list[Any] = []
        for value in get(x):
            if type(value) is tuple:
                out += value
            elif value is not None:
                out.append(value)
        return tuple(out)

    return collect_one if len(names) == 1 else collect


def _ends(value: Any, end: int) -> list[Any]:
    """One end of each pair; ``value`` is pairs, a pair, or a name alone (which has no ends)."""
    if type(value) is not tuple:
        return []
    pairs = value if not value or type(value[0]) is tuple else (value,)
    return [p[end] for p in pairs]


class _Declared(dict[type, Declaration]):
    """The tables by class."""

    def __missing__(self, cls: type) -> Declaration:
        raise TypeError(f"{cls.__name__} is not a declared op")


_DECLARED = _Declared()
#: the tables of a declared class; raises TypeError for one that is not
declaration: Callable[[type], Declaration] = _DECLARED.__getitem__


class Level:
    """The ops of one IR: declared one by one with :func:`op`, complete after :meth:`close`."""

    def __init__(self, name: str, noun: str, value: type | None = None) -> None:
        self.name, self.forms = name, Forms(noun, value)
        self.ops: tuple[type, ...] = ()

    def close(self, union: Any) -> None:
        """All ops of the level are the members of ``union``. Raises TypeError unless they are."""
        listed = set(get_args(union))
        if odd := listed ^ set(self.ops):
            raise TypeError(f"{self.name}: not both declared and listed: {', '.join(sorted(c.__name__ for c in odd))}")

    def complete(self, table: Mapping[type, Any], what: str) -> None:
        """``table`` has an entry for every op of the level and no other. Raises TypeError unless it has."""
        if odd := set(self.ops) ^ set(table):
            raise TypeError(f"{self.name}: {what}: missing or unknown: {', '.join(sorted(c.__name__ for c in odd))}")


@dataclass_transform(frozen_default=True, field_specifiers=(declare,))
def part(format: str | None) -> Callable[[type[T]], type[T]]:
    """Declare a class that is not an op but is written in the text of ops (or not written: ``format`` None)."""

    def made(cls: type[T]) -> type[T]:
        return _declared(cls, format, frozenset())

    return made


_COMMON: dict[type, str] = {}


@dataclass_transform(frozen_default=True, field_specifiers=(declare,))
def common(format: str) -> Callable[[type[T]], type[T]]:
    """Declare the fields and the assembly format of an op that several levels have.

    Each level derives its class from it and declares that with :func:`op`; a class that adds fields has a format too.
    """

    def made(cls: type[T]) -> type[T]:
        new = dataclass(frozen=True, slots=True)(cls)
        _COMMON[new] = format
        return new

    return made


@dataclass_transform(frozen_default=True, field_specifiers=(declare,))
def op(level: Level, format: str = "", *effects: Effect) -> Callable[[type[T]], type[T]]:
    """Declare an op of ``level`` with its assembly format and what it does besides its results and accesses.

    Without a format, the class has that of the :func:`common` op that it derives from. Raises TypeError for no such op.
    """

    def made(cls: type[T]) -> type[T]:
        new = _declared(cls, format or _common_format(cls), frozenset(effects))
        found = _DECLARED[new]
        kinds = {r.kind for r in found.roles.values()}
        if not (found.effects or found.writes or kinds & {Kind.RESULT, Kind.REGION, Kind.PARTS, Kind.VARIABLE}):
            raise TypeError(f"{cls.__name__} declares no result, region, write or effect")
        level.ops += (new,)
        level.forms.add(FORMS[new])
        return new

    return made


def _common_format(cls: type) -> str:
    for base in cls.__mro__:
        if base in _COMMON:
            return _COMMON[base]
    raise TypeError(f"{cls.__name__} has no format")


def _declared(cls: type[T], format: str | None, effects: frozenset[Effect]) -> type[T]:
    new = dataclass(frozen=True, slots=True)(cls)
    found = _DECLARED[new] = Declaration(new, effects)
    if format is not None:
        defaults = {f.name: f.default for f in fields(new) if f.default is not MISSING}  # type: ignore[arg-type]
        absent = defaults | {n: False for n, r in found.roles.items() if r.flag}
        written = {n: r.syntax for n, r in found.roles.items() if r.syntax is not None}
        FORMS[new] = form = Form(new, format, written, absent)
        form.carries = next(iter(found.names(Kind.CARRIED)), None)
    return new


def regions(op: Any) -> Iterator[tuple[Any, ...]]:
    """The blocks of ops inside ``op``, in order."""
    for name, kind in declaration(type(op)).regions:
        inner = getattr(op, name)
        if kind is Kind.REGION:
            yield inner
        else:
            for x in inner:
                yield from regions(x)


def map_regions(op: Any, f: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Any:
    """``op`` with every block inside it replaced by ``f`` of it; ``op`` itself where nothing changes."""
    inside = declaration(type(op)).regions
    if not inside:
        return op
    changed: dict[str, Any] = {}
    for name, kind in inside:
        old = getattr(op, name)
        new = f(old) if kind is Kind.REGION else tuple(map_regions(x, f) for x in old)
        if new != old:
            changed[name] = new
    return replace(op, **changed) if changed else op


def walk(body: tuple[Any, ...]) -> Iterator[Any]:
    """Every op under ``body`` in program order, an op before what is inside it."""
    for op in body:
        yield op
        if declaration(type(op)).regions:
            yield from _inside(op)


def _within(body: tuple[Any, ...]) -> Iterator[Any]:
    """As :func:`walk`; an op that is not declared, which a verifier refuses, has nothing inside."""
    for op in body:
        yield op
        if type(op) in _DECLARED and declaration(type(op)).regions:
            yield from _inside(op)


_INSIDE: dict[int, tuple[Any, tuple[Any, ...]]] = {}  # by the identity of an op, which an entry holds
_MOST_INSIDE = 1024


def _inside(op: Any) -> tuple[Any, ...]:
    """Every op inside ``op``, which is traversed many times; kept for the ops that were traversed last."""
    found = _INSIDE.get(id(op))
    if found is None:
        if len(_INSIDE) >= _MOST_INSIDE:
            _INSIDE.clear()
        found = _INSIDE[id(op)] = op, tuple([x for inner in regions(op) for x in _within(inner)])
    return found[1]


Rules: TypeAlias = Mapping[Kind, Callable[[Any], Any]]


def map_fields(op: Any, rules: Rules) -> Any:
    """``op`` with the leaves of its own fields replaced by the rule of their kind (what is inside it stays).

    The results and bound values of a loop's carried pairs follow the rule of results.
    """
    changed: dict[str, Any] = {}
    for name, role in declaration(type(op)).roles.items():
        old, new = getattr(op, name), None
        match role.kind:
            case Kind.CARRIED:
                bind, use = rules.get(Kind.RESULT, _same), rules.get(Kind.OPERAND, _same)
                new = tuple((bind(arg), use(init)) for arg, init in old)
            case Kind.BARRIER if type(old) is tuple:
                new = (rules.get(Kind.BARRIER, _same)(old[0]), rules.get(Kind.EXPR, _same)(old[1]))
            case Kind.PART if old is not None:
                new = map_fields(old, rules)
            case kind if kind in rules and old is not None:
                new = tuple(map(rules[kind], old)) if type(old) is tuple else rules[kind](old)
            case _:
                continue
        if new != old:
            changed[name] = new
    return replace(op, **changed) if changed else op


def _same(x: Any) -> Any:
    return x

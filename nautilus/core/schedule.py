"""A schedule: every choice the compiler made, as data a person can read, edit, replay and diff.

Rules (or, later, a search) produce a :class:`Schedule`; passes only carry it out and check that
each choice is legal.  JSON form: the field names below, one object a kernel.

A kernel computes the definitions ``ops`` (names of Scalar-level buffers, in dependence order) over
named *axes*.  Names are those of the Scalar IR after ``fuse`` (one name a unified axis):

* role ``grid``: independent blocks; ``tile`` elements of it in one block (1: none);
* role ``loop``: walked by the block in steps of ``tile`` (``seq``);
* role ``tile``: the whole extent is in one tile (``tile`` is the extent rounded up).

``phases`` lists, for the ``loop`` axis, which ops share one walk over it; an op that depends on the
complete result of another in the *same* phase is repaired by ``rolling_update``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, TypeVar

from nautilus.core.errors import ScheduleError

_T = TypeVar("_T")

ROLES = ("grid", "loop", "tile")
EPILOGUES = ("shared", "direct", "bulk", "bulk-reuse", "bulk-ring")
ORDERS = ("natural", "longest-first", "grouped")
ENGINES = ("warp", "warpgroup")
PERSISTENCE = ("none", "static", "snake", "dynamic")
RESCALES = ("early", "late")
WALK_ORDERS = ("ascending", "mixed-first")
REPAIRS = ("always", "skip", "lazy", "auto")
MAX_SPLITS = 1024  # chunks of a reduction
_MAX_TILE = 1 << 20  # elements: far beyond what any memory holds
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """How one axis of a kernel is walked. ``tile`` in elements."""

    name: str
    role: str  # grid | loop | tile
    tile: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Choices of the MA-tile passes. ``warps`` counts warps in (rows, columns) of the main tile."""

    warps: tuple[int, int] = (4, 1)
    stages: int = 2  # 0: no overlap; 1: one buffer, two barriers an iteration; n >= 2: ring of n, one barrier
    min_blocks: int = 1  # blocks per multiprocessor asked of the register allocator, 1 to 32
    early: bool = True  # launched while the kernel in front of it still runs, where both have multiprocessors apart
    vector_bytes: int = 16  # widest global access: 1, 2, 4, 8 or 16
    # shared: through shared memory, 16-byte stores; direct: from fragments; bulk: by the TMA unit from a buffer
    # of its own; bulk-reuse: from the buffer of an operand that is dead by then; bulk-ring: in chunks from a stage of
    # a walked operand's ring
    epilogue: str = "shared"
    order: str = "natural"  # natural | longest-first | grouped (rows of tiles that share operands)
    group: int = 8  # tiles of the slow axis walked together when order is grouped
    fragments_ahead: int = 1  # k-steps between reading an operand fragment from shared memory and its use
    fragments_across: bool = False  # double-buffer operand fragments across the iterations of product loops
    bulk_copies: bool = False  # rings of a kernel of single warps are filled by the TMA unit
    join: bool = False  # blocks that make partial results of one result: units of one block that combines them
    # what follows is for targets with warpgroup products (engine warpgroup); ``warps`` then has no meaning
    engine: str = "warp"  # warp: mma.sync and cp.async; warpgroup: wgmma and bulk copies
    units: int = 2  # consumer warpgroups, 1 to 3
    own_tiles: bool = False  # each unit takes whole tiles of its own; else the units share each tile's rows
    specialise: bool = True  # a producer warpgroup issues the copies
    registers: tuple[int, int] = (24, 240)  # a thread of the producer and of a consumer may hold
    overlap: bool = True  # products an iteration ahead of those that need elementwise work on them
    rescale: str = "early"  # early: accumulators are rescaled as soon as the factor is known; late: before the product
    hold: bool = False  # loop-invariant left operands in registers
    in_flight: bool = True  # one group of products stays in flight across iterations where nothing reads it
    pin_waits: bool = False  # the compiler may not move waits for products up
    ping_pong: bool = False  # units take turns at products
    persistent: str = "none"  # none | static | snake | dynamic
    sections: int = 0  # outermost grid axis in this many sections, walked one after the other; 0: none
    # blocks of a cluster. engine warpgroup: they share loads, 1 or 2; engine warp: they make partial results of one
    # result, which the first of them combines
    cluster: int = 1
    held_stages: int = 1  # ring depth of operands that are loaded once a tile
    store_columns: int = 0  # finished accumulators are worked on and stored this many columns at a time; 0: all


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """One kernel: what it computes, how its axes are walked, how it is placed."""

    name: str
    ops: tuple[str, ...]
    axes: tuple[AxisPlan, ...]
    phases: tuple[tuple[str, ...], ...] = ()
    partition: bool = True
    walk_order: str = "ascending"  # of a partitioned walk's pieces; mixed-first: start where it certainly runs
    # repairs of rolling updates. always: multiply; skip: not while the factor is 1 (same bits); lazy: keep a
    # reference until it is off by 2^lazy_bits (refused where not proved safe); auto: lazy where proved, else skip
    repair: str = "always"
    lazy_bits: int = 8
    memory: MemoryPlan = field(default_factory=MemoryPlan)

    def axis(self, name: str) -> AxisPlan:
        """The plan of axis ``name``. Raises KeyError."""
        for a in self.axes:
            if a.name == name:
                return a
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Reduction ``op`` in ``splits`` independent chunks of ``axis`` (its own name), whole tiles of ``tile`` elements.

    Reductions cut alike share their chunks; where the axis ends early, chunks are empty.  A later cut of the same
    reduction cuts its combination: ``axis`` is then the one that numbers the chunks, and they combine in groups.
    ``turns``: so many neighbouring chunks share their range, of which they take tiles in turn.
    """

    op: str
    axis: str
    splits: int
    tile: int
    turns: int = 1


@dataclass(frozen=True, slots=True)
class PackPlan:
    """Axis ``axis`` of definition ``op``, and what is walked with it, as groups of ``size``: two axes."""

    op: str
    axis: str
    size: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """All choices for one spec.

    ``inline`` names the definitions substituted into their readers, in that order; ``packs`` and then
    ``splits`` say which axes are cut in two before definitions become kernels.  None leaves a choice to the
    default rule (where ``kernels`` are given: none).  No ``kernels``: the default plan of what that left.
    """

    inline: tuple[str, ...] | None = None
    kernels: tuple[KernelPlan, ...] = ()
    factor: bool = True
    narrow: bool = True
    version: int = 1
    packs: tuple[PackPlan, ...] | None = None
    splits: tuple[SplitPlan, ...] | None = None
    batch_invariant: bool = False  # default chunks depend on the axis they cut alone: same bits for every batch

    def to_json(self) -> str:
        """Readable JSON, stable under repetition."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> Schedule:
        """Parse :meth:`to_json`'s form; fields left out have their defaults.

        Raises ValueError that says what is wrong, and where, on anything else.
        """
        raw = _object(json.loads(text), "the schedule")
        if raw.get("version") != 1:
            raise ValueError(f"schedule version {raw.get('version')!r} is not 1")
        return _record(Schedule, raw, "")


def check_schedule(schedule: Schedule) -> None:
    """Refuse values that no kernel can have. Raises ScheduleError that names the field.

    Whether the rest fits the program at hand, the passes say.
    """
    _unique(schedule.inline or (), "inline")
    for n, c in enumerate(schedule.splits or ()):
        if any((c.op, c.axis) == (x.op, x.axis) for x in (schedule.splits or ())[:n]):
            raise ScheduleError(f"{c.op} is cut along {c.axis!r} twice", "splits")
        _check_bounds((("splits", c.splits, 2, MAX_SPLITS), ("tile", c.tile, 1, _MAX_TILE)), f"splits of {c.op}")
        _check_bounds((("turns", c.turns, 1, c.splits),), f"splits of {c.op}")
        if c.splits % c.turns:
            raise ScheduleError(f"{c.splits} chunks are no groups of {c.turns}", f"splits of {c.op}")
    for p in schedule.packs or ():
        _check_bounds((("size", p.size, 2, _MAX_TILE),), f"packs of {p.op}")
    _unique(tuple(k.name for k in schedule.kernels), "the schedule's kernels")
    for k in schedule.kernels:
        _unique(tuple(a.name for a in k.axes), f"kernel {k.name}: axes")
        _unique(k.ops, f"kernel {k.name}: ops")
        for a in k.axes:
            if a.role not in ROLES:
                message = f"axis {a.name!r} has role {a.role!r}, not one of {', '.join(ROLES)}"
                raise ScheduleError(message, f"kernel {k.name}")
            if not 1 <= a.tile <= _MAX_TILE:
                raise ScheduleError(f"axis {a.name!r} cannot have a tile of {a.tile}", f"kernel {k.name}")
        _check_choices((("walk_order", k.walk_order, WALK_ORDERS), ("repair", k.repair, REPAIRS)), f"kernel {k.name}")
        _check_bounds((("lazy_bits", k.lazy_bits, 1, 64),), f"kernel {k.name}")
        _check_memory(k.memory, f"kernel {k.name}: memory")


def _check_choices(choices: tuple[tuple[str, object, tuple[object, ...]], ...], where: str) -> None:
    for name, value, known in choices:
        if value not in known:
            raise ScheduleError(f"{name} is {value!r}, not one of {', '.join(map(str, known))}", where)


def _check_bounds(bounds: tuple[tuple[str, int, int, int], ...], where: str) -> None:
    for name, number, low, high in bounds:
        if not low <= number <= high:
            raise ScheduleError(f"{name} is {number}, not {low} to {high}", where)


def _check_memory(m: MemoryPlan, where: str) -> None:
    choices: tuple[tuple[str, object, tuple[object, ...]], ...] = (
        ("epilogue", m.epilogue, EPILOGUES),
        ("order", m.order, ORDERS),
        ("vector_bytes", m.vector_bytes, (1, 2, 4, 8, 16)),
        ("engine", m.engine, ENGINES),
        ("persistent", m.persistent, PERSISTENCE),
        ("rescale", m.rescale, RESCALES),
        ("cluster", m.cluster, (1, 2) if m.engine == "warpgroup" else (1, 2, 4, 8)),
        ("store_columns", m.store_columns, (0, 32, 64, 128)),
    )
    _check_choices(choices, where)
    bounds = (
        ("stages", m.stages, 0, 64),
        ("min_blocks", m.min_blocks, 1, 32),
        ("group", m.group, 1, 1 << 16),
        ("units", m.units, 1, 3),
        ("sections", m.sections, 0, 1 << 16),
        ("held_stages", m.held_stages, 1, 8),
        ("producer registers", m.registers[0], 24, 256),
        ("consumer registers", m.registers[1], 24, 256),
    )
    _check_bounds(bounds, where)
    if min(m.warps) < 1 or m.warps[0] * m.warps[1] > 32:
        raise ScheduleError(f"warps are {m.warps[0]} x {m.warps[1]}; a block has 1 to 32", where)


def _unique(names: tuple[str, ...], where: str) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ScheduleError(f"{name!r} is listed twice", where)
        if not _NAME.fullmatch(name):
            raise ScheduleError(f"{name!r} is not a name", where)


def _object(raw: object, where: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ValueError(f"{where} is {_shown(raw)}, not an object")
    return raw


def _record(cls: type[_T], raw: dict[str, Any], path: str) -> _T:
    """``cls`` from its JSON object; ``path`` says where that is."""
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    for name in raw:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
            raise ValueError(f"unknown field {path}{name}{hint}")
    for name, f in known.items():
        if name not in raw and f.default is MISSING and f.default_factory is MISSING:
            raise ValueError(f"no field {path}{name}")
    values = {name: _READ[str(known[name].type)](value, path + name) for name, value in raw.items()}
    try:
        return cls(**values)
    except ValueError as error:
        raise ValueError(f"{path.rstrip('.') or 'the schedule'}: {error}") from None


def _one(kind: type[Any], what: str) -> Callable[[object, str], Any]:
    def read(raw: object, where: str) -> Any:
        if type(raw) is not kind:
            raise ValueError(f"{where} is {_shown(raw)}, not {what}")
        return raw

    return read


def _many(item: Callable[[object, str], Any], count: int | None = None) -> Callable[[object, str], Any]:
    def read(raw: object, where: str) -> Any:
        if not isinstance(raw, list):
            raise ValueError(f"{where} is {_shown(raw)}, not a list")
        if count is not None and len(raw) != count:
            raise ValueError(f"{where} has {len(raw)} entries, not {count}")
        return tuple(item(r, f"{where}[{i}]") for i, r in enumerate(raw))

    return read


def _optional(read: Callable[[object, str], Any]) -> Callable[[object, str], Any]:
    return lambda raw, where: None if raw is None else read(raw, where)


def _nested(cls: type[Any]) -> Callable[[object, str], Any]:
    return lambda raw, where: _record(cls, _object(raw, where), where + ".")


def _shown(raw: object) -> str:
    text = json.dumps(raw)
    return text if len(text) <= 40 else text[:37] + "..."


_INT, _STR, _BOOL = _one(int, "an integer"), _one(str, "a string"), _one(bool, "true or false")
_NAMES = _many(_STR)
#: a field's type, as annotated -> how it is read
_READ: dict[str, Callable[[object, str], Any]] = {
    "int": _INT,
    "str": _STR,
    "bool": _BOOL,
    "tuple[int, int]": _many(_INT, 2),
    "tuple[str, ...]": _NAMES,
    "tuple[str, ...] | None": _optional(_NAMES),
    "tuple[tuple[str, ...], ...]": _many(_NAMES),
    "tuple[AxisPlan, ...]": _many(_nested(AxisPlan)),
    "tuple[KernelPlan, ...]": _many(_nested(KernelPlan)),
    "tuple[PackPlan, ...] | None": _optional(_many(_nested(PackPlan))),
    "tuple[SplitPlan, ...] | None": _optional(_many(_nested(SplitPlan))),
    "MemoryPlan": _nested(MemoryPlan),
}

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
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, TypeVar

_T = TypeVar("_T")


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
    min_blocks: int = 1  # blocks per multiprocessor asked of the register allocator
    vector_bytes: int = 16  # widest global access
    epilogue: str = "shared"  # shared: through shared memory, 16-byte stores; direct: from fragments
    order: str = "natural"  # natural | longest-first | grouped (rows of tiles that share operands)
    group: int = 8  # tiles of the slow axis walked together when order is grouped
    fragments_across: bool = False  # double-buffer operand fragments across the iterations of product loops
    fast_math: bool = True  # ex2.approx and kin, where the precision contract allows


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """One kernel: what it computes, how its axes are walked, how it is placed."""

    name: str
    ops: tuple[str, ...]
    axes: tuple[AxisPlan, ...]
    phases: tuple[tuple[str, ...], ...] = ()
    partition: bool = True
    memory: MemoryPlan = field(default_factory=MemoryPlan)

    def axis(self, name: str) -> AxisPlan:
        """The plan of axis ``name``. Raises KeyError."""
        for a in self.axes:
            if a.name == name:
                return a
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Schedule:
    """All choices for one spec.

    ``inline`` names the definitions substituted into their readers, in that order; None leaves the choice
    to the default rule.  No ``kernels``: the default plan of what inlining left.
    """

    inline: tuple[str, ...] | None = None
    kernels: tuple[KernelPlan, ...] = ()
    factor: bool = True
    narrow: bool = True
    version: int = 1

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
    "tuple[str, ...] | None": lambda raw, where: None if raw is None else _NAMES(raw, where),
    "tuple[tuple[str, ...], ...]": _many(_NAMES),
    "tuple[AxisPlan, ...]": _many(_nested(AxisPlan)),
    "tuple[KernelPlan, ...]": _many(_nested(KernelPlan)),
    "MemoryPlan": _nested(MemoryPlan),
}

"""A row of the tuning database: one schedule of one spec at one set of sizes, with its result.

A row is one line of JSON that starts with its *key*, a hash of the spec's family (:mod:`nautilus.frontend.family`), its
sizes, the architecture and the precision.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, field, fields
from math import inf
from typing import Any

from nautilus import __version__
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.schedule.options import is_record, options_of
from nautilus.core.schedule.plans import VERSION
from nautilus.frontend.spec import Spec

COMPILER = f"nautilusc {__version__}"
OK = "ok"


@dataclass(frozen=True, slots=True)
class Key:
    """The lookup key of a schedule.  ``sizes`` holds None for a dim that is known only at launch."""

    family: str
    sizes: Mapping[str, int | None]
    arch: str
    precision: str

    @property
    def hash(self) -> str:
        """The hash of the key, 16 hexadecimal digits."""
        parts = [self.family, sorted(self.sizes.items()), self.arch, self.precision]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    @property
    def text(self) -> str:
        """The sizes as text, ``?`` for one that is known only at launch."""
        return ",".join(f"{n}={'?' if v is None else v}" for n, v in self.sizes.items())


def key_of(spec: Spec, arch: str, precision: str) -> Key:
    """The key of ``spec`` for a target."""
    return Key(spec.family, {d.name: d.value for d in spec.dims}, arch, precision)


def schedule_hash(schedule: Schedule) -> str:
    """12 hexadecimal digits that are equal for equal schedules.

    The default of an option that is newer than the first rows is left out, so that the hashes of stored rows stay.
    """
    text = json.dumps(_hashed(schedule), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _hashed(x: Any) -> Any:
    """The part of a schedule that decides its hash, as JSON data."""
    if isinstance(x, tuple):
        return [_hashed(v) for v in x]
    if not is_record(type(x)):
        return x
    options = ((o, getattr(x, o.name)) for o in options_of(type(x)))
    return {o.name: _hashed(v) for o, v in options if not o.newer or v not in (o.default, ())}


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement of one schedule; the field names are the JSON format of the database.

    ``samples``: seconds of single runs.  ``checked``: the result was compared with the reference and is right.
    ``state``: ok or the failure, with details in ``reason``.  ``final``: measured in one series with the other
    finalists of a search, so that times compare; ``chosen``: the winner of that series.  ``rules``: the schedule is the
    default schedule; ``rules_seconds``: median seconds of the default schedule in the same series.  ``values``: the
    point of the search space, for a schedule of the space.  ``estimate``: seconds by the cost model.  ``error``: the
    relative error of the result.
    """

    key: str
    name: str
    family: str
    sizes: Mapping[str, int | None]
    arch: str
    precision: str
    device: str
    driver: str
    compiler: str
    nvrtc: str
    measure: str  # gpu | model
    state: str
    checked: bool
    schedule_hash: str
    schedule: Mapping[str, Any] | None
    samples: tuple[float, ...] = ()
    final: bool = False
    rules: bool = False
    chosen: bool = False
    rules_seconds: float | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    estimate: float | None = None
    error: float | None = None
    reason: str = ""
    study: str = ""
    time: str = ""

    @property
    def seconds(self) -> float | None:
        """The median of the samples."""
        ordered, n = sorted(self.samples), len(self.samples)
        return 0.5 * (ordered[(n - 1) // 2] + ordered[n // 2]) if n else None

    @property
    def usable(self) -> bool:
        """Whether a compilation may use the row: checked, measured on a GPU, of the current format."""
        good = self.state == OK and self.checked and self.measure == "gpu"
        return good and bool(self.samples) and self.schedule is not None and not self.outdated

    @property
    def outdated(self) -> bool:
        """Whether the schedule has an older version of the format, which this compiler does not read."""
        version = self.schedule.get("version") if self.schedule is not None else None
        return isinstance(version, int) and version < VERSION

    def line(self) -> str:
        """The row as one line of JSON, its key first; optional fields with their default value are omitted."""
        raw = asdict(self)
        shown = {n: v for n, v in raw.items() if n in _ALWAYS or v not in (None, "", False, (), {})}
        return json.dumps(shown, separators=(",", ":")) + "\n"

    def read_schedule(self) -> Schedule:
        """The schedule.  Raises ValueError where this compiler cannot read it."""
        return Schedule.from_json(json.dumps(self.schedule))


_ALWAYS = frozenset(f.name for f in fields(Row) if f.default is MISSING and f.default_factory is MISSING)
_KNOWN = frozenset(f.name for f in fields(Row))


def parse(line: str | bytes) -> Row | None:
    """The row of a line; None where the line is incomplete or not a row.  Unknown fields are ignored."""
    try:
        raw = json.loads(line)
        if not isinstance(raw, dict) or not raw.keys() >= _ALWAYS:
            return None
        known = {n: v for n, v in raw.items() if n in _KNOWN}
        known["samples"] = tuple(float(s) for s in known.get("samples", ()))
        row = Row(**known)
    except (ValueError, TypeError):
        return None
    return row if _sound(row) else None


def _sound(row: Row) -> bool:
    """Whether every field has a value of its type; another writer, or a damaged disk, may leave anything."""
    maps = isinstance(row.sizes, dict) and isinstance(row.values, dict) and isinstance(row.schedule, (dict, type(None)))
    texts = all(isinstance(getattr(row, n), str) for n in _TEXTS)
    flags = all(isinstance(getattr(row, n), bool) for n in _FLAGS)
    numbers = all(x is None or isinstance(x, (int, float)) for x in (row.rules_seconds, row.estimate, row.error))
    return maps and texts and flags and numbers and all(0.0 < s < inf for s in row.samples)


_TEXTS = tuple(f.name for f in fields(Row) if f.type == "str")
_FLAGS = tuple(f.name for f in fields(Row) if f.type == "bool")

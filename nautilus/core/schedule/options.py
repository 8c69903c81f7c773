"""Declarations of the fields of a schedule: meaning, unit, bounds, allowed values, and the passes that read them.

A record of the schedule is a frozen dataclass under :func:`record`, each of whose fields is annotated with
:func:`option`::

    stages: Annotated[int, option("Buffers of a pipeline.", low=0, high=64, read_by=("pipeline-copies",))] = 2

The table of a class is built once, at import, and a field without an option is an error there.  Modules of records
do not postpone the evaluation of annotations, which would have to be parsed at each import.  Checks
(:mod:`~nautilus.core.schedule.check`), JSON reading (:mod:`~nautilus.core.schedule.json`), the reference page
(:mod:`~nautilus.core.schedule.reference`) and the tuning parameters derive from it.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from nautilus.core.records import dataclass

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Declaration:
    """The arguments of :func:`option`."""

    meaning: str
    unit: str
    values: tuple[object, ...]
    low: int | None
    high: int | None
    read_by: tuple[str, ...]
    newer: bool


def option(
    meaning: str,
    *,
    unit: str = "",
    values: tuple[object, ...] = (),
    low: int | None = None,
    high: int | None = None,
    read_by: tuple[str, ...] = (),
    newer: bool = False,
) -> Declaration:
    """The declaration of a field, for its annotation.

    ``meaning`` is one plain sentence.  ``values``: the allowed ones, where the type (a ``Literal``) does not list them.
    ``low`` and ``high`` bound integers, and each entry of a tuple of integers.  ``read_by`` names passes, or stages
    such as ``ma-tile`` for a lowering.  ``newer``: the field is newer than the first rows of the tuning database, so
    the hash of a schedule leaves out its default.
    """
    return Declaration(meaning, unit, values, low, high, read_by, newer)


@dataclass(frozen=True, slots=True)
class Option:
    """One field of a record, resolved. ``kind`` is its type; ``default`` is ``dataclasses.MISSING`` if required."""

    name: str
    kind: Any
    default: Any
    meaning: str
    unit: str
    values: tuple[Any, ...]
    low: int | None
    high: int | None
    read_by: tuple[str, ...]
    newer: bool
    is_tag: bool  # says which member of a union the record is

    @property
    def required(self) -> bool:
        """Whether a record has no default for it."""
        return self.default is MISSING


_TABLES: dict[type, tuple[Option, ...]] = {}


def record(cls: type[_T]) -> type[_T]:
    """Register the options of dataclass ``cls``. Raises TypeError for a field without one."""
    hints = get_type_hints(cls, include_extras=True)
    _TABLES[cls] = tuple(_resolved(cls, f, hints[f.name]) for f in fields(cls))  # type: ignore[arg-type]
    return cls


def options_of(cls: type[Any]) -> tuple[Option, ...]:
    """The options of a record, in the order of its fields. Raises KeyError for a class that is no record."""
    return _TABLES[cls]


def option_of(cls: type[Any], name: str) -> Option:
    """The option of ``cls`` called ``name``. Raises KeyError."""
    for found in _TABLES[cls]:
        if found.name == name:
            return found
    raise KeyError(f"{cls.__name__} has no option {name!r}")


def said(found: Any) -> dict[str, Any]:
    """The fields of a record that are written: its tag, and those that differ from their defaults."""
    options = options_of(type(found))
    return {o.name: v for o in options if (v := getattr(found, o.name)) != o.default or o.is_tag}


def is_record(kind: object) -> bool:
    """Whether ``kind`` is a class under :func:`record`."""
    return isinstance(kind, type) and kind in _TABLES


def _resolved(cls: type[Any], f: Field[Any], hint: Any) -> Option:
    declared = [x for x in get_args(hint)[1:] if isinstance(x, Declaration)] if get_origin(hint) is Annotated else []
    if len(declared) != 1 or not declared[0].meaning:
        raise TypeError(f"{cls.__name__}.{f.name} has no option with a meaning")
    kind, d = get_args(hint)[0], declared[0]
    values = get_args(kind) if get_origin(kind) is Literal else d.values
    default = f.default if f.default_factory is MISSING else f.default_factory()
    return Option(f.name, kind, default, d.meaning, d.unit, values, d.low, d.high, d.read_by, d.newer, not f.init)

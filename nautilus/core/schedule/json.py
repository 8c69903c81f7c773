"""Schedules as JSON: one object a record, with the field names of its dataclass.

The type of a field, which :mod:`~nautilus.core.schedule.options` resolves, determines how it is read.  The *tag* of a
union of records is the field that has one value in each member; it determines the member.
:mod:`~nautilus.core.schedule.check` checks the values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from nautilus.core.schedule.options import is_record, options_of
from nautilus.core.schedule.renamed import now_called, renames_in

_T = TypeVar("_T")
_Read = Callable[[object, str], Any]


def written(schedule: Any) -> str:
    """Readable JSON, stable under repetition."""
    return json.dumps(asdict(schedule), indent=2) + "\n"


def read_json(cls: type[_T], text: str, version: int) -> _T:
    """The record of ``cls`` that ``text`` holds.

    Raises ValueError for another version, an unknown or missing field, and a value of another type.
    """
    raw = _object(json.loads(text), "the schedule")
    found = raw.get("version")
    if found != version:
        renames = renames_in(raw) if found == 1 else ()
        told = f"; renamed since version 1: {', '.join(renames)}" if renames else ""
        raise ValueError(f"schedule version {found!r} is not {version}{told}")
    return _record(cls, raw, "")


def _record(cls: type[_T], raw: dict[str, Any], path: str) -> _T:
    """The record of ``cls`` from its JSON object, which stands at ``path``."""
    readers = _readers(cls)
    for name in raw:
        if name not in readers:
            raise ValueError(f"unknown field {path}{name}{_hint(name, readers)}")
    for o in options_of(cls):
        if o.required and o.name not in raw:
            raise ValueError(f"no field {path}{o.name}")
    values = {n: read(value, path + n) for n, value in raw.items() if (read := readers[n]) is not None}
    try:
        return cls(**values)
    except ValueError as error:
        raise ValueError(f"{path.rstrip('.') or 'the schedule'}: {error}") from None


def _readers(cls: type[Any]) -> dict[str, _Read | None]:
    """Field name -> its reader; None for a tag, which the record sets itself."""
    if cls not in _READERS:
        _READERS[cls] = {o.name: None if o.is_tag else _reader(o.kind) for o in options_of(cls)}
    return _READERS[cls]


def _hint(name: str, known: Iterable[str]) -> str:
    now = now_called(name)
    if now is not None:
        return f"; it is called {now} since version 2"
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


@cache
def _reader(kind: Any) -> _Read:
    """The reader of values of one type."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _one(kind, _PLAIN[kind])
    if origin is Literal:
        return _one(str, _PLAIN[str])
    if origin is tuple:
        return _many(_reader(args[0]), None if args[-1] is Ellipsis else len(args))
    if is_record(kind):
        return lambda raw, where: _record(kind, _object(raw, where), where + ".")
    if origin in (Union, UnionType) and NoneType in args and len(args) == 2:
        read = _reader(next(a for a in args if a is not NoneType))
        return lambda raw, where: None if raw is None else read(raw, where)
    if origin in (Union, UnionType) and all(map(is_record, args)):
        return _tagged(args)
    raise TypeError(f"a field of type {kind} has no JSON form")


def _tagged(members: tuple[type[Any], ...]) -> _Read:
    """Reader of a union of records."""
    tags = {o.default: cls for cls in members for o in options_of(cls) if o.is_tag}
    (tag,) = {o.name for cls in members for o in options_of(cls) if o.is_tag}

    def read(raw: object, where: str) -> Any:
        found = _object(raw, where)
        if tag not in found:
            raise ValueError(f"no field {where}.{tag}; it is one of {', '.join(tags)}")
        cls = tags.get(_TEXT(found[tag], f"{where}.{tag}"))
        if cls is None:
            raise ValueError(f"{where}.{tag} is {_shown(found[tag])}, not one of {', '.join(tags)}")
        for name in found.keys() - _readers(cls).keys():
            others = [value for value, c in tags.items() if name in _readers(c)]
            if others:
                raise ValueError(f"{where}.{name} is a field of {tag} {' and '.join(others)}, not of {found[tag]}")
        return _record(cls, found, where + ".")

    return read


def _object(raw: object, where: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ValueError(f"{where} is {_shown(raw)}, not an object")
    return raw


def _one(kind: type[Any], what: str) -> _Read:
    def read(raw: object, where: str) -> Any:
        if type(raw) is not kind:
            raise ValueError(f"{where} is {_shown(raw)}, not {what}")
        return raw

    return read


def _many(item: _Read, count: int | None) -> _Read:
    def read(raw: object, where: str) -> Any:
        if not isinstance(raw, list):
            raise ValueError(f"{where} is {_shown(raw)}, not a list")
        if count is not None and len(raw) != count:
            raise ValueError(f"{where} has {len(raw)} entries, not {count}")
        return tuple(item(r, f"{where}[{i}]") for i, r in enumerate(raw))

    return read


def _shown(raw: object) -> str:
    text = json.dumps(raw)
    return text if len(text) <= 40 else text[:37] + "..."


_READERS: dict[type, dict[str, _Read | None]] = {}
_PLAIN: dict[Any, str] = {int: "an integer", str: "a string", bool: "true or false"}
_TEXT = _one(str, _PLAIN[str])

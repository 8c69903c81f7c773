"""The reference page of schedules, in Markdown: every record and option, from what they declare."""

from __future__ import annotations

import json
from inspect import getdoc
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from nautilus.core.schedule.mapping import WarpgroupPlan, WarpPlan
from nautilus.core.schedule.options import Option, is_record, options_of
from nautilus.core.schedule.plans import AxisPlan, CopyPlan, KernelPlan, PackPlan, Schedule, SplitPlan

#: records in the order of the page, with the path of each in the JSON
_RECORDS: tuple[tuple[str, type[Any]], ...] = (
    ("schedule", Schedule),
    ("packs[]", PackPlan),
    ("splits[]", SplitPlan),
    ("copies[]", CopyPlan),
    ("kernels[]", KernelPlan),
    ("kernels[].axes[]", AxisPlan),
    ('kernels[].mapping, engine "warp"', WarpPlan),
    ('kernels[].mapping, engine "warpgroup"', WarpgroupPlan),
)
_INTRODUCTION = """\
# Schedule reference

A schedule holds every choice that the compiler makes for one spec. `nautilusc SPEC -o s.json` writes it,
`nautilusc SPEC --schedule s.json` replays it. A field that is left out has its default.
"""


def reference() -> str:
    """The page."""
    return "\n".join([_INTRODUCTION, *(_section(path, cls) for path, cls in _RECORDS)])


def _section(path: str, cls: type[Any]) -> str:
    lines = [f"## {path}", "", (getdoc(cls) or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`"), ""]
    lines += ["| field | type | allowed | default | read by | meaning |", "| --- | --- | --- | --- | --- | --- |"]
    return "\n".join([*lines, *map(_row, options_of(cls)), ""])


def _row(o: Option) -> str:
    default = "required" if o.required else f"`{_json(o.default)}`"
    readers = ", ".join(o.read_by)
    cells = (f"`{o.name}`", _type_name(o.kind), _allowed(o), default, readers, o.meaning)
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def _json(value: Any) -> str:
    plain = {"engine": value.engine} if is_record(type(value)) else value
    return json.dumps(plain)


def _allowed(o: Option) -> str:
    """The allowed values or the bounds, with the unit."""
    text = ", ".join(f"`{_json(v)}`" for v in o.values)
    if o.low is not None:
        text = f"{o.low} to {o.high}" if o.high is not None else f"{o.low} or more"
    return f"{text} {o.unit}".strip()


def _type_name(kind: Any) -> str:
    """The name of a type in JSON."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in _NAMES:
        return _NAMES[kind]
    if origin is Literal:
        return "string"
    if origin is tuple:
        return f"list of {_type_name(args[0])}" if args[-1] is Ellipsis else f"{len(args)} x {_type_name(args[0])}"
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_type_name, args)))
    return "object"


_NAMES: dict[Any, str] = {int: "integer", str: "string", bool: "boolean", type(None): "null"}

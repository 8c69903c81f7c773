"""The text form of the VR-tile IR: ``parse(format(m)) == m`` for every module.

It derives from the declarations in :mod:`nautilus.vr_tile.ir`.  Types of operands are not repeated at their uses: a
value's type stands at its definition, a carried argument has the type of its initial value, a loop's results those of
the arguments.
"""

from __future__ import annotations

from nautilus.core.text.assembly import format_op, format_ops
from nautilus.core.text.assembly import grammar as _grammar
from nautilus.core.text.modules import format_module, parse_module
from nautilus.vr_tile.ir import VR, TileModule, Value

__all__ = ["format", "format_op", "format_ops", "grammar", "parse"]


def grammar() -> str:
    """The grammar of this text form."""
    return _grammar(TileModule, VR.ops, Value)


def format(m: TileModule) -> str:
    """The text of a module."""
    return format_module(m)


def parse(text: str, name: str = "<vr-tile>") -> TileModule:
    """The module that ``text`` is, whole. Raises IRParseError."""
    return parse_module(TileModule, VR, text, name)

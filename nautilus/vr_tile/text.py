"""The text form of the VR-tile IR: ``parse(format(m)) == m`` for every module.

It derives from the declarations in :mod:`nautilus.vr_tile.ir`.  Types of operands are not repeated at their uses: a
value's type stands at its definition, a carried argument has the type of its initial value, a loop's results those of
the arguments.
"""

from __future__ import annotations

from nautilus.core.text.assembly import format_op, format_ops
from nautilus.core.text.modules import TextForm
from nautilus.vr_tile.ir import VR, TileModule, Value

__all__ = ["format", "format_op", "format_ops", "grammar", "parse"]

_FORM = TextForm(TileModule, VR, Value)
grammar, format, parse = _FORM.grammar, _FORM.format, _FORM.parse

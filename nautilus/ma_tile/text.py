"""The text form of the MA-tile IR: ``parse(format(m)) == m`` for every module.

It derives from the declarations in :mod:`nautilus.ma_tile.ir`.  A fragment's type and layout stand at its definition
only; a carried argument has those of its initial value, a loop's results those of the arguments.
"""

from __future__ import annotations

from nautilus.core.text.assembly import format_op, format_ops
from nautilus.core.text.modules import TextForm
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.ir.values import MA, Frag

__all__ = ["format", "format_op", "format_ops", "grammar", "parse"]

_FORM = TextForm(MemModule, MA, Frag)
grammar, format, parse = _FORM.grammar, _FORM.format, _FORM.parse

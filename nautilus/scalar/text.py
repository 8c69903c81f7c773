"""The text form of the Scalar IR: ``parse_program(format_program(p)) == p``.

It derives from the declarations in :mod:`nautilus.scalar.ir`.  A perfect nest of loops of one kind is one line, ``par b
in 0..1, h in 0..32 {``.  A name in an expression is a param where the program declares one, else a variable.
"""

from __future__ import annotations

from nautilus.core.text.assembly import format_ops
from nautilus.core.text.modules import TextForm
from nautilus.scalar.ir import SCALAR, Program, Stmt

_FORM = TextForm(Program, SCALAR, op="stmt")
grammar, format_program, parse_program = _FORM.grammar, _FORM.format, _FORM.parse


def first_line(s: Stmt) -> str:
    """The first line of a statement, for messages."""
    return format_ops((s,))[0]

"""The text form of the Scalar IR: ``parse_program(format_program(p)) == p``.

It derives from the declarations in :mod:`nautilus.scalar.ir`.  A perfect nest of loops of one kind is one line, ``par b
in 0..1, h in 0..32 {``.  A name in an expression is a param where the program declares one, else a variable.
"""

from __future__ import annotations

from nautilus.core.text.assembly import format_ops
from nautilus.core.text.assembly import grammar as _grammar
from nautilus.core.text.modules import format_module, parse_module
from nautilus.scalar.ir import SCALAR, Program, Stmt


def grammar() -> str:
    """The grammar of this text form."""
    return _grammar(Program, SCALAR.ops, op="stmt")


def format_program(p: Program) -> str:
    """The text of a program, ending in a newline."""
    return format_module(p)


def first_line(s: Stmt) -> str:
    """The first line of a statement, for messages."""
    return format_ops((s,))[0]


def parse_program(text: str, name: str = "<scalar>") -> Program:
    """Read a program back; ``name`` is the file's, for messages. Raises IRParseError."""
    return parse_module(Program, SCALAR, text, name)

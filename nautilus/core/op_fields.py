"""Roles of op fields that the levels share: kind, syntax and default."""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.nodes import COMBINERS, OPS
from nautilus.core.ops import Access, FieldRole, Kind
from nautilus.core.text import syntax

RESULTS = FieldRole(Kind.RESULT)
OPERAND = FieldRole(Kind.OPERAND, syntax.VALUE)
OPERANDS = FieldRole(Kind.OPERAND, syntax.VALUES)
CARRIED = FieldRole(Kind.CARRIED, syntax.CARRIED)
EXPR = FieldRole(Kind.EXPR, syntax.EXPR)
EXPRS = FieldRole(Kind.EXPR, syntax.EXPRS)
CLOSED_EXPR = FieldRole(Kind.EXPR, syntax.CLOSED)
READ_MEMORY = FieldRole(Kind.MEMORY, syntax.NAME, Access.READ)
WRITE_MEMORY = FieldRole(Kind.MEMORY, syntax.NAME, Access.WRITE)
VARIABLE = FieldRole(Kind.VARIABLE, syntax.NAME)
AXIS = FieldRole(Kind.AXIS, replace(syntax.NAME, grammar="AXIS"))
AXES = FieldRole(Kind.AXIS, replace(syntax.NAMES, grammar="AXIS, ..."))
REGION = FieldRole(Kind.REGION, syntax.REGION)
NAME = FieldRole(Kind.ATTRIBUTE, syntax.NAME)
INTEGER = FieldRole(Kind.ATTRIBUTE, syntax.INTEGER)
INTEGERS = FieldRole(Kind.ATTRIBUTE, syntax.INTEGERS)
LITERAL = FieldRole(Kind.ATTRIBUTE, syntax.LITERAL)
FUNCTION = FieldRole(Kind.ATTRIBUTE, syntax.choice("function", OPS))
COMBINER = FieldRole(Kind.ATTRIBUTE, syntax.choice("combiner", COMBINERS))
TYPE = FieldRole(Kind.ATTRIBUTE, syntax.TYPE)
DTYPE = FieldRole(Kind.ATTRIBUTE, syntax.DTYPE)
TILE_AXES = FieldRole(Kind.ATTRIBUTE, syntax.AXES)
#: the name that stands left of ``=``, or a field that another part of the text gives
UNWRITTEN = FieldRole(Kind.ATTRIBUTE)


def flag(word: str) -> FieldRole:
    """A bool field that is true where ``word`` is written."""
    return FieldRole(Kind.ATTRIBUTE, syntax.words({word: True}), flag=True)

"""Certificates: an algebraic rewrite and its justification as data.

A pass that changes the maths, rather than the order of loops, produces one certificate for each rewrite.  A checker
that shares no code with the passes verifies it: it substitutes ``bindings`` and tests ``before == after`` wherever
the ``conditions`` hold.

``before`` and ``after`` are expressions over the buffers of the program *at that pass*; a Load node is an unknown
number.  For a rewrite of a whole reduction, both sides are ``Reduce`` nodes.  ``bindings`` name the sub-expressions
that the rule matched, for example ``("factor", r)``.  ``conditions`` are bool expressions that hold at every point
where the rewritten value is read.  ``notes`` are conditions in words, which have no expression ("f16 holds [0, 1]").
``proof`` is the argument of the pass.
"""

from __future__ import annotations

from nautilus.core.expr.nodes import Expr
from nautilus.core.records import dataclass
from nautilus.core.source import NO_SPAN, Span
from nautilus.core.text.expressions import format_expr


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate of one rewrite (module docstring). ``subject`` is the buffer whose definition changed."""

    rule: str
    subject: str
    before: Expr
    after: Expr
    bindings: tuple[tuple[str, Expr], ...] = ()
    conditions: tuple[Expr, ...] = ()
    notes: tuple[str, ...] = ()
    proof: str = ""
    span: Span = NO_SPAN

    def text(self) -> str:
        """Lines of text with the rule, both sides, the bindings, the conditions and the proof."""
        lines = [
            f"{self.rule} in {self.subject}:",
            f"  before: {format_expr(self.before)}",
            f"  after:  {format_expr(self.after)}",
        ]
        lines += [f"  with {name} = {format_expr(e)}" for name, e in self.bindings]
        lines += [f"  where {format_expr(c)}" for c in self.conditions]
        lines += [f"  where {n}" for n in self.notes]
        if self.proof:
            lines.append(f"  because {self.proof}")
        return "\n".join(lines)

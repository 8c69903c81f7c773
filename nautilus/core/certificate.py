"""Certificates: what an algebraic rewrite did and why it was allowed, as data.

A pass that changes the maths (rather than the order of loops) leaves one certificate a rewrite.  A
checker that shares no code with the passes re-checks it: substitute ``bindings`` and test
``before == after`` wherever the ``conditions`` hold.

Reading.  ``before`` and ``after`` are expressions over the buffers of the program *at that pass*;
Load nodes stand for themselves (unknown numbers).  Where the claim is about a whole reduction, both
sides are ``Reduce`` nodes.  ``bindings`` name the sub-expressions that the rule matched, e.g.
``("factor", r)``.  ``conditions`` are bool expressions that hold at every point where the rewritten
value is read; ``notes`` are those that have no expression, in words ("f16 holds [0, 1]").
``proof`` says how the pass knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from nautilus.core.expr.nodes import Expr
from nautilus.core.source import NO_SPAN, Span
from nautilus.core.text.expressions import format_expr


@dataclass(frozen=True, slots=True)
class Certificate:
    """One rewrite; see the module docstring. ``subject`` is the buffer whose definition changed."""

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
        """A readable block: the rule, both sides, what was matched and why it holds."""
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

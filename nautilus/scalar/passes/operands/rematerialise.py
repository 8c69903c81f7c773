"""``rematerialise``: definitions that some of their readers compute again, each group of readers for itself.

A definition that readers in different kernels need is stored, and read once for each of them.  Where it is large and
its own operands are small (the scores of attention, which the gradients of three operands read), computing it again in
the kernels of its readers takes less time than its bytes.  A copy has the value, the axes and the type of the
definition, so each reader may be fused with a copy of its own:

    S[i, j] sum= Q[i, d] * K[j, d]        ;  A[i] sum= S[i, j] * ...  ;  B[j] sum= S[i, j] * ...

    S[i, j] sum= ...  ;  S_copy[i, j] sum= ...  ;  A[i] sum= S[i, j] * ...  ;  B[j] sum= S_copy[i, j] * ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.nodes import Expr, Load, rewrite
from nautilus.core.records import dataclass
from nautilus.core.schedule import CopyPlan, Schedule
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.ir import Kernel, Program
from nautilus.scalar.rewriting import find_defs, fresh_name, kernel_of


@dataclass(frozen=True, slots=True)
class Rematerialise:
    """Copy what ``schedule.copies`` names; without a schedule, or a name in it, the program stays."""

    schedule: Schedule | None = None

    name = "rematerialise"

    def apply(self, program: Program) -> Program:
        """The program with copies. Raises ScheduleError for a definition or a reader that it does not have."""
        for plan in (self.schedule.copies if self.schedule is not None else None) or ():
            program = copied(program, plan)
        return program


def copied(program: Program, plan: CopyPlan) -> Program:
    """``program`` in which the readers of ``plan`` read a copy of its definition. Raises ScheduleError."""
    defs = find_defs(program)
    d = defs.get(plan.op)
    if d is None or d.buffer.space is not Space.TEMP:
        raise ScheduleError(f"copies: {plan.op!r} is no definition that may be copied")
    for name in plan.readers:
        if name not in defs or all(ld.buffer != d.name for ld in defs[name].reads()):
            raise ScheduleError(f"copies: {name!r} is no reader of {plan.op!r}")
    name = fresh_name(program, f"{d.name}_copy")

    def rule(e: Expr) -> Expr | None:
        return replace(e, buffer=name) if isinstance(e, Load) and e.buffer == d.name else None

    def put(k: Kernel) -> tuple[Kernel, ...]:
        if k.name == d.name:
            return k, kernel_of(replace(d, name=name, buffer=replace(d.buffer, name=name)))
        return (kernel_of(_with(defs[k.name], rule)),) if k.name in plan.readers else (k,)

    buffers = tuple(x for b in program.buffers for x in ((b, replace(b, name=name)) if b.name == d.name else (b,)))
    return replace(program, buffers=buffers, kernels=tuple(x for k in program.kernels for x in put(k)))


def _with(d: Def, rule: Callable[[Expr], Expr | None]) -> Def:
    """``d`` with its value and its guard rewritten by ``rule``."""
    return replace(d, value=rewrite(d.value, rule), guard=None if d.guard is None else rewrite(d.guard, rule))

"""All remarks of a compilation, from what its passes and its planner knew."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field
from typing import Any

from nautilus.core.errors import DiagnosticError, Severity
from nautilus.core.records import dataclass
from nautilus.cost.model import estimate
from nautilus.passes.compilation import Result
from nautilus.passes.manager import Record
from nautilus.passes.pipelines import SCALAR
from nautilus.passes.recurrences import has_recurrences
from nautilus.remarks import fills, memory, order, plans, products
from nautilus.remarks.remark import NAMES, Facts, Kind, Remark
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs

_CHOSEN = "choose-terms"
_ORDERED = "order-contractions"
_WHOLE = SCALAR.before("split-k-update")
_PLANNED = SCALAR.before("fuse")


@dataclass
class Watch:
    """An instrument that keeps the programs that remarks are made from, of the last attempt."""

    seen: dict[str, Any] = field(default_factory=dict)

    def after(self, record: Record) -> None:
        """Keep the module of ``record`` if remarks are made from it."""
        if record.stage is SCALAR and record.name in (_CHOSEN, _ORDERED, _WHOLE, _PLANNED):
            self.seen[record.name] = record.module

    @property
    def planned(self) -> Program | None:
        """The program that ``fuse`` received; None before that."""
        return self.seen.get(_PLANNED)

    @property
    def whole(self) -> Program | None:
        """The program whose reductions ``split-k-update`` may cut into chunks; None before that."""
        return self.seen.get(_WHOLE)


def remarks(result: Result, watch: Watch, given: bool = False) -> tuple[Remark, ...]:
    """The remarks on ``result``, which ``watch`` observed, in the order of the spec.

    None for a dump, for a compilation that ended before MA-tile IR, and for kernels that the user (``given``) or the
    tuning database chose, for which the planner decided nothing.
    """
    if given or result.tuned or {"spec", "ma-tile"} - result.modules.keys() or _PLANNED not in watch.seen:
        return ()
    planned = watch.seen[_PLANNED]
    facts = Facts(
        result, watch.seen[_CHOSEN], watch.seen[_ORDERED], watch.seen[_WHOLE], planned,
        estimate(result.modules["ma-tile"], result.context.arch), find_defs(planned),
    )  # fmt: skip
    found = list(products.remarks(facts))
    slow = {r.span.line for r in found if r.hint is not None}  # the reason for the predicted time is known
    found += (r for r in plans.remarks(facts) if not (r.kind is Kind.FLOOR and r.span.line in slow))
    if has_recurrences(planned):
        from nautilus.remarks import rounded_states  # most specs have no recurrence

        found += [*order.steps(facts), *rounded_states.remarks(facts)]
    else:
        found += [*memory.remarks(facts), *order.remarks(facts), *order.segments(facts), *fills.remarks(facts)]
    return tuple(sorted(dict.fromkeys(found), key=lambda r: (r.span.line, r.span.column, NAMES.index(r.kind.value))))


def refuse(found: Sequence[Remark], kinds: Collection[str]) -> None:
    """Raise DiagnosticError for the remarks of ``kinds`` that say what to write instead."""
    bad = [r for r in found if r.kind.value in kinds and r.hint is not None]
    if bad:
        raise DiagnosticError(r.diagnostic(Severity.ERROR) for r in bad)

"""The space of schedules as a search sees it: named choices, each one of a few values.

:mod:`nautilus.tune.space.schedules` makes choices from a program and turns values into a schedule.  This module adds
what a sampler needs: values by index or as text (a storage keeps numbers and strings), random values,
values from another space that fit this one, and a hash that changes when the choices do.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import pairwise, product
from math import prod
from typing import Any, Protocol

from nautilus.core.errors import is_internal
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.passes.loading import load
from nautilus.tune.database.rows import schedule_hash
from nautilus.tune.internal_errors import InternalErrors, described
from nautilus.tune.search.trial_lowering import TrialLowering


class Choice(Protocol):
    """A choice of the space that :mod:`nautilus.tune.space.schedules` makes."""

    @property
    def name(self) -> str:
        """The name of the choice."""
        ...

    @property
    def values(self) -> tuple[Any, ...]:
        """Its values, in a fixed order."""
        ...


@dataclass(frozen=True)
class SearchSpace:
    """``draft`` gives a schedule for values, which may be illegal, or an object with a ``reason`` why there is none."""

    choices: Sequence[Choice]
    defaults: Mapping[str, Any]
    draft: Callable[[Mapping[str, Any]], Any]
    internal: InternalErrors = field(default_factory=InternalErrors)

    @staticmethod
    def of(module: str, trials: TrialLowering, internal: InternalErrors) -> SearchSpace:
        """The space that ``module`` (``space_of``, ``choices``, ``defaults``, ``schedule_of``) makes of a program."""
        space, schedule_of = load(f"{module}:space_of")(trials), load(f"{module}:schedule_of")
        return SearchSpace(
            load(f"{module}:choices")(space),
            load(f"{module}:defaults")(space),
            lambda values: schedule_of(space, dict(values)),
            internal,
        )

    @cached_property
    def texts(self) -> dict[str, list[str]]:
        """The values of every choice as JSON."""
        return {c.name: [_text(v) for v in c.values] for c in self.choices}

    @cached_property
    def ordered(self) -> frozenset[str]:
        """Choices of three and more rising numbers: neighbours are alike."""
        found = set()
        for c in self.choices:
            numbers = [v for v in c.values if isinstance(v, (int, float)) and not isinstance(v, bool)]
            if len(numbers) == len(c.values) >= 3 and all(a < b for a, b in pairwise(numbers)):
                found.add(c.name)
        return frozenset(found)

    @property
    def size(self) -> int:
        """Points of the space, legal or not."""
        return prod(len(c.values) for c in self.choices)

    @property
    def hash(self) -> str:
        """A hash of the choices and their values, 8 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.texts).encode()).hexdigest()[:8]

    def drafted(self, values: Mapping[str, Any]) -> tuple[Schedule | None, str]:
        """The schedule that ``values`` say, or None and the reason.

        An internal error is recorded in ``internal``.
        """
        try:
            found = self.draft(values)
        except Exception as error:  # one bad point must not end a search of hours
            reason = described(error)
            if is_internal(error):
                self.internal.record(reason, None, values)
            return None, reason
        return (found, "") if isinstance(found, Schedule) else (None, str(found.reason))

    def hash_of(self, values: Mapping[str, Any]) -> str | None:
        """The hash of what :meth:`drafted` gives."""
        schedule, _ = self.drafted(values)
        return schedule_hash(schedule) if schedule is not None else None

    def decode(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Values from what the sampler drew."""
        out = {}
        for c in self.choices:
            drawn = params[c.name]
            at = drawn if c.name in self.ordered else self.texts[c.name].index(drawn)
            out[c.name] = c.values[at]
        return out

    def encode(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What the sampler would have drawn; values that are no choice here become the nearest, or the default."""
        out: dict[str, Any] = {}
        for c in self.choices:
            texts = self.texts[c.name]
            text = _text(values[c.name]) if c.name in values else ""
            if text in texts:
                at = texts.index(text)
            elif c.name in self.ordered and isinstance(values.get(c.name), (int, float)):
                at = min(range(len(texts)), key=lambda i, c=c: abs(c.values[i] - values[c.name]))  # type: ignore[misc]
            else:
                standard = _text(self.defaults.get(c.name))
                at = texts.index(standard) if standard in texts else 0
            out[c.name] = at if c.name in self.ordered else texts[at]
        return out

    def points(self) -> Iterator[dict[str, Any]]:
        """All values of the space, one point after the other."""
        for values in product(*(c.values for c in self.choices)):
            yield {c.name: v for c, v in zip(self.choices, values, strict=True)}

    def random(
        self, order: random.Random, near: Mapping[str, Any] | None = None, share: float = 0.25
    ) -> dict[str, Any]:
        """Values drawn evenly; with ``near``, a ``share`` of the choices only and the others as they are there.

        Most choices may have no effect because of others, so that even draws vary few of those with an effect.
        """
        given = {} if near is None else near
        return {
            c.name: given[c.name] if c.name in given and order.random() >= share else order.choice(c.values)
            for c in self.choices
        }


def _text(value: Any) -> str:
    return json.dumps(value)

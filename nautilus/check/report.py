"""The report of a check as data, as text and as JSON data."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, field
from math import isfinite
from typing import Any, Literal

from nautilus.core.records import dataclass

Status = Literal["ok", "fail", "skip"]

#: the end of the message on a factor that has left a sum, and may be infinite (``grammar/README.md``, "Numbers")
_FINITE = ": proved: on the domain finite"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One comparison.

    ``check``: certificate, compile, iterations, range, validation, pass, lowering, result or gpu.  The first, and
    iterations, ranges and validations, have a ``verdict`` (:mod:`nautilus.check.validate.verdict`); "ok" is a proof
    only where that is "proved".  ``subject``: the checked step or output, such as ``scalar/factor`` (a pass),
    ``spec -> scalar`` (a lowering) or an output (a result).  ``sizes``, ``kind`` and ``seed`` reproduce the inputs.
    ``measured`` and ``bound`` are relative errors, ``allowed`` is the bound on these very inputs
    (:mod:`nautilus.check.reference`).
    """

    check: str
    subject: str
    status: Status
    message: str = ""
    sizes: str = ""
    kind: str = ""
    seed: int | None = None
    output: str = ""
    index: tuple[int, ...] | None = None
    measured: float | None = None
    bound: float | None = None
    allowed: float | None = None
    verdict: str = ""

    @property
    def text(self) -> str:
        """One line of text: the check, its subject and its inputs."""
        words = [f"{self.check} {self.subject}"]
        if self.message:
            words.append(f": {self.message}")
        if self.measured is not None:
            words.append(f"; error {self.measured:.2e}")
        if self.allowed is not None:
            words.append(f", allowed {self.allowed:.2e}")
        if self.bound is not None:
            words.append(f" (stated {self.bound:.1e})")
        if self.kind:
            words.append(f"; inputs {self.kind}, seed {self.seed}")
        if self.sizes:
            words.append(f"; sizes {self.sizes}")
        return "".join(words)

    def as_dict(self) -> dict[str, Any]:
        """The non-empty fields as JSON data; inf and NaN, which JSON lacks, are text."""
        raw = {k: v for k, v in asdict(self).items() if v not in (None, "")}
        return {k: str(v) if isinstance(v, float) and not isfinite(v) else v for k, v in raw.items()}


@dataclass
class Report:
    """All outcomes of a check.  ``exit_code`` is 1 after a failure."""

    spec: str
    arch: str
    outcomes: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Add ``outcome`` after the others."""
        self.outcomes.append(outcome)

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes that are failures, in order."""
        return tuple(o for o in self.outcomes if o.status == "fail")

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    @property
    def exit_code(self) -> int:
        """0 without a failure, else 1."""
        return 0 if self.ok else 1

    @property
    def faulty_steps(self) -> tuple[str, ...]:
        """Subjects of failed passes and lowerings in pipeline order, without duplicates."""
        found = (o.subject for o in self.failures if o.check not in ("result", "gpu"))
        return tuple(dict.fromkeys(found))

    def worst(self) -> dict[str, Outcome]:
        """The outcome with the largest share of its allowed error for each output and kind of run."""
        out: dict[str, Outcome] = {}
        for o in self.outcomes:
            if o.check not in ("result", "gpu") or o.measured is None or o.status == "skip":
                continue
            key = f"{o.check} {o.output}"
            if key not in out or _share(o) > _share(out[key]):
                out[key] = o
        return out

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON data for ``--json``."""
        return {
            "spec": self.spec,
            "arch": self.arch,
            "ok": self.ok,
            "faulty_steps": list(self.faulty_steps),
            "verdicts": {check: dict(found) for check, found in self.verdicts().items()},
            "counts": {s: sum(o.status == s for o in self.outcomes) for s in ("ok", "fail", "skip")},
            "outcomes": [o.as_dict() for o in self.outcomes],
        }

    def verdicts(self) -> dict[str, Counter[str]]:
        """The number of each verdict by check; the points of a test do not count."""
        out: dict[str, Counter[str]] = {}
        for o in self.outcomes:
            if o.verdict:
                out.setdefault(o.check, Counter())[o.verdict.partition(" (")[0]] += 1
        return out

    def text(self) -> str:
        """The report as text; equal failures are shown once with their number."""
        lines = [f"{self.spec} for {self.arch}: {'ok' if self.ok else 'FAILED'}"]
        done = Counter(o.check for o in self.outcomes if o.status == "ok")
        if done:
            lines.append("  passed: " + ", ".join(f"{n} {c}" for c, n in done.items()))
        words = {"certificate": "rewrites", "validation": "passes", "iterations": "iterations", "range": "ranges"}
        for check, verdicts in self.verdicts().items():
            lines.append(f"  verdicts on {words[check]}: " + ", ".join(f"{n} {v}" for v, n in verdicts.items()))
        factors = [o.message for o in self.outcomes if o.check == "certificate" and o.message.startswith("factor in ")]
        if finite := dict.fromkeys(m.removesuffix(_FINITE) for m in factors if m.endswith(_FINITE)):
            lines.append(f"  an infinite factor may give inf in place of NaN: {', '.join(finite)}")
        tested = Counter((o.subject, o.message) for o in self.outcomes if o.verdict.startswith("tested"))
        for message in dict.fromkeys(m for _, m in tested):
            steps = ", ".join(subject for subject, m in tested if m == message)
            lines.append(f"  tested, not proved: {steps}" + (f": {message}" if message else ""))
        lines += [f"  worst {o.text}" for o in self.worst().values() if o.status == "ok"]
        skipped = Counter(
            (o.check, o.subject, o.message) for o in self.outcomes if o.status == "skip" and o.check != "iterations"
        )
        for (check, subject, message), n in skipped.items():
            lines.append(f"  not checked: {check} {subject}: {message}" + (f" ({n} times)" if n > 1 else ""))
        seen: Counter[tuple[str, str]] = Counter()
        for o in self.failures:
            seen[o.check, o.subject] += 1
            if seen[o.check, o.subject] == 1:
                lines.append(f"  FAIL {o.text}")
        for (check, subject), n in seen.items():
            if n > 1:
                lines.append(f"  {check} {subject} failed {n} times in all")
        if self.faulty_steps:
            lines.append(f"  faulty: {', '.join(self.faulty_steps)}")
        return "\n".join(lines) + "\n"


def _share(o: Outcome) -> float:
    if o.measured is None or o.measured == 0.0:
        return 0.0
    return o.measured / o.allowed if o.allowed else float("inf")

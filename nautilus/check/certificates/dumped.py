"""The certificate in a dump: whether it belongs to the dump, and whether the step that it describes is right.

The certificate gives the text before the step, so both modules of the step are known.  They are validated as in the
compilation that wrote the dump, on inputs that the interface of the module and the ranges of integers in the dump give.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nautilus.check import compare
from nautilus.check.certificates.recheck import placed, recheck
from nautilus.check.inputs import generate, interface, validation_inputs, with_specials
from nautilus.check.levels import Level
from nautilus.check.validate.verdict import Verdict
from nautilus.check.validation import index_verdicts, same_bits, verdicts
from nautilus.core.errors import NautilusError
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.passes.dumps import certificate_line, read_header
from nautilus.passes.instruments import text_of
from nautilus.passes.loading import load
from nautilus.passes.manager import Record
from nautilus.passes.step_certificate import StepCertificate, undone

_SECONDS = 20.0  # seconds of the MA-tile interpreter


def _exactly(_: str, got: Array, want: Array) -> compare.Difference | None:
    return compare.exact(got, want)


@dataclass(frozen=True)
class Dumped:
    """The step of a dump: its certificate, the module before it, and the record of the module in the dump."""

    certificate: StepCertificate
    before: Any
    record: Record

    @property
    def step(self) -> str:
        """The name of the step, such as ``scalar/factor``."""
        return self.certificate.step

    def verdicts(self, seed: int) -> Iterator[tuple[str, str, Verdict]]:
        """``(check, rewrite, verdict)`` of every rewrite and of the step as a whole, as a report has them."""
        for n, r in enumerate(self.certificate.rewrites):
            yield "certificate", f"{r.rule} in {r.subject}", self._rewritten(n, seed)
        yield from ((check, "", v) for check, v in self._validated(seed))

    def _rewritten(self, n: int, seed: int) -> Verdict:
        """The verdict on rewrite ``n``."""
        try:
            made = [r.certificate() for r in self.certificate.rewrites]
        except NautilusError as error:
            return Verdict("refuted", detail=f"the text is no certificate: {error}")
        problem = placed(made, n, self.before, self.record.module)
        return Verdict("refuted", detail=problem) if problem else recheck(made[n], seed)

    def _validated(self, seed: int) -> Iterator[tuple[str, Verdict]]:
        stage, context = self.record.stage, self.record.context
        names = stage.step_names
        name = self.step.partition("/")[2]
        number = names.index(name) + 1
        pair = [
            Level(stage.name, names[number - 2] if number > 1 else "lower", self.before, True, "", context, number - 1),
            Level.of(stage, name, self.record.module, context, number),
        ]
        spec = interface(self.record.module, context.integers)
        given = generate(spec, "random", seed)
        params = {**given.scalars, **given.sizes}
        inputs = validation_inputs(spec, seed)
        yield from (("validation", v) for _, v in verdicts(pair, inputs, params, seed, whole=False))
        yield from (("iterations", v) for _, v in index_verdicts(pair))
        both = (given, with_specials(spec, given))
        yield from (("validation", v) for _, v in same_bits(pair, both, dict, _exactly, _SECONDS))


def read(text: str, record: Record) -> Dumped | str:
    """The step of the dump ``text``, whose module is that of ``record``; '' where it has no certificate.

    A text says why the certificate is not that of this dump.
    """
    line = certificate_line(text)
    if line is None:
        return ""
    try:
        made = StepCertificate.from_json(line)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"the certificate cannot be read: {error}"
    after = text_of(record)
    before = undone(after, made.changes)
    name = read_header(text, record.context)[1]
    if made.step != f"{record.stage.name}/{name}":
        return f"the certificate is of {made.step}, the dump is of {record.stage.name}/{name}"
    if before is None:
        return "the changes do not lead to the module of the dump"
    problem = made.problem(before, after)
    if problem:
        return problem
    try:
        module = load(record.stage.parse)(before, made.step)
        load(record.stage.verify)(module)
    except NautilusError as error:
        return f"the module before cannot be read: {error}"
    return Dumped(made, module, record)

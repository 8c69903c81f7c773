"""From the steps that ran to their certificates, and from those to the separate checker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from nautilus.check.validate.verdict import Verdict
from nautilus.core.certificate import Certificate
from nautilus.passes.instruments import certificate_of, text_of
from nautilus.passes.loading import load
from nautilus.passes.manager import Record
from nautilus.passes.step_certificate import StepCertificate


def step_certificates(records: Sequence[Record]) -> Iterator[tuple[StepCertificate, str]]:
    """The certificate of every pass that changed its module, and why it does not belong to it; '' if it does."""
    for before, record in pairwise(records):
        if record.spec is not None and record.changed:
            made = certificate_of(before, record)
            yield made, made.problem(text_of(before), text_of(record))


def rewrites(records: Sequence[Record]) -> Iterator[tuple[str, Certificate, str]]:
    """``(stage/pass, certificate, problem)`` of every rewrite of a pass that changes the maths.

    ``problem``: the certificate does not belong to the modules of the step; '' if it does.
    """
    for before, record in pairwise(records):
        for n, certificate in enumerate(record.certificates):
            problem = placed(record.certificates, n, before.module, record.module)
            yield f"{record.stage.name}/{record.name}", certificate, problem


def placed(certificates: Sequence[Certificate], n: int, before: Any, after: Any) -> str:
    """Why certificate ``n`` of a step does not belong to it; '' if it does.

    ``certificates``: all of the step from module ``before`` to ``after``, in the order of the rewrites.
    """
    misplaced = load("nautilus.check.certificates.places:misplaced")
    problem: str = misplaced(certificates[n], before, after, certificates[:n], certificates[n + 1 :])
    return problem


def narrowings(records: Sequence[Record]) -> Iterator[tuple[str, Verdict]]:
    """``(stage/pass, verdict)`` on the ranges of factors after every pass that certifies a narrowing."""
    for record in records:
        if any(c.rule in ("narrow", "defer-roundings") for c in record.certificates):
            verdict: Verdict = load("nautilus.check.validate.ranges.narrowing:validate")(record.module)
            yield f"{record.stage.name}/{record.name}", verdict


def recheck(certificate: Certificate, seed: int = 0) -> Verdict:
    """The verdict of the separate checker on ``certificate``."""
    verdict: Verdict = load("nautilus.check.certificates.rules:check")(certificate, seed)
    return verdict

"""From the passes that ran to the certificates that they leave, and from those to the separate checker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from nautilus.core.certificate import Certificate
from nautilus.core.passes import CertifyingPass
from nautilus.passes.loading import bind, load, load_pass
from nautilus.passes.manager import Record


def certificates(records: Sequence[Record]) -> Iterator[tuple[str, Certificate]]:
    """``(stage/pass, certificate)`` of every pass that changes the maths."""
    for before, record in pairwise(records):
        if record.spec is None or not record.changed:
            continue
        made = load_pass(record.spec.name, record.spec.target)
        if not issubclass(made, CertifyingPass):
            continue
        instance = made(**bind(made, record.context, record.spec.options))
        for certificate in instance.derive(before.module)[1]:
            yield f"{record.stage.name}/{record.name}", certificate


def recheck(certificate: Certificate, seed: int = 0) -> tuple[bool, str]:
    """Whether the separate checker accepts ``certificate``, and how it knows or what is wrong."""
    verdict = load("nautilus.check.certificates:check")(certificate, seed)
    return bool(verdict.ok), f"{verdict.how}{': ' if verdict.detail else ''}{verdict.detail}"

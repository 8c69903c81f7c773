"""From the passes that ran to the certificates they leave, and from those to the separate checker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from nautilus.core.certificate import Certificate
from nautilus.passes.manager import Record
from nautilus.passes.registry import PASSES, bind, load


def claims(records: Sequence[Record]) -> Iterator[tuple[str, Certificate]]:
    """``(stage/pass, certificate)`` of every pass that changes the maths.

    Such a pass has ``derive(module)``: the new module, and what it claims about it.
    """
    for before, record in pairwise(records):
        if record.is_lowering or not record.changed or record.name not in PASSES:
            continue
        made = load(PASSES[record.name])
        if not hasattr(made, "derive"):
            continue
        options = next((p.options for p in record.stage.passes if p.name == record.name), {})
        instance = made(**bind(made, record.context, options))
        _, certificates = instance.derive(before.module)
        for certificate in certificates:
            yield f"{record.stage.name}/{record.name}", certificate


def recheck(certificate: Certificate, seed: int = 0) -> tuple[bool, str]:
    """Whether the separate checker accepts ``certificate``, and how it knows or what is wrong."""
    verdict = load("nautilus.check.certificates:check")(certificate, seed)
    return bool(verdict.ok), f"{verdict.how}{': ' if verdict.detail else ''}{verdict.detail}"

"""The certificate of one step of a compilation: what the step claims, bound to the modules before and after it.

Every step that changes its module has one.  It holds

* the digests of both modules, which are digests of their texts;
* the *changes*: the lines of text that the step replaced, in order.  Applied to the text before, they give
  the text after;
* the *rewrites*: the certificates of a pass that changes the maths (:mod:`nautilus.core.certificate`), as text with
  types, so that a reader of a dump has the expressions again;
* a seal, which is a digest of everything else.

The text before follows from the text after and the changes, so a dump holds both sides of its step.  A certificate
that was edited, and one that stands beside other modules, is refused without evaluating anything;
whether the step is right is decided by the validator from the modules alone (:mod:`nautilus.check.validate`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Expr
from nautilus.core.records import dataclass
from nautilus.core.text.expressions import format_expr, parse_expr


@dataclass(frozen=True, slots=True)
class Change:
    """From line ``line`` (counted from 0) of the text before, the lines ``removed`` became ``added``."""

    line: int
    removed: tuple[str, ...]
    added: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A certificate of a pass as text, in the fields of :class:`nautilus.core.certificate.Certificate`."""

    rule: str
    subject: str
    before: str
    after: str
    bindings: tuple[tuple[str, str], ...]
    conditions: tuple[str, ...]
    notes: tuple[str, ...]
    proof: str

    def certificate(self) -> Certificate:
        """The certificate with its expressions. Raises IRParseError."""
        bindings = tuple((name, parse_expr(e)) for name, e in self.bindings)
        conditions = tuple(map(parse_expr, self.conditions))
        sides = parse_expr(self.before), parse_expr(self.after)
        return Certificate(self.rule, self.subject, *sides, bindings, conditions, self.notes, self.proof)


@dataclass(frozen=True, slots=True)
class StepCertificate:
    """The claims of step ``step``, such as ``scalar/factor`` (module docstring)."""

    step: str
    before: str
    after: str
    changes: tuple[Change, ...]
    rewrites: tuple[Rewrite, ...]
    seal: str = ""

    def sealed(self) -> StepCertificate:
        """This certificate with the seal of its other fields."""
        return replace(self, seal=digest(json.dumps(asdict(replace(self, seal="")), sort_keys=True)))

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> StepCertificate:
        """The certificate in ``text``. Raises ValueError, KeyError or TypeError for anything else."""
        data: dict[str, Any] = _mapping(json.loads(text))
        changes = tuple(Change(int(c["line"]), tuple(c["removed"]), tuple(c["added"])) for c in data.pop("changes"))
        rewrites = tuple(map(_from_data, data.pop("rewrites")))
        return StepCertificate(changes=changes, rewrites=rewrites, **data)

    def holds(self, certificate: Certificate) -> bool:
        """Whether ``certificate`` is one of the rewrites."""
        return _rewrite(certificate) in self.rewrites

    def problem(self, before: str, after: str) -> str:
        """Why this is not the certificate of the step from text ``before`` to text ``after``; '' if it is."""
        if self.sealed().seal != self.seal:
            return "the certificate was edited after it was made"
        if self.before != digest(before):
            return "the module before is another one"
        if self.after != digest(after):
            return "the module after is another one"
        if applied(before, self.changes) != after:
            return "the changes do not lead from the module before to the module after"
        return ""


def digest(text: str) -> str:
    """The digest of a text."""
    return sha256(text.encode()).hexdigest()


def step_certificate(step: str, before: str, after: str, certificates: Sequence[Certificate]) -> StepCertificate:
    """The certificate of ``step`` from text ``before`` to text ``after``."""
    rewrites = tuple(map(_rewrite, certificates))
    made = StepCertificate(step, digest(before), digest(after), changed(before, after), rewrites)
    return made.sealed()


def _rewrite(c: Certificate) -> Rewrite:
    def text(e: Expr) -> str:
        return format_expr(e, typed=True)

    bindings = tuple((name, text(e)) for name, e in c.bindings)
    conditions = tuple(map(text, c.conditions))
    return Rewrite(c.rule, c.subject, text(c.before), text(c.after), bindings, conditions, c.notes, c.proof)


def _mapping(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise TypeError("a part of the certificate is no JSON object")
    return data


def _from_data(data: Any) -> Rewrite:
    data = dict(_mapping(data))
    bindings = tuple((str(name), str(e)) for name, e in data.pop("bindings"))
    conditions, notes = tuple(data.pop("conditions")), tuple(data.pop("notes"))
    return Rewrite(bindings=bindings, conditions=conditions, notes=notes, **data)


def changed(before: str, after: str) -> tuple[Change, ...]:
    """The changes that lead from ``before`` to ``after``."""
    from difflib import SequenceMatcher

    a, b = before.splitlines(keepends=True), after.splitlines(keepends=True)
    codes = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return tuple(Change(i, tuple(a[i:j]), tuple(b[k:n])) for tag, i, j, k, n in codes if tag != "equal")


def applied(before: str, changes: Sequence[Change]) -> str | None:
    """``before`` after ``changes``; None where a change does not fit."""
    lines, out, at = before.splitlines(keepends=True), list[str](), 0
    for c in changes:
        end = c.line + len(c.removed)
        if c.line < at or tuple(lines[c.line : end]) != c.removed:
            return None
        out += lines[at : c.line] + list(c.added)
        at = end
    return "".join(out + lines[at:])


def undone(after: str, changes: Sequence[Change]) -> str | None:
    """The text to which ``changes`` were applied; None where a change does not fit."""
    back, moved = [], 0
    for c in changes:
        back.append(Change(c.line + moved, c.added, c.removed))
        moved += len(c.added) - len(c.removed)
    return applied(after, back)

"""Instruments of the pass manager: verification, printing, dumping, timing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nautilus.core.errors import ScheduleError, TargetLimitError, UnsupportedError, VerifyError
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.passes.dumps import CERTIFICATE, dump_header
from nautilus.passes.loading import load
from nautilus.passes.manager import Record, step_note
from nautilus.passes.pipelines import MA_TILE

if TYPE_CHECKING:
    from nautilus.passes.step_certificate import StepCertificate


def text_of(record: Record) -> str:
    """The module's text form with one newline at the end."""
    return _printed(record.stage.format, record.module)


@by_identity(2)  # a certificate has the texts before and after its step, and is compared with both
def _printed(format: str, module: Any) -> str:
    form: str = load(format)(module)
    return form if form.endswith("\n") else form + "\n"


def certificate_of(before: Record, record: Record) -> StepCertificate:
    """The certificate of the step of ``record``, which ran on the module of ``before``."""
    from nautilus.passes.step_certificate import step_certificate

    name = f"{record.stage.name}/{record.name}"
    return step_certificate(name, text_of(before), text_of(record), record.certificates)


@dataclass(frozen=True)
class Verify:
    """Runs the level's verifier after every step that changed the module."""

    def after(self, record: Record) -> None:
        """Raise VerifyError where the module of ``record`` is not legal."""
        if record.stage.verify and record.changed:
            load(record.stage.verify)(record.module)


@dataclass
class VerifyLater:
    """Runs the verifier on the module of the last step, which has the limits of the target, and on others when asked.

    The verifiers take as long as all passes, and few candidates for variants are used.
    """

    records: list[Record] = field(default_factory=list)

    def after(self, record: Record) -> None:
        """Keep ``record``, and verify the last MA-tile module."""
        if record.number == 0:  # of the last attempt
            self.records.clear()
        self.records.append(record)
        if record.is_last and record.stage is MA_TILE:
            Verify().after(replace(record, changed=True))

    def verify(self) -> None:
        """Run the verifiers on all modules. Raises what they raise."""
        for record in self.records:
            Verify().after(record)


@dataclass
class VerifyStages:
    """Runs the verifier on the result of each stage, and on the results of its other steps only to find a mistake.

    Where the verifier refuses the result of a stage, or where a step fails, the first step with an illegal result is
    named, as :class:`Verify` names it.
    """

    records: list[Record] = field(default_factory=list)

    def after(self, record: Record) -> None:
        """Keep ``record``; verify the last module of a stage.  Raises VerifyError."""
        if record.number == 0:  # of the last attempt
            self.records.clear()
        self.records.append(record)
        if not record.is_last:
            return
        try:
            Verify().after(replace(record, changed=True))
        except TargetLimitError:
            raise  # of the schedule, which no step has made
        except VerifyError:
            self.find()
            raise
        self.records.clear()

    def failed(self, error: Exception) -> None:
        """Raise VerifyError where an illegal module may be the reason for the ``error`` of a step."""
        if not isinstance(error, ScheduleError | UnsupportedError):
            self.find()

    def find(self) -> None:
        """Verify the results of this stage in order.  Raises VerifyError, with the name of the step."""
        for record in self.records:
            try:
                Verify().after(record)
            except TargetLimitError:
                continue
            except VerifyError as error:
                error.add_note(step_note(record.stage.name, record.name))
                raise


@dataclass
class Print:
    """Collects the IR after selected steps. If a kernel is planned again, it keeps only the last attempt.

    ``what`` contains ``all`` (every stage), stage names (the stage's last step), pass names (every run of the
    pass), or single runs: ``cse-1``, ``cse-2``. A pass or a run may have the prefix ``stage/``.
    """

    what: Collection[str]
    texts: list[str] = field(default_factory=list)

    def after(self, record: Record) -> None:
        """Keep the text of the module if its step is selected."""
        if record.number == 0:
            self.texts.clear()
        own = {record.name, record.base} if record.base != record.name else {record.name, f"{record.name}-1"}
        own |= {f"{record.stage.name}/{name}" for name in own}
        if record.is_last:
            own |= {"all", record.stage.name}
        if own.isdisjoint(self.what):
            return
        title = f"{record.stage.name} after {record.name}" + ("" if record.changed else " (unchanged)")
        self.texts.append(f"; ---- {title} ----\n{text_of(record)}\n")

    def report(self) -> str:
        """All collected texts."""
        return "".join(self.texts)


@dataclass
class DumpDir:
    """Writes a file such as ``007-scalar-rolling-update.scalar`` after every step.

    A note marks the files of steps without changes, and the file of any other pass has the certificate of the step.
    A compilation can start from every file except those of the last stage.  If a kernel is planned again, only the
    files of the last attempt remain.
    """

    folder: Path
    written: list[Path] = field(default_factory=list)
    last: Record | None = None

    def after(self, record: Record) -> None:
        """Write the module of ``record``; files of an earlier attempt are removed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if record.number == 0:
            self.last = None
            while self.written:
                self.written.pop().unlink(missing_ok=True)
        path = self.folder / f"{record.number:03d}-{record.stage.name}-{record.name}{record.stage.suffix}"
        note = "" if record.changed else "; (unchanged)\n"
        header = dump_header(record.stage, record.name, record.context)
        if header and record.changed and record.spec is not None and self.last is not None:
            note += f"{CERTIFICATE}{certificate_of(self.last, record).to_json()}\n"
        path.write_text(header + note + text_of(record), encoding="utf-8")
        self.written.append(path)
        self.last = record


@dataclass
class Time:
    """Collects the time of every step."""

    records: list[tuple[str, float]] = field(default_factory=list)

    def after(self, record: Record) -> None:
        """Keep the seconds of the step."""
        self.records.append((f"{record.stage.name}/{record.name}", record.seconds))

    def report(self) -> str:
        """A table: milliseconds and share of every step, and the total."""
        total = sum(s for _, s in self.records) or 1e-9
        rows = [f"{1e3 * s:9.2f} ms {100 * s / total:5.1f}%  {name}" for name, s in self.records]
        return "\n".join([*rows, f"{1e3 * total:9.2f} ms         total"]) + "\n"

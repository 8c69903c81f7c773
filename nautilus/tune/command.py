"""``nautilusc tune``: tunes specs one after another, with one result for each."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import click

from nautilus.bench.bench import Scalars
from nautilus.core.errors import InputError, InternalError, NautilusError, ToolchainError, first_line
from nautilus.core.records import dataclass
from nautilus.cost.ranking import best_in_top, rank_correlation
from nautilus.driver import Request
from nautilus.frontend.spec import Spec
from nautilus.passes.dumps import stage_of
from nautilus.runtime.device import bindings
from nautilus.tune.database.lookup import neighbours, ranked
from nautilus.tune.database.rows import COMPILER, Key, Row, key_of
from nautilus.tune.database.store import SHIPPED, rows, select, user_path
from nautilus.tune.internal_errors import InternalErrors, compile_command
from nautilus.tune.levels import Before, before_scheduling
from nautilus.tune.progress import duration, progress_display
from nautilus.tune.search.search import Search
from nautilus.tune.search.study import Study, open_storage, study_name
from nautilus.tune.space.choices import SearchSpace
from nautilus.tune.types import Candidate, SearchResult, Settings, Task
from nautilus.tune.workers.measure import Machine
from nautilus.tune.workers.pool import DONE, Limit, Pool, Service, Worker

#: the module of the search space, the cost model's function, and the services of builders and runners; tests replace
#: them
SPACE, MODEL = "nautilus.tune.space.schedules", "nautilus.cost.model:estimate"
BUILDER, RUNNER = "nautilus.tune.workers.build:Builder", "nautilus.tune.workers.measure:Runner"
RESULT = "result"
#: floor, ceiling and factor of the time limits (:class:`~nautilus.tune.workers.pool.Limit`), in seconds
BUILD_LIMIT, MEASURE_LIMIT = (15.0, 180.0, 5.0), (10.0, 120.0, 20.0)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line besides the specs.  ``jobs`` is the number of builders; 0 means one a processor."""

    settings: Settings
    jobs: int = 0
    devices: tuple[int, ...] = (0,)
    storage: str = ""
    study: str = ""
    resume: bool = False
    quiet: bool = False
    space: str = SPACE
    model: str = MODEL
    builder: str = BUILDER
    runner: str = RUNNER


@dataclass(frozen=True)
class Outcome:
    """The result for one spec as JSON data, with its exit code."""

    about: Mapping[str, Any]
    code: int

    def line(self) -> str:
        """The result as one line of JSON."""
        return json.dumps(self.about)

    @property
    def text(self) -> str:
        """The result as one line of text."""
        a = self.about
        head = f"{a['spec']}" + (f" [{a['sizes_text']}]" if a.get("sizes_text") else "")
        if a.get("error"):
            error = str(a["error"])
            return error if error.startswith(head) else f"{head}: {error}"
        gain = f", {a['speedup']:.3f}x the default schedule" if a.get("speedup") else ""
        kind = "estimated " if a["measure"] == "model" else ""
        return (
            f"{head}: {kind}{duration(a['seconds'])}{gain}; {a['trials']} trials in {a['took']:.0f} s, {a['stopped']}"
        )


def tune_one(request: Request, given: Mapping[str, str], options: Options) -> Outcome:
    """Tune the spec of ``request``; errors of the compiler are part of the outcome. Raises InputError."""
    label: dict[str, Any] = {"spec": str(request.path), "sizes_text": "", "arch": request.arch}
    try:
        if stage_of(request.path).name != "spec":
            raise InputError(f"tune expects specs (.naut), not {request.path}")
        if options.settings.measure == "gpu" and options.runner == RUNNER and not options.resume:
            _require_driver()
        before = before_scheduling(request)
        label |= _label(before.spec, request)
        with ExitStack() as stack:
            return _tune(request, given, options, before, label, stack)
    except NautilusError as error:
        return Outcome(label | {"error": first_line(error)}, error.exit_code)


def _label(spec: Spec, request: Request) -> dict[str, Any]:
    key = key_of(spec, request.arch, request.precision)
    found = {"sizes": dict(key.sizes), "sizes_text": key.text, "arch": key.arch, "precision": key.precision}
    return found | {"key": key.hash}


def _tune(
    request: Request, given: Mapping[str, str], options: Options, before: Before, label: dict[str, Any],
    stack: ExitStack,
) -> Outcome:  # fmt: skip
    spec, settings = before.spec, options.settings
    key = key_of(spec, request.arch, request.precision)
    space = SearchSpace.of(options.space, before.trials, InternalErrors(compile_command(request)))
    storage = open_storage(options.storage)
    name = study_name(storage, options.study, study_label(spec, key.hash, space, settings.measure), options.resume)
    study = Study(storage, name, space, settings.seed, startup=max(8, settings.trials // 5))
    done = study.attribute(RESULT)
    if options.resume and isinstance(done, dict) and done.get("asked_for", 0) >= settings.trials:
        return Outcome(done | {"spec": label["spec"], "resumed": True}, 0)
    runners = _runners(request, given, options, spec, stack)
    builder = Service(options.builder, (request, options.model))
    count = options.jobs or len(os.sched_getaffinity(0))
    builders: Pool[Candidate] = Pool([builder] * count, Limit(*BUILD_LIMIT))
    stack.callback(builders.close)
    shown = stack.enter_context(progress_display(f"{spec.name} [{key.text}]", options.quiet))
    search = Search(space, study, settings, builders, runners, shown)
    search.prepare()
    machine = _machine(runners.workers) if runners is not None else Machine("", request.arch, "")
    found = search.run(_task(spec, key, machine))
    return _outcome(found, label, settings, study, user_path(), space.internal)


def _task(spec: Spec, key: Key, machine: Machine) -> Task:
    """The tuning task of ``spec`` with the matching rows of the databases."""
    database = user_path()
    known = ranked([*select(database, key.hash), *select(SHIPPED, key.hash)], lambda: machine.device)
    near = neighbours([*rows(database), *rows(SHIPPED)], key)
    return Task(spec.name, key, database, machine, _nvrtc(), _readable(known)[:1], near)


def _runners(
    request: Request, given: Mapping[str, str], options: Options, spec: Spec, stack: ExitStack
) -> Pool[Candidate] | None:
    """The pool of runners, one for each device, already starting; None where the cost model measures."""
    if options.settings.measure != "gpu":
        return None
    values = scalars(spec, given)
    services = [Service(options.runner, (request, values, options.settings.seed, d)) for d in options.devices]
    runners: Pool[Candidate] = Pool(services, Limit(*MEASURE_LIMIT))
    stack.callback(runners.close)
    for worker in runners.workers:
        worker.begin(None, 60.0)
    return runners


def study_label(spec: Spec, key: str, space: SearchSpace, measure: str) -> str:
    """The label of a study; equal labels imply comparable trials.  ``key``: the hash of the task."""
    return f"{spec.name}-{key[:10]}-{space.hash}-{measure}"


def scalars(spec: Spec, given: Mapping[str, str]) -> Scalars:
    """Values of the scalars for measuring.  Raises InputError for a scalar without value and for a runtime dim."""
    from nautilus.driver import Result
    from nautilus.passes.manager import Context
    from nautilus.runtime.execute import interface, numbers

    if spec.stride_params:
        raise InputError("the tuner needs tensors without strides; leave 'strided' out")
    if spec.runtime_dims:
        raise InputError(f"the size of {spec.runtime_dims[0].name} is known only at launch; fix it with --dim to tune")
    values = numbers(interface(Result(Context(), {"spec": spec}), "spec"), given)
    for s in spec.scalars:
        if s.name not in values:
            raise InputError(f"scalar {s.name!r} has no value and no default; give one with --set {s.name}=VALUE")
    return values


def _require_driver() -> None:
    """Raises ToolchainError before any work where this machine has no driver."""
    try:
        bindings()
    except ToolchainError as error:
        raise _without_gpu(str(error)) from error


def _without_gpu(reason: str) -> ToolchainError:
    return ToolchainError("tune", f"measuring needs an NVIDIA GPU (or use --measure model): {reason}")


def _machine(runners: list[Worker]) -> Machine:
    """The machine of the runners, when all are ready.  Raises ToolchainError where a runner has no GPU."""
    answers = []
    for worker in runners:
        while (answer := worker.finish()) is None:
            wait(worker.handles, 0.5)
        answers.append(answer)
    for answer in answers:
        if answer.kind != DONE:
            raise _without_gpu(answer.reason)
    found: Machine = answers[0].value
    return found


def _nvrtc() -> str:
    with suppress(NautilusError):
        from nautilus.runtime.nvrtc import version

        return ".".join(map(str, version()))
    return ""


def _readable(found: list[Row]) -> list[Row]:
    out = []
    for row in found:
        with suppress(ValueError):
            row.read_schedule()
            out.append(row)
    return out


def _outcome(
    found: SearchResult, label: dict[str, Any], settings: Settings, study: Study, database: Path,
    internal: InternalErrors,
) -> Outcome:  # fmt: skip
    p, pairs = found.progress, study.estimates()
    about: dict[str, Any] = label | {
        "measure": settings.measure,
        "compiler": COMPILER,
        "trials": study.spent,
        "asked_for": settings.trials,
        "scratch": settings.scratch,
        "refused": p.refused,
        "known": p.duplicates,
        "failed": dict(found.failures),
        "stopped": found.stopped,
        "took": round(found.seconds, 2),
        "startup": round(found.startup, 2),
        "study": study.name,
        "database": str(database),
    }
    code = InternalError.exit_code if internal.reproducers else 0
    if code:
        about["internal_errors"] = internal.data()
    if found.best is None or found.best.seconds is None:
        worst = ", ".join(f"{n} {s}" for s, n in found.failures.most_common(3)) or "no candidate was legal"
        return Outcome(about | {"error": f"no usable schedule was found ({found.stopped}; {worst})"}, code or 5)
    about["device"] = found.best.device
    about |= {"seconds": found.best.seconds, "samples": list(found.best.samples)}
    about |= {"schedule_hash": found.best.schedule_hash, "values": dict(found.best.values)}
    if found.rules is not None and found.rules.seconds:
        about |= {"rules_seconds": found.rules.seconds, "speedup": found.rules.seconds / found.best.seconds}
    if settings.measure == "gpu":
        about |= {"rank_correlation": rank_correlation(pairs), "best_in_model_top_10": best_in_top(pairs)}
    if found.stopped != "time is up":
        study.set_attribute(RESULT, about)
    return Outcome(about, code)


def report(outcome: Outcome, as_json: bool, quiet: bool) -> None:
    """Print one result: JSON on standard output, text, or an error on standard error."""
    failed = bool(outcome.about.get("error"))
    for bug in outcome.about.get("internal_errors", ()):
        click.echo(f"nautilusc: internal error: {bug['reason']}\nreproducer: {bug['reproducer']}", err=True)
    if as_json:
        click.echo(outcome.line())
    if failed:
        click.echo(f"nautilusc: error: {outcome.text}", err=True)
    elif not as_json and not quiet:
        click.echo(outcome.text)

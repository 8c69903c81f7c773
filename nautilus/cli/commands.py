"""The subcommands but ``compile``, called after the option parsing of :mod:`nautilus.cli.main`."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from nautilus.cli.compiling import note_outdated, run_and_build
from nautilus.cli.files import write_output
from nautilus.cli.output import waiting
from nautilus.cli.request import make_request
from nautilus.core.errors import InputError, NautilusError, RunError, ToolchainError, UnsupportedError
from nautilus.core.text.words import counted
from nautilus.driver import Request
from nautilus.passes.pipelines import SPEC


def run_spec(
    spec: Path,
    inputs: dict[str, str],
    scalars: dict[str, str],
    seed: int,
    output_dir: Path | None,
    device: str,
    stage: str | None,
    **options: Any,
) -> None:
    """``nautilusc run``: computes the outputs of a spec by an interpreter or on the GPU. Raises RunError."""
    from nautilus.frontend.promises import keep
    from nautilus.runtime import execute

    if device == "cuda" and stage is not None:
        raise click.UsageError("--stage requires --device cpu")
    last = "cuda" if device == "cuda" else (stage or "spec")
    request = replace(make_request(spec, options, last), keep_runtime=True)
    result, cubin = run_and_build(request, options, "cubin" if device == "cuda" else "text")
    signature = execute.interface(result, last)
    names = {name for name, _, _ in signature.scalars}
    sizes = {name: str(size) for name, size in request.dims.items() if name in names}
    arrays, numbers = execute.arguments(signature, inputs, seed, execute.numbers(signature, sizes | scalars))
    program = result.modules.get("spec")
    if program is not None and any(f.promised for f in program.facts):
        kept = keep(program, arrays, numbers)
        arrays |= {name: kept[name] for name in arrays if name not in inputs}
    # An error is the user's for an edited dump and for given indices out of range; otherwise it is a bug.
    is_dump = request.path.suffix != SPEC.suffix
    given_indices = any(s.name in inputs and s.dtype.is_int for s in signature.inputs)
    try:
        with waiting(f"running {spec}", options["quiet"]):
            outputs = execute.run(result, last, arrays, numbers, cubin)
    except (RuntimeError, NautilusError) as error:
        if isinstance(error, (InputError, ToolchainError, UnsupportedError)) or not (is_dump or given_indices):
            raise
        raise RunError(f"{last}: {error}") from error
    types = {slot.name: slot.dtype for slot in signature.outputs}
    for name, array in outputs.items():
        if output_dir is not None:
            write_output(_target(output_dir, name), execute.npy_bytes(array, types[name]))
    if options["as_json"]:
        rows = {n: execute.summary(a) for n, a in outputs.items()}
        click.echo(json.dumps({"device": device, "stage": last, "outputs": rows}))
    elif options["verbose"] or output_dir is None:
        for n, a in outputs.items():
            click.echo(execute.summary_line(n, a))


def _target(folder: Path, name: str) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create {folder}: {error.strerror}") from error
    return str(folder / f"{name}.npy")


def check_spec(spec: Path, seed: int, device: str, **options: Any) -> None:
    """``nautilusc check``. Raises Exit with code 1 after a failure, ToolchainError without a requested GPU."""
    from nautilus.check.device import gpu_missing
    from nautilus.check.run import check

    request = make_request(spec, options, "cuda")
    if device == "cuda" and (missing := gpu_missing(request.arch)):
        raise ToolchainError("check", missing)
    with waiting(f"checking {spec}", options["quiet"]):
        report = check(request, seed=seed, device=device)
    if options["as_json"]:
        click.echo(json.dumps(report.as_dict()))
    elif not report.ok or not options["quiet"]:
        click.echo(report.text(), nl=False, err=not report.ok)
    if not report.ok:
        raise click.exceptions.Exit(1)


def bench_specs(specs: tuple[Path, ...], against: tuple[str, ...], **options: Any) -> None:
    """``nautilusc bench``: times all specs. Raises Exit with code 1 where a result of ours is wrong, and UsageError."""
    from nautilus.bench import bench as benching
    from nautilus.bench.table import as_dict, text

    against = benching.LIBRARIES if against == ("all",) else () if against == ("none",) else against
    if unknown := [name for name in against if name not in benching.PEERS]:
        raise click.UsageError(f"--against: unknown peer {unknown[0]!r}; peers: {', '.join(benching.PEERS)}")
    settings = benching.Settings(
        against, options["repeats"], options["rounds"], options["seed"], options["max_spread"] / 100,
        checked=not options["unchecked"],
    )  # fmt: skip
    for spec in specs:
        if spec.suffix != SPEC.suffix:
            raise click.UsageError(f"bench expects specs (.naut), not {spec}")
    benching.require_gpu()
    reports = []
    for spec in specs:
        request = replace(make_request(spec, options, "cuda"), keep_runtime=True)
        result, cubin = run_and_build(request, options, "cubin")
        given, scalars = benching.arguments(result, options["inputs"], options["scalars"], options["seed"])
        at_these = partial(run_and_build, replace(request, keep_runtime=False), options, "cubin")
        report = benching.bench(result, settings, given, scalars, cubin, at_these)
        reports.append(report)
        if options["verbose"]:
            phases = ", ".join(f"{name} {s:.1f} s" for name, s in report.about["seconds"].items())
            click.echo(f"nautilusc: {spec}: {phases}", err=True)
        if not options["as_json"]:
            click.echo(text(report))
    if options["as_json"]:
        click.echo(json.dumps([as_dict(r) for r in reports]))
    if not all(r.ok for r in reports):
        raise click.exceptions.Exit(1)


def tune_specs(
    specs: tuple[Path, ...], trials: int, timeout: float, measure: str, seed: int, **options: Any
) -> None:  # fmt: skip
    """``nautilusc tune``: prints a result for every spec. Raises Exit with the code of the first failure."""
    from nautilus.tune.command import Options, report, tune_one
    from nautilus.tune.types import Settings

    settings = Settings(trials, timeout, seed, measure, scratch=options["scratch"])
    chosen = Options(
        settings, options["jobs"], options["devices"], options["storage"], options["study"], options["resume"],
        options["quiet"] or (options["as_json"] and not options["verbose"]),
    )  # fmt: skip
    code = 0
    for spec in specs:
        request = make_request(spec, options | {"schedule": None, "level": 1}, "cuda")
        outcome = tune_one(request, options["scalars"], chosen)
        report(outcome, options["as_json"], options["quiet"])
        code = code or outcome.code
    if code:
        raise click.exceptions.Exit(code)


def explain_spec(spec: Path, alternatives: bool, **options: Any) -> None:
    """``nautilusc explain``: prints the schedule of a spec and why it is that one. Raises UsageError for a dump."""
    from nautilus.tune.explain import explain, text

    if spec.suffix != SPEC.suffix:
        raise click.UsageError(f"explain needs a spec (.naut), not {spec}")
    request = make_request(spec, options, "ma-tile")
    if options["dump_ir"] or options["dump_dir"] is not None or options["time_passes"]:
        run_and_build(request, options, "checked")
    with waiting(f"explaining {spec}", options["quiet"]):
        found = explain(request, alternatives)
    if options["as_json"]:
        click.echo(json.dumps(found))
    elif not options["quiet"]:
        click.echo(text(found), nl=False)


def at_level(request: Request, level: int, options: dict[str, Any]) -> Request:
    """``request`` for ``-O0``, with the unoptimised schedule, or for ``-O3``, after a search."""
    from nautilus.tune.levels import plain_schedule

    if level == 0:
        return replace(request, schedule=plain_schedule(request))
    tune_now(request, options)
    return request


def tune_now(request: Request, options: dict[str, Any]) -> None:
    """``-O3``: search on the local GPU, whose result the compilation then uses. Raises ToolchainError and Exit."""
    from nautilus.tune.command import Options, tune_one
    from nautilus.tune.types import Settings

    outcome = tune_one(request, options.get("scalars") or {}, Options(Settings(), quiet=options["quiet"]))
    if outcome.code and "error" in outcome.about:
        if outcome.code == ToolchainError.exit_code:
            raise ToolchainError("-O3", f"{outcome.about['error']} (-O2 needs no GPU)")
        raise click.exceptions.Exit(_failed(outcome.text, outcome.code))


def _failed(text: str, code: int) -> int:
    click.echo(f"nautilusc: error: {text}", err=True)
    return code


def list_database(wanted: str, path: Path | None, as_json: bool) -> None:
    """``nautilusc db ls``: prints the specs and sizes of the tuning database with their best times."""
    from nautilus.tune.database import commands as dbtool

    records = dbtool.listing(path, wanted)
    for line in map(json.dumps, records) if as_json else dbtool.listing_text(records):
        click.echo(line)
    note_outdated(path)


def show_database(wanted: str, path: Path | None, count: int, as_json: bool) -> None:
    """``nautilusc db show``: prints the best rows of a spec, with times, machine and schedule."""
    from nautilus.tune.database import commands as dbtool

    for row in dbtool.showing(path, wanted, count):
        click.echo(row.line().rstrip() if as_json else dbtool.showing_text(row))


def export_database(wanted: str, path: Path | None, output: str, everything: bool) -> None:
    """``nautilusc db export``: writes rows as lines of JSON."""
    from nautilus.tune.database import commands as dbtool

    write_output(output, dbtool.exported(path, wanted, everything).encode())


def merge_databases(files: tuple[Path, ...], path: Path | None) -> None:
    """``nautilusc db merge``: adds the rows of other files to the user's database."""
    from nautilus.tune.database import commands as dbtool
    from nautilus.tune.database import store as database

    into = path or database.user_path()
    added, bad = dbtool.merge(into, files)
    click.echo(f"{into}: {counted(added, 'row')} added" + (f"; {counted(bad, 'invalid line')}" if bad else ""))


def collect_database(path: Path | None, keep: int) -> None:
    """``nautilusc db gc``: removes the rows that no compilation uses."""
    from nautilus.tune.database import commands as dbtool
    from nautilus.tune.database import store as database

    file = path or database.user_path()
    before, after = dbtool.collect(file, keep)
    click.echo(f"{file}: {after} of {counted(before, 'line')} kept")

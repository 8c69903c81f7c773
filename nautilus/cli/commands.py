"""The subcommands, called after the option parsing of :mod:`nautilus.cli.main`."""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from nautilus.cli.main import dump_names
from nautilus.cli.output import print_diagnostics, print_remark
from nautilus.cli.request import make_request
from nautilus.core.errors import InputError, NautilusError, RunError, ToolchainError, UnsupportedError, VerifyError
from nautilus.driver import Request, Result, build_cubin, compile_checked, compile_file
from nautilus.export.header_file import header_file
from nautilus.passes.dumps import dump_header, stage_of
from nautilus.passes.instruments import DumpDir, Print, Time
from nautilus.passes.loading import load
from nautilus.passes.manager import Instrument, steps
from nautilus.passes.pipelines import SPEC, STAGE_NAMES, STAGES
from nautilus.remarks.remarks import Watch, refuse, remarks

if TYPE_CHECKING:
    from nautilus.runtime.nvrtc import Compiled

_UNTIL = {"scalar": "scalar", "vr": "vr-tile", "ma": "ma-tile"}  # emit -> last stage; others: cuda
FORMS = ("cu", "h", "ptx", "cubin", "json", *_UNTIL)


def compile_spec(
    spec: Path, output: str | None, emit: str | None, name: str, resource_usage: bool, **options: Any
) -> None:
    """``nautilusc compile``.  Without ``-o`` the compilation runs without output."""
    form = emit or _form_of(output)
    if output is not None and os.path.exists(output) and os.path.exists(spec) and os.path.samefile(spec, output):
        raise click.UsageError(f"output and input are the same file: {output}")
    until = "cuda" if resource_usage else _UNTIL.get(form, "cuda")
    request = replace(make_request(spec, options, until), name=name)
    start = stage_of(spec)
    if until in STAGE_NAMES[: STAGE_NAMES.index(start.name)]:
        raise click.UsageError(f"{spec} is a dump of {start.name}, which comes after {until}")
    watch = Watch()
    how: Literal["checked", "cubin"] = "cubin" if resource_usage or form == "cubin" else "checked"
    result, cubin = run_and_build(request, options, how, watch)
    found = remarks(result, watch, request.gives_kernels)
    refuse(found, options["werror"])
    if not options["quiet"]:
        shown = [r.diagnostic() for r in found if r.hint is not None or options["verbose"]]
        print_diagnostics(shown, options["diagnostics"])
    data = cubin.data if cubin is not None and form == "cubin" else render(result, form)
    usage = _usage(result, cubin) if cubin is not None and resource_usage else None
    if output is not None:
        write_output(output, data)
    if usage is not None and not options["as_json"]:
        click.echo(table(usage), err=True, nl=False)
    if options["as_json"]:
        summary: dict[str, Any] = {"output": output, "form": form, "arch": result.context.arch}
        schedule = result.context.schedule
        summary["schedule"] = json.loads(schedule.to_json()) if schedule is not None else None
        summary["remarks"] = [r.diagnostic().as_dict() for r in found]
        if usage is not None:
            summary["resources"] = usage
        click.echo(json.dumps(summary), err=output == "-")


def run_and_build(
    request: Request, options: dict[str, Any], how: Literal["text", "checked", "cubin"], *more: Instrument
) -> tuple[Result, Compiled | None]:
    """Compile under the instruments that the options ask for, and show warnings.

    ``how``: as far as the request says; the same, with a kernel that ptxas accepts; up to the cubin.  ``more``: further
    instruments.
    """
    instruments: list[Instrument] = [*more]
    shown = Print(frozenset((options["dump_ir"] or "").split(",")))
    if options["dump_ir"]:
        for part in options["dump_ir"].split(","):
            if part not in dump_names():
                raise click.UsageError(f"--dump-ir: unknown stage or pass {part!r} (see --print-passes)")
        instruments.append(shown)
    if options["dump_dir"] is not None:
        instruments.append(DumpDir(options["dump_dir"]))
    clock = Time()
    instruments.append(clock)
    try:
        cubin = None
        if how == "cubin":
            result, cubin = build_cubin(request, instruments)
        else:
            result = (compile_checked if how == "checked" else compile_file)(request, instruments)
    except VerifyError as error:
        if request.path.suffix != SPEC.suffix:
            error.exit_code = 1  # type: ignore[misc]  # the input is wrong, not the compiler
        raise
    finally:
        if shown.texts:
            click.echo(shown.report(), nl=False, err=True)
        if options["time_passes"]:
            click.echo(clock.report(), nl=False, err=True)
    spec = result.modules.get("spec")
    if spec is not None and spec.warnings and not options["quiet"]:
        print_diagnostics(spec.warnings, options["diagnostics"])
    if not options["quiet"]:
        _remark(request, result, options["diagnostics"])
    if options["verbose"]:
        click.echo(f"nautilusc: {request.path}: {request.until} for {result.context.arch}", err=True)
        if result.lookup_failure:
            reason = f"the schedule of the tuning database fails: {result.lookup_failure}"
            click.echo(f"nautilusc: {request.path}: schedule by rules; {reason}", err=True)
        elif result.tuned:
            click.echo(f"nautilusc: {request.path}: schedule from the tuning database", err=True)
        if request.lookup is not None:
            _note_outdated(None)
    return result, cubin


def _remark(request: Request, result: Result, form: str) -> None:
    """Print the objections of ptxas to the kernel, or a note that it did not check the kernel."""
    if result.ptxas_failure:
        print_remark("warning", f"{request.path}: {result.ptxas_failure}", form)
    for kernel, count in result.spills:
        reason = f"kernel {kernel} spills {count} bytes of registers a thread to memory, which is slow"
        print_remark("warning", f"{request.path}: {reason}", form)
    if result.unchecked:
        print_remark("note", f"{request.path}: ptxas did not check the wgmma instructions ({result.unchecked})", form)


def _form_of(output: str | None) -> str:
    if output in (None, "-"):
        return "cu"
    target = Path(output)
    suffix = target.suffix.removeprefix(".")
    if not suffix and target.exists() and not target.is_file() and not target.is_dir():
        return "cu"  # /dev/null, a pipe
    if suffix not in FORMS:
        raise click.UsageError(f"the suffix of {output!r} selects no output format; use --emit")
    return suffix


def render(result: Result, form: str) -> bytes:
    """The output in ``form``; ``json`` is the schedule for ``--schedule``."""
    if form == "cu":
        return result.cuda.encode()
    if form == "h":
        return header_file(result.cuda_module, result.modules["ma-tile"]).encode()
    if form == "json":
        schedule = result.context.schedule
        return (schedule.to_json() if schedule is not None else "null\n").encode()
    if form in ("ptx", "cubin"):
        return _built(result, form).data
    stage = next(s for s in STAGES if s.name == _UNTIL[form])
    text: str = load(stage.format)(result.modules[stage.name])
    return (dump_header(stage, steps(stage)[-1].name, result.context) + text).encode()


def _built(result: Result, form: str) -> Compiled:
    from nautilus.runtime.nvrtc import build

    return build(result.cuda_module, result.context.arch, form)


def _usage(result: Result, built: Compiled) -> list[dict[str, Any]]:
    module, symbol = result.modules["ma-tile"], load("nautilus.cuda.names:kernel_symbol")
    dynamic = {symbol(module, k): k.smem_bytes for k in module.kernels}
    return [u.as_dict() | {"dynamic_shared_bytes": dynamic[u.kernel]} for u in built.resources]


def table(rows: list[dict[str, Any]]) -> str:
    """``rows`` as text under a line of names; numbers are aligned to the right."""
    lines = [[name.replace("_", " ") for name in rows[0]], *([str(v) for v in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    out = []
    for line in lines:
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        out.append("  ".join(cells) + "\n")
    return "".join(out)


def write_output(name: str, data: bytes) -> None:
    """Write ``data`` completely or not at all, by a temporary file beside the target and a rename.

    The target of a link is replaced, not the link.  Devices and pipes are written directly.  Raises InputError.
    """
    if name == "-":
        if sys.stdout is None:
            raise InputError("cannot write to standard output: it is closed")
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    target = Path(name)
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(target)), data)
    except OSError as error:
        raise InputError(f"cannot write {name}: {error.strerror}") from error


def _replace(target: Path, data: bytes) -> None:
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name[:100]}.", delete=False) as file:
            temporary = file.name
            file.write(data)
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


def _mode(target: Path) -> int:
    """The permissions of the existing ``target``, else those of a new file."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


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
    """``nautilusc run``."""
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
    """``nautilusc check``; the exit code is 1 after a failure."""
    from nautilus.check.run import check

    report = check(make_request(spec, options, "cuda"), seed=seed, device=device)
    if options["as_json"]:
        click.echo(json.dumps(report.as_dict()))
    elif not report.ok or not options["quiet"]:
        click.echo(report.text(), nl=False, err=not report.ok)
    if not report.ok:
        raise click.exceptions.Exit(1)


def bench_specs(specs: tuple[Path, ...], against: tuple[str, ...], **options: Any) -> None:
    """``nautilusc bench``: times all specs; the exit code is 1 where a result of ours is wrong."""
    from nautilus.bench import bench as benching
    from nautilus.bench.table import as_dict, text

    if unknown := [name for name in against if name not in benching.PEERS]:
        raise click.UsageError(f"--against: unknown peer {unknown[0]!r}; peers: {', '.join(benching.PEERS)}")
    settings = benching.Settings(
        against, options["repeats"], options["rounds"], options["seed"], options["max_spread"] / 100
    )
    for spec in specs:
        if spec.suffix != SPEC.suffix:
            raise click.UsageError(f"bench expects specs (.naut), not {spec}")
    benching.require_gpu()
    reports = []
    for spec in specs:
        request = replace(make_request(spec, options, "cuda"), keep_runtime=True)
        result, cubin = run_and_build(request, options, "cubin")
        given, scalars = benching.arguments(result, options["inputs"], options["scalars"], options["seed"])
        report = benching.bench(result, settings, given, scalars, cubin)
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
    """``nautilusc tune``: prints a result for every spec; the exit code is that of the first failure."""
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


def explain_spec(spec: Path, **options: Any) -> None:
    """``nautilusc explain``."""
    from nautilus.tune.explain import explain, text

    if spec.suffix != SPEC.suffix:
        raise click.UsageError(f"explain needs a spec (.naut), not {spec}")
    request = make_request(spec, options, "ma-tile")
    if options["dump_ir"] or options["dump_dir"] is not None or options["time_passes"]:
        run_and_build(request, options, "checked")
    found = explain(request)
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
    """``-O3``: search on the local GPU; the compilation then uses the result in the database."""
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
    """``nautilusc db ls``."""
    from nautilus.tune.database import commands as dbtool

    records = dbtool.listing(path, wanted)
    for line in map(json.dumps, records) if as_json else dbtool.listing_text(records):
        click.echo(line)
    _note_outdated(path)


def _note_outdated(path: Path | None) -> None:
    """Print the number of rows of an older format to standard error, if there are any."""
    from nautilus.tune.database.commands import outdated_text

    if text := outdated_text(path):
        click.echo(f"nautilusc: {text}", err=True)


def show_database(wanted: str, path: Path | None, count: int, as_json: bool) -> None:
    """``nautilusc db show``."""
    from nautilus.tune.database import commands as dbtool

    for row in dbtool.showing(path, wanted, count):
        click.echo(row.line().rstrip() if as_json else dbtool.showing_text(row))


def export_database(wanted: str, path: Path | None, output: str, everything: bool) -> None:
    """``nautilusc db export``."""
    from nautilus.tune.database import commands as dbtool

    write_output(output, dbtool.exported(path, wanted, everything).encode())


def merge_databases(files: tuple[Path, ...], path: Path | None) -> None:
    """``nautilusc db merge``."""
    from nautilus.tune.database import commands as dbtool
    from nautilus.tune.database import store as database

    into = path or database.user_path()
    added, bad = dbtool.merge(into, files)
    click.echo(f"{into}: {added} rows added" + (f"; {bad} invalid lines" if bad else ""))


def collect_database(path: Path | None, keep: int) -> None:
    """``nautilusc db gc``."""
    from nautilus.tune.database import commands as dbtool
    from nautilus.tune.database import store as database

    file = path or database.user_path()
    before, after = dbtool.collect(file, keep)
    click.echo(f"{file}: {after} of {before} lines kept")

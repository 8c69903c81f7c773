"""The command ``compile``, and the compilation that other commands begin with.

This module imports little, because an output that the cache has needs no compiler.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from nautilus.cli.files import write_output
from nautilus.cli.messages import Message, about, of_diagnostic, show
from nautilus.cli.options import dump_names, given_text
from nautilus.cli.output import waiting
from nautilus.core.records import dataclass
from nautilus.export.cache import Entry, find, folder, store
from nautilus.export.cache_key import key_of
from nautilus.export.forms import (
    BUILT,
    CHOOSING,
    HOSTED,
    PACKAGES,
    SEVERAL,
    UNCOMMENTED,
    UNTIL,
    form_of,
    ordered_archs,
)
from nautilus.passes.pipelines import SPEC, STAGE_NAMES

if TYPE_CHECKING:
    from nautilus.driver import Request, Result
    from nautilus.passes.manager import Instrument
    from nautilus.remarks.remark import Remark
    from nautilus.remarks.remarks import Watch
    from nautilus.report.history import History
    from nautilus.runtime.nvrtc import Compiled

How = Literal["text", "checked", "cubin"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options of ``compile`` say of the output."""

    output: str | None
    form: str
    name: str
    host_compiler: str
    resource_usage: bool
    line_info: bool = False
    dependencies: bool = False
    rule_file: str | None = None
    part: bool = False  # whether the output is a part of a file with several specs

    @property
    def until(self) -> str:
        """The last stage."""
        return "cuda" if self.resource_usage else UNTIL.get(self.form, "cuda")


_OPTIONS = ("name", "host_compiler", "resource_usage", "line_info", "dependencies", "rule_file")


def of_output(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that are fields of :class:`Asked`, and the others."""
    mine = {name: options[name] for name in _OPTIONS}
    return mine, {name: value for name, value in options.items() if name not in mine}


def compile_spec(spec: Path, output: str, emit: str | None, use_cache: bool, **options: Any) -> None:
    """``nautilusc compile`` of one spec: writes its output, from the cache where it is there. Raises UsageError."""
    mine, options = of_output(options)
    try:
        asked = Asked(output, emit or form_of(output), **mine)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if asked.form in ("torch", "jax") and output == "-":
        both = f"--emit {asked.form} writes a module and a library beside it"
        raise click.UsageError(f"{both}; name the module with -o FILE.py")
    if asked.line_info and asked.form not in ("ptx", "cubin"):
        raise click.UsageError("-lineinfo belongs to a .cubin or .ptx output")
    if asked.dependencies and asked.rule_file is None and output == "-":
        raise click.UsageError("-MD needs a file: -o FILE, or -MF FILE")
    if os.path.exists(output) and os.path.exists(spec) and os.path.samefile(spec, output):
        raise click.UsageError(f"output and input are the same file: {output}")
    _write(entry_of(spec, asked, options, use_cache), asked, options)
    write_rule([spec], output, asked, options)


def entry_of(spec: Path, asked: Asked, options: dict[str, Any], use_cache: bool) -> Entry:
    """The output of a compilation, from the cache where it has one; shows the messages of the compilation."""
    key = entry_key(spec, asked, options) if use_cache else None
    entry = find(key) if key is not None else None
    if entry is None:
        entry = compiled_entry(spec, asked, options)
        if key is not None and key == entry_key(spec, asked, options):  # no file has changed meanwhile
            store(key, entry)
    elif not options["quiet"]:
        show([Message(**m) for m in entry.about["messages"]], options["diagnostics"])
    return entry


def write_rule(specs: Sequence[Path], output: str, asked: Asked, options: dict[str, Any]) -> None:
    """Write the makefile rule of ``-MD`` and ``-MF``, if the options say so."""
    if not (asked.dependencies or asked.rule_file is not None):
        return
    from nautilus.cli.dependencies import read_files, rule

    read = dict.fromkeys(name for spec in specs for name in read_files(spec, given_text(spec)))
    files = [*read, *map(str, [options["schedule"]] if options["schedule"] else [])]
    write_output(asked.rule_file or str(Path(output).with_suffix(".d")), os.fsencode(rule(output, files)))


def entry_key(spec: Path, asked: Asked, options: dict[str, Any]) -> str | None:
    """The key in the cache; None without one, for a compilation that prints more than its output, or if its files are
    unreadable."""
    if folder() is None:
        return None
    shows = ("dump_ir", "dump_dir", "time_passes", "verbose")
    shown = any(options[name] for name in shows) or any(options.get(name) for name in ("report", "trace"))
    if asked.resource_usage or asked.line_info or shown or options["level"] == 3:
        return None
    said = {name: options[name] for name in ("arch", "dims", "level", "precision", "variants", "batch_invariant")}
    said |= {"werror": sorted(options["werror"]), "form": asked.form, "name": asked.name, "host": asked.host_compiler}
    said["part"] = asked.part
    said["packages"] = [f"{name} {_version(name)}" for name in PACKAGES.get(asked.form, ())]
    tools = (asked.host_compiler or os.environ.get("CXX", ""), "c++", "g++", "clang++")
    try:
        return key_of(spec, options["schedule"], said, tools if asked.form in HOSTED else ())
    except (OSError, ValueError):
        return None  # the compilation says what is wrong


def _version(package: str) -> str:
    """The version of an installed package; empty where it is missing."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _has_comments(asked: Asked, options: dict[str, Any]) -> bool:
    """Whether a reader sees the comments of the text, of which the error bounds take as long as all passes."""
    shown = any(options.get(name) for name in ("dump_ir", "dump_dir", "report"))
    return shown or asked.line_info or asked.form not in UNCOMMENTED


def _history(options: dict[str, Any]) -> list[History]:
    """What a report needs of the passes, as an instrument; none without a report."""
    if options.get("report") is None:
        return []
    from nautilus.report.history import History

    return [History()]


def _write_pictures(
    options: dict[str, Any], result: Result, history: Sequence[History], watch: Watch, found: Sequence[Remark]
) -> None:
    """Write the files of ``--report`` and ``--trace``."""
    if not history and options.get("trace") is None:
        return
    from nautilus.report.report import report, trace_of

    if history:
        write_output(str(options["report"]), report(result, history[0], watch, found).encode())
    if options.get("trace") is not None:
        write_output(str(options["trace"]), trace_of(result).encode())


def _write(entry: Entry, asked: Asked, options: dict[str, Any]) -> None:
    if asked.output is not None:
        write_output(asked.output, entry.files[""])
        target = Path(asked.output)
        for suffix, data in entry.files.items():
            if suffix and asked.output != "-" and not (target.exists() and not target.is_file()):
                write_output(str(target.with_suffix(suffix)), data)
    if options["as_json"]:
        click.echo(json.dumps({"output": asked.output, **entry.about["summary"]}), err=asked.output == "-")


def compiled_entry(spec: Path, asked: Asked, options: dict[str, Any]) -> Entry:
    """The files, summary and messages of ``spec`` for each architecture that is asked for. Raises UsageError."""
    from nautilus.cli.request import make_request
    from nautilus.export.outputs import outputs
    from nautilus.passes.dumps import stage_of
    from nautilus.remarks.remarks import Watch, refuse, remarks

    several = (options["arch"] or "").split(",") if asked.form in SEVERAL else [options["arch"]]
    archs: list[str | None] = [*ordered_archs([a for a in several if a])] or [None]
    start = stage_of(spec)
    if asked.until in STAGE_NAMES[: STAGE_NAMES.index(start.name)]:
        raise click.UsageError(f"{spec} is a dump of {start.name}, which comes after {asked.until}")
    made, messages, missed = list[tuple["Result", "Compiled | None"]](), list[Message](), list["Remark"]()
    silent = any(options[name] for name in ("quiet", "dump_ir", "time_passes", "verbose"))
    for arch in archs:
        given = options | {"arch": arch, "variants": options["variants"] if asked.form in CHOOSING else 1}
        request = replace(
            make_request(spec, given, asked.until), name=asked.name, verified_stages=True,
            states_errors=_has_comments(asked, options),
        )  # fmt: skip
        watch = Watch()
        how: How = "cubin" if asked.resource_usage or asked.form in BUILT else "checked"
        history = _history(options)
        with waiting(f"compiling {spec}", silent):
            made.append(run_and_build(request, options | {"quiet": True}, how, watch, *history))
            missed += remarks(made[-1][0], watch, request.gives_kernels)
        if len(made) == 1:
            _write_pictures(options, made[0][0], history, watch, missed)
        messages += [m for m in about(request, made[-1][0]) if m not in messages]
    refuse(missed, options["werror"])
    seen = [of_diagnostic(r.diagnostic()) for r in missed if r.hint is not None or options["verbose"]]
    messages += [m for n, m in enumerate(seen) if m not in seen[:n]]
    if not options["quiet"]:
        show(messages, options["diagnostics"])
    result, cubin = made[0]
    schedule = result.context.schedule
    summary: dict[str, Any] = {"form": asked.form, "arch": ",".join(r.context.arch for r, _ in made)}
    summary["schedule"] = json.loads(schedule.to_json()) if schedule is not None else None
    if result.variants is not None:
        summary["variants"] = result.variants.text()
    summary["remarks"] = [r.diagnostic().as_dict() for r in missed]
    with waiting(f"writing {asked.output or asked.form}", silent):
        files = outputs(made, asked.form, asked.host_compiler, asked.part)
    if asked.line_info:
        from nautilus.runtime.nvrtc import build

        text = f"{Path(asked.output or asked.name).stem}.cu"
        files[""] = build(result.cuda_module, result.context.arch, asked.form, text).data
    if cubin is not None and asked.resource_usage:
        summary["resources"] = _usage(result, cubin)
        if not options["as_json"]:
            click.echo(table(summary["resources"]), err=True, nl=False)
    return Entry(files, {"messages": [m.as_dict() for m in messages], "summary": summary})


def run_and_build(
    request: Request, options: dict[str, Any], how: How, *more: Instrument
) -> tuple[Result, Compiled | None]:
    """Compile under the instruments that the options ask for, and show warnings. Raises UsageError.

    ``how``: as far as the request says; the same, with a kernel that ptxas accepts; up to the cubin.  ``more``: further
    instruments.
    """
    from nautilus.core.errors import VerifyError
    from nautilus.driver import build_cubin, compile_checked, compile_file
    from nautilus.passes.instruments import DumpDir, Print, Time

    shown = Print(frozenset((options["dump_ir"] or "").split(",")))
    clock = Time()
    for part in (options["dump_ir"] or "").split(",") if options["dump_ir"] else ():
        if part not in dump_names():
            raise click.UsageError(f"--dump-ir: unknown stage or pass {part!r} (see --print-passes)")
    to_files = [DumpDir(options["dump_dir"])] if options["dump_dir"] is not None else []
    instruments: list[Instrument] = [*more, *([shown] if options["dump_ir"] else []), *to_files, clock]
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
    if not options["quiet"]:
        show(list(about(request, result)), options["diagnostics"])
    if options["verbose"]:
        _say_schedule(request, result)
    return result, cubin


def _say_schedule(request: Request, result: Result) -> None:
    click.echo(f"nautilusc: {request.path}: {request.until} for {result.context.arch}", err=True)
    if result.lookup_failure:
        reason = f"the schedule of the tuning database fails: {result.lookup_failure}"
        click.echo(f"nautilusc: {request.path}: schedule by rules; {reason}", err=True)
    elif result.tuned:
        click.echo(f"nautilusc: {request.path}: schedule from the tuning database", err=True)
    for line in [] if result.variants is None else result.variants.text():
        click.echo(f"nautilusc: {request.path}: variant {line}", err=True)
    if request.lookup is not None:
        note_outdated(None)


def note_outdated(path: Path | None) -> None:
    """Print the number of rows of an older format to standard error, if there are any."""
    from nautilus.tune.database.commands import outdated_text

    if text := outdated_text(path):
        click.echo(f"nautilusc: {text}", err=True)


def _usage(result: Result, built: Compiled) -> list[dict[str, Any]]:
    from nautilus.cuda.names import kernel_symbol

    dynamic = {kernel_symbol(m, k): k.smem_bytes for m in result.printed for k in m.kernels}
    return [u.as_dict() | {"dynamic_shared_bytes": dynamic[u.kernel]} for u in built.resources]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """``rows`` as text under a line of names; numbers are aligned to the right."""
    lines = [[name.replace("_", " ") for name in rows[0]], *([str(v) for v in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    out = []
    for line in lines:
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        out.append("  ".join(cells) + "\n")
    return "".join(out)

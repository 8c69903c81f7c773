"""The command line: ``nautilusc spec.naut -o kernel.cu`` and its subcommands.

This module imports only click and the standard library; a command imports its modules when it runs, so ``--help`` is
fast.  Exit codes: 0 success; 1 the spec is wrong or a check failed; 2 the command line is wrong; 3 toolchain or GPU
missing or failed; 4 no legal schedule; 5 budget spent without a result; 70 internal error, with the path of a
reproducer; 128 + n stopped by signal n.  A successful command prints nothing but the requested result and remarks
(:mod:`nautilus.remarks`).  Outputs are written completely or not at all.  All messages go to standard error.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nautilus import __version__
from nautilus.cli.help.arguments import Command
from nautilus.cli.help.completion import ARGUMENTS, SHELLS, completed, script
from nautilus.cli.options import (
    COMMANDS,
    arch_option,
    common,
    common_several,
    dim_option,
    identifier,
    names,
    normalize,
    ordinals,
    pairs,
    specs_argument,
)  # fmt: skip
from nautilus.cli.remark_options import werror
from nautilus.export.forms import FORMS
from nautilus.passes.pipelines import STAGE_NAMES

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: the exit codes and their meanings
EXIT_CODES = {
    "0": "done", "1": "the spec is wrong, or a check failed", "2": "the command line is wrong",
    "3": "the toolchain or the GPU is missing or failed", "4": "no legal schedule",
    "5": "the budget is spent without a result", "70": "internal error", "128 + n": "stopped by signal n",
}  # fmt: skip
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Ending:
    """Ends the process with ``code`` without the last steps of the interpreter, which free every object one by one.

    They take a tenth of a short compilation.  The interpreter calls it after it has waited for other threads, and after
    every function that was registered later.
    """

    code: int | None = None

    def __call__(self) -> None:
        if self.code is None:
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                if stream is not None:
                    stream.flush()
        os._exit(self.code)


_ENDING = _Ending()
atexit.register(_ENDING)


class _Main(click.Group):
    """A group whose default command is ``compile``."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = normalize(args)
        ctx.meta[ARGUMENTS] = args
        own = {"-h", "--help", "--version"}
        if args and not (set(args[:1]) & own) and args[0] not in COMMANDS:
            _refuse_misspelt(args[0], ctx)
            args = ["compile", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, and what ``compile`` takes."""
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            default = self.commands["compile"]
            known = {x.value for x in found}
            more = default.shell_complete(click.Context(default, parent=ctx), incomplete)
            return [*found, *(x for x in more if x.value not in known)]
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file"), *found]  # bash drops what stands before a file


def _use_one_thread() -> None:
    """Before numpy is imported: it starts a thread for each core, and these would wait for each other.

    A compilation has no work for them, and the products of interpreters are those of small tiles.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _refuse_misspelt(word: str, ctx: click.Context) -> None:
    """Refuse a first word that can only be a command, because it is no file, but is none.  Raises UsageError."""
    if ctx.resilient_parsing or word.startswith("-") or "." in word or os.sep in word or os.path.exists(word):
        return
    from difflib import get_close_matches

    near = get_close_matches(word, COMMANDS, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]!r}?" if near else "nautilusc --help lists the commands"
    raise click.UsageError(f"{word!r} is no command and no file; {hint}", ctx)


@click.group(cls=_Main, context_settings=_CONTEXT, invoke_without_command=True)
@click.version_option(__version__, prog_name="nautilusc")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Compile tensor mathematics to CUDA kernels.

    \b
    nautilusc SPEC -o kernel.cu     compile (the same as: nautilusc compile SPEC ...)
    nautilusc COMMAND --help        options of a command
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@cli.command("compile")
@common_several
@click.option(
    "-o",
    "--output",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="Output file or folder; the suffix selects the format; - is stdout. [default: SPEC.cu beside SPEC]",
)
@click.option("--emit", type=click.Choice(FORMS), help="Format of the output; overrides the suffix.")
@click.option("--name", callback=identifier, metavar="NAME", help="Name of the C functions. [default: the file's]")
@click.option(
    "--host-compiler", default="", metavar="CXX", help="C++ compiler of libraries. [default: CXX, c++, g++ or clang++]"
)
@click.option("--cache/--no-cache", "use_cache", default=True, help="Use outputs of earlier compilations.")
@click.option("--resource-usage", is_flag=True, help="Report registers, spills, shared memory (uses NVRTC).")
@click.option("-lineinfo", "line_info", is_flag=True, help="Keep the lines of the .cu text in a cubin or in PTX.")
@click.option("-MD", "dependencies", is_flag=True, help="Write a makefile rule with the read files beside the output.")
@click.option("-MF", "rule_file", metavar="FILE", help="The file of -MD.")
@click.option("--report", metavar="FILE.html", help="Write a page with the spec, the IRs and the kernel side by side.")
@click.option("--trace", metavar="FILE.json", help="Write the predicted timeline of a block for Perfetto or Chrome.")
@werror
def compile_command(specs: tuple[Path, ...], **options: Any) -> None:
    """Compile each SPEC (.naut, or a dump: .scalar .vr .ma; - is stdin) to CUDA C++, PTX, cubin or an IR.

    For sm_90a, ptxas checks kernels with wgmma instructions before any output. If ptxas serialises wgmma or spills
    registers, the compiler plans the kernel again, and outputs and dumps show the last plan. With --schedule or a dump
    as input, the compiler prints a warning instead (an error for a cubin). Without NVRTC it prints a note.
    """
    _use_one_thread()
    from nautilus.cli.compiling import compile_spec
    from nautilus.cli.several import compile_joined, for_each, joined_form, outputs, refuse_shared

    refuse_shared(specs, options)
    form = joined_form(specs, options["output"], options["emit"])
    if form is not None:
        del options["emit"]
        compile_joined(specs, form=form, **options)
        return
    files = dict(zip(specs, outputs(specs, options.pop("output"), options["emit"]), strict=True))
    for_each(specs, lambda spec: compile_spec(spec, files[spec], **options))


@cli.command("check")
@common_several
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random inputs.")
@click.option("--device", type=click.Choice(["cpu", "cuda", "auto"]), default="auto", show_default=True)
def check_command(specs: tuple[Path, ...], **options: Any) -> None:
    """Validate the compilation of each SPEC: certificates, both sides of every lowering, and the result."""
    _use_one_thread()
    from nautilus.cli.commands import check_spec
    from nautilus.cli.several import for_each

    for_each(specs, lambda spec: check_spec(spec, **options))


@cli.command("run")
@common
@click.option("--input", "inputs", multiple=True, callback=pairs, metavar="Q=q.npy", help="An input array.")
@click.option("--set", "scalars", multiple=True, callback=pairs, metavar="eps=1e-5", help="A scalar argument.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of random inputs.")
@click.option("--output-dir", type=click.Path(path_type=Path), help="Write each output to NAME.npy in this folder.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--stage", type=click.Choice(STAGE_NAMES[:-1]), help="Interpreter for --device cpu. [spec]")
def run_command(**options: Any) -> None:
    """Run SPEC on .npy inputs with an interpreter or on the GPU."""
    from nautilus.cli.commands import run_spec

    run_spec(**options)


@cli.command("bench")
@common_several
@click.option(
    "--against",
    callback=names,
    metavar="PEER,...",
    default="all",
    show_default=True,
    help="Peers, or none; missing or inapplicable ones are listed with the reason.",
)
@click.option(
    "--repeats", type=click.IntRange(min=3), default=9, show_default=True, help="Cool runs of each contender."
)
@click.option("--rounds", type=click.IntRange(min=0), default=5, show_default=True, help="Sustained rounds; 0: none.")
@click.option(
    "--max-spread",
    type=click.FloatRange(min=0.0),
    default=10.0,
    show_default=True,
    metavar="PERCENT",
    help="Largest spread of cool times with a ratio.",
)
@click.option(
    "--input", "inputs", multiple=True, callback=pairs, metavar="Q=q.npy", help="An input that is not random."
)
@click.option("--set", "scalars", multiple=True, callback=pairs, metavar="eps=1e-5", help="A scalar argument.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of inputs and order.")
@click.option("--unchecked", is_flag=True, help="Do not compare results with the reference; there are no ratios then.")
def bench_command(**options: Any) -> None:
    """Time the kernel of each SPEC and of every installed peer on the GPU."""
    from nautilus.cli.commands import bench_specs

    bench_specs(**options)


@cli.command("tune")
@specs_argument
@arch_option
@dim_option
@click.option("--precision", type=click.Choice(["fast", "strict"]), help="[default: fast]")
@click.option("--trials", type=click.IntRange(min=1), default=64, show_default=True, help="Candidates to build.")
@click.option(
    "--timeout", type=click.FloatRange(min=0.0), default=0.0, metavar="S", help="Seconds for each spec; 0: no limit."
)
@click.option(
    "--jobs", type=click.IntRange(min=0), default=0, metavar="J", help="Parallel compilers; 0: one for each processor."
)
@click.option("--devices", callback=ordinals, default="0", show_default=True, metavar="0,1", help="GPUs to measure on.")
@click.option(
    "--storage", default="", metavar="URL", help="Optuna storage: sqlite:///F, journal:F, postgresql://..., memory."
)
@click.option("--study", default="", metavar="NAME", help="Join this study, which other processes may share.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of samples and inputs.")
@click.option("--resume", is_flag=True, help="Continue the last study of each spec; finished ones are not repeated.")
@click.option("--measure", type=click.Choice(["gpu", "model"]), default="gpu", show_default=True)
@click.option(
    "--from-scratch",
    "scratch",
    is_flag=True,
    help="Search without the default schedule and the schedules of the database.",
)
@click.option("--set", "scalars", multiple=True, callback=pairs, metavar="eps=1e-5", help="A scalar argument.")
@click.option("--diagnostics", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print each result as a line of JSON on stdout.")
@click.option("-v", "--verbose", is_flag=True, help="Print more messages to stderr.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
def tune_command(**options: Any) -> None:
    """Search for the fastest schedule of each SPEC by measurement and store it in the tuning database."""
    from nautilus.cli.commands import tune_specs

    tune_specs(**options)


@cli.group("db")
def db_group() -> None:
    """Manage the tuning database, which holds measurements and the schedules of -O2."""


_DB = click.option(
    "--db", "path", type=click.Path(path_type=Path), help="Database file. [default: the user's and the shipped one]"
)
_WANTED = click.argument("wanted", default="", metavar="[SPEC|KEY]")


@db_group.command("ls")
@_WANTED
@_DB
@click.option("--json", "as_json", is_flag=True, help="Print each record as a line of JSON.")
def db_ls(**options: Any) -> None:
    """List specs and sizes with the best time and the number of rows."""
    from nautilus.cli.commands import list_database

    list_database(**options)


@db_group.command("show")
@click.argument("wanted", metavar="SPEC|KEY")
@_DB
@click.option("--count", type=click.IntRange(min=1), default=5, show_default=True, help="Rows of each key.")
@click.option("--json", "as_json", is_flag=True, help="Print each row as a line of JSON.")
def db_show(**options: Any) -> None:
    """Show the best rows of a spec with times, machine and schedule."""
    from nautilus.cli.commands import show_database

    show_database(**options)


@db_group.command("export")
@_WANTED
@_DB
@click.option("-o", "--output", default="-", metavar="FILE", help="Output file; - is stdout. [default: -]")
@click.option("--all", "everything", is_flag=True, help="Export all rows instead of the best of each key.")
def db_export(**options: Any) -> None:
    """Write rows as JSON lines, for ``db merge`` on another machine."""
    from nautilus.cli.commands import export_database

    export_database(**options)


@db_group.command("merge")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE...")
@_DB
def db_merge(**options: Any) -> None:
    """Add the rows of other databases to the user's database."""
    from nautilus.cli.commands import merge_databases

    merge_databases(**options)


@db_group.command("gc")
@_DB
@click.option(
    "--keep", type=click.IntRange(min=1), default=10, show_default=True, help="Best rows of each key to keep."
)
def db_gc(**options: Any) -> None:
    """Remove rows that no compilation uses: failures, estimates, and all but the best rows."""
    from nautilus.cli.commands import collect_database

    collect_database(**options)


@cli.command("explain")
@common
@click.option("--alternatives", is_flag=True, help="Try every change of the schedule, and show those by sizes.")
def explain_command(spec: Path, **options: Any) -> None:
    """Show the schedule of SPEC, its source, and the estimate of the cost model; or explain an error code (N0303)."""
    from nautilus.cli.commands import explain_spec
    from nautilus.cli.help.codes import explained

    if (text := explained(spec)) is not None:
        click.echo(text, nl=False)
        return
    explain_spec(spec, **options)


@cli.command("fmt")
@click.argument("paths", type=click.Path(path_type=Path, allow_dash=True), nargs=-1, required=True, metavar="PATH...")
@click.option("--check", is_flag=True, help="Write nothing; list the files that would change, with exit code 1.")
@click.option("--diff", is_flag=True, help="Print what would change, and write nothing.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
def fmt_command(paths: tuple[Path, ...], **options: Any) -> None:
    """Give each PATH (.naut, or a folder of them; - is stdin to stdout) the standard layout.

    Only spaces, indentation and blank lines change. Comments and breaks between lines stay.
    """
    from nautilus.cli.editor.formatting import format_files

    format_files(paths, **options)


@cli.command("lsp")
def lsp_command() -> None:
    """Serve editors by the language server protocol on standard input and output (needs pygls)."""
    from nautilus.editor.server import serve

    serve()


@cli.command("schedule")
@click.option("--reference", is_flag=True, required=True, help="Print the page of all fields, in Markdown.")
def schedule_command(**_options: Any) -> None:
    """Describe the schedule file."""
    from nautilus.core.schedule.reference import reference

    click.echo(reference(), nl=False)


@cli.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    """Print the script that completes nautilusc in a shell, to be sourced by its start-up file."""
    click.echo(script(shell))


@cli.command("man")
def man_command() -> None:
    """Print the manual page."""
    from nautilus.cli.help.man import manual

    click.echo(manual(cli, __version__, EXIT_CODES), nl=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.  Returns the exit code; user errors raise nothing."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(args)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except (KeyboardInterrupt, click.Abort):
        return _said("interrupted", 130)
    except Terminated as stop:
        return 128 + int(stop.args[0])
    except BrokenPipeError:
        _mute()
        return 128 + signal.SIGPIPE
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else ""
        _said(f"nautilusc: error: {place}{error.strerror or error}", 2)
        _mute()
        return 2


def _run(args: list[str]) -> int:
    try:
        with cli.make_context("nautilusc", args) as context:  # cli.main would exit on a closed pipe
            cli.invoke(context)
        return 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.Abort:
        raise
    except click.ClickException as error:
        return _complain(error, args)
    except OSError:
        raise
    except Exception as error:
        from nautilus.cli.output import report

        return report(error, args)


def _complain(error: click.ClickException, args: Sequence[str]) -> int:
    from nautilus.cli.output import asks_json

    if asks_json(args):
        record = {"error": type(error).__name__, "message": error.format_message(), "exit_code": 2}
        return _said(json.dumps(record), 2)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return _said(error.format_message(), 2)
    usage = error.ctx.get_usage() + "\n" if isinstance(error, click.UsageError) and error.ctx is not None else ""
    return _said(f"{usage}nautilusc: error: {error.format_message()}", 2)


class Terminated(BaseException):
    """Raised on SIGTERM or SIGHUP, so that unwinding removes temporary files."""


def _said(text: str, code: int) -> int:
    with suppress(OSError):
        print(text, file=sys.stderr)
    return code


def _mute() -> None:
    """Redirect broken streams to /dev/null, because the interpreter flushes them at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def entry() -> None:
    """Run the command line, end the process, and answer the scripts of shells."""

    def terminate(number: int, _frame: object) -> None:
        raise Terminated(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # respects nohup
            signal.signal(number, terminate)
    answered = completed(cli)
    _ENDING.code = main() if answered is None else answered
    sys.exit(_ENDING.code)

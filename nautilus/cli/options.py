"""The options of the command line: spellings, values, and the request to the driver that they make.

Like :mod:`nautilus.cli.main`, this module imports only click and the standard library.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click

from nautilus.cli.help.arguments import refuse_value
from nautilus.cli.help.completion import ARGUMENTS, complete_arch, complete_dim
from nautilus.cli.sizes import read_sizes
from nautilus.passes.pipelines import STAGE_NAMES, STAGES, listing, listing_data

COMMANDS = (
    "compile", "check", "run", "bench", "tune", "db", "explain", "fmt", "lsp", "schedule", "completion", "man",
)  # fmt: skip
STDIN = "<stdin>"


def normalize(args: Sequence[str]) -> list[str]:
    """Rewrite spellings that click does not support: ``-arch=sm_90a``, and ``--dump-ir`` with an optional value."""
    out: list[str] = []
    rest = list(args)
    while rest:
        arg = rest.pop(0)
        if arg == "--":
            return [*out, arg, *rest]
        if arg == "-arch" or arg.startswith("-arch="):
            arg = "-" + arg
        if arg == "--dump-ir":
            value = rest.pop(0) if rest and _is_dump_list(rest[0]) else "all"
            arg = f"--dump-ir={value}"
        out.append(arg)
    return out


def _is_dump_list(text: str) -> bool:
    """Whether ``text`` is the value of ``--dump-ir``: known names, or a misspelt one that is no option and no file."""
    if all(part in dump_names() for part in text.split(",")):
        return True
    return text not in COMMANDS and not text.startswith("-") and "." not in text and not os.path.exists(text)


@cache
def dump_names() -> frozenset[str]:
    """The values of ``--dump-ir``: ``all``, stages, passes (every run), one run (``cse-2``), and ``stage/pass``."""
    names = {"all", "parse", *STAGE_NAMES, "check", "spec/check"}
    for stage in STAGES[1:]:
        steps = ("lower", "parse", *stage.step_names)
        once = {f"{name}-1" for name in (p.name for p in stage.passes)}
        own = {*steps, *once}
        names |= own | {f"{stage.name}/{name}" for name in own}
    return frozenset(names)


def _dims(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        try:
            found |= read_sizes(value, found)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return found


def pairs(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE options by name. Raises BadParameter for another form."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, right = value.partition("=")
        if not equals or not name.isidentifier() or not right:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        found[name] = right
    return found


def identifier(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
    """A name in C; empty for None. Raises BadParameter for another word."""
    if value is not None and not (value.isidentifier() and value.isascii()):
        raise click.BadParameter(f"{value!r} is no name in C")
    return value or ""


def _show_pipeline(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        as_json = "--json" in ctx.meta.get(ARGUMENTS, ())
        click.echo(json.dumps(listing_data()) if as_json else listing().rstrip())
        ctx.exit()


def _spec(ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    """The path or paths of specs; standard input, ``-``, is read here and has the name :data:`STDIN` with a suffix."""
    if isinstance(value, tuple):
        return tuple(_spec(ctx, _param, one) for one in value)
    if ctx.resilient_parsing:
        return value
    if str(value) != "-":
        refuse_value(value, ctx)
        return value
    if STDIN not in ctx.meta:
        ctx.meta[STDIN] = "" if sys.stdin is None else sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    text = ctx.meta[STDIN] = ctx.meta[STDIN].rstrip("\n") + "\n"
    first = re.match(r"; nautilusc dump: ([\w-]+) after", text)
    return Path(STDIN + next((s.suffix for s in STAGES if first and s.name == first[1]), STAGES[0].suffix))


def given_text(spec: Path) -> str | None:
    """The text of standard input if ``spec`` stands for it; else None."""
    context = click.get_current_context(silent=True)
    return context.meta.get(STDIN) if context is not None and spec.stem == STDIN else None


arch_option = click.option(
    "--arch",
    metavar="SM",
    shell_complete=complete_arch,
    help="Target, e.g. sm_80. Default: the local GPU's, else sm_90a.",
)
dim_option = click.option(
    "-D",
    "--dim",
    "dims",
    multiple=True,
    callback=_dims,
    shell_complete=complete_dim,
    metavar="N=8192",
    help="Set a size; 2**13 and 1e4 are sizes too.",
)


def common(f: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument and the options of every command on one spec."""
    return spec_argument(common_options(f))


def common_several(f: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument and the options of every command on several specs."""
    return specs_argument(common_options(f))


SPEC_FILE = click.Path(path_type=Path, allow_dash=True)
spec_argument = click.argument("spec", type=SPEC_FILE, callback=_spec)
specs_argument = click.argument("specs", type=SPEC_FILE, callback=_spec, nargs=-1, required=True, metavar="SPEC...")


def common_options(f: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command."""
    options = [
        arch_option,
        dim_option,
        click.option("--schedule", type=click.Path(path_type=Path), help="Replay a schedule (JSON)."),
        click.option(
            "-O",
            "level",
            type=click.IntRange(0, 3),
            default=2,
            show_default=True,
            metavar="0|1|2|3",
            help="Schedule: 0 unoptimised, 1 default rules, 2 tuning database, else rules, 3 tune first.",
        ),
        click.option("--precision", type=click.Choice(["fast", "strict"]), help="[default: fast, or that of the dump]"),
        click.option("--variants", type=click.IntRange(1), default=6, metavar="N", help="Most schedules by sizes."),
        click.option(
            "--batch-invariant", is_flag=True, help="An element's bits depend on neither batch sizes nor neighbours."
        ),
        click.option(
            "--dump-ir",
            metavar="STAGE,...|all",
            shell_complete=lambda _ctx, _param, begun: sorted(n for n in dump_names() if n.startswith(begun)),
            help="Print the IR after stages or passes to stderr.",
        ),
        click.option("--dump-dir", type=click.Path(path_type=Path), help="Write the IR after every pass to files."),
        click.option(
            "--print-passes",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_pipeline,
            help="Print the pass pipeline and exit.",
        ),
        click.option("--time-passes", is_flag=True, help="Print the time of each pass to stderr."),
        click.option("--diagnostics", type=click.Choice(["text", "json"]), default="text", show_default=True),
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout."),
        click.option("-v", "--verbose", is_flag=True, help="Print more messages to stderr."),
        click.option("-q", "--quiet", is_flag=True, help="Print only errors."),
    ]
    for option in reversed(options):
        f = option(f)
    return f


def names(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    """The words of a list with commas, each once."""
    return tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))


def ordinals(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[int, ...]:
    """The device numbers of a list with commas. Raises BadParameter for anything else."""
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdigit() for part in parts) or len(set(parts)) < len(parts):
        raise click.BadParameter(f"{value!r} is not a list of device numbers such as 0,1")
    return tuple(map(int, parts))

"""Completion of command lines in bash, zsh and fish.

``nautilusc completion SHELL`` prints a script of click's for the shell.  At each tab the script runs ``nautilusc`` with
the words so far in the environment, and :func:`completed` answers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

ARGUMENTS = "nautilus.arguments"  # all words of the command line, in the meta data of the context
PROGRAM, VARIABLE = "nautilusc", "_NAUTILUSC_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
_DIM = re.compile(r"^\s*dim\s+(.*)$", re.MULTILINE)
_MOST = 1 << 18  # bytes of a spec that are searched for dims


def script(shell: str) -> str:
    """The text that the shell sources."""
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    made = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    parts = {"complete_func": "_nautilusc_completion", "complete_var": VARIABLE, "prog_name": PROGRAM}
    return str(made.source_template % parts)


def completed(cli: click.Command) -> int | None:
    """Answer the script of a shell on standard output; None where no script calls."""
    asked = os.environ.get(VARIABLE)
    if not asked:
        return None
    from click.shell_completion import shell_complete

    return shell_complete(cli, {}, PROGRAM, VARIABLE, asked)


def complete_arch(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """The architectures that begin with ``begun``, for the shell."""
    from nautilus.targets.records import NAMES

    return [name for name in NAMES if name.startswith(begun)]


def complete_dim(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """The dims of the specs on the command line, each with ``=``; nothing after the sign."""
    found: dict[str, None] = {}
    for path in ctx.meta.get(ARGUMENTS, ()):
        if not path.endswith(".naut"):
            continue
        try:
            with Path(path).open(encoding="utf-8", errors="replace") as file:
                text = file.read(_MOST)
        except OSError:
            continue
        for line in _DIM.findall(text):
            found |= dict.fromkeys(re.findall(r"(?:^|,)\s*([A-Za-z_]\w*)", line.partition("#")[0]))
    return [f"{name}=" for name in found if name.startswith(begun)]

"""Completion of command lines in bash, zsh and fish.

``nautilusc completion SHELL`` prints a script for the shell: those of click for bash and zsh, and one of this module
for fish, because the one of click differs between its versions, and that of 8.4 does not run.  At each tab the script
runs ``nautilusc`` with the words so far in the environment, and :func:`completed` answers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete

ARGUMENTS = "nautilus.arguments"  # all words of the command line, in the meta data of the context
PROGRAM, VARIABLE = "nautilusc", "_NAUTILUSC_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
_DIM = re.compile(r"^\s*dim\s+(.*)$", re.MULTILINE)
_MOST = 1 << 18  # bytes of a spec that are searched for dims


#: prints a line for each completion; what follows a tab is its description
_FISH = """\
function %(complete_func)s
    set -l words COMP_WORDS=(commandline -cp) COMP_CWORD=(commandline -t)
    for line in (env %(complete_var)s=fish_complete $words %(prog_name)s)
        set -l parts (string split \\t -- $line)
        switch "$parts[1]"
            case dir
                __fish_complete_directories $parts[2]
            case file
                __fish_complete_path $parts[2]
            case plain
                string join \\t -- $parts[2..-1]
        end
    end
end
complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


def _fish() -> type[ShellComplete]:
    """Completion in fish, in the format of :data:`_FISH`."""
    from click.shell_completion import CompletionItem, FishComplete

    class Fish(FishComplete):
        source_template = _FISH

        def format_completion(self, item: CompletionItem) -> str:
            words = (item.type, str(item.value), item.help or "")
            return "\t".join(" ".join(word.split()) for word in words if word)

    return Fish


def script(shell: str) -> str:
    """The text that the shell sources."""
    from click.shell_completion import BashComplete, ZshComplete

    known: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": _fish()}
    made = known[shell]
    parts = {"complete_func": "_nautilusc_completion", "complete_var": VARIABLE, "prog_name": PROGRAM}
    return str(made.source_template % parts)


def completed(cli: click.Command) -> int | None:
    """Answer the script of a shell on standard output; None where no script calls."""
    asked = os.environ.get(VARIABLE)
    if not asked:
        return None
    from click.shell_completion import add_completion_class, shell_complete

    add_completion_class(_fish(), "fish")
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

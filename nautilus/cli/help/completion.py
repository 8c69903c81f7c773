"""Completion of command lines in bash, zsh and fish.

``nautilusc completion SHELL`` prints a script for the shell.  At each tab the script runs ``nautilusc`` with the words
so far in the environment, and :func:`completed` answers.  The scripts are those of this module: of those of click,
that for bash shows either files or commands, that for zsh loses its place where a word is empty, and that for fish
differs between the versions of click, and the one of 8.4 does not run.
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

#: takes a line for each completion: its kind, a comma, and the word, which for files is what their names begin with
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' line word
    for line in $(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %(complete_var)s=bash_complete $1); do
        word="${line#*,}"
        case "${line%%%%,*}" in
            dir) compopt -o filenames; COMPREPLY+=($(compgen -d -- "$word")) ;;
            file) compopt -o filenames; COMPREPLY+=($(compgen -f -- "$word")) ;;
            plain) COMPREPLY+=("$word") ;;
        esac
    done
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


def _bash() -> type[ShellComplete]:
    """Completion in bash by :data:`_BASH`."""
    from click.shell_completion import BashComplete

    class Bash(BashComplete):
        source_template = _BASH

    return Bash


#: takes three lines for each completion: its kind, the word, which is empty for a file of any name, and a text or ``_``
_ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a lines plain described
    local kind word text
    (( ! $+commands[%(prog_name)s] )) && return 1
    lines=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \
        %(complete_var)s=zsh_complete %(prog_name)s)}")
    for kind word text in "${(@)lines}"; do
        case "$kind" in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            plain) if [[ "$text" == "_" ]]; then plain+=("$word"); else described+=("$word:$text"); fi ;;
        esac
    done
    (( $#described )) && _describe -V unsorted described -U
    (( $#plain )) && compadd -U -V unsorted -a plain
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"  # from a folder of fpath
else
    compdef %(complete_func)s %(prog_name)s
fi
"""


def _zsh() -> type[ShellComplete]:
    """Completion in zsh by :data:`_ZSH`."""
    from click.shell_completion import ZshComplete

    class Zsh(ZshComplete):
        source_template = _ZSH

    return Zsh


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
    made = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()
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

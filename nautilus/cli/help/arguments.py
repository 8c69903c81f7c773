"""Words of a command line that are no options: files, and what a user may have meant by a word that is none."""

from __future__ import annotations

import os
from pathlib import Path

import click


class Command(click.Command):
    """A command that says how sizes and inputs are given where it gets more words than it takes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises UsageError for words that the command does not take."""
        ctx.allow_extra_args = True  # the message is made here
        super().parse_args(ctx, args)
        if ctx.args and not ctx.resilient_parsing:
            refuse_value(ctx.args[0], ctx)
            taken = " ".join(ctx.command.collect_usage_pieces(ctx))
            raise click.UsageError(f"{ctx.args[0]!r} is one word too many; the words are {taken}", ctx)
        return ctx.args


def refuse_value(word: str | Path, ctx: click.Context) -> None:
    """Raise UsageError for ``NAME=VALUE`` that names no file."""
    name, equals, value = str(word).partition("=")
    if not equals or not name.isidentifier() or os.path.exists(word):
        return
    if value.endswith(".npy"):
        raise click.UsageError(f"'{word}' is no file; an input is given by --input {word}", ctx)
    raise click.UsageError(f"'{word}' is no file; a size is given by --dim {word}", ctx)

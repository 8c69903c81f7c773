"""The option ``-Werror`` of commands that give remarks. The module imports only click, so that ``--help`` is fast."""

from __future__ import annotations

import click

#: the kinds of :class:`nautilus.remarks.remark.Kind`
REMARKS = ("matrix-units", "fusion", "scratch", "fallback", "order", "mask", "floor")


def _kinds(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    """The kinds of remarks that are errors, from ``-Werror`` and ``-Werror=KIND``."""
    found: set[str] = set()
    for value in values:
        word, equals, name = value.partition("=")
        if word != "error" or (equals and name not in REMARKS):
            raise click.BadParameter(f"-W{value}: not error or error=KIND, with KIND {', '.join(REMARKS)}")
        found |= {name} if equals else set(REMARKS)
    return frozenset(found)


werror = click.option(
    "-W", "werror", multiple=True, callback=_kinds, metavar="error[=KIND]", help="Make remarks (of a kind) errors."
)

"""The manual page (troff) of the command line, made from the help of its commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import click


def manual(cli: click.Group, version: str, codes: Mapping[str, str]) -> str:
    """The page ``nautilusc.1``; ``codes``: the meaning of each exit code."""
    commands = list(_commands(cli, click.Context(cli, info_name="nautilusc")))
    lines = [
        f'.TH NAUTILUSC 1 "" "nautilusc {version}" "User Commands"',
        ".SH NAME",
        r"nautilusc \- compile tensor mathematics to CUDA kernels",
        ".SH SYNOPSIS",
    ]
    for context in commands:
        usage = " ".join(context.command.collect_usage_pieces(context))
        lines += [f".B {_plain(context.command_path)}", _plain(usage), ".br"]
    lines += [".SH DESCRIPTION", *_paragraphs(cli.help or ""), ".SH COMMANDS"]
    for context in commands:
        lines += [f".SS {_plain(context.command_path)}", *_paragraphs(context.command.help or "")]
        lines += [line for p in context.command.get_params(context) for line in _option(p, context)]
    lines.append(".SH EXIT STATUS")
    for code, meaning in codes.items():
        lines += [".TP", f".B {code}", _plain(meaning)]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, parent: click.Context) -> Iterator[click.Context]:
    """The context of each command, those of groups inside of it included."""
    for name, command in group.commands.items():
        context = click.Context(command, info_name=name, parent=parent)
        if isinstance(command, click.Group):
            yield from _commands(command, context)
        else:
            yield context


def _option(parameter: click.Parameter, context: click.Context) -> list[str]:
    """The entry of an option; none for an argument, which the synopsis shows."""
    record = parameter.get_help_record(context)
    if record is None:
        return []
    names, text = record
    return [".TP", f".B {_plain(names)}", *_paragraphs(text)]


def _paragraphs(text: str) -> list[str]:
    """Paragraphs of a help text; one after ``\\b`` keeps its lines."""
    out: list[str] = []
    for number, part in enumerate(re.split(r"\n\s*\n", text.strip())):
        lines = [line.strip() for line in part.splitlines()]
        kept = lines[:1] == ["\b"]
        out += [".PP"] if number else []
        out += [".nf", *map(_plain, lines[1:]), ".fi"] if kept else [_plain(" ".join(lines))]
    return out


def _plain(text: str) -> str:
    """``text`` without characters that troff reads as requests."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return r"\&" + escaped if escaped.startswith((".", "'")) else escaped

"""``python -m tests.fuzz``: fuzz the compiler on all cores, and go on where the last call stopped."""

from __future__ import annotations

import os
import sys
from collections import Counter
from math import inf
from pathlib import Path

import click
from rich.progress import Progress

from tests.fuzz.campaign import FUZZERS, Campaign


@click.command(context_settings={"show_default": True})
@click.option("-n", "--count", type=click.IntRange(min=1), default=1000, help="Cases of all fuzzers together.")
@click.option("--fuzzer", "names", multiple=True, type=click.Choice(sorted(FUZZERS)), help="Only these.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="The first seed.")
@click.option("--workers", type=click.IntRange(min=1), default=len(os.sched_getaffinity(0)), help="Processes.")
@click.option("--seconds", type=float, default=inf, help="Begin nothing new after this time.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path("out/fuzz"), help="Where results are kept.")
@click.option("--minimise/--no-minimise", default=True, help="Make the failing cases smaller at the end.")
def fuzz(
    count: int, names: tuple[str, ...], seed: int, workers: int, seconds: float, folder: Path, minimise: bool
) -> None:
    """Try COUNT random specs, schedules, dumps, databases, arrays and command lines.

    Exit code 1: at least one case failed; the smallest of each kind is in FOLDER/found.
    """
    chosen = names or tuple(FUZZERS)
    campaign = Campaign(folder, chosen, -(-count // len(chosen)), seed, workers, seconds)
    with Progress(disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task("fuzz", total=count)
        for done, total, verdicts in campaign.run():
            text = _counts(sum(verdicts.values(), Counter()))
            bar.update(task, completed=done, total=total, description=text)
    for name, verdict in verdicts.items():
        click.echo(f"{name:14}{verdict.total():8} cases: {_counts(verdict)}")
    click.echo(f"{'all':14}{done:8} of {total} cases: {text}")
    found = list(campaign.minimised() if minimise else campaign.found())
    for path, message in found:
        click.echo(f"{path}: {message}")
    sys.exit(bool(found))


def _counts(verdicts: Counter[str]) -> str:
    return ", ".join(f"{n} {verdict}" for verdict, n in verdicts.most_common())


if __name__ == "__main__":
    fuzz()

"""``python -m tests.fuzz``: fuzz the compiler on all cores, and go on where the last call stopped."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from rich.progress import Progress

from tests.fuzz.campaign import FUZZERS, Campaign


@click.command(context_settings={"show_default": True})
@click.option("-n", "--count", type=click.IntRange(min=1), default=1000, help="Cases of all fuzzers together.")
@click.option("--fuzzer", "names", multiple=True, type=click.Choice(sorted(FUZZERS)), help="Only these.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="The first seed.")
@click.option("--workers", type=click.IntRange(min=1), default=os.cpu_count() or 1, help="Processes.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path("out/fuzz"), help="Where results are kept.")
@click.option("--minimise/--no-minimise", default=True, help="Make the failing cases smaller at the end.")
def fuzz(count: int, names: tuple[str, ...], seed: int, workers: int, folder: Path, minimise: bool) -> None:
    """Try COUNT random specs, schedules, dumps, databases, arrays and command lines.

    Exit code 1: at least one case failed; the smallest of each kind is in FOLDER/found.
    """
    chosen = names or tuple(FUZZERS)
    campaign = Campaign(folder, chosen, -(-count // len(chosen)), seed, workers)
    with Progress(disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task("fuzz", total=count)
        for done, total, verdicts in campaign.run():
            text = " ".join(f"{k}={n}" for k, n in sorted(verdicts.items()))
            bar.update(task, completed=done, total=total, description=text)
    click.echo(f"{sum(verdicts.values())} cases: " + ", ".join(f"{n} {k}" for k, n in sorted(verdicts.items())))
    found = list(campaign.minimised()) if minimise else [(p, "") for p in sorted((folder / "found").glob("*.why"))]
    for path, message in found:
        click.echo(f"{path}: {message}")
    sys.exit(bool(found))


if __name__ == "__main__":
    fuzz()

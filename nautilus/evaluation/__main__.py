"""The command line of the evaluation (``make evaluation``).

python -m nautilus.evaluation out/evaluation
python -m nautilus.evaluation out/evaluation --only 'models/vit-80/f16' --seconds 300
python -m nautilus.evaluation out/evaluation --list
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from nautilus.bench.bench import PEERS, Settings, require_gpu
from nautilus.bench.rows import Row
from nautilus.core.errors import NautilusError, ToolchainError
from nautilus.evaluation.cases import Case, cases, chosen
from nautilus.evaluation.plots import plot
from nautilus.evaluation.report import best, markdown
from nautilus.evaluation.rows import finished, read
from nautilus.evaluation.run import Plan, run
from nautilus.tune.workers.pool import Limit, Pool, Service

AGAINST = "cudnn,fa2,fa3,flex"
_HERE = "nautilus.evaluation.services"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--only", multiple=True, metavar="PATTERN", help="Cases whose name matches, as --list prints it; repeat.")
@click.option("--seconds", type=click.FloatRange(min=0.0), default=0.0, help="Begin no case after them (0: no limit).")
@click.option("--limit", type=click.FloatRange(min=1.0), default=240.0, show_default=True, help="Seconds of a case.")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Processes that compile.  [default: CPUs - 2, <= 8]")
@click.option("--against", default=AGAINST, show_default=True, help=f"Peers, of {', '.join(PEERS)}.")
@click.option("--repeats", type=click.IntRange(1), default=9, show_default=True)
@click.option("--arch", default="sm_90a", show_default=True)
@click.option("--specs", type=click.Path(path_type=Path, exists=True), default=Path("specs"), show_default=True)
@click.option("--again", is_flag=True, help="Measure again what failed or was disturbed.")
@click.option("--list", "listing", is_flag=True, help="Print the cases and end.")
@click.option("--report", is_flag=True, help="Only make table and plots from the rows.")
def main(folder: Path, only: tuple[str, ...], again: bool, listing: bool, report: bool, **options: object) -> None:
    """Measure the cases into FOLDER/rows.jsonl, and make FOLDER/table.md and plots."""
    asked = chosen(_cases(options["specs"]), only)
    if not asked:
        raise click.UsageError(f"no case matches {' '.join(only)}; --list prints all")
    if listing:
        click.echo("\n".join(c.key for c in asked))
        return
    file = folder / "rows.jsonl"
    try:
        if not report:
            folder.mkdir(parents=True, exist_ok=True)
            known = read(file)
            left = [c for c in asked if c.key not in known or (again and not finished(known[c.key]))]
            click.echo(f"{len(asked)} cases, {len(left)} to measure", err=True)
            if left:
                _measure(file, left, **options)  # type: ignore[arg-type]
    except NautilusError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)
    write(folder, asked)


def _cases(specs: object) -> list[Case]:
    try:
        return list(cases(Path(str(specs))))
    except NautilusError as error:
        raise click.UsageError(f"{error}; --specs names the folder") from error


def _measure(
    file: Path,
    left: list[Case],
    seconds: float,
    limit: float,
    jobs: int | None,
    against: str,
    repeats: int,
    arch: str,
    specs: Path,
) -> None:
    """Raises ToolchainError without a GPU."""
    require_gpu()
    settings = Settings(tuple(against.split(",")), repeats, rounds=0)
    count = jobs or max(1, min(8, (os.cpu_count() or 1) - 2))
    compilers: Pool[Case] = Pool([Service(f"{_HERE}:Compiler", (str(specs), arch))] * count, Limit(limit, limit))
    measurers: Pool[Case] = Pool([Service(f"{_HERE}:Measurer", (settings,))], Limit(limit, limit))
    try:
        for n, row in enumerate(run(Plan(file, arch, seconds), left, compilers, measurers), 1):
            click.echo(f"{n} of {len(left)}: {row['key']}: {_said(row)}", err=True)
    finally:
        compilers.close()
        measurers.close()


def _said(row: Row) -> str:
    if "failure" in row:
        return str(row["failure"])
    top = best(row)
    over = "no ratio" if top is None else f"{top:.2f} of the best peer"
    return f"{row['us']:.1f} us (predicted {row['predicted_us']:.1f}), {over}" + ("" if row["ok"] else ", WRONG")


def write(folder: Path, asked: list[Case]) -> None:
    """The table and the plots from the rows; without matplotlib there are no plots."""
    rows = read(folder / "rows.jsonl")
    page = folder / "table.md"
    page.write_text(markdown(rows, asked))
    mine = [rows[c.key] for c in asked if c.key in rows]
    try:
        made = plot(mine, folder)
    except ToolchainError as error:
        click.echo(str(error), err=True)
        made = []
    click.echo("\n".join(str(x) for x in [page, *made]))


if __name__ == "__main__":
    main()

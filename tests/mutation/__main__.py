"""``python -m tests.mutation``: a random sample of mutants of the compiler's code against the tests near them."""

from __future__ import annotations

import math
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path

import click

from tests.mutation.campaign import SECONDS, Campaign

KILLED = ("killed", "timeout")


@click.command(context_settings={"show_default": True})
@click.argument("words", nargs=-1)
@click.option("-n", "--count", type=click.IntRange(min=1), default=500, help="Mutants of the sample.")
@click.option("--seed", type=int, default=0, help="The sample.")
@click.option("--tests", multiple=True, help="Only tests whose paths contain one of these words.")
@click.option("--workers", type=click.IntRange(min=1), default=len(os.sched_getaffinity(0)), help="Trials at a time.")
@click.option("--seconds", type=float, default=SECONDS, help="CPU seconds of tests for one mutant.")
@click.option("--limit", type=float, default=math.inf, help="Seconds after which no trial is begun.")
@click.option("--quick", is_flag=True, help="Leave out tests that are marked slow.")
@click.option("--again", is_flag=True, help="Try survivors again, as after a new test.")
@click.option("--draw", is_flag=True, help="Only draw the sample, which needs cosmic-ray; a trial does not.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path("out/mutation"), help="Where results are kept.")
def mutation(
    words: tuple[str, ...], count: int, seed: int, tests: tuple[str, ...], workers: int, seconds: float, limit: float,
    quick: bool, again: bool, draw: bool, folder: Path,
) -> None:  # fmt: skip
    """Try COUNT mutants of the files whose paths contain one of WORDS (all files without).

    A call goes on where an earlier one stopped.  Exit code 1: less than nine tenths of the mutants were killed, or some
    are left.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # each core has a trial
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # no test needs one, and each trial would import them
    campaign = Campaign(folder, workers)
    drawn, known = campaign.draw(count, seed, words), campaign.results()
    if draw:
        return
    wanted = [m for m in drawn if m.key not in known or (again and known[m.key]["verdict"] not in KILLED)]
    for n, (m, outcome) in enumerate(campaign.run(wanted, tests, seconds, limit, quick), 1):
        click.echo(f"{n}/{len(wanted)} {outcome.verdict:9} {m.file}:{m.line} {m.operator}  {outcome.by}")
    known = campaign.results()
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    tried = [m for m in drawn if m.key in known]
    for m in tried:
        verdict = known[m.key]["verdict"]
        rooms[m.file.split("/")[1]][verdict] += 1
        if verdict not in (*KILLED, "invalid"):
            lines = [f"- {x.strip()}" for x in m.before] + [f"+ {x.strip()}" for x in m.after]
            click.echo("\n  ".join([f"{verdict}: {m.file}:{m.line}", *lines]))
    for room, verdicts in sorted(rooms.items()):
        click.echo(f"{room:8} {_share(verdicts)}")
    total = sum(rooms.values(), Counter[str]())
    click.echo(f"all      {_share(total)}, {len(drawn) - len(tried)} not tried")
    sys.exit(_killed(total) < 0.9 * _valid(total) or len(tried) < len(drawn))


def _killed(verdicts: Counter[str]) -> int:
    return sum(verdicts[v] for v in KILLED)


def _valid(verdicts: Counter[str]) -> int:
    return verdicts.total() - verdicts["invalid"]


def _share(verdicts: Counter[str]) -> str:
    killed, valid = _killed(verdicts), _valid(verdicts)
    counts = ", ".join(f"{n} {v}" for v, n in verdicts.most_common())
    return f"{killed} of {valid} killed ({killed / max(valid, 1):.1%}): {counts}"


if __name__ == "__main__":
    mutation()

"""Many specs in one table: a row for each, kept in a file, so that an interrupted run goes on where it stopped.

    python -m nautilus.bench.survey table.jsonl specs/gallery                    times all specs and their peers
    python -m nautilus.bench.survey table.jsonl specs/gallery --measure model    predictions, without a GPU
    python -m nautilus.bench.survey now.jsonl specs/gallery --measure own --jobs 8 --since before.jsonl

Every spec is compiled (and timed) in a process of its own with a time limit, so that a crash or a compilation without
end becomes a row as well.  A row is one line of JSON; its key is the spec with its target and the kind of measurement.
With ``--measure model`` the row has the times of compilation, what ptxas reports, and the prediction of the cost model
beside the floor: the time of the inputs and outputs at the rate of memory, or of the instructions, whichever is longer.
With ``--measure own`` our kernel is timed without peers; ``--since`` lists the specs whose time differs from that in an
earlier table.  This is how a change of the compiler shows which plans it made slower.

A line ``# bench: N=4096, M=77`` of a spec gives the sizes that it leaves open, as ``--dim`` does.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import exp, log
from pathlib import Path
from typing import Any

import click

from nautilus.bench.count import flops, total_bytes
from nautilus.bench.rows import append, read_rows
from nautilus.bench.table import cell
from nautilus.core.errors import NautilusError
from nautilus.core.records import dataclass
from nautilus.cost.model import estimate
from nautilus.cost.roofline import roofline
from nautilus.driver import Request, build_cubin, compile_checked
from nautilus.ma_tile.ir.ops import MmaOp, walk_ops

Data = dict[str, Any]
_KEY = ("spec", "arch", "measure")
_LINE = re.compile(r"^#\s*bench:(.*)$", re.MULTILINE)
_SIZE = re.compile(r"(\w+)=(\d+)")


@dataclass(frozen=True)
class Survey:
    """The settings of every spec.

    ``limit``: seconds for each; ``arguments``: further options of ``bench``; ``jobs``: processes at a time, of which
    one alone measures.
    """

    file: Path
    arch: str
    measure: str
    limit: float
    arguments: tuple[str, ...] = ()
    jobs: int = 1


def modelled(request: Request) -> Data:
    """The row of one spec without a GPU: seconds of compilation, resources, prediction and floor in microseconds.

    Seconds are those of the processor, so that a busy machine does not change them.

    Raises what the compilation raises.
    """
    start = time.process_time()
    compile_checked(request)
    text = time.process_time()
    result, built = build_cubin(request)
    done = time.process_time()
    spec, module, arch = result.modules["spec"], result.modules["ma-tile"], result.context.arch
    predicted = estimate(module, arch)
    roof = roofline(result.modules["scalar"], predicted, arch)
    used = {op.instr for k in module.kernels for op in walk_ops(k.body) if isinstance(op, MmaOp)}
    return {
        "seconds_to_text": round(text - start, 2),
        "seconds_to_cubin": round(done - text, 2),
        "kernels": len(module.kernels),
        "instructions": sorted(used),
        "spilled_bytes": max((r.spill_stores for r in built.resources), default=0),
        "registers": max((r.registers for r in built.resources), default=0),
        "flops": flops(spec, {}),
        "bytes": total_bytes(spec, {}),
        "predicted_us": round(predicted.seconds * 1e6, 2),
        "floor_us": round(max(roof.floors.values()) * 1e6, 2),
        "bound": roof.bound,
    }


def run(survey: Survey, specs: Iterable[Path]) -> Iterator[Data]:
    """The row of each spec, from the file where it has one; a new row is appended to the file at once."""
    known = {_key(row): row for row in read(survey.file)}
    with ThreadPoolExecutor(survey.jobs) as pool:

        def begin(path: Path) -> Callable[[], Data]:
            key = {"spec": str(path), "arch": survey.arch, "measure": survey.measure}
            if (row := known.get(_key(key))) is not None:
                return lambda: row
            later = pool.submit(_examined, survey, path)

            def finish() -> Data:
                new = key | later.result()
                append(survey.file, new)
                return new

            return finish

        for finish in [begin(path) for path in specs]:
            yield finish()


def read(file: Path) -> list[Data]:
    """The rows of ``file``, the last one of each key."""
    return list({_key(row): row for row in read_rows(file)}.values())


def _key(row: Mapping[str, Any]) -> str:
    return json.dumps([row.get(k) for k in _KEY])


def _examined(survey: Survey, path: Path) -> Data:
    """The figures of a row, from a process of its own; ``failure`` says why there are none."""
    entry = [f"{__spec__.name}", "--one"] if survey.measure == "model" else ["nautilus", "bench", "--json"]
    alone = ["--against=none", "--rounds=0", "--unchecked"] if survey.measure == "own" else []
    sizes = [f"--dim={n}={size}" for line in _LINE.findall(path.read_text()) for n, size in _SIZE.findall(line)]
    command = [sys.executable, "-m", *entry, str(path), f"--arch={survey.arch}", *alone, *sizes, *survey.arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=survey.limit or None)
    except subprocess.TimeoutExpired:
        return {"failure": f"no result after {survey.limit:g} s"}
    try:
        found = json.loads(done.stdout)
    except ValueError:
        lines = [x for x in done.stderr.splitlines() if x.strip()] or ["no message"]
        reason = next((x for x in lines if "error" in x), lines[0])
        return {"failure": f"exit code {done.returncode}: {reason}"}
    return found if survey.measure == "model" else timed(found[0])


def timed(report: Mapping[str, Any]) -> Data:
    """The figures of a row from the JSON data of one benchmark: our time, the best right peer and its time."""
    contenders = {c["name"]: c for c in report["contenders"] if not c["ceiling"]}
    ours = contenders.pop("ours")
    peers = {n: c["cool"]["us"] for n, c in contenders.items() if c["ratio_cool"] is not None}
    best = min(peers, key=lambda n: peers[n], default=None)
    return {
        "us": ours["cool"]["us"] if ours["cool"] else None,
        "ok": report["ok"],
        "wrong": None if report["ok"] else ours["check"]["detail"],
        "peer": best,
        "peer_us": peers[best] if best else None,
        "ratio": contenders[best]["ratio_cool"] if best else None,
        "tflops": ours["cool"]["tflops"] if ours["cool"] else None,
        "gbs": ours["cool"]["gbs"] if ours["cool"] else None,
        "predicted_us": report["predicted_us"],
        "cuda_sha256": report["cuda_sha256"],
    }


_COLUMNS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "model": (
        ("to text s", "seconds_to_text", ".2f"), ("to cubin s", "seconds_to_cubin", ".2f"),
        ("kernels", "kernels", "d"), ("spilled", "spilled_bytes", "d"), ("floor us", "floor_us", ".1f"),
        ("predicted us", "predicted_us", ".1f"), ("times floor", "over", ".2f"),
    ),
    "gpu": (
        ("us", "us", ".1f"), ("TFLOP/s", "tflops", ".1f"), ("GB/s", "gbs", ".0f"), ("best peer us", "peer_us", ".1f"),
        ("ours/peer", "ratio", ".3f"),
    ),
    "own": (
        ("us", "us", ".1f"), ("TFLOP/s", "tflops", ".1f"), ("GB/s", "gbs", ".0f"),
        ("predicted us", "predicted_us", ".1f"), ("times predicted", "off", ".2f"),
    ),
}  # fmt: skip
_MEANS: Mapping[str, tuple[str, str]] = {
    "model": ("over", "times the floor"),
    "gpu": ("ratio", "as fast as the best peer"),
    "own": ("off", "times the prediction"),
}


def table(rows: Sequence[Data], measure: str) -> str:
    """The rows as text, then a line for each family (the folder of a spec), and the specs without a figure."""
    value, what = _MEANS[measure]
    rows = [_divided(r) for r in rows]
    cells = [["spec", *(head for head, _, _ in _COLUMNS[measure]), "" if measure == "model" else "peer"]]
    for r in rows:
        note = r.get("failure") or ("WRONG" if r.get("ok") is False else "")
        note = note or (" ".join(r["instructions"]) if measure == "model" else r.get("peer") or "")
        cells.append([r["spec"], *(cell(r.get(name), form) for _, name, form in _COLUMNS[measure]), note])
    widths = [max(len(line[c]) for line in cells) for c in range(len(cells[0]))]
    out = ["  ".join(x.ljust(w) if c in (0, len(line) - 1) else x.rjust(w)
           for c, (x, w) in enumerate(zip(line, widths, strict=True))).rstrip() for line in cells]  # fmt: skip
    families: dict[str, list[float]] = {}
    for r in rows:
        families.setdefault(str(Path(r["spec"]).parent), []).extend([r[value]] if r.get(value) else [])
    out += ["", f"geometric mean of each family, {what}:"]
    out += [f"  {name}: {_mean(found)}, {len(found)} specs" for name, found in families.items() if found]
    return "\n".join(out) + "\n"


def _divided(row: Data) -> Data:
    """``row`` with the prediction relative to the floor, and the time relative to the prediction."""
    floor, predicted, us = (row.get(name) for name in ("floor_us", "predicted_us", "us"))
    over = {"over": predicted / floor} if floor and predicted else {}
    return row | over | ({"off": us / predicted} if us and predicted else {})


def changes(rows: Sequence[Data], before: Sequence[Data], least: float) -> str:
    """The specs whose time is by more than the share ``least`` longer or shorter than in ``before``, slowest first.

    A spec is known by the name of its file, so that tables of two copies of a folder can be compared.  The list
    says whether the CUDA C++ is the same: a difference without one is of the machine, not of the compiler.
    """
    old = {Path(r["spec"]).name: r for r in before}
    both = [(r, old[n]) for r in rows if (n := Path(r["spec"]).name) in old]
    out = [f"{r['spec']}: {r['failure']}, before {was['us']:.1f} us" for r, was in both
           if r.get("failure") and was.get("us")]  # fmt: skip
    timed_ = [(r["us"] / was["us"], r, was) for r, was in both if r.get("us") and was.get("us")]
    for ratio, r, was in sorted(timed_, key=lambda x: -x[0]):
        if abs(ratio - 1.0) > least:
            same = r.get("cuda_sha256") is not None and r.get("cuda_sha256") == was.get("cuda_sha256")
            text = "the same text" if same else "another text"
            out.append(f"{ratio:5.2f}  {r['spec']}: {was['us']:.1f} -> {r['us']:.1f} us, {text}")
    mean = f", geometric mean {_mean([t for t, _, _ in timed_])}" if timed_ else ""
    return "\n".join([*out, f"{len(timed_)} specs in both tables{mean}"]) + "\n"


def _mean(values: Sequence[float]) -> str:
    return f"{exp(sum(map(log, values)) / len(values)):.2f}"


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("specs", type=click.Path(path_type=Path, exists=True), nargs=-1, required=True, metavar="PATH...")
@click.option("--arch", default="sm_90a", show_default=True)
@click.option("--measure", type=click.Choice(["gpu", "own", "model"]), default="gpu", show_default=True)
@click.option("--limit", type=click.FloatRange(min=0.0), default=600.0, show_default=True, help="Seconds a spec.")
@click.option("--options", default="", metavar="TEXT", help="Further options of nautilusc bench.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes that compile.")
@click.option("--since", type=click.Path(path_type=Path, exists=True), help="Print what changed since this table.")
@click.option("--change", type=click.FloatRange(min=0.0), default=5.0, show_default=True, metavar="PERCENT",
              help="Least change of a time that --since prints.")  # fmt: skip
def main(
    file: Path,
    specs: tuple[Path, ...],
    arch: str,
    measure: str,
    limit: float,
    options: str,
    jobs: int,
    since: Path | None,
    change: float,
) -> None:
    """Measure every spec (those below a folder as well), keep the rows in FILE, and print the table."""
    paths = [p for given in specs for p in (sorted(given.rglob("*.naut")) if given.is_dir() else [given])]
    survey = Survey(file, arch, measure, limit, tuple(options.split()), jobs)
    rows = []
    for row in run(survey, paths):
        rows.append(row)
        click.echo(f"{len(rows)} of {len(paths)}: {row['spec']}", err=True)
    click.echo(table(rows, measure) if since is None else changes(rows, read(since), change / 100), nl=False)


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--arch", required=True)
@click.option("--dim", "dims", multiple=True)
def one(spec: Path, arch: str, dims: tuple[str, ...]) -> None:
    """Print the row of one spec without a GPU as JSON; the errors and exit codes are those of the compiler."""
    sizes = {name: int(size) for text in dims for name, size in _SIZE.findall(text)}
    try:
        click.echo(json.dumps(modelled(Request(spec, arch, sizes))))
    except NautilusError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2:])
    main()

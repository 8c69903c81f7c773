"""``python -m tests.gpu.sanitize LIST``: kernels of a list of specs under NVIDIA's compute-sanitizer, at small sizes.

A line of the list is the path of a spec, then options: ``--arch``, ``--dim N=77``, ``--schedule FILE``.  Without sizes,
a spec is compiled at odd ones and at those at which pipelines go round, under the schedule of its own sizes where that
is legal.  Kernels are compiled in processes, and run beside each other on all GPUs.  Each job (a kernel and a tool) has
one line in the file of results; a job that has one is not tried again.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass
from math import inf
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click

from nautilus.core.numerics import storage_array
from nautilus.core.schedule import Schedule
from nautilus.cuda.emit import emit_module
from nautilus.driver import Request
from nautilus.runtime.capacity import at_capacity
from nautilus.runtime.execute import plan_of
from nautilus.runtime.launch import Session
from nautilus.runtime.nvrtc import compile_cuda
from tests.mutants.programs import Program, at_odd_sizes, at_sizes, at_small_sizes

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
_SECONDS = 120  # of a run
_ERRORS = 9  # the exit status of the tool where it finds something
_SUMMARY = re.compile(r"=+ (?:ERROR|RACECHECK) SUMMARY: (\d+)")


@dataclass(frozen=True)
class Line:
    """A spec of the list and its options."""

    text: str
    path: Path
    arch: str
    dims: tuple[tuple[str, int], ...]
    schedule: Path | None

    @staticmethod
    def read(text: str) -> Line:
        """The line ``text`` of a list."""
        parser = argparse.ArgumentParser()
        parser.add_argument("path", type=Path)
        parser.add_argument("--arch", default="sm_90a")
        parser.add_argument("-D", "--dim", action="append", default=[])
        parser.add_argument("--schedule", type=Path)
        found = parser.parse_args(shlex.split(text))
        dims = tuple((n, int(v)) for n, _, v in (d.partition("=") for d in found.dim))
        return Line(text, found.path, found.arch, dims, found.schedule)

    def programs(self) -> Iterator[tuple[str, Program]]:
        """The kernels by a label of their sizes."""
        schedule = None if self.schedule is None else Schedule.from_json(self.schedule.read_text())
        request = Request(self.path, self.arch, until="ma-tile", schedule=schedule, keep_runtime=True)
        if self.dims:
            yield "given", at_sizes(request, dict(self.dims), self.text)
        else:
            yield "round", at_small_sizes(request, self.text)
            yield "odd", at_odd_sizes(request, self.text)


def built(text: str, folder: str) -> list[tuple[str, str]]:
    """Compile the spec of a line of the list: labels, and files with all that a launch needs."""
    out, line = [], Line.read(text)
    for label, p in line.programs():
        plan, inputs = plan_of(p.module, p.scalars), at_capacity(p.module, p.inputs, p.scalars)
        raw = {a.name: storage_array(inputs[a.name], a.dtype) for a in plan.by_role("input")}
        cubin = compile_cuda(emit_module(p.module), line.arch).data
        file = Path(folder) / f"{abs(hash((text, label))):x}.pickle"
        file.write_bytes(pickle.dumps((cubin, plan, line.arch, raw, dict(p.scalars))))
        out.append((label, str(file)))
    return out


def launch(file: Path, tool: str) -> None:
    """Launch the kernels of ``file`` once; initcheck sees which temporaries they write."""
    cubin, plan, arch, raw, scalars = pickle.loads(file.read_bytes())  # written by `built` in this run
    if tool == "initcheck":
        Session.poison = lambda self: None  # type: ignore[method-assign]
    with Session(cubin, plan, arch) as session:
        session.upload(raw, scalars)
        session.launch()
        session.download()


def sanitized(file: str, tool: str, gpu: int) -> tuple[str, str]:
    """The verdict of ``tool`` on the kernels of ``file``, and its first message."""
    run = [sys.executable, "-m", "tests.gpu.sanitize", "--launch", file, "--tool", tool]
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(_ERRORS), "--print-limit", "3", *run]
    try:
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, env=env)
    except subprocess.TimeoutExpired:
        return "slow", f"more than {_SECONDS} s"
    return verdict(done.returncode, done.stdout + done.stderr)


def verdict(code: int, said: str) -> tuple[str, str]:
    """What the tool found, by its exit status and its text: a summary is there where the kernels ran."""
    found = _SUMMARY.findall(said)
    lines = [x.strip("= ") for x in said.splitlines() if x.strip("= ") and "COMPUTE-SANITIZER" not in x]
    if not found:
        return "failed", " / ".join(lines[-3:])[:300]
    clean = code == 0 and not any(map(int, found))
    return ("clean", "") if clean else ("found", " / ".join(lines[:3])[:300])


class Jobs:
    """The jobs of ``lines``: those with a line in ``out`` are done; nothing is begun after ``seconds``."""

    def __init__(self, lines: Sequence[str], tools: Sequence[str], out: Path, seconds: float) -> None:
        self.lines, self.tools, self.out, self.end = lines, tools, out, time.monotonic() + seconds
        out.parent.mkdir(parents=True, exist_ok=True)
        self.known = {r["job"]: r for r in map(json.loads, out.read_text().splitlines())} if out.exists() else {}

    def run(self, compiling: int, running: int, gpus: int, run: Callable[[str, str, int], Any] = sanitized) -> None:
        """Compile in so many processes, with so many runs at a time on each GPU; print each result."""
        with (
            tempfile.TemporaryDirectory() as folder,
            ThreadPoolExecutor(running * gpus) as runs,
            ProcessPoolExecutor(compiling, get_context("spawn")) as pool,
        ):
            made = {pool.submit(built, x, folder): x for x in self.lines if not self._is_done(x)}
            pending: dict[Future[Any], str] = {}
            while made or pending:
                finished, _ = wait((*made, *pending), timeout=1.0, return_when=FIRST_COMPLETED)
                for future in finished:
                    if future in pending:
                        self._keep(pending.pop(future), *future.result())
                        continue
                    for job, file, tool in self._of(future, made.pop(future)):
                        pending[runs.submit(run, file, tool, len(pending) % gpus)] = job
                if time.monotonic() > self.end:
                    for future in (*made, *pending):
                        future.cancel()
                    made, pending = {}, {f: j for f, j in pending.items() if not f.cancelled()}

    def _is_done(self, line: str) -> bool:
        done = [j for j in self.known if j.startswith(f"{line} | ")]
        return len(done) >= 2 * len(self.tools) or f"{line} | compilation" in self.known

    def _of(self, future: Future[Any], line: str) -> Iterator[tuple[str, str, str]]:
        """The jobs of a line that is compiled, with their files and tools."""
        try:
            found = future.result()
        except Exception as error:
            self._keep(f"{line} | compilation", "refused", f"{type(error).__name__}: {error}"[:300])
            return
        for tool in self.tools:
            for label, file in found:
                if (job := f"{line} | {label} | {tool}") not in self.known:
                    yield job, file, tool

    def _keep(self, job: str, verdict: str, message: str) -> None:
        row = self.known[job] = {"job": job, "verdict": verdict, "message": message}
        with self.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        click.echo(f"{verdict:8} {job}  {message}")


@click.command(context_settings={"show_default": True})
@click.argument("path", type=click.Path(path_type=Path, exists=True), metavar="LIST")
@click.option("--tool", "tools", multiple=True, type=click.Choice(TOOLS), default=TOOLS, help="Tools, in this order.")
@click.option("--seconds", type=float, default=inf, help="Begin nothing new after this time.")
@click.option(
    "--jobs", type=click.IntRange(min=1), default=len(os.sched_getaffinity(0)), help="Compilations at a time."
)
@click.option("--runs", type=click.IntRange(min=1), default=8, help="Runs at a time on each GPU.")
@click.option("--gpus", type=click.IntRange(min=1), default=1, help="GPUs.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/sanitize.jsonl"), help="The file of results.")
@click.option("--launch", "launches", is_flag=True, hidden=True, help="LIST is a kernel of a list.")
def main(
    path: Path, tools: tuple[str, ...], seconds: float, jobs: int, runs: int, gpus: int, out: Path, launches: bool
) -> None:
    """Run the kernels of LIST under compute-sanitizer. Exit code 1: a tool found something, or a run failed."""
    if launches:
        launch(path, tools[0])
        return
    lines = [x.strip() for x in path.read_text().splitlines() if x.strip() and not x.startswith("#")]
    work = Jobs(lines, tools, out, seconds)
    work.run(jobs, runs, gpus)
    counts = Counter((j.rpartition(" | ")[2], r["verdict"]) for j, r in work.known.items())
    for (tool, found), n in sorted(counts.items()):
        click.echo(f"{tool:12}{found:8}{n:6}")
    sys.exit(any(found != "clean" for _, found in counts))


if __name__ == "__main__":
    main()

"""The runner of compute-sanitizer, without the tool: lists, verdicts, and results that are kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.gpu import sanitize
from tests.gpu.sanitize import Jobs, Line, verdict

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
RACE = CLEAN.replace("ERROR SUMMARY: 0", "Error: Race\n========= RACECHECK SUMMARY: 2")


def test_a_line_of_a_list() -> None:
    line = Line.read("specs/a.naut --arch sm_90 -D N=77 --dim M=5")
    assert (line.path, line.arch, line.dims) == (Path("specs/a.naut"), "sm_90", (("N", 77), ("M", 5)))
    assert Line.read("b.naut").arch == "sm_90a"


@pytest.mark.parametrize(
    "code, said, found", [(0, CLEAN, "clean"), (9, RACE, "found"), (0, RACE, "found"), (1, "no driver", "failed")]
)
def test_verdicts(code: int, said: str, found: str) -> None:
    kind, message = verdict(code, said)
    assert kind == found and bool(message) == (found != "clean")


def test_a_job_with_a_result_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spec that is refused has one line, and results of an earlier call count."""
    ran = list[tuple[str, str]]()

    def run(file: str, tool: str, gpu: int) -> tuple[str, str]:
        ran.append((file, tool))
        return "clean", ""

    class Pool:
        def __init__(self, *_: object) -> None:
            self.made = ThreadPoolExecutor(1)

        def __enter__(self) -> ThreadPoolExecutor:
            return self.made.__enter__()

        def __exit__(self, *error: object) -> None:
            self.made.shutdown()

    def built(text: str, folder: str) -> list[tuple[str, str]]:
        if text == "bad":
            raise ValueError("no spec")
        return [("odd", f"{text}.1"), ("round", f"{text}.2")]

    monkeypatch.setattr(sanitize, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(sanitize, "built", built)
    out = tmp_path / "out.jsonl"
    out.write_text('{"job": "good | odd | memcheck", "verdict": "clean", "message": ""}\n')
    for _ in range(2):
        work = Jobs(["good", "bad"], ("memcheck", "racecheck"), out, 60.0)
        work.run(1, 1, 1, run)
        assert {r["verdict"] for j, r in work.known.items() if j.startswith("bad")} == {"refused"}
        assert len(work.known) == 5
    assert sorted(ran) == [("good.1", "racecheck"), ("good.2", "memcheck"), ("good.2", "racecheck")]

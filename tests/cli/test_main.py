"""The command line: spellings, exit codes, atomic and quiet output. Uses specs written here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from nautilus import driver
from nautilus.__main__ import entry
from nautilus.cli import files
from nautilus.cli import output as report
from nautilus.cli.main import main
from nautilus.cli.options import normalize
from nautilus.cli.output import write_reproducer
from nautilus.core.errors import InputError

ROOT = Path(__file__).parents[2]
SPEC = """
dim M = 3, N = 5
input X: f16[M, N]
scalar scale: f32 = 2.0
output Y: f16[M]
Y[i] = sum[j](X[i, j]) * scale
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "rows.naut"
    path.write_text(SPEC)
    return path


def test_the_console_script_answers_the_shell_and_ends_on_signals() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"nautilusc": f"{entry.__module__}:{entry.__name__}"}


def test_normalize() -> None:
    assert normalize(["x.naut", "-arch=sm_80"]) == ["x.naut", "--arch=sm_80"]
    assert normalize(["-arch", "sm_80"]) == ["--arch", "sm_80"]
    assert normalize(["--dump-ir", "x.naut"]) == ["--dump-ir=all", "x.naut"]
    assert normalize(["x.naut", "--dump-ir", "scalar,fuse"]) == ["x.naut", "--dump-ir=scalar,fuse"]
    assert normalize(["x.naut", "--dump-ir"]) == ["x.naut", "--dump-ir=all"]
    assert normalize(["--", "-arch"]) == ["--", "-arch"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["check", "--help"], 0),
        (["--print-passes"], 0),
        ([], 0),
        (["--nonsense"], 2),
        (["compile"], 2),
        (["bench"], 2),
        (["bench", "x.naut", "--against", "nobody"], 2),
        (["bench", "x.scalar"], 2),
        (["tune"], 2),
        (["explain", "--json", "x"], 2),
        (["x.naut", "--dim", "N"], 2),
        (["x.naut", "--arch", "sm_12"], 2),
        (["x.naut", "--precision", "sloppy"], 2),
        (["x.naut", "--schedule", "/nonexistent.json"], 2),
        (["x.naut", "-o", "kernel.exe"], 2),
        (["x.naut", "--dump-ir=nope"], 2),
        (["x.naut", "--dump-ir", "nope"], 2),
        (["x.naut", "--arch"], 2),
        (["x.naut", "y.naut"], 1),
        (["run", "x.naut", "y.naut"], 2),
        (["x.naut", "-o", ""], 2),
        ([""], 2),
        (["x.naut", "/"], 2),
        (["x.naut", "--diagnostics", "json", "--nonsense"], 2),
        (["/nonexistent.naut"], 1),
        (["/nonexistent.scalar"], 1),
        (["kernel.weird"], 1),
    ],
)
def test_exit_codes(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == code
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert (code == 0) == (said.err == "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "x.naut"], "'report' is no command and no file; nautilusc --help lists the commands"),
        (["chekc", "x.naut"], "'chekc' is no command and no file; did you mean 'check'?"),
        (["SPEC", "--arch", "90a", "-o", "k.cubin"], "did you mean sm_90a?"),
        (["SPEC", "--arch", "sm_80,sm_90a", "-o", "k.cubin"], "this output holds one architecture, but got sm_80"),
        (["SPEC", "--dim", "N=many"], "'many' is no number, and no size that is given before it"),
        (["SPEC", "--schedule", "SPEC"], "it is no JSON file"),
    ],
)
def test_wrong_command_lines(arguments: list[str], said: str, spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(spec) if a == "SPEC" else a for a in arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_group_without_a_command_prints_its_help_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["db"]) == 2
    said = capsys.readouterr().err
    assert said.count("Usage:") == 1 and "error" not in said


class OutOfMemoryError(RuntimeError):
    """PyTorch's error, by its name."""


@pytest.mark.parametrize("error", [MemoryError, OutOfMemoryError])
def test_too_little_memory(
    spec: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: type[Exception]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error("Unable to allocate 15 GiB")

    monkeypatch.setattr(driver, "compile_checked", broken)
    assert main([str(spec)]) == 2
    assert capsys.readouterr().err == "nautilusc: error: not enough memory: Unable to allocate 15 GiB\n"


def test_wrong_spec_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.naut"
    path.write_text("output Y: f32[3]\nY[i] = Z[i]\n")
    assert main([str(path), "--diagnostics", "json"]) == 1
    first = json.loads(capsys.readouterr().err.splitlines()[0])
    assert first["severity"] == "error" and first["line"] == 2


def test_run_writes_outputs(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 5)))
    out = tmp_path / "out"
    arguments = ["run", str(spec), "--input", f"X={tmp_path / 'x.npy'}", "--set", "scale=3", "--output-dir", str(out)]
    assert main(arguments) == 0
    assert capsys.readouterr() == ("", "")
    got = np.load(out / "Y.npy")
    assert got.dtype == np.float16 and got.tolist() == [15.0, 15.0, 15.0]


def test_run_seed_and_json(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for seed in ("1", "1", "2"):
        assert main(["run", str(spec), "--seed", seed, "--json"]) == 0
        said.append(json.loads(capsys.readouterr().out)["outputs"])
    assert said[0] == said[1] != said[2]


@pytest.mark.parametrize(
    "extra",
    [["--input", "Q=q.npy"], ["--input", "X=/nonexistent.npy"], ["--set", "nope=1"], ["--set", "scale=x"]],
)
def test_run_complains(spec: Path, extra: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(spec), *extra]) == 2


def test_a_reproducer_holds_no_password_and_reads_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.naut")
    url = "postgresql://me:s3cret@host/studies"
    try:
        raise RuntimeError(f"cannot open {url}")
    except RuntimeError as error:
        path = write_reproducer(error, ["tune", str(tmp_path / "pipe.naut"), "--storage", url])
    text = path.read_text()
    path.unlink()
    assert "s3cret" not in text and text.count("postgresql://me:***@host/studies") == 2


def test_internal_errors_leave_a_reproducer(
    spec: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(driver, "compile_checked", broken)
    assert main([str(spec)]) == 70
    said = capsys.readouterr().err
    assert "internal error: planted" in said and "Traceback" not in said
    path = Path(said.split("written to ")[1].strip())
    text = path.read_text()
    path.unlink()
    assert "dim M = 3" in text and "ZeroDivisionError" in text and str(spec) in text


def test_interrupt_is_clean(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "compile_checked", interrupted)
    assert main([str(spec)]) == 130


def test_outputs_are_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "k.cu"
    target.write_text("old")
    files.write_output(str(target), b"new")
    assert target.read_bytes() == b"new" and os.listdir(tmp_path) == ["k.cu"]

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(InputError, match="No space left"):
        files.write_output(str(target), b"newer")
    assert target.read_bytes() == b"new" and os.listdir(tmp_path) == ["k.cu"]


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert report.wants_color(Terminal())  # type: ignore[arg-type]
    monkeypatch.setenv("NO_COLOR", "1")
    assert not report.wants_color(Terminal())  # type: ignore[arg-type]


def test_a_closed_pipe_is_quiet(spec: Path) -> None:
    command = f"{sys.executable} -m nautilus run {spec} --dim M=200000 --json | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stderr == ""


def interruptible(*arguments: str) -> subprocess.Popen[bytes]:
    """Starts Python with the default actions of signals, which jobs in the background and those of nohup ignore."""

    def default() -> None:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)

    command = [sys.executable, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=ROOT, preexec_fn=default)


def test_ctrl_c_in_a_process() -> None:
    code = (
        "import time\nimport nautilus.cli.main as c\n"
        "c.cli.invoke = lambda _: time.sleep(30)\nprint('up', flush=True)\nc.entry()"
    )
    process = interruptible("-c", code)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (130, b"interrupted\n")


@pytest.mark.parametrize("form", ["cu", "ptx", "cubin", "json", "scalar", "vr", "ma"])
def test_every_form_of_output(spec: Path, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By extension and by ``--emit``; an output that is also an input compiles to the same form."""
    path = tmp_path / f"k.{form}"
    assert main([str(spec), "-o", str(path), "--arch", "sm_80"]) == 0
    assert main([str(spec), "-o", str(tmp_path / "any"), "--emit", form, "--arch", "sm_80"]) == 0
    assert path.read_bytes() == (tmp_path / "any").read_bytes() != b""
    if form in ("scalar", "vr", "ma"):
        assert main([str(path), "-o", str(tmp_path / "again"), "--emit", form]) == 0
        assert (tmp_path / "again").read_bytes() == path.read_bytes()
    assert capsys.readouterr() == ("", "")


def test_resource_usage(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(spec), "--resource-usage", "--emit", "vr"]) == 0
    names, values = capsys.readouterr().err.splitlines()
    assert names.split()[:2] == ["kernel", "registers"] and values.split()[0] == "rows__Y"
    assert len(names) == len(values)
    assert main([str(spec), "--resource-usage", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["resources"]
    assert row["kernel"] == "rows__Y" and row["registers"] > 0 and row["spill_stores"] == 0


def test_usage_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["x.naut", "--nonsense", "--diagnostics=json"]) == 2
    said = json.loads(capsys.readouterr().err)
    assert said["exit_code"] == 2 and "--nonsense" in said["message"]


def test_devices_and_links_are_written_through(spec: Path, tmp_path: Path) -> None:
    before = os.stat("/dev/null")
    assert main([str(spec), "-o", "/dev/null"]) == 0
    assert os.stat("/dev/null").st_rdev == before.st_rdev
    (tmp_path / "link.cu").symlink_to(tmp_path / "real.cu")
    assert main([str(spec), "-o", str(tmp_path / "link.cu")]) == 0
    assert (tmp_path / "link.cu").is_symlink() and (tmp_path / "real.cu").is_file()


@pytest.mark.parametrize("name", ["/nonexistent/k.cu", "/proc/k.cu", ""])
def test_places_that_cannot_be_written(spec: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(spec), "--emit", "cu", "-o", name]) == 2
    assert "Traceback" not in capsys.readouterr().err


def shell(command: str) -> subprocess.CompletedProcess[str]:
    text = command.replace("nautilusc", f"{sys.executable} -m nautilus")
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, cwd=ROOT, check=False)


def test_streams_that_go_away(spec: Path) -> None:
    assert shell(f"nautilusc {spec} --dump-ir all 2>&1 >/dev/null | true; exit ${{PIPESTATUS[0]}}").returncode == 141
    for command in (f"nautilusc {spec} -o - >/dev/full", f"nautilusc {spec} -o - >&-", "nautilusc --help >/dev/full"):
        done = shell(command)
        assert done.returncode == 2 and done.stderr.count("\n") <= 2 and "internal" not in done.stderr, command
    assert shell(f"nautilusc {spec} -o /dev/stdout | head -1").stdout.startswith("//")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_leave_nothing_behind(number: int, code: int, tmp_path: Path) -> None:
    script = (
        "import os, sys, time, nautilus.cli.main as c, nautilus.cli.files as m\n"
        "os.chmod = lambda *_: (print('up', flush=True), time.sleep(30))\n"
        "c.cli.invoke = lambda _: m.write_output(sys.argv[1], b'data')\n"
        "c.entry()"
    )
    process = interruptible("-c", script, str(tmp_path / "k.cu"))
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    process.send_signal(number)
    process.communicate(timeout=10)
    assert process.returncode == code and os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", [(), ("check",)])
def test_numpy_starts_no_threads(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of products of small tiles wait for each other, which took more than half of the time of a check."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    main([*command, "absent.naut"])
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    main([*command, "absent.naut"])
    assert os.environ["OPENBLAS_NUM_THREADS"] == "3"


def test_help_starts_quickly() -> None:
    """Only click and the standard library are imported for ``--help``."""
    code = "import sys, nautilus.cli.main as c; c.main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert loaded.isdisjoint({"numpy", "lark", "sympy", "cuda", "rich"})


def test_what_waits_for_the_end_of_the_process_is_done() -> None:
    code = (
        "import atexit, sys, nautilus.cli.main as c\natexit.register(print, 'last')\n"
        "c.cli.invoke = lambda _: (print('first'), print('said', end='', file=sys.stderr))\nc.entry()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "first\nlast\n", "said")

"""Several specs on one command line: each is compiled, and where its output goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from nautilus.cli.options import STDIN
from nautilus.cli.output import report
from nautilus.core.errors import NautilusError
from nautilus.export.forms import MANIFEST


def for_each(specs: Sequence[Path], run: Callable[[Path], None]) -> None:
    """``run`` of every spec; the errors of one do not stop the others.  The exit code is that of the first failure."""
    if len(specs) == 1:
        run(specs[0])
        return
    code = 0
    for spec in specs:
        try:
            run(spec)
        except click.exceptions.Exit as done:
            code = code or done.exit_code
        except NautilusError as error:
            failed = report(error, sys.argv[1:])
            code = code or failed
    if code:
        raise click.exceptions.Exit(code)


def outputs(specs: Sequence[Path], output: str | None, form: str | None) -> list[str]:
    """The file of each spec: ``-o``, a file in that folder, or one beside the spec.

    A folder whose name ends in ``/`` is made.  ``form`` (of ``--emit``) is the suffix of names that are made here.
    What comes from standard input goes to standard output.
    Raises UsageError where two outputs would be the same file, or where the input would be replaced.
    """
    suffix = {"manifest": MANIFEST, "torch": ".py", "tvm-ffi": ".so", "jax": ".py"}.get(form or "", f".{form or 'cu'}")
    found = [_output(spec, output, suffix) for spec in specs]
    if len(specs) > 1 and len(set(found)) < len(found):
        again = next(name for i, name in enumerate(found) if name in found[:i])
        raise click.UsageError(f"{len(specs)} specs would share the output {again}; -o names a folder, as in -o out/")
    return found


def _output(spec: Path, output: str | None, suffix: str) -> str:
    if output is None:
        if spec.stem == STDIN:
            return "-"
        if not spec.name:
            raise click.UsageError(f"{str(spec)!r} names no file")
        if (beside := spec.with_suffix(suffix)) == spec:
            raise click.UsageError(f"the output of {spec} would replace it; -o names another file")
        return str(beside)
    if output.endswith(os.sep):
        os.makedirs(output, exist_ok=True)
    if os.path.isdir(output):
        return str(Path(output) / f"{'stdin' if spec.stem == STDIN else spec.stem}{suffix}")
    return output

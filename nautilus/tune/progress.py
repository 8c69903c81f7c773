"""Progress display of a search: a bar on a terminal, plain lines elsewhere, nothing with ``--quiet``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TextIO

from nautilus.tune.types import Progress, ProgressListener

_EVERY = 10.0  # seconds between plain lines while nothing changes


class ProgressLines:
    """Prints a plain line at every new best time and phase, and otherwise every :data:`_EVERY` seconds."""

    def __init__(self, label: str, stream: TextIO) -> None:
        self.label, self.stream = label, stream
        self.started = self.last = time.monotonic()
        self.shown: tuple[float | None, str] | None = None

    def update(self, p: Progress) -> None:
        """Print ``p`` if it is news, or if enough time has passed."""
        now, news = time.monotonic(), (p.best, p.phase)
        if news == self.shown and now - self.last < _EVERY:
            return
        self.shown, self.last = news, now
        print(f"{self.label}: {describe(p, now - self.started)}", file=self.stream, flush=True)


class ProgressBar:
    """A progress bar (rich) with the best time so far, the trial rate and the remaining time."""

    def __init__(self, label: str, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self.started = time.monotonic()
        self.bar: Any = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[news]}"),
            TimeElapsedColumn(),
            console=Console(file=stream),
            transient=True,
        )
        self.task = self.bar.add_task(label, total=None, news="")

    def update(self, p: Progress) -> None:
        """Show ``p`` in the bar."""
        news = describe(p, time.monotonic() - self.started, counts=False)
        self.bar.update(self.task, total=p.trials, completed=min(p.done, p.trials), news=news)


class NoProgress:
    """Displays nothing."""

    def update(self, p: Progress) -> None:
        """Ignore ``p``."""
        del p


@contextmanager
def progress_display(label: str, quiet: bool) -> Iterator[ProgressListener]:
    """The display for standard error: none if ``quiet``, a bar on a terminal with rich, else plain lines."""
    stream = sys.stderr
    if quiet or stream is None:
        yield NoProgress()
    elif stream.isatty() and find_spec("rich") is not None:
        made = ProgressBar(label, stream)
        with made.bar:
            yield made
    else:
        yield ProgressLines(label, stream)


def describe(p: Progress, seconds: float, counts: bool = True) -> str:
    """One line of text for ``p`` after ``seconds``; ``counts`` adds the numbers of trials."""
    parts = [p.phase] if p.phase else []
    if counts:
        parts.append(f"{p.done}/{p.trials} trials")
    if p.best is not None:
        gain = f" ({p.rules / p.best:.2f}x the default schedule)" if p.rules else ""
        parts.append(f"best {duration(p.best)}{gain}")
    if p.done and seconds > 0.0 and p.phase == "search":
        rate = p.done / seconds
        left = f", {(p.trials - p.done) / rate:.0f} s left" if p.done < p.trials else ""
        parts.append(f"{rate:.2f} trials/s{left}")
    if counts:
        named = (("refused", p.refused), ("duplicates", p.duplicates), ("failed", p.failed))
        parts += [f"{number} {name}" for name, number in named if number]
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """``seconds`` as text with a suitable unit, such as ``12.3 us``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"

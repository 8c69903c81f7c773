"""``nautilusc db``: lists, shows, exports, merges and prunes the tuning database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from nautilus.core.errors import InputError
from nautilus.tune.database.lookup import ranked
from nautilus.tune.database.rows import Row, parse
from nautilus.tune.database.store import SHIPPED, append, rewrite, rows, user_path
from nautilus.tune.progress import duration


def sources(path: Path | None) -> list[tuple[str, Path]]:
    """The databases to read with their labels: ``path``, else the user's and the shipped one."""
    return [("given", path)] if path is not None else [("user", user_path()), ("shipped", SHIPPED)]


def groups(path: Path | None, wanted: str) -> dict[tuple[str, str], list[Row]]:
    """Rows by source and key.  A row that several databases hold is listed under the first of them.

    ``wanted`` is a part of the spec's name, the path of its file, or a prefix of a key; empty selects all.
    """
    file_name = Path(wanted).stem if wanted.endswith(".naut") else None
    found: dict[tuple[str, str], list[Row]] = {}
    seen: set[str] = set()
    for source, file in sources(path):
        for r in rows(file):
            selected = r.name == file_name or (not file_name and (wanted in r.name or r.key.startswith(wanted)))
            if selected and (line := r.line()) not in seen:
                seen.add(line)
                found.setdefault((source, r.key), []).append(r)
    return found


def listing(path: Path | None, wanted: str) -> list[dict[str, object]]:
    """One record for each source and key, sorted by name and sizes."""
    out = []
    for (source, key), own in groups(path, wanted).items():
        best = next(iter(ranked(own, lambda: "")), None)
        last = own[-1]
        record: dict[str, object] = {
            "key": key,
            "name": last.name,
            "sizes": dict(last.sizes),
            "arch": last.arch,
            "precision": last.precision,
            "rows": len(own),
            "usable": sum(r.usable for r in own),
            "best_seconds": best.seconds if best is not None else None,
            "device": best.device if best is not None else "",
            "source": source,
        }
        out.append(record)
    return sorted(out, key=lambda r: (str(r["name"]), str(r["sizes"]), str(r["arch"]), str(r["source"])))


def listing_text(records: Iterable[dict[str, object]]) -> list[str]:
    """The records of :func:`listing` as lines of text."""
    lines = []
    for r in records:
        sizes = ",".join(f"{n}={v}" for n, v in r["sizes"].items())  # type: ignore[attr-defined]
        best = r["best_seconds"]
        time = duration(best) if isinstance(best, float) else "-"
        where = f"{r['arch']} {r['precision']}"
        lines.append(
            f"{r['key']}  {r['name']} [{sizes}] {where}: {time}, {r['usable']}/{r['rows']} rows, {r['source']}"
        )
    return lines


def outdated_text(path: Path | None) -> str:
    """A line that counts the rows of an older format in the user's or the given database; empty without such rows."""
    file = path or user_path()
    count = sum(r.outdated for r in rows(file))
    which = f"{count} row has" if count == 1 else f"{count} rows have"
    return f"{file}: {which} a schedule of an older format; nautilusc db gc drops them" if count else ""


def showing(path: Path | None, wanted: str, count: int) -> list[Row]:
    """Up to ``count`` rows of every key that ``wanted`` selects: the best usable ones, then others.

    Raises InputError where no key matches.
    """
    out: list[Row] = []
    for own in groups(path, wanted).values():
        good = ranked(own, lambda: "")
        rest = [r for r in own if r not in good]
        out += [*good, *rest][:count]
    if not out:
        raise InputError(f"the tuning database has no rows that match {wanted!r}")
    return out


def showing_text(row: Row) -> str:
    """A row as text; the last line is its schedule as JSON, which ``--schedule`` accepts as a file."""
    sizes = ",".join(f"{n}={v}" for n, v in row.sizes.items())
    seconds = duration(row.seconds) if row.seconds is not None else "not timed"
    state = row.state + (f" ({row.reason})" if row.reason else "")
    flags = [name for name, on in (("checked", row.checked), ("final", row.final), ("rules", row.rules)) if on]
    lines = [
        f"{row.name} [{sizes}] {row.arch} {row.precision}: {seconds}, {state}, {' '.join(flags) or 'unchecked'}",
        f"  key {row.key}, schedule {row.schedule_hash}, measured by {row.measure} {row.time}",
        f"  {row.device or 'no device'}, driver {row.driver or '-'}, {row.compiler}, NVRTC {row.nvrtc or '-'}",
    ]
    if row.values:
        lines.append("  " + ", ".join(f"{n}={json.dumps(v)}" for n, v in row.values.items()))
    if row.schedule is not None:
        lines.append("  " + json.dumps(dict(row.schedule)))
    return "\n".join(lines)


def exported(path: Path | None, wanted: str, everything: bool) -> str:
    """Lines of a database: the best row of each key, or all rows with ``everything``."""
    out: list[Row] = []
    for own in groups(path, wanted).values():
        out += own if everything else ranked(own, lambda: "")[:1]
    return "".join(r.line() for r in sorted(out, key=lambda r: (r.name, r.key, r.schedule_hash, r.time)))


def merge(into: Path, files: Sequence[Path]) -> tuple[int, int]:
    """Add the new rows of ``files`` to ``into``.  Returns the numbers of added rows and of invalid lines.

    Raises InputError for a file that cannot be read, or that has lines but no row.
    """
    known = {json.dumps(asdict(r), sort_keys=True) for r in rows(into)}
    fresh: list[Row] = []
    bad = 0
    for file in files:
        try:
            lines = file.read_bytes().splitlines()
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}") from error
        found = [(line, parse(line)) for line in lines if line.strip()]
        if found and all(row is None for _, row in found):
            raise InputError(f"{file} is no tuning database")
        for _, row in found:
            if row is None:
                bad += 1
                continue
            text = json.dumps(asdict(row), sort_keys=True)
            if text not in known:
                known.add(text)
                fresh.append(row)
    append(into, fresh)
    return len(fresh), bad


def collect(path: Path, keep: int) -> tuple[int, int]:
    """Remove rows that no compilation uses.  Returns the numbers of lines before and after.

    For every key, device and compiler version the ``keep`` best rows and the best row of the default schedule stay.
    Failures, estimates, unchecked rows, rows of an older format, incomplete lines and duplicates are removed.
    """
    if not path.exists():
        return 0, 0
    return rewrite(path, _kept(keep))


def _kept(keep: int) -> Callable[[Sequence[Row]], Sequence[Row]]:
    def choose(found: Sequence[Row]) -> Sequence[Row]:
        by: dict[tuple[str, str, str], dict[str, Row]] = {}
        for r in found:
            if r.usable:
                by.setdefault((r.key, r.device, r.compiler), {})[r.line()] = r
        wanted: set[str] = set()
        for own in by.values():
            good = ranked(own.values(), lambda: "")
            first = {r.line() for r in good}
            rest = sorted((r for line, r in own.items() if line not in first), key=lambda r: r.seconds or 0.0)
            rules = [r for r in [*good, *rest] if r.rules][:1]
            wanted.update(r.line() for r in [*[*good, *rest][:keep], *rules])
        out = []
        for r in found:
            if (line := r.line()) in wanted:
                wanted.remove(line)
                out.append(r)
        return out

    return choose

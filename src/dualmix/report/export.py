"""All runs as one table for other programs: a line a run, its scores, times and settings."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from dualmix.errors import DualmixError
from dualmix.report.runs import Collection, single_numbers
from dualmix.store.files import make_folder, write_bytes

FORMATS = ("csv", "parquet")


def rows(found: Collection) -> list[dict[str, Any]]:
    """Return a record a run; every record has every column."""
    plain = [
        {
            "run": run.name,
            "key": run.key,
            "label": run.label,
            "as_preset": not run.changed,
            "data_fingerprint": run.content.fingerprint,
            "data_notes": "; ".join(run.content.notes),
            "plan_sha256": run.plan.get("sha256"),
            "commit": run.facts.get("commit"),
            **{f"score.{name}": run.scores[name] for name in single_numbers(run.scores)},
            **{f"time.{name}": value for name, value in run.times.items()},
            **{f"setting.{path}": _flat(value) for path, value in run.settings.items()},
        }
        for run in found.runs
    ]
    columns = dict.fromkeys(name for record in plain for name in record)
    return [{name: record.get(name) for name in columns} for record in plain]


def export(found: Collection, out: Path, format_: str) -> Path:
    """Write all runs as csv or parquet, and return the file."""
    path = out.with_name(f"{out.name.removesuffix(f'.{format_}')}.{format_}")
    make_folder(path.parent)
    table = rows(found)
    if format_ == "csv":
        lines = io.StringIO()
        writer = csv.DictWriter(lines, list(table[0]) if table else ["run"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
        write_bytes(path, lines.getvalue().encode())
        return path
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as fault:
        raise DualmixError(
            "Parquet needs pyarrow, which is not installed: pip install 'dualmix[export]', or give --format csv."
        ) from fault
    columns = {
        name: _one_type([record[name] for record in table]) for name in (table[0] if table else {})
    }
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), buffer)
    write_bytes(path, buffer.getvalue())
    return path


def _flat(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


def _one_type(values: list[Any]) -> list[Any]:
    """Return a column whose values are all of one kind: numbers where they are numbers, else text."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1:
        return values
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]

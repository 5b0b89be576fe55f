"""All runs as one table for other programs: one line per run, its scores, times and settings."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from dualmix.errors import DualmixError
from dualmix.runs.records import Collection, single_numbers
from dualmix.store.files import make_folder, write_bytes

FORMATS = ("csv", "parquet")
FORMULA = tuple("=+-@\t\r\n＝＋－＠")
"""With these a spreadsheet takes text for a formula."""


def rows(collection: Collection) -> list[dict[str, Any]]:
    """Return one record per run; every record has every column."""
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
        for run in collection.runs
    ]
    columns = dict.fromkeys(name for record in plain for name in record)
    return [{name: record.get(name) for name in columns} for record in plain]


def export(collection: Collection, out: Path, format_: str) -> Path:
    """Write all runs as csv or parquet, and return the file."""
    name = out.name.removesuffix(f".{format_}")
    if name in ("", ".."):
        raise DualmixError(f"--out {out} is a folder: give the name of a file, without its ending.")
    path = out.with_name(f"{name}.{format_}")
    make_folder(path.parent)
    table = rows(collection)
    if format_ == "csv":
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(map(as_cell, table[0] if table else ["run"]))
        writer.writerows(map(as_cell, record.values()) for record in table)
        write_bytes(path, lines.getvalue().encode())
        return path
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as fault:
        raise DualmixError(
            "Parquet needs pyarrow, which is not installed: pip install 'dualmix[export]', or give "
            "--format csv."
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


def as_cell(value: Any) -> Any:
    """Return a value that a spreadsheet shows and neither runs nor obeys: names are anyone's."""
    if not isinstance(value, str):
        return value
    text = "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in value)
    return f"'{text}" if value.startswith(FORMULA) else text


def _one_type(values: list[Any]) -> list[Any]:
    """Return a column whose values are all of one kind: numbers where they can be, else text."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1:
        return values
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]

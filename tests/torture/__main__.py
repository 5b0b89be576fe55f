"""Try the promises of the package and print a table of what became of them."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.torture.jail import VERDICTS, Kind, Tally, apart, torture


def kinds() -> dict[str, Kind]:
    """Return all kinds by name."""
    from tests.torture import calls, endurance, files, kills, sweeps, threads, words

    modules = (calls, files, words, kills, sweeps, threads, endurance)
    return {module.KIND.name: module.KIND for module in modules}


def main() -> int:
    """Run the kinds asked for; return 1 if any promise was broken."""
    known = kinds()
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{k.name:10} {k.doc} (full: {k.count:,})" for k in known.values()),
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND[=COUNT]", help="default: all")
    parser.add_argument("--count", type=int, help="tries per kind (default: the full number)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="N", help="try again the case with this number")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="per kind")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("torture"), help="where failures go")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    asked = dict((name.partition("=")[::2]) for name in given.kinds or known)
    if unknown := asked.keys() - known.keys():
        parser.error(f"no such kind: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        settle(Path(folder))
        tallies = []
        for name, count in asked.items():
            kind, shared = known[name], Path(folder) / name
            shared.mkdir()
            apart(partial(kind.prepare, shared))
            limits = {"seed": given.seed, "only": given.only, "seconds": given.seconds}
            wanted = int(count or given.count or kind.count)
            keep = given.keep.absolute()
            tallies.append(
                torture(kind, shared, keep, count=wanted, workers=given.workers, **limits)
            )
            print(tallies[-1], file=sys.stderr, flush=True)
    print(json.dumps([plain(t) for t in tallies]) if given.json else table(tallies))
    return int(any(tally.bad for tally in tallies))


def settle(folder: Path) -> None:
    """Import what is slow before any fork, and let nothing of the user's be read or written."""
    import torch
    import torch._dynamo
    from sklearn.datasets import load_digits  # noqa: F401

    import dualmix.cli.progress
    import dualmix.cli.scores
    import dualmix.report.export
    import dualmix.runs.run  # noqa: F401

    torch.set_num_threads(1)
    for name in [name for name in os.environ if name.startswith("DUALMIX_")]:
        del os.environ[name]
    for name in ("data", "cache", "home"):
        (folder / name).mkdir()
    os.environ |= {
        "DUALMIX_DATA": str(folder / "data"),
        "DUALMIX_CACHE": str(folder / "cache"),
        "HOME": str(folder / "home"),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "120",
    }


def plain(tally: Tally) -> dict[str, object]:
    """Return a tally as JSON."""
    return {
        "kind": tally.kind,
        "counts": tally.counts,
        "failures": tally.failures,
        "seconds": tally.seconds,
    }


def table(tallies: list[Tally]) -> str:
    """Return verdicts by kind, and below them each cause of failures with its first case."""
    lines = [f"{'kind':10} {'tried':>8} " + " ".join(f"{v:>8}" for v in VERDICTS) + "  seconds"]
    for tally in tallies:
        counts = " ".join(f"{tally.counts[verdict]:8}" for verdict in VERDICTS)
        lines.append(f"{tally.kind:10} {tally.counts.total():8} {counts} {tally.seconds:8.0f}")
    for tally in tallies:
        for cause, cases in sorted(tally.failures.items(), key=lambda item: -len(item[1])):
            index, story = cases[0]
            lines.append(f"\n{tally.kind}: {len(cases)} x {cause}\n  case {index}: {story[:600]}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

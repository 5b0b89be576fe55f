"""The page as a file: whole, self-contained, safe against what stands in a store, and quick."""

from __future__ import annotations

import base64
import gzip
import json
import re
import resource
import subprocess
import sys
from contextlib import nullcontext
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("altair", reason="REPORT EXTRA MISSING: pip install 'dualmix[report]'")

from dualmix.paper.ladder import RUNGS
from dualmix.report.collect import collect
from dualmix.report.gallery import gallery
from dualmix.report.page import bundled, html
from dualmix.report.tables import summarise
from dualmix.store.store import Store

from .makers import everything, made, whole_paper

TODAY = date(2026, 11, 17)


class Seen(HTMLParser):
    """What a page links to and loads."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name == "href":
                self.links.append(value or "")
            elif name in ("src", "srcset", "action", "data", "poster"):
                self.loads.append(value or "")


def seen(page: str) -> Seen:
    found = Seen()
    found.feed(page)
    return found


def data_of(page: str, name: str) -> str:
    data = re.search(f'id="{name}-data">(.*?)</script>', page, re.S)
    assert data
    return data[1]


def unpacked(page: str, name: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(data_of(page, name))))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    everything(root)
    return root


def without_javascript(patch: pytest.MonkeyPatch) -> None:
    """Spare the seconds of another process where what a browser runs is not the point."""
    patch.setattr("dualmix.report.page.bundled", lambda _: nullcontext(lambda: "vegaEmbed"))


@pytest.fixture(scope="module")
def page(store: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        without_javascript(patch)
        return html(summarise(collect(Store(store))), today=TODAY)


@pytest.mark.slow
def test_nothing_is_loaded_from_anywhere(page: str) -> None:
    found = seen(page)
    assert all(link.startswith("#") for link in found.links)
    assert all(load.startswith("data:") for load in found.loads)
    assert "link" not in found.tags and "iframe" not in found.tags
    css = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in css and "@import" not in css
    assert "default-src 'none'" in page


def test_every_link_leads_somewhere(page: str, store: Path) -> None:
    found = seen(page)
    assert len(found.ids) == len(set(found.ids))
    cells = json.loads(data_of(page, "cells"))
    runs = unpacked(page, "runs")
    for link in found.links:
        kind, _, name = link[1:].partition("-")
        if kind in ("cell", "run") and name:
            assert name in {"cell": cells, "run": runs}[kind], link
        else:
            assert link[1:] in found.ids, link
    assert set(runs) == {path.name for path in store.iterdir()}
    assert all(name in runs for cell in cells.values() for name in cell["runs"])
    assert all(cell["command"].startswith(("dualmix ", "for seed in ")) for cell in cells.values())


def test_a_run_is_told_whole(page: str, store: Path) -> None:
    name, run = next(iter(unpacked(page, "runs").items()))
    saved = json.loads((store / name / "config.json").read_text())
    assert run["key"] == saved["key"]
    assert run["settings"]["method.lr"] == saved["config"]["method"]["lr"]
    assert run["plan"]["sha256"] == json.loads((store / name / "plan.json").read_text())["sha256"]
    assert run["facts"]["versions"] == {"dualmix": "0.1.0"} and run["facts"]["commit"] == "c0ffee"
    assert '"event": "begin"' in run["log"][0]


def test_what_was_run_comes_first_and_empty_cells_are_folded_away(page: str, store: Path) -> None:
    places = [
        page.index(f'<section id="{name}"') for name in ("summary", "configurations", "table1")
    ]
    assert places == sorted(places)
    assert "Made on 2026-11-17 by dualmix" in page and "c0ffee (" in page and "abacus (" in page
    body = re.search('<section id="table2".*?</section>', page, re.S)[0]  # type: ignore[index]
    cells = re.findall('<td data-col="[^"]*" data-value="[^"]*" class="(.*?)">', body)
    shown = [
        row
        for row in re.findall("<tr.*?</tr>", body, re.S)
        if not row.startswith('<tr class="empty"')
    ]
    missing = [
        part for row in shown for part in re.findall("<td.*?</td>", row, re.S) if "not run" in part
    ]
    assert cells.count("empty") > 40
    assert [part for part in missing if 'class="empty"' not in part] == [], "no gap is shown"
    assert "0.3333333" not in re.sub('<script.*?</script>|title=".*?"', "", page, flags=re.S)


@pytest.mark.slow
def test_the_javascript_is_made_once(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALMIX_CACHE", str(tmp_path / "cache"))
    with bundled("6.1") as first:
        made_ = first()
    (kept,) = (tmp_path / "cache" / "page").iterdir()
    assert kept.read_bytes().endswith(made_.encode()) and "vegaEmbed" in made_
    monkeypatch.setattr("subprocess.Popen", None)
    with bundled("6.1") as second:
        assert second() == made_


@pytest.mark.slow
def test_a_damaged_javascript_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALMIX_CACHE", str(tmp_path))
    monkeypatch.setattr("dualmix.report.page.BUNDLE", "print('draw()', end='')")
    for damage in (b"", b"\xff", b"drew()", None):
        with bundled("6.1") as script:
            assert script() == "draw()"
        (kept,) = (tmp_path / "page").iterdir()
        content = kept.read_bytes()
        kept.write_bytes(content[:-1] if damage is None else damage)


@pytest.mark.slow
def test_a_report_that_fails_leaves_no_process_that_talks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DUALMIX_CACHE", str(tmp_path))
    monkeypatch.setattr("dualmix.report.page.BUNDLE", "print('x' * 10**6)")
    with pytest.raises(KeyError), bundled("6.1"):
        raise KeyError("what the caller does")
    assert capfd.readouterr() == ("", "")


def test_progress_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_javascript(monkeypatch)
    made(tmp_path, "er")
    told: list[str] = []
    html(summarise(collect(Store(tmp_path))), tell=told.append)
    assert told == ["drawing the figures", "looking for images", "writing the page"]


@pytest.mark.slow
def test_every_rung_says_what_it_changes(tmp_path: Path) -> None:
    for name in ("er", "weights", "kappa-0", "dualmix"):
        rung = RUNGS[name]
        for seed in range(3):
            made(tmp_path, rung.preset, seed, rung.settings())
    page = html(summarise(collect(Store(tmp_path))), today=TODAY)
    body = re.search('<section id="ladder".*?</section>', page, re.S)[0]  # type: ignore[index]
    rows = re.findall(
        r'data-value="([^"]+)">[^<]+<small>([^<]+)</small></th><td class="text"', body
    )
    assert dict(rows).items() >= {(name, RUNGS[name].changes) for name in ("weights", "kappa-0")}
    heads = re.findall('scope="rowgroup" colspan="8">([^<]+)<', body)
    assert heads[:2] == ["From er to er+dualmix", "er+dualmix with one thing changed"]


def test_the_same_store_gives_the_same_tables(page: str, store: Path) -> None:
    again = html(summarise(collect(Store(store))), today=TODAY)
    assert re.sub("<script.*?</script>", "", again, flags=re.S) == re.sub(
        "<script.*?</script>", "", page, flags=re.S
    )


@pytest.mark.slow
def test_markup_in_a_store_is_only_text(tmp_path: Path) -> None:
    evil = "<!--<script></script><script>alert(1)</script><img src=http://evil.example/x>"
    made(tmp_path, "er", notes=[evil], name="<b>bold&amp;")
    (tmp_path / "<i>broken").mkdir()
    page = html(summarise(collect(Store(tmp_path))))
    found = seen(page)
    assert "b" not in found.tags and "i" not in found.tags
    assert found.tags.count("script") == 6
    assert not any("evil" in load for load in found.loads)
    assert "<" not in data_of(page, "cells")
    assert unpacked(page, "runs")["<b>bold&amp;"]["content"][2] == [evil]


@pytest.mark.slow
def test_an_empty_store_gives_a_page_of_what_is_missing(tmp_path: Path) -> None:
    page = html(summarise(collect(Store(tmp_path))))
    assert "No run is finished in this store." in page
    absent = page[page.index("Questions that this store has no runs for") :]
    assert absent.count("<li>") == 18
    assert "dualmix sweep figure5 --seeds 10" in absent and "Nothing: every folder" in page


@pytest.mark.slow
def test_what_is_left_out_is_on_the_page(tmp_path: Path) -> None:
    made(tmp_path, "er")
    (made(tmp_path, "er", 1) / "scores.json").write_text("{")
    page = html(summarise(collect(Store(tmp_path))))
    assert "1 left out, 0 not finished" in page and "Its scores.json cannot be read" in page


def test_real_images_are_shown_where_they_are(tmp_path: Path) -> None:
    """The digits are always here; a picture of the batch as it came is the data's own picture."""
    import io

    from PIL import Image

    from dualmix.data import Data, load

    images = load(Data(name="digits"))
    tables = np.zeros((5, 10, 10), dtype=np.int64)
    for stage in range(5):
        known = np.arange(2 * stage + 2)
        tables[stage, known, known] = 3
    made(tmp_path, "er+dualmix", data="digits", fingerprint=images.fingerprint, table=tables)
    found = gallery(collect(Store(tmp_path)))
    assert [row.title for row in found.rows] == ["Rehearsed", "New", "Augmented", "EnMix", "AdpMix"]
    assert {picture.lines[0] for picture in found.rows[0].pictures} <= {"0", "1"}
    assert {picture.lines[0] for picture in found.rows[1].pictures} <= {"2", "3"}
    for row in found.rows[3:]:
        for picture in row.pictures:
            assert sum(float(line.split()[0]) for line in picture.lines) == pytest.approx(
                1, abs=0.02
            )
    for picture in found.rows[0].pictures:
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture.uri.partition(",")[2]))))
        wanted = images.train_x[images.train_y == int(picture.lines[0]), :, :, 0]
        assert (pixels == wanted).all((1, 2)).any()


def test_images_of_another_content_are_not_shown(tmp_path: Path) -> None:
    made(tmp_path, "er", data="digits", fingerprint="0" * 64)
    found = gallery(collect(Store(tmp_path)))
    assert not found.rows and "digits" in found.caption and "DUALMIX_DATA" in found.caption


@pytest.mark.long
def test_the_whole_paper_in_time_and_size(tmp_path: Path) -> None:
    """1,140 runs: under 40 s of processor time (20 s in quiet), no torch, and a page under 6 MB."""
    root = tmp_path / "store"
    root.mkdir()
    whole_paper(root)
    assert len(list(root.iterdir())) == 1140
    out = tmp_path / "report.html"
    script = (
        "import sys\nfrom dualmix.cli import main\ntry:\n    main(sys.argv[1:])\nfinally:\n"
        "    assert 'torch' not in sys.modules"
    )
    words = ["report", "--store", str(root), "--out", str(out)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "1140 runs" in ended.stdout and "left out" not in ended.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 40
    assert out.stat().st_size < 6e6

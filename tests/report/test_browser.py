"""The page in a real browser: no error, no request, and everything that can be clicked works."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("altair", reason="REPORT EXTRA MISSING: pip install 'dualmix[report]'")
pytest.importorskip("selenium", reason="BROWSER TESTS NOT RUN: pip install selenium")

from selenium import webdriver

from dualmix.report.collect import collect
from dualmix.report.page import html
from dualmix.report.tables import summarise
from dualmix.store.store import Store

from .makers import everything, measured

pytestmark = pytest.mark.slow

STREAMS = 3
"""Streams of the store, each with a figure of chosen curves."""
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--window-size=1200,900",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser")
    everything(root / "store")
    (root / "report.html").write_text(
        html(summarise(collect(Store(root / "store"))), speed=measured())
    )
    return root / "report.html"


@pytest.fixture(scope="module")
def browser(page: Path) -> Iterator[Any]:
    chromium = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip(
            "BROWSER TESTS NOT RUN: there is no chromium and chromedriver here "
            "(apt install chromium-driver)"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={page.parent / 'profile'}"):
        options.add_argument(flag)
    downloads = {
        "download.default_directory": str(page.parent / "downloads"),
        "download.prompt_for_download": False,
    }
    options.add_experimental_option("prefs", downloads)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()


def until(condition: Callable[[], Any], seconds: float = 600) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def shown(browser: Any, page: Path, *, width: int = 1200, scheme: str = "light") -> None:
    """Open the page anew."""
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())


def run(browser: Any, script: str, *given: Any) -> Any:
    return browser.execute_script(script, *given)


def draw_all(browser: Any) -> int:
    """Scroll through the page until every figure is drawn, and return how many there are."""
    for box in browser.find_elements("css selector", ".figure"):
        run(browser, "arguments[0].scrollIntoView({behavior: 'instant'})", box)
        until(lambda box=box: run(browser, "return arguments[0].dataset.drawn", box))
    # A figure whose width has changed is drawn again a moment later, and is empty meanwhile.
    filled = (
        "return [...document.querySelectorAll('.figure')].every(box => box.querySelector('svg'))"
    )
    until(lambda: run(browser, filled))
    return len(browser.find_elements("css selector", ".figure .canvas svg"))


def requests(browser: Any) -> set[str]:
    entries = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [
        entry["params"]["request"]["url"]
        for entry in entries
        if entry["method"] == "Network.requestWillBeSent"
    ]
    return {url for url in sent if not url.startswith(("data:", "chrome", "blob:", "about:"))}


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (390, "light")])
def test_all_is_drawn_without_an_error_or_a_request(
    browser: Any, page: Path, width: int, scheme: str
) -> None:
    shown(browser, page, width=width, scheme=scheme)
    assert draw_all(browser) == 14 + STREAMS
    assert browser.get_log("browser") == []
    assert requests(browser) == {page.as_uri()}
    assert run(browser, "return document.documentElement.scrollWidth <= innerWidth")


def test_figures_out_of_sight_are_drawn_too(browser: Any, page: Path) -> None:
    """What nobody scrolls to is there all the same: in print, for one."""
    shown(browser, page)
    assert run(browser, "return document.documentElement.scrollHeight > 5 * innerHeight")
    undrawn = "return document.querySelectorAll('.figure:not([data-drawn])').length"
    until(lambda: run(browser, undrawn) == 0)
    assert run(browser, "return scrollY") == 0


def test_it_opens_at_once(browser: Any, page: Path) -> None:
    """The best of three, since other work may hold the machine up."""
    times = []
    for _ in range(3):
        shown(browser, page)
        # A page is handed over when its load event fires; its end is written a moment later.
        times.append(
            until(
                lambda: run(
                    browser, "return performance.getEntriesByType('navigation')[0].loadEventEnd"
                )
            )
        )
    assert min(times) < 2000


def test_colours_follow_the_system(browser: Any, page: Path) -> None:
    def ink() -> tuple[str, str]:
        label = "document.querySelector('.canvas svg .role-axis-label text')?.getAttribute('fill')"
        text = until(lambda: run(browser, f"return {label}"))
        return run(browser, "return getComputedStyle(document.body).backgroundColor"), text

    shown(browser, page)
    draw_all(browser)
    day = ink()
    media = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    until(lambda: ink()[0] != day[0] and ink()[1] != day[1])
    assert day == ("rgb(255, 255, 255)", "#1c2126")


def column(browser: Any, table: str, col: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map(cell => cell.dataset.value)"
    return list(run(browser, script, f"{table} tbody:not(.bounds) [data-col='{col}']"))


def test_tables_are_sorted_by_a_click(browser: Any, page: Path) -> None:
    shown(browser, page)
    button = browser.find_element("css selector", "#table1 button[data-col='0']")
    before = column(browser, "#table1", "0")
    run(browser, "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
    button.click()
    down = column(browser, "#table1", "0")
    there = [float(value) for value in down if value]
    assert len(there) == 2 and there == sorted(there, reverse=True) and down[2:] == [""] * 9
    assert (
        run(browser, "return arguments[0].closest('th').getAttribute('aria-sort')", button)
        == "descending"
    )
    button.click()
    up = column(browser, "#table1", "0")
    assert [float(value) for value in up if value] == sorted(there) and up[2:] == [""] * 9
    assert sorted(before) == sorted(up)
    browser.find_element("css selector", "#table1 button[data-col='name']").click()
    names = column(browser, "#table1", "name")
    assert names == sorted(names) and len(names) == 11
    bounds = run(
        browser,
        "return [...document.querySelectorAll('#table1 .bounds th')].map(th => th.textContent)",
    )
    assert bounds == ["finetune", "iid-offline"]


def test_a_cell_leads_to_its_runs_and_a_run_to_its_settings(browser: Any, page: Path) -> None:
    shown(browser, page)
    cell = browser.find_element("css selector", "#table1 tbody:not(.bounds) .ours:not(.missing)")
    run(browser, "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", cell)
    cell.click()
    panel = browser.find_element("css selector", "#panel")
    until(panel.is_displayed)
    assert "er, CIFAR-100, memory 1,000: average accuracy" in panel.text
    assert "dualmix sweep table1 --methods er --data cifar100 --memory 1000 --seeds 3" in panel.text
    links = panel.find_elements("css selector", "a")
    assert len(links) == 3
    name = links[0].text
    links[0].click()
    until(lambda: "How to reproduce this run" in panel.text)
    saved = json.loads((page.parent / "store" / name / "config.json").read_text())
    plan = json.loads((page.parent / "store" / name / "plan.json").read_text())
    for text in (
        name,
        saved["key"],
        plan["sha256"],
        "dualmix 0.1.0",
        "c0ffee",
        "method.memory_batch",
        '"begin"',
    ):
        assert text in panel.text, text
    browser.back()
    until(lambda: "How to reproduce this cell" in panel.text)
    panel.find_element("css selector", ".close").click()
    assert not panel.is_displayed() and "#" not in browser.current_url
    browser.get(f"{page.as_uri()}#run-{name}")
    until(lambda: browser.find_element("css selector", "#panel").is_displayed())
    assert browser.get_log("browser") == []


def test_what_was_not_run_is_unfolded_and_says_how_to_make_it(browser: Any, page: Path) -> None:
    shown(browser, page)
    cell = browser.find_element("css selector", "#table2 .missing")
    assert not cell.is_displayed()
    button = browser.find_element("css selector", "#table2 button.unfold")
    run(browser, "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
    button.click()
    until(cell.is_displayed)
    spans = "return [...document.querySelectorAll('#table2 th[data-full]')].map(th => th.colSpan)"
    assert run(browser, spans) == [3, 3, 3]
    run(browser, "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", cell)
    cell.click()
    panel = browser.find_element("css selector", "#panel")
    until(panel.is_displayed)
    assert "missing" in panel.text and "dualmix sweep table2 --methods agem" in panel.text


def drawn(browser: Any, figure: str) -> Any:
    """Scroll to a figure and return its box when all figures are drawn: one above it can be taller
    than the room that was kept for it, and would push it away.
    """
    every = "return [...document.querySelectorAll('.figure')].every(box => box.dataset.drawn)"
    until(lambda: run(browser, every))
    box = browser.find_element("css selector", f"[data-figure='{figure}']")
    run(browser, "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", box)
    return box


OPACITY = """
const marks = arguments[0].querySelectorAll('.canvas .mark-line.role-mark path');
return [...marks].map(path => Number(path.getAttribute('opacity') ?? 1));
"""


def test_a_click_on_the_legend_shows_a_line_alone(browser: Any, page: Path) -> None:
    shown(browser, page)
    box = drawn(browser, "any-0")
    buttons = box.find_elements("css selector", ".legend button")
    assert len(buttons) == 6 and "er+dualmix" in box.find_element("css selector", ".legend").text
    assert run(browser, OPACITY, box) == [1] * 6
    buttons[0].click()
    until(lambda: sorted(run(browser, OPACITY, box)) == [0.08] * 5 + [1])
    buttons[0].click()
    until(lambda: run(browser, OPACITY, box) == [1] * 6)
    assert browser.get_log("browser") == []


def test_a_tick_draws_the_curve_of_any_configuration(browser: Any, page: Path) -> None:
    shown(browser, page)
    box = drawn(browser, "any-0")
    table = browser.find_element("css selector", "table[data-curves='any-0']")
    stream = table.find_element("xpath", "./ancestor::div[contains(@class, 'stream')]")
    for button in stream.find_elements("css selector", "button.unfold"):
        run(browser, "arguments[0].click()", button)
    row = table.find_element("xpath", ".//tr[contains(., 'mix.augment flip')]")
    for tick in (
        *table.find_elements("css selector", "input:checked"),
        row.find_element("css selector", "input"),
    ):
        run(browser, "arguments[0].click()", tick)
    names = (
        "return [...arguments[0].querySelectorAll('.legend button')].map(one => one.textContent)"
    )
    (name,) = until(lambda: len(found := run(browser, names, box)) == 1 and found)
    assert name.startswith("er+da (mix.augment flip)")
    until(lambda: len(run(browser, OPACITY, box)) == 1)
    assert browser.get_log("browser") == []


def test_another_view_is_chosen(browser: Any, page: Path) -> None:
    shown(browser, page)
    box = drawn(browser, "curves")
    box.find_element("css selector", "option[value='1']").click()
    until(lambda: box.get_attribute("data-drawn") == "CIFAR-100, memory 1,000: forgetting")


def test_a_point_has_a_tooltip(browser: Any, page: Path) -> None:
    shown(browser, page)
    box = drawn(browser, "paired")
    dot = box.find_element("css selector", ".mark-symbol path")
    webdriver.ActionChains(browser).move_to_element(dot).perform()
    tip = until(
        lambda: run(
            browser, "return document.querySelector('#vg-tooltip-element.visible')?.textContent"
        )
    )
    assert "accuracy, points" in tip and "seeds" in tip


def test_figures_are_handed_over_as_svg(browser: Any, page: Path) -> None:
    shown(browser, page)
    folder = page.parent / "downloads"
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)}
    )
    for figure, name in (("curves", "cifar-100-memory-1-000-accuracy"), ("any-0", "cifar-100")):
        drawn(browser, figure).find_element("css selector", "button.svg").click()
        path = folder / f"{figure}-{name}.svg"
        until(lambda path=path: path.is_file() and path.stat().st_size)
        assert path.read_bytes().startswith(b"<svg")
    assert browser.get_log("browser") == []

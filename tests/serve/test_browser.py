"""The service's page in a real browser: what it shows, what can be dropped, and no request to
elsewhere.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("selenium", reason="BROWSER TESTS NOT RUN: pip install selenium")
pytest.importorskip("uvicorn", reason="SERVE EXTRA MISSING: pip install 'dualmix[serve]'")

import uvicorn
from selenium import webdriver

from dualmix.serve.app import make_app
from dualmix.serve.gate import Rules
from dualmix.serve.record import as_record
from tests.kit import wait_until
from tests.report.test_browser import FLAGS

from .asking import SHAPE, service

pytestmark = pytest.mark.slow
NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    made = service(tmp_path_factory.mktemp("served"))
    rng = np.random.default_rng(0)
    for seed in range(12):
        dark = seed % 2 == 0
        x = rng.integers(0, 40, (6, *SHAPE), dtype=np.uint8) + (0 if dark else 200)
        record = as_record(SHAPE, x.astype(np.uint8), ["dark" if dark else NASTY] * 6)
        made.observe(record).done.result(60)
    listener = socket.create_server(("127.0.0.1", 0))
    app = make_app(made, Rules(token="token-of-the-test"))
    config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listener.close()
    made.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("BROWSER TESTS NOT RUN: there is no chromium and chromedriver here")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()


def run(browser: Any, script: str) -> Any:
    return browser.execute_script(script)


def test_the_page_asks_for_a_token_shows_all_and_answers(
    browser: Any, url: str, tmp_path: Path
) -> None:
    size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    browser.get_log("performance")
    browser.get(url)
    wait_until(lambda: run(browser, "return !document.getElementById('login').hidden"), "no login")
    browser.find_element("id", "token").send_keys("token-of-the-test")
    browser.find_element("css selector", "#login button").click()
    wait_until(
        lambda: run(browser, "return document.querySelectorAll('#strip img').length") == 20,
        "no memory",
    )
    assert browser.find_element("id", "images").text == "72"
    names = [cell.text for cell in browser.find_elements("css selector", "#classes th")]
    assert names == ["dark", NASTY]
    assert run(browser, "return document.querySelectorAll('#chart .now').length") == 1
    assert run(browser, "return document.documentElement.scrollWidth <= 400"), "no scrolling aside"
    inside = "const table = document.querySelector('#classes').closest('.scroll');"
    assert run(browser, inside + "return table.scrollWidth <= table.clientWidth"), (
        "nor in the table"
    )
    Image.new("L", (30, 20), 10).save(tmp_path / "night.png")
    browser.find_element("id", "file").send_keys(str(tmp_path / "night.png"))
    wait_until(
        lambda: run(browser, "return !document.getElementById('answer').hidden"), "no answer"
    )
    first = browser.find_element("css selector", "#bars li span").text
    assert first == "dark"
    (tmp_path / "broken.png").write_bytes(b"no picture")
    browser.find_element("id", "file").send_keys(str(tmp_path / "broken.png"))
    wait_until(lambda: run(browser, "return !document.getElementById('wrong').hidden"), "no word")
    assert "cannot be read" in browser.find_element("id", "wrong").text
    faults = [
        entry["message"]
        for entry in browser.get_log("browser")
        if entry["level"] == "SEVERE" and not re.search("401|422", entry["message"])
    ]
    assert not faults, "the console is clean but for the refusals that were provoked"
    asked = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {
        one["params"]["request"]["url"]
        for one in asked
        if one["method"] == "Network.requestWillBeSent"
    }
    assert all(one.startswith((url, "data:", "blob:")) for one in urls), urls

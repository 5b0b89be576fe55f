"""Must show 5: the service's page in a browser at 1200 and 400 pixels, light and dark, as
pictures to look at.

    python -m studies.serve_page FOLDER
"""

from __future__ import annotations

import argparse
import base64
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image

from dualmix.client import Client
from studies.serving import Server, begin, images

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync")


def browser(profile: Path) -> Any:
    """Start chromium."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    service = webdriver.ChromeService(shutil.which("chromedriver") or "")
    return webdriver.Chrome(options=options, service=service)


def shoot(driver: Any, url: str, picture: Path, width: int, scheme: str, to: Path) -> None:
    """Open the page, ask about a picture and keep what is seen."""
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    resize = "Emulation.setDeviceMetricsOverride"
    driver.execute_cdp_cmd(resize, size)
    driver.get(url)
    ready = "return document.querySelectorAll('#strip img').length"
    end = time.monotonic() + 120
    while not driver.execute_script(ready) and time.monotonic() < end:
        time.sleep(0.1)
    driver.find_element("id", "file").send_keys(str(picture))
    shown = "return !document.getElementById('answer').hidden"
    while not driver.execute_script(shown) and time.monotonic() < end:
        time.sleep(0.1)
    # The window gets as high as the page: what is outside of it is not always painted.
    high = driver.execute_script("return document.documentElement.scrollHeight")
    driver.execute_cdp_cmd(resize, {**size, "height": high})
    time.sleep(0.5)
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"fromSurface": True})
    to.write_bytes(base64.b64decode(shot["data"]))


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batches", type=int, default=140)
    parser.add_argument("--port", type=int, default=8734)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    x, y = images()
    with tempfile.TemporaryDirectory() as name:
        begin(Path(name), x.shape[1:])
        with Server(Path(name), [], given.port) as server:
            server.wait()
            client = Client(server.url, patience=300)
            for start in range(0, given.batches * 10, 10):
                client.observe(x[start : start + 10], y[start : start + 10])
            client.observe(x[:10], y[:10], wait=True)
            picture = Path(name) / "digit.png"
            Image.fromarray(x[3, 0]).resize((160, 160)).save(picture)
            driver = browser(Path(name) / "profile")
            try:
                for width in (1200, 400):
                    for scheme in ("light", "dark"):
                        to = given.folder / f"page-{width}-{scheme}.png"
                        shoot(driver, server.url, picture, width, scheme, to)
            finally:
                driver.quit()
            server.stop()


if __name__ == "__main__":
    main()

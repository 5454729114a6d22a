"""The report in headless Chromium: console, network, width, accessibility, print.

Needs the extra `browser`, chromium and chromedriver. Where they are missing the tests
are skipped, except where ANCHORDOT_BROWSER is set, as it is for the second group of
tests on CI.
"""

import base64
import importlib.util
import json
import os
import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jax
import pytest
from PIL import Image

from anchordot_jax.cli.main import main
from planted import FIT, N_X, N_Y, write_files

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
    *("--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
PHONE, DESKTOP = 375, 1200
MODULES = ("selenium", "axe_core_python")


def _missing() -> list[str]:
    """Return what the tests need and is not there."""
    modules = [name for name in MODULES if importlib.util.find_spec(name) is None]
    return modules + [
        name for name in ("chromium", "chromedriver") if shutil.which(name) is None
    ]


@pytest.fixture(scope="module", autouse=True)
def _needed() -> None:
    """Skip without a browser, or fail where one was promised."""
    missing = _missing()
    if missing and os.environ.get("ANCHORDOT_BROWSER"):
        pytest.fail(f"missing: {', '.join(missing)}")
    if missing:
        pytest.skip(f"missing: {', '.join(missing)}")


@pytest.fixture(scope="module")
def page(_needed: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of a small run, with texts and pictures."""
    folder = tmp_path_factory.mktemp("browser")
    write_files(folder)
    (folder / "pictures").mkdir()
    for i in range(N_X):
        Image.new("RGB", (300, 200), (5 * i, 90, 200)).save(
            folder / f"pictures/{i}.jpg"
        )
    (folder / "texts.txt").write_text("a rather long caption of an item\n" * N_Y)
    with pytest.MonkeyPatch.context() as patch, jax.numpy_rank_promotion("raise"):
        patch.chdir(folder)
        assert main(FIT) == 0
        shown = ["--images", "pictures", "--texts-y", "texts.txt"]
        assert main(["report", "run", *shown]) == 0
    return folder / "run/report.html"


@pytest.fixture(scope="module")
def browser(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a browser that has opened the report at a desktop's width."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    profile = tmp_path_factory.mktemp("profile")
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        # The browser's own first page asks for parts of itself.
        driver.get("about:blank")
        driver.get_log("performance")
        resize(driver, DESKTOP)
        driver.get(page.as_uri())
        yield driver
    finally:
        driver.quit()


def resize(driver: Any, width: int) -> None:
    """Give the page the width of a device."""
    size = {"width": width, "height": 800, "deviceScaleFactor": 1}
    mobile = {"mobile": width == PHONE}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size | mobile)


def test_no_console_message_and_no_request_but_the_page(
    browser: Any, page: Path
) -> None:
    assert browser.get_log("browser") == []
    asked = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    own = ("data:", "about:", "chrome:", "chrome-untrusted:")
    assert [url for url in asked if not url.startswith(own)] == [page.as_uri()]


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_nothing_is_wider_than_the_screen(browser: Any, width: int) -> None:
    resize(browser, width)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    # Tables may scroll inside their own frame; nothing else may stick out.
    outside = browser.execute_script(
        "return [...document.querySelectorAll('p, h1, h2, figure, .item, img, svg')]"
        ".filter(e => !e.closest('.scroll')"
        " && e.getBoundingClientRect().right > arguments[0] + 1)"
        ".map(e => e.outerHTML.slice(0, 80))",
        width,
    )
    assert outside == []


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_accessibility(browser: Any, width: int) -> None:
    """No violation of axe-core's rules, best practices included."""
    resize(browser, width)
    script = resources.files("axe_core_python") / "axe.min.js"
    browser.execute_script(script.read_text(encoding="utf-8"))
    found = browser.execute_async_script(
        "const done = arguments[arguments.length - 1]; axe.run().then(done);"
    )
    assert len(found["passes"]) > 20
    said = [
        (rule["id"], [node["html"][:120] for node in rule["nodes"]][:3])
        for rule in found["violations"]
    ]
    assert said == []


def test_axe_sees_a_fault(browser: Any) -> None:
    """The check itself works: a picture without an alternative text is found."""
    script = resources.files("axe_core_python") / "axe.min.js"
    browser.execute_script(script.read_text(encoding="utf-8"))
    browser.execute_script(
        "const bad = document.createElement('img'); bad.id = 'bad';"
        "bad.src = 'data:image/gif;base64,R0lGODlhAQABAAAAACw=';"
        "document.querySelector('main').append(bad);"
    )
    found = browser.execute_async_script(
        "const done = arguments[arguments.length - 1]; axe.run().then(done);"
    )
    browser.execute_script("document.getElementById('bad').remove();")
    assert "image-alt" in {rule["id"] for rule in found["violations"]}


def test_pictures_and_figures_are_drawn(browser: Any) -> None:
    images = browser.execute_script(
        "return [...document.images].map(image => image.naturalWidth)"
    )
    assert len(images) >= 8
    assert min(images) > 0
    heights = browser.execute_script(
        "return [...document.querySelectorAll('figure svg')]"
        ".map(svg => svg.getBoundingClientRect().height)"
    )
    assert len(heights) >= 10
    assert min(heights) > 60


def test_it_prints(browser: Any) -> None:
    resize(browser, DESKTOP)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    pdf = base64.b64decode(printed["data"])
    assert pdf.startswith(b"%PDF-")
    pages = pdf.count(b"/Type /Page") - pdf.count(b"/Type /Pages")
    assert 4 <= pages <= 30

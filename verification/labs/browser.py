"""A headless Chromium, driven by Selenium."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from verification.labs.servers import find_program

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
)
WIDE, NARROW = (1280, 900), (390, 844)
"""Sizes of a desktop's window and of a phone's, in CSS pixels."""


@contextmanager
def open_browser(profile: Path) -> Iterator[Chrome]:
    """Run a browser inside the context."""
    options = ChromeOptions()
    options.binary_location = find_program("chromium", "google-chrome")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    driver = Chrome(options=options, service=ChromeService(find_program("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def set_size(browser: Chrome, size: tuple[int, int]) -> None:
    width, height = size
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == NARROW},
    )


_INTERFACES_CHANGED = "net::ERR_NETWORK_CHANGED"
"""What Chromium reports when another process of this machine adds a network interface."""


def console_errors(browser: Chrome) -> list[str]:
    """Return the errors of pages that the console has shown since the last call."""
    entries: list[dict[str, object]] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    messages = [str(entry["message"]) for entry in entries if entry["level"] == "SEVERE"]
    return [message for message in messages if _INTERFACES_CHANGED not in message]

"""The page in headless Chromium: what a person sees, hears and presses.

Needs Debian's ``chromium`` (or one named by ``CHROMIUM``) and ``requirements/browser.txt``.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs pip install --no-deps -r requirements/browser.txt"
)

TIMEOUT_MS = 60_000
OTHER_HOST = "voices.test"
"""Leads to this machine, but browsers don't trust its pages as they do those of localhost."""
ARGUMENTS = [
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    f"--host-resolver-rules=MAP {OTHER_HOST} 127.0.0.1",
]
WATCH = """
globalThis.refusals = [];
addEventListener("securitypolicyviolation", (event) => {
  refusals.push(`${event.violatedDirective} ${event.blockedURI}`);
});
// Everything that goes to the loudspeaker, sample by sample, in globalThis.heard.
globalThis.heard = [];
if (globalThis.AudioWorklet) {
  const add = AudioWorklet.prototype.addModule;
  AudioWorklet.prototype.addModule = async function (url) {
    await add.call(this, url);
    await add.call(this, "/page/recorder-worklet.js");
  };
}
const connect = AudioNode.prototype.connect;
AudioNode.prototype.connect = function (target, ...rest) {
  if (target instanceof AudioDestinationNode) {
    const tap = new AudioWorkletNode(this.context, "tap");
    tap.port.onmessage = ({ data }) => heard.push(...data);
    connect.call(connect.call(this, tap), target);
  }
  return connect.call(this, target, ...rest);
};
"""


@contextmanager
def running_chromium() -> Iterator[Any]:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("needs Chromium: apt install chromium, or name one by CHROMIUM")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """One tab with the page.

    Attributes:
        tab: Playwright's page.
        problems: errors and warnings of the scripts, and what the policy refused.
    """

    def __init__(self, context: Any, url: str) -> None:
        self.tab = context.new_page()
        self._logged: list[str] = []
        self.tab.on("console", self._log)
        self.tab.on("pageerror", lambda error: self._logged.append(str(error)))
        self.tab.set_default_timeout(TIMEOUT_MS)
        self.tab.add_init_script(WATCH)
        self.tab.goto(url)
        self.tab.wait_for_load_state("networkidle")

    def _log(self, message: Any) -> None:
        # The browser itself reports every answer that is an error.
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self._logged.append(message.text)

    @property
    def problems(self) -> list[str]:
        return self._logged + self.tab.evaluate("globalThis.refusals ?? []")

    def by_id(self, name: str) -> Any:
        return self.tab.locator(f"#{name}")

    def fact(self, name: str, card: int = 0) -> Any:
        return self.tab.locator(f".take >> nth={card} >> [data-part={name}]")

    def speak(self, text: str | None = None) -> None:
        if text is not None:
            self.by_id("text").fill(text)
        self.by_id("speak").click()

    def press(self, name: str, card: int = 0) -> None:
        self.fact(name, card).click()

    def shows(self, text: str, name: str = "status") -> None:
        """Wait until it does."""
        playwright.expect(self.by_id(name)).to_contain_text(text, timeout=TIMEOUT_MS)

    def counts(self, selector: str, number: int) -> None:
        """Wait until there are so many elements."""
        playwright.expect(self.tab.locator(selector)).to_have_count(number, timeout=TIMEOUT_MS)

    def waits_for(self, condition: str) -> None:
        """Wait until an expression of JavaScript holds."""
        deadline = time.monotonic() + TIMEOUT_MS / 1000
        while not self.tab.evaluate(condition):  # Playwright's own way needs eval, which the policy refuses
            assert time.monotonic() < deadline, condition
            self.tab.wait_for_timeout(20)

    def heard(self) -> npt.NDArray[np.float32]:
        return np.array(self.tab.evaluate("heard"), np.float32)

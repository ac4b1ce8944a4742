"""A real browser without a window: opens pages, runs scripts in them, takes pictures.

It drives any Chromium or Chrome through a pipe by the browser's own debugging protocol, so that
nothing need be installed but the browser. ``ROCKETWIRE_BROWSER`` names its program where it has
another name than usual. The network is off: pages must do without.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--remote-debugging-pipe", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
#: How long a page may take, on a busy machine.
_PATIENCE = 30.0


def find_browser() -> str | None:
    """The program, if there is one on this machine."""
    given = os.environ.get("ROCKETWIRE_BROWSER")
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One browser with one page. A context manager."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._number = 0
        self._session: str | None = None
        self._rest = b""

    def __enter__(self) -> Self:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        # It reads from its file 3 and writes to its file 4. Root has no sandbox to go into.
        flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        script = f'exec 3<&{commands} 4>&{answers}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "-", self._program, *flags,
             f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(commands, answers), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        pages = self.call("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser, and wait for its answer; what it tells meanwhile is dropped."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        os.write(self._write, json.dumps(request).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                raise RuntimeError(f"{self._program} has ended")
            self._rest += chunk
        line, self._rest = self._rest.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def open(
        self, address: str, *, width: int = 1300, height: int = 900, dark: bool = False
    ) -> None:
        """Open a page in a window of that size, and wait until it is loaded.

        Raises:
            RuntimeError: there is no such page.
        """
        # A page may have kept the colours that another one was shown in, and would keep the new
        # ones as soon as they are set: so it goes first.
        self.evaluate("try { localStorage.clear() } catch (error) {}")
        self._go("about:blank")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._go(address)

    def _go(self, address: str) -> None:
        answer = self.call("Page.navigate", url=address)
        if answer.get("errorText"):
            raise RuntimeError(f"{address}: {answer['errorText']}")
        self.wait_for(
            f"document.readyState === 'complete' && location.href === {json.dumps(address)}"
        )

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until an expression is true."""
        limit = time.monotonic() + _PATIENCE
        while not self.evaluate(condition):
            if time.monotonic() > limit:
                raise TimeoutError(f"{condition} did not become true in {_PATIENCE:.0f} s")
            time.sleep(0.05)

    def screenshot(self, target: Path, *, whole: bool = False) -> None:
        """Write a picture of the window, or of the whole page."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        target.write_bytes(base64.b64decode(taken["data"]))

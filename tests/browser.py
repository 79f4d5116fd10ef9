"""A headless browser driven over a pipe, with nothing but the standard library: open a page, look, listen."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage")
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe")
#: the browser reads commands from descriptor 3 and answers on 4
MOVE = """
import fcntl, os, sys
r, w = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3])
os.dup2(r, 3); os.dup2(w, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_browser():
    """The path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page; `events` holds everything the browser has said."""

    def __init__(self, executable, folder, seconds=60.0):
        self.deadline = time.monotonic() + seconds
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        command = [sys.executable, "-c", MOVE, str(to_browser), str(from_browser), executable, *FLAGS, *QUIET]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._count, self._session, self.events = b"", 0, None, []
        page = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.terminate()
        self._process.wait(20)
        os.close(self._in)
        os.close(self._out)

    def ask(self, method, **params):
        """Send a command, collect what happens until its answer comes."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, path, width, height=900, query=""):
        """Load a file at a width in CSS pixels and wait until it is there."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        seen = len(self.events)
        self.ask("Page.navigate", url=Path(path).resolve().as_uri() + query)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events[seen:]):
            self.events.append(self._next())

    def evaluate(self, expression, wait=False):
        """The value of an expression in the page; of a promise, if it is waited for."""
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": wait}
        return self.ask("Runtime.evaluate", **asked)["result"].get("value")

    def screenshot(self, path):
        """The whole page as PNG."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def requests(self):
        """Addresses the page asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def complaints(self):
        """Errors and warnings of the console, and exceptions."""
        spoken = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event["params"] for event in self.events if event.get("method") in spoken]

    def _next(self):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(self.deadline - time.monotonic(), 0.0))
            if not ready:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._in, 1 << 20)
            if not part:
                raise RuntimeError("the browser has gone")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

"""A headless Chromium for tests, driven by the DevTools protocol over a pipe: JSON messages, each ended by a 0."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find() -> str | None:
    """The browser's path; None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. It records what the page logs, throws and asks the network for."""

    def __init__(self, width: int = 1200, height: int = 900):
        self.folder = tempfile.mkdtemp(prefix="xladder-chromium-")
        ours, theirs = os.pipe(), os.pipe()  # what the browser reads, and what it writes
        command = [find() or "", "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        command += ["--disable-background-networking", "--no-first-run", "--disable-dev-shm-usage"]
        command += [f"--user-data-dir={self.folder}", f"--window-size={width},{height}", "about:blank"]

        # The browser reads from 3 and writes to 4. Not `subprocess`, which would fork to arrange that.
        reads, writes = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (ours[0], theirs[1]))
        actions = [(os.POSIX_SPAWN_DUP2, reads, 3), (os.POSIX_SPAWN_DUP2, writes, 4)]
        actions += [(os.POSIX_SPAWN_OPEN, out, os.devnull, os.O_WRONLY, 0) for out in (1, 2)]
        self.process = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        for fd in (reads, writes, ours[0], theirs[1]):
            os.close(fd)
        self._to, self._from = ours[1], theirs[0]
        self._buffer, self._number, self._session = b"", 0, ""
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self._first_page()
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.resize(width, height)

    def _first_page(self) -> str:
        for _ in range(100):
            for target in self.send("Target.getTargets")["targetInfos"]:
                if target["type"] == "page":
                    return target["targetId"]
            time.sleep(0.1)
        raise TimeoutError("Chromium opened no page.")

    def send(self, method: str, seconds: float = 60.0, **params: Any) -> dict[str, Any]:
        """Call a method and wait for its answer; events on the way are recorded."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + seconds
        while True:
            answer = self._receive(until)
            if answer is None:
                raise TimeoutError(f"Chromium did not answer {method}.")
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self, until: float) -> dict[str, Any] | None:
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            read = os.read(self._from, 1 << 20)
            if not read:
                raise ConnectionError("Chromium has ended.")
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        given = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.errors.append(str(details.get("exception", {}).get("description", details["text"])))
        elif message.get("method") == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(one.get("value", one.get("description"))) for one in given["args"]))
        elif message.get("method") == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.errors.append(given["entry"]["text"])
        elif message.get("method") == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        return message

    def open(self, address: str | Path, ready: str = "document.querySelector('html[data-ready]')") -> None:
        """Open a page and wait until the condition holds."""
        self.send("Page.navigate", url=address.as_uri() if isinstance(address, Path) else address)
        self.wait(ready)

    def run(self, code: str) -> Any:
        """Evaluate JavaScript; returns its value, of a promise too."""
        found = self.send("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", "JavaScript failed"))
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        """Wait until some JavaScript is true."""
        until = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > until:
                raise TimeoutError(f"never true: {condition}; errors: {self.errors}")
            self.pause(0.05)

    def pause(self, seconds: float) -> None:
        """Let the page work, and record its events."""
        until = time.monotonic() + seconds
        while self._receive(until) is not None:
            pass

    def press(self, key: str, code: str = "") -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, code=code or key, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, code=code or key)

    def point(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def resize(self, width: int, height: int, phone: bool = False) -> None:
        """Set the size of the window."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def darken(self, dark: bool = True) -> None:
        """Prefer dark colours."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """Save what is seen as PNG; the whole page if asked."""
        given: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            given["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", **given)["data"]))

    def close(self) -> None:
        """End the browser."""
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""VS Code's page as a person uses it, over the browser's own protocol. With SCREENSHOTS, pictures of the page
are saved in that folder."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import ClientConnection, connect

PICTURES = os.environ.get("SCREENSHOTS")
SECONDS = 20.0
_MARGIN = 8
_PLACE = """(() => {
  const found = [...document.querySelectorAll(%s)].find(each => %s === null || each.innerText.trim() === %s);
  const { x, y, width, height } = found?.getBoundingClientRect() ?? {};
  return found && width > 0 ? { x, y, width, height } : null;
})()"""


class Page:
    """An open page. An element that does not appear within `SECONDS` is an AssertionError."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._calls = 0

    def evaluate(self, expression: str) -> Any:
        """The value of an expression."""
        parameters = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        return self._call("Runtime.evaluate", parameters)["result"].get("value")

    def text(self, selector: str) -> str:
        """The text of the first such element, "" if there is none."""
        shown: str = self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return shown

    def texts(self, selector: str) -> list[str]:
        """The texts of all such elements."""
        each = f"[...document.querySelectorAll({json.dumps(selector)})].map(each => each.innerText.trim())"
        shown: list[str] = self.evaluate(each)
        return shown

    def place(self, selector: str, text: str | None = None) -> dict[str, float]:
        """The place of the first such element, or of the first one with this text; waits until there is
        one."""
        quoted = json.dumps(text)
        expression = _PLACE % (json.dumps(selector), quoted, quoted)
        deadline = time.monotonic() + SECONDS
        while (position := self.evaluate(expression)) is None:
            assert time.monotonic() < deadline, f"no {selector} {text or ''}: {self.texts(selector)}"
            time.sleep(0.05)
        where: dict[str, float] = position
        return where

    def gone(self, selector: str) -> None:
        """Wait until no such element is shown."""
        deadline = time.monotonic() + SECONDS
        while self.evaluate(_PLACE % (json.dumps(selector), "null", "null")) is not None:
            assert time.monotonic() < deadline, f"{selector} is still there: {self.texts(selector)}"
            time.sleep(0.05)

    def point(self, selector: str, text: str | None = None) -> dict[str, float]:
        """Move the pointer to the middle of that element, and return where that is."""
        where = self.place(selector, text)
        at = {"x": where["x"] + where["width"] / 2, "y": where["y"] + where["height"] / 2}
        self._call("Input.dispatchMouseEvent", {"type": "mouseMoved", **at})
        return at

    def click(self, selector: str, text: str | None = None) -> None:
        """Click on the middle of that element."""
        at = self.point(selector, text)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", {"type": kind, "button": "left", "clickCount": 1, **at})

    def write(self, text: str) -> None:
        """Type the text at the cursor."""
        self._call("Input.insertText", {"text": text})

    def escape(self) -> None:
        """Press Escape."""
        key = {"key": "Escape", "code": "Escape", "windowsVirtualKeyCode": 27}
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", {"type": kind, **key})

    def picture(self, name: str, *selectors: str) -> None:
        """Save a picture of the rectangle around these elements, if pictures are requested."""
        if PICTURES is None:
            return
        self.evaluate("Promise.all(document.getAnimations().map(each => each.finished)).then(() => true)")
        places = [self.place(selector) for selector in selectors]
        left, top = (min(place[side] for place in places) - _MARGIN for side in ("x", "y"))
        right = max(place["x"] + place["width"] for place in places) + _MARGIN
        bottom = max(place["y"] + place["height"] for place in places) + _MARGIN
        clip = {"x": left, "y": top, "width": right - left, "height": bottom - top, "scale": 1}
        shot = self._call("Page.captureScreenshot", {"format": "png", "clip": clip})
        (Path(PICTURES) / name).write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        self._calls += 1
        self._connection.send(json.dumps({"id": self._calls, "method": method, "params": parameters}))
        while (answer := json.loads(self._connection.recv(timeout=SECONDS))).get("id") != self._calls:
            pass
        result: dict[str, Any] = answer["result"]
        return result


@contextmanager
def opened_page(profile: Path) -> Iterator[Page]:
    """A page in a browser with this profile."""
    port = (profile / "DevToolsActivePort").read_text().splitlines()[0]
    with urlopen(f"http://127.0.0.1:{port}/json") as listed:
        address = next(each for each in json.load(listed) if each["type"] == "page")["webSocketDebuggerUrl"]
    with connect(address, max_size=None) as connection:
        yield Page(connection)

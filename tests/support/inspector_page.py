"""The inspector's page as a person uses it. With SCREENSHOTS, pictures of the page are saved in that
folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

PICTURES = os.environ.get("SCREENSHOTS")


def send(page: Any, model: str, text: str = "The weather in Lima and Oslo?") -> None:
    page.get_by_role("button", name="Request", exact=True).click()
    page.fill("#model", model)
    page.fill("#input", text)
    page.get_by_role("button", name="Send", exact=True).click()


def open_stored(page: Any, response_id: str) -> None:
    page.get_by_role("button", name="Stored", exact=True).click()
    page.fill("#open-id", response_id)
    page.get_by_role("button", name="Open", exact=True).click()
    page.locator(".id", has_text=response_id).wait_for()
    page.locator(".figures .status:not(.live)").wait_for()


def dropped(page: Any, data: bytes, name: str = "capture.sse") -> None:
    page.get_by_role("button", name="Capture", exact=True).click()
    page.set_input_files("#file", {"name": name, "mimeType": "text/plain", "buffer": data})


def picture(page: Any, name: str) -> None:
    if PICTURES:
        Path(PICTURES).mkdir(exist_ok=True)
        page.screenshot(path=f"{PICTURES}/{name}.png")


def cut_off(page: Any, selector: str) -> list[str]:
    """The texts of visible elements that are cut off, and of hidden ones."""
    texts: list[str] = page.eval_on_selector_all(
        selector,
        """all => all.filter(each => {
          const range = document.createRange(); range.selectNodeContents(each);
          const [text, box] = [range.getBoundingClientRect(), each.getBoundingClientRect()];
          return each.textContent && (!box.width || text.width > box.width + 0.5);
        }).map(each => each.textContent)""",
    )
    return texts


_FRAMES = """async ([selector, slider]) => {
  const measured = async (move) => {
    const spent = []; let last = performance.now();
    for (let at = 0; at < 60; at += 1) {
      move(at / 59); await new Promise(requestAnimationFrame);
      const now = performance.now(); spent.push(now - last); last = now;
    }
    spent.sort((a, b) => a - b);
    return { median: spent[30], worst: spent[59] };
  };
  const list = document.querySelector(selector); const input = document.querySelector(slider);
  return {
    scroll: await measured((part) => { list.scrollTop = part * list.scrollHeight; }),
    scrub: await measured((part) => {
      input.value = Math.floor(part * input.max);
      input.dispatchEvent(new Event('input', { bubbles: true }));
    }),
  };
}"""


def frames(page: Any, scrolled: str = ".list .events") -> dict[str, dict[str, float]]:
    """Milliseconds between frames, median and worst, while this list is scrolled and the stream is
    scrubbed."""
    durations: dict[str, dict[str, float]] = page.evaluate(_FRAMES, [scrolled, ".scrub"])
    return durations

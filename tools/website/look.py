"""Look at the site as its readers do: PYTHONPATH=tools python -m website.look FOLDER PICTURES.

Opens every page in headless Chromium, on a wide screen and on a phone, where nothing but files can be reached. Prints
each message in the console, each page that is wider than its window, and whether a search finds what it should. Writes
pictures of some pages, to be looked at by a person.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WIDE, PHONE = (1280, 900), (390, 844)
SEARCH, FOUND = "search.html?q=DistributedOptimizer", "ciranda.torch.DistributedOptimizer"
#: The pages, and the windows, of the pictures.
PICTURES = {
    "front": ("index.html", WIDE),
    "search": (SEARCH, WIDE),
    "reference": ("reference/python/ciranda.torch.html", WIDE),
    "phone": ("index.html", PHONE),
    "gallery": ("gallery/digits.py.html", WIDE),
    "notebook": ("examples/notebooks/train.html", WIDE),
}
FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--no-first-run",
    "--proxy-server=socks5://127.0.0.1:1",  # no network: what a page would load from elsewhere is a message
    "--remote-debugging-pipe",
)


class Browser:
    """A page of Chromium, driven by the DevTools protocol: JSON, each message ended by a zero byte, over two pipes."""

    def __init__(self, command: str, profile: str) -> None:
        its_input, self._to = os.pipe()
        from_it, its_output = os.pipe()
        self._from = os.fdopen(from_it, "rb")
        self._rest = b""
        self._n_sent = 0
        self._session: dict[str, str] = {}
        self._events: list[dict[str, Any]] = []
        flags = [*FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        started = ["bash", "-c", f'exec "$0" "$@" 3<&{its_input} 4>&{its_output} 2> /dev/null', command, *flags]
        self._process = subprocess.Popen(started, pass_fds=(its_input, its_output), stdout=subprocess.DEVNULL)
        os.close(its_input)
        os.close(its_output)
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; keep the events that come before it."""
        self._n_sent += 1
        message = {"id": self._n_sent, "method": method, "params": parameters, **self._session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._n_sent:
                if "error" in answer:
                    raise SystemExit(f"website: Chromium refuses {method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            received = os.read(self._from.fileno(), 1 << 20)
            if not received:
                raise SystemExit("website: Chromium has ended")
            self._rest += received
        message, _, self._rest = self._rest.partition(b"\0")
        event: dict[str, Any] = json.loads(message)
        return event

    def open(self, address: str, window: tuple[int, int]) -> list[str]:
        """Show a page, and return the messages of its console once it is loaded."""
        width, height = window
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._events.clear()
        self.ask("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(self._next())
        return [text for event in self._events for text in _messages(event)]

    def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, or what its promise comes to."""
        result = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return result["result"].get("value")

    def picture(self, path: Path) -> None:
        """Write what the window shows."""
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """End it."""
        self.ask("Browser.close")
        self._process.wait()
        self._from.close()
        os.close(self._to)


def _messages(event: dict[str, Any]) -> Iterator[str]:
    given = event.get("params", {})
    if event.get("method") == "Runtime.consoleAPICalled":
        yield " ".join(str(each.get("value", each.get("description"))) for each in given["args"])
    elif event.get("method") == "Runtime.exceptionThrown":
        yield str(given["exceptionDetails"].get("exception", given["exceptionDetails"]).get("description"))
    elif event.get("method") == "Log.entryAdded":
        yield f"{given['entry']['text']} {given['entry'].get('url', '')}"


#: What the search has found, once it has ended: it shows its results one by one.
RESULTS = """new Promise(done => {
  const look = () => document.querySelector(".search-summary")?.textContent.match(/found|did not match/)
    ? done([...document.querySelectorAll("ul.search li a")].map(each => each.textContent)) : setTimeout(look, 50);
  look();
})"""


def problems(browser: Browser, site: Path) -> Iterator[str]:
    """Yield what is wrong with the pages of a site."""
    for page in sorted(site.rglob("*.html")):
        for window in (WIDE, PHONE):
            name = f"{page.relative_to(site)}, {window[0]} pixels wide"
            yield from (f"{name}: {message}" for message in browser.open(page.as_uri(), window))
            width = browser.value("document.documentElement.scrollWidth")
            if width > window[0]:
                yield f"{name}: its content is {width} wide"
    browser.open(f"{site.as_uri()}/{SEARCH}", WIDE)
    if FOUND not in (found := browser.value(RESULTS)):
        yield f"{SEARCH} finds {found}, but not {FOUND}"


def main() -> int:
    """Print what is wrong; the exit code."""
    site, pictures = (Path(name).resolve() for name in sys.argv[1:3])
    command = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if command is None:
        raise SystemExit("website: no Chromium is installed")
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(command, profile)
        found = list(problems(browser, site))
        for name, (page, window) in PICTURES.items():
            browser.open(f"{site.as_uri()}/{page}", window)
            if page == SEARCH:
                browser.value(RESULTS)
            browser.picture(pictures / f"{name}.png")
        browser.close()
    for each in found:
        print(f"website: {each}")
    print(f"website: looked at {len(list(site.rglob('*.html')))} pages, {len(found)} offences; pictures in {pictures}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

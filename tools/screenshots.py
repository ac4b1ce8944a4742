"""Takes pictures of all pages in a real browser, wide and narrow, light and dark, and checks them.

``python tools/screenshots.py FOLDER [PAGE.html ...]`` writes PNG files into a folder. Pages are those of
``site/`` (``make docs``), or the files that are given, which are taken from top to bottom: a report, the
demo's page, the bench page.
Fails where a page scrolls sideways, or where text has too little contrast.
"""

from __future__ import annotations

import sys
from pathlib import Path

from browser import Browser, find_browser

SITE = Path(__file__).parent.parent / "site"
WIDTHS = (1300, 400)
#: WCAG's AA for text of the usual size.
LEAST_CONTRAST = 4.5
#: What is too wide also widens the window of a telephone, so its own width is no measure.
_TOO_WIDE = "document.documentElement.scrollWidth > WIDTH"
#: Parts that scroll by themselves; code may.
_SIDEWAYS = """
[...document.querySelectorAll("body *")]
  .filter((e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX)
    && e.scrollWidth > e.clientWidth + 1 && e.offsetParent
    && !e.closest("pre, code, .highlight, .md-search") && !e.querySelector("pre, code"))
  .slice(0, 3).map((e) => `${e.tagName}.${e.className}`)
"""
_PALE = """
(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color.length === 3 || color[3] > 0.9) return color;
    }
    return [255, 255, 255];
  };
  const over = (top, below) => top.length < 4 ? top : top.slice(0, 3).map((v, i) => v * top[3] + below[i] * (1 - top[3]));
  const found = new Set();
  for (const element of document.querySelectorAll("p, li, td, th, code, h1, h2, h3, dt, dd, small, span, b, summary, figcaption")) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) || !element.offsetParent) continue;
    const below = ground(element);
    const color = parse(getComputedStyle(element).color);
    let shown = color[3] ?? 1;
    for (let e = element; e; e = e.parentElement) shown *= Number(getComputedStyle(e).opacity);
    if (shown === 0) continue;
    const [a, b] = [light(over([...color.slice(0, 3), shown], below)), light(below)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < LEAST) found.add(`${element.tagName} ${contrast.toFixed(1)}: ${element.innerText.slice(0, 40)}`);
  }
  return [...found].slice(0, 3);
})()
"""


def look(
    browser: Browser, page: Path, folder: Path, name: str, *, whole: bool = False
) -> list[str]:
    """Take the pictures of a page, or of its first screen; what is wrong with it, in words."""
    problems = []
    for width in WIDTHS:
        for dark in (False, True):
            browser.open(page.as_uri(), width=width, dark=dark)
            target = folder / f"{name}-{width}-{'dark' if dark else 'light'}.png"
            browser.screenshot(target, whole=whole)
            where = f"{name}, {width} px, {'dark' if dark else 'light'}"
            if browser.evaluate(_TOO_WIDE.replace("WIDTH", str(width))):
                problems.append(f"{where}: scrolls sideways")
            inner = browser.evaluate(_SIDEWAYS)
            problems += [f"{where}: {part} scrolls sideways in itself" for part in inner]
            pale = browser.evaluate(_PALE.replace("LEAST", str(LEAST_CONTRAST)))
            problems += [f"{where}: contrast {words}" for words in pale]
    return problems


def main() -> None:
    """Look at the pages that are asked for."""
    program = find_browser()
    if program is None or len(sys.argv) < 2:
        sys.exit(
            "usage: tools/screenshots.py FOLDER [PAGE.html ...]; needs a Chromium (ROCKETWIRE_BROWSER)"
        )
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    given = [Path(name).resolve() for name in sys.argv[2:]]
    pages = given or sorted(page for page in SITE.rglob("*.html") if page.name != "404.html")
    problems = []
    with Browser(program) as browser:
        for page in pages:
            name = page.stem if given else "-".join(page.relative_to(SITE).with_suffix("").parts)
            problems += look(browser, page, folder, name, whole=bool(given))
    print(f"{len(pages)} pages, {len(WIDTHS) * 2} pictures of each in {folder}")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()

"""Takes pictures of all pages in a real browser, wide and narrow, light and dark, and checks them.

``python tools/screenshots.py FOLDER [PAGE.html ...]`` writes PNG files into a folder. Pages are those of
``site/`` (``make docs``), or the files that are given: a report, the demo's page, the bench page.
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
_TOO_WIDE = "document.documentElement.scrollWidth > innerWidth"
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
  for (const element of document.querySelectorAll("p, li, td, th, code, h2, h3")) {
    if (!element.innerText || !element.offsetParent) continue;
    const below = ground(element);
    const [a, b] = [light(over(parse(getComputedStyle(element).color), below)), light(below)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < LEAST) found.add(`${element.tagName} ${contrast.toFixed(1)}: ${element.innerText.slice(0, 40)}`);
  }
  return [...found].slice(0, 3);
})()
"""


def look(browser: Browser, page: Path, folder: Path, name: str) -> list[str]:
    """Take the pictures of a page; what is wrong with it, in words."""
    problems = []
    for width in WIDTHS:
        for dark in (False, True):
            browser.open(page.as_uri(), width=width, dark=dark)
            browser.screenshot(folder / f"{name}-{width}-{'dark' if dark else 'light'}.png")
            where = f"{name}, {width} px, {'dark' if dark else 'light'}"
            if browser.evaluate(_TOO_WIDE):
                problems.append(f"{where}: scrolls sideways")
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
            problems += look(browser, page, folder, name)
    print(f"{len(pages)} pages, {len(WIDTHS) * 2} pictures of each in {folder}")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()

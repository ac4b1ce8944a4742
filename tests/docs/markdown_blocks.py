"""Code blocks of Markdown pages, in their order, with what the page says about running them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHINESE = ROOT / "docs" / "zh"

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[a-z]*)(?P<rest>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_HIDDEN = re.compile(r"^<!-- run\n(?P<code>.*?)-->$", re.MULTILINE | re.DOTALL)
_ENDLESS = "<!-- runs until Ctrl-C -->"


@dataclass(frozen=True)
class Block:
    """One block: its language, its code, where it stands, its file name if it has one.

    ``language`` is ``python`` for the hidden blocks, too, in which a page checks itself.
    ``endless`` marks commands that run until they are interrupted.
    """

    language: str
    code: str
    line: int
    title: str = ""
    endless: bool = False


def pages() -> list[Path]:
    """Every page that users read; Chinese ones have the code of the English, which runs once."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if page.is_file() and CHINESE not in page.parents]


def chinese_pages() -> dict[Path, Path]:
    """The Chinese pages, and the English page that each has its code from."""
    found = {ROOT / "README.zh-CN.md": ROOT / "README.md"}
    for page in sorted(CHINESE.rglob("*.md")):
        found[page] = ROOT / "docs" / page.relative_to(CHINESE)
    return found


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, visible and hidden, in order."""
    text = page.read_text(encoding="utf-8")
    found = [(match.start(), _visible(text, match)) for match in _FENCE.finditer(text)]
    for match in _HIDDEN.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        found.append((match.start(), Block("python", match["code"], line)))
    return [block for _, block in sorted(found, key=lambda item: item[0])]


def _visible(text: str, match: re.Match[str]) -> Block:
    title = re.search(r'title="([^"]+)"', match["rest"])
    indent = match["indent"]
    code = "\n".join(line.removeprefix(indent) for line in match["code"].split("\n"))
    before = text[: match.start()].rstrip().rsplit("\n", 1)[-1]
    return Block(
        match["language"],
        code,
        text.count("\n", 0, match.start("code")) + 1,
        title[1] if title else "",
        endless=before.strip() == _ENDLESS,
    )


def commands_of(code: str) -> list[str]:
    """The commands of a console block: what follows a dollar, with lines that go on."""
    joined = code.replace("\\\n", " ")
    return [line[2:].strip() for line in joined.splitlines() if line.startswith("$ ")]

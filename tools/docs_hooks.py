"""What mkdocs does beside its settings: each page's switch leads to the same page in the other language."""

from __future__ import annotations

from typing import Any

LANGUAGES = (("English", "en", ""), ("中文", "zh", "zh/"))


def on_page_context(context: dict[str, Any], page: Any, config: Any, nav: Any) -> dict[str, Any]:
    """Give the theme the addresses of this page; where there is no twin, those of the first pages."""
    there = {file.src_uri for file in config["_all_files"]}
    plain = page.file.src_uri.removeprefix("zh/")
    twin = plain if {plain, f"zh/{plain}"} <= there else "index.md"
    config.extra["alternate"] = [
        {"name": name, "lang": lang, "link": f"{folder}{twin.removesuffix('.md')}.html"}
        for name, lang, folder in LANGUAGES
    ]
    return context


def on_files(files: Any, config: Any) -> Any:
    """Remember which pages there are."""
    config["_all_files"] = list(files)
    return files

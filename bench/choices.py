"""Options that the benchmark programs share."""

from __future__ import annotations

import argparse


def chosen_words(
    parser: argparse.ArgumentParser, option: str, text: str, known: tuple[str, ...]
) -> list[str]:
    """Words with commas between them, each of them known."""
    words = [word for word in text.split(",") if word]
    unknown = sorted(set(words) - set(known))
    if unknown or not words:
        parser.error(f"{option} {','.join(unknown) or text}: choose from {', '.join(known)}")
    return words


def chosen_sizes(parser: argparse.ArgumentParser, text: str) -> list[int]:
    """Numbers of bytes with commas between them."""
    try:
        sizes = [int(word) for word in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        parser.error(f"--bodies {text}: numbers of bytes with commas, such as 20,200,2000")
    return sizes

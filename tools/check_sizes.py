"""Fails when a module or a function of the package has grown too large to be read at once."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

MODULE_LINES = 500
FUNCTION_LINES = 60
#: Tables of constants may be longer.
TABLES = {"codes.py": 600}


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of words, which make a function longer and not harder to read."""
    first = node.body[0]
    if ast.get_docstring(node) is None:
        return 0
    return (first.end_lineno or 0) - first.lineno + 1


def too_large(root: Path) -> list[str]:
    found = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text()
        lines = text.count("\n")
        limit = TABLES.get(path.name, MODULE_LINES)
        if lines > limit:
            found.append(f"{path}: {lines} lines, at most {limit}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or 0) - node.lineno + 1 - docstring_lines(node)
                if size > FUNCTION_LINES:
                    found.append(
                        f"{path}:{node.lineno} {node.name}: {size} lines, at most {FUNCTION_LINES}"
                    )
    return found


if __name__ == "__main__":
    problems = too_large(Path(__file__).resolve().parent.parent / "src")
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)

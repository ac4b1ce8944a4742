"""Runs the Python blocks of one page in one namespace; run as a program.

Arguments: a JSON file with a list of [line, code], and the page's name for tracebacks.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    blocks = json.loads(Path(sys.argv[1]).read_text())
    page = sys.argv[2]
    namespace = {"__name__": "__main__"}
    for line, code in blocks:
        # Lines before it are blank, so that a traceback names the line of the page.
        exec(compile("\n" * (line - 1) + code, page, "exec"), namespace)


if __name__ == "__main__":
    main()

"""pip install with one line of progress: ``python tools/install_quietly.py [arguments of pip install]``.

pip's own words, some hundred lines, are shown only when it fails.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGES = Path(sys.prefix)
_LOOK_AGAIN = 2.0
MB = 1_000_000


def size_of(folder: Path) -> int:
    """Bytes in a folder; files may come and go meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_size
        except OSError:
            continue
    return total


def main() -> int:
    """Install, and tell how far it is where that is seen."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    began, shows = time.monotonic(), sys.stdout.isatty()
    with tempfile.TemporaryFile("w+") as words:
        process = subprocess.Popen([*command, *sys.argv[1:]], stdout=words, stderr=words)
        while True:
            try:
                code = process.wait(_LOOK_AGAIN)
                break
            except subprocess.TimeoutExpired:
                if shows:
                    told = (
                        f"{time.monotonic() - began:.0f} s, {size_of(PACKAGES) // MB} MB installed"
                    )
                    print(f"\r{told:<40}", end="", flush=True)
        words.seek(0)
        said = words.read()
    took, size = time.monotonic() - began, size_of(PACKAGES) // MB
    end = "installed" if code == 0 else "pip failed"
    print(f"{chr(13) if shows else ''}{end} after {took:.0f} s: {size} MB in {PACKAGES.name}")
    if code:
        print(said, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())

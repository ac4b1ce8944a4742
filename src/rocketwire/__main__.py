"""``python -m rocketwire`` and the ``rocketwire`` command."""

from __future__ import annotations

import sys
from importlib.util import find_spec

_NEEDED = ("typer", "rich")


def main() -> None:
    """Run the command line; without its extra, say what to install."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(
            f"the rocketwire command needs {' and '.join(missing)}: pip install 'rocketwire[cli]'"
        )
    from rocketwire.cli.application import run

    sys.exit(run())


if __name__ == "__main__":
    main()

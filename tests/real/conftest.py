"""Fixtures of the tests against Apache RocketMQ, and what every such test is marked with."""

import sys
from pathlib import Path

# Test modules are imported by file, not by package; the harness is imported by name from everywhere.
_ROOT = str(Path(__file__).parents[2])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

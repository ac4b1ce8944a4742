"""Tables to messages and messages to tables, on Arrow, without a Python object per row.

Needs the extra ``arrow`` (pyarrow and numpy). The names here are imported when first used, so
that looking at the package costs nothing.
"""

from __future__ import annotations

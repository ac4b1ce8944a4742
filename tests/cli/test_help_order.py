"""What a newcomer sees first."""

import re

from rocketwire.cli.application import COMMANDS, run


def test_help_begins_with_where_to_start(capsys):
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    panels = re.findall(r"^.─ (\w[\w ]*?) ─", shown, re.MULTILINE)
    assert panels[:2] == ["Options", "Start here"]
    assert "Commands" not in panels
    assert all(re.search(rf"│ {name} ", shown) for name in COMMANDS)

"""The reference pages are what the code says."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load_tool():
    spec = importlib.util.spec_from_file_location(
        "gen_reference", ROOT / "tools" / "gen_reference.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["gen_reference"] = module
    spec.loader.exec_module(module)
    return module


tool = load_tool()


@pytest.mark.parametrize("name", tool.PAGES)
def test_a_page_is_up_to_date(name):
    page = ROOT / "docs" / "reference" / name
    assert page.read_text(encoding="utf-8") == tool.expected(name), "run tools/gen_reference.py"


def test_every_error_has_a_cause_and_a_remedy():
    told = set(tool.REMEDIES) | {"RocketMQError"}
    assert told == {cls.__name__ for cls in tool._error_classes()}


def test_every_number_of_the_fault_policy_is_explained():
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    section = page.split("## FaultPolicy")[1].split("## Tls")[0]
    for line in re.findall(r"^\| `\w+` .*$", section, re.MULTILINE):
        assert line.split("|")[3].strip(), line

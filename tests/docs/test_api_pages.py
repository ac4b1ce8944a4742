"""The API reference has every public name, with an example that runs, and help() tells settings."""

import ast
import dataclasses
import importlib.util
import inspect
import re
from pathlib import Path

import pytest
from tests.docs.markdown_blocks import ROOT, blocks_of, pages

import rocketwire
from rocketwire.config import ProducerConfig, ReaderConfig
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.simple_consumer_config import SimpleConsumerConfig

FOLDER = ROOT / "docs" / "reference" / "api"
MODULES = ("selectors", "middleware", "embedded", "columns", "spark")
#: Each needs a library.
INTEGRATIONS = ("celery", "opentelemetry", "outbox", "outbox.django", "prometheus")
#: Constants have nothing to be drawn from; their pages tell of them in words.
IN_WORDS = {"__version__", "ID_PROPERTY", "READ_COLUMNS", "READ_SCHEMA"}
#: Results that functions of an example return, and what ``rocketwire broker`` and ``lab`` run.
NEVER_NAMED = {
    "ArchiveResult",
    "Lag",
    "LabResult",
    "lab",
    "PublishResult",
    "ReportResult",
    "TransformResult",
    "run_broker",
}
CLIENTS = {
    "Producer": ProducerConfig,
    "Reader": ReaderConfig,
    "Admin": ReaderConfig,
    "Consumer": ConsumerConfig,
    "SimpleConsumer": SimpleConsumerConfig,
}


def public_names():
    return {name for names in promised().values() for name in names}


def promised():
    """Modules and their public names, as docs/reference/versions.md lists them."""
    found = {"rocketwire": set(rocketwire.__all__)}
    modules = [*MODULES, *(f"integrations.{name}" for name in INTEGRATIONS)]
    for module in (f"rocketwire.{name}" for name in modules):
        found[module] = all_of(module)
    return found


def all_of(module):
    """Read, not imported: the library of an extra may be missing."""
    spec = importlib.util.find_spec(module)
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{module} does not say what is public")


def test_every_public_name_is_in_the_reference():
    text = "\n".join(page.read_text(encoding="utf-8") for page in FOLDER.glob("*.md"))
    drawn = {name.rsplit(".", 1)[1] for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    told = {name for name in IN_WORDS if name in text}
    assert public_names() - drawn - told == set()


def test_every_public_name_is_in_an_example_that_runs():
    # What needs Spark is shown on the pages that start one.
    shown = "\n".join(code_of(page) for page in pages() if is_shown(page))
    assert public_names() - set(re.findall(r"\w+", shown)) <= NEVER_NAMED


def test_pages_import_only_what_is_promised():
    """What a page tells users to import is public; else they could not rely on the page."""
    public, found = promised(), []
    for page in pages():
        if "design" in page.parts:
            continue
        for block in blocks_of(page):
            if block.language == "python":
                found += [
                    f"{page.name}: {node.module}.{alias.name}"
                    for node in ast.walk(ast.parse(block.code))
                    if isinstance(node, ast.ImportFrom)
                    and (node.module or "").startswith("rocketwire")
                    for alias in node.names
                    if alias.name not in public.get(node.module, ())
                ]
    assert found == []


def is_shown(page):
    return page.parent == FOLDER or "rocketwire.spark" in page.read_text(encoding="utf-8")


def code_of(page):
    return "\n".join(block.code for block in blocks_of(page) if block.language == "python")


@pytest.mark.parametrize("name", [f"{shell}{name}" for name in CLIENTS for shell in ("", "Async")])
def test_help_lists_the_settings_of_a_client(name):
    told = inspect.getdoc(getattr(rocketwire, name))
    section = told.split("Settings:\n")[1]
    for field in dataclasses.fields(CLIENTS[name.removeprefix("Async")]):
        if field.name in {"name_servers", "group", "middleware"}:
            assert f"{field.name}:" in told.split("Settings:")[0] or field.name == "middleware"
        else:
            assert f"    {field.name} = " in section
            assert field.metadata["help"] in section

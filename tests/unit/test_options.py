"""The types of options and hooks are those of the tables: none is missing, none is left over."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import typing
from pathlib import Path

import pytest

import rocketwire
from rocketwire import hooks, options
from rocketwire.config import _SCATTERED, ProducerConfig, canonical
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.fault_policy import FaultPolicy

ROOT = Path(__file__).parents[2]


def generator():
    spec = importlib.util.spec_from_file_location("gen_options", ROOT / "tools" / "gen_options.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_module_is_up_to_date():
    found = (ROOT / "src" / "rocketwire" / "options.py").read_text()
    assert found == generator().generate(), "run make options"


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (ProducerConfig, options.ProducerOptions),
        (ConsumerConfig, options.ConsumerOptions),
    ],
)
def test_every_setting_is_an_option_or_a_parameter(config, kind):
    client = rocketwire.Producer if config is ProducerConfig else rocketwire.Consumer
    parameters = set(inspect.signature(client.__init__).parameters) | {"batch", "middleware"}
    settings = {spec.name for spec in dataclasses.fields(config)}
    names = set(kind.__optional_keys__)
    assert settings <= names | parameters
    assert {canonical(name) for name in names - settings} == _SCATTERED
    assert kind.__required_keys__ == frozenset()


def test_every_name_of_a_policy_is_one():
    for name in typing.get_args(options.FaultPolicyName):
        assert FaultPolicy.named(name)
    with pytest.raises(rocketwire.ConfigError, match="default, java4, java5, java5-detector, off"):
        FaultPolicy.named("java6")


def test_there_is_a_type_for_every_method_of_a_hook():
    typed = {
        name
        for kind in typing.get_args(hooks.Hook)
        for name in vars(kind)
        if not name.startswith("_")
    }
    assert typed == set(hooks.HookSet.__slots__)


def test_every_event_of_a_hook_is_exported():
    events = {name for name in vars(hooks) if name.endswith("Event")}
    assert events <= set(rocketwire.__all__)


CLIENTS = [
    getattr(rocketwire, name)
    for name in rocketwire.__all__
    if name.removeprefix("Async")
    in {"Producer", "Consumer", "Reader", "SimpleConsumer", "Transaction", "Admin"}
]


def names_in(annotation: object) -> set[str]:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return set(
        typing.cast("str", text).replace("[", " ").replace("]", " ").replace(",", " ").split()
    )


@pytest.mark.parametrize("client", CLIENTS, ids=lambda kind: kind.__name__)
def test_what_a_user_may_hold_can_be_named(client):
    """The classes of ours that public methods return are exported."""
    for name, method in inspect.getmembers(client, callable):
        if name.startswith("_"):
            continue
        module = importlib.import_module(inspect.unwrap(method).__module__)
        for word in names_in(inspect.signature(method).return_annotation):
            kind = getattr(module, word, None)
            if isinstance(kind, type) and kind.__module__.startswith("rocketwire."):
                exported = [n for n in rocketwire.__all__ if getattr(rocketwire, n) is kind]
                assert exported, f"{client.__name__}.{name} returns {word}, which is not exported"

"""The offsets of a broadcasting member survive whatever happens."""

from __future__ import annotations

import os

import pytest

from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue
from rocketwire.system.offset_file import OffsetFile

ONE, TWO = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


def test_what_was_saved_is_there_after_a_restart(tmp_path):
    file = OffsetFile(str(tmp_path), "g")
    assert file.get(ONE) is None
    file.save({ONE: 5})
    file.save({TWO: 7})
    file.save({ONE: 6})
    file.close()
    again = OffsetFile(str(tmp_path), "g")
    assert (again.get(ONE), again.get(TWO)) == (6, 7)
    again.close()
    again.close()


def test_members_of_one_machine_have_files_of_their_own(tmp_path):
    first, second = OffsetFile(str(tmp_path), "g"), OffsetFile(str(tmp_path), "g")
    assert first.path != second.path
    first.save({ONE: 1})
    second.save({ONE: 2})
    first.close()
    second.close()
    again = [OffsetFile(str(tmp_path), "g") for _ in range(2)]
    assert sorted(str(file.get(ONE)) for file in again) == ["1", "2"]
    for file in again:
        file.close()


def test_groups_do_not_meet(tmp_path):
    first, second = OffsetFile(str(tmp_path), "g%1|x"), OffsetFile(str(tmp_path), "g")
    first.save({ONE: 1})
    assert second.get(ONE) is None
    assert all("/" not in name for name in os.listdir(tmp_path))
    first.close()
    second.close()


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    file = OffsetFile(str(tmp_path), "g")
    file.save({ONE: 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            file.save({ONE: 2})
    file.close()
    again = OffsetFile(str(tmp_path), "g")
    assert again.get(ONE) == 1
    again.close()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"offsets": [{"topic": "T"}]}'])
def test_a_file_that_makes_no_sense_is_named(tmp_path, content):
    (tmp_path / "g.0.json").write_text(content)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"g.0.json' can't be read .* or delete it"):
            OffsetFile(str(tmp_path), "g")


def test_a_folder_that_can_not_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"offsets_folder .*file' can't be used"):
        OffsetFile(str(tmp_path / "file"), "g")

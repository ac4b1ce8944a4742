"""A write that can't tell of itself fails before its rows are sent, not after."""

import pytest

from rocketwire.errors import ConfigError
from rocketwire.spark.options import write_options
from rocketwire.spark.writer import check_summary_file

NS = {"nameservers": "127.0.0.1:9876", "topic": "orders"}


def test_a_file_that_can_be_written_is_made_with_its_folder(tmp_path):
    place = tmp_path / "notes" / "summary.jsonl"
    check_summary_file(write_options(NS | {"summaryfile": str(place)}))
    assert place.read_text() == ""
    check_summary_file(write_options(NS))


@pytest.mark.parametrize("name", ["file/summary.jsonl", "folder"])
def test_a_file_that_can_not_be_written_is_refused(tmp_path, name):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    options = write_options(NS | {"summaryfile": str(tmp_path / name)})
    with pytest.raises(ConfigError, match=f"^option summaryFile: .*{name} can't be written: "):
        check_summary_file(options)

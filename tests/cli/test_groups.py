"""``consume`` and ``group``, against an embedded cluster."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rocketwire import Message, Producer
from rocketwire.embedded import EmbeddedCluster

SOURCES = str(Path(__file__).parents[2] / "src")


@pytest.fixture
def filled():
    """A cluster with ten messages in two queues of one topic."""
    with EmbeddedCluster(1) as running:
        running.create_topic("orders", 2)
        with Producer(running.name_server) as producer:
            for number in range(10):
                producer.send(
                    Message("orders", str(number), tags="even" if number % 2 == 0 else "odd")
                )
        yield running


def consume(rocketwire, cluster, *words):
    return rocketwire(
        "consume", "orders", "--group", "g", "--from", "earliest", *words, cluster=cluster
    )


def test_a_group_reads_everything_once(rocketwire, filled):
    done = consume(rocketwire, filled, "--limit", "10", "--raw")
    assert done.code == 0
    assert sorted(done.out.split()) == [str(number) for number in range(10)]
    assert done.err == "10 messages handled\n"
    shown = rocketwire("group", "show", "g", "--json", cluster=filled).json
    assert shown["lag"] == 0
    assert shown["members"] == []


def test_a_second_member_goes_on_where_the_first_stopped(rocketwire, filled):
    first = consume(rocketwire, filled, "--limit", "4", "--raw", "--ordered")
    rest = consume(rocketwire, filled, "--limit", "6", "--raw", "--ordered")
    assert sorted((first.out + rest.out).split()) == [str(number) for number in range(10)]


def test_tags_are_filtered(rocketwire, filled):
    done = consume(rocketwire, filled, "--limit", "5", "--tag", "odd", "--json")
    assert sorted(line["body"] for line in done.lines) == ["1", "3", "5", "7", "9"]


def test_a_command_gets_body_and_fields_and_its_failure_brings_the_message_again(
    rocketwire, filled, tmp_path
):
    script = tmp_path / "handle.py"
    script.write_text(
        "import os, pathlib, sys\n"
        "body = sys.stdin.read()\n"
        f"seen = pathlib.Path({str(tmp_path)!r}) / (os.environ['ROCKETMQ_TOPIC'] + '-' + body)\n"
        "first = not seen.exists()\n"
        "seen.touch()\n"
        "sys.exit(1 if first and body == '3' else 0)\n"
    )
    done = consume(
        *(rocketwire, filled, "--ordered", "--limit", "10"),
        *("--exec", f"{sys.executable} {script}", "-o", "retry_pause=50ms"),
    )
    assert done.code == 0
    assert {p.name for p in tmp_path.glob("orders-*")} == {f"orders-{n}" for n in range(10)}
    (told,) = [line for line in done.err.splitlines() if "code" in line]
    assert "the command ended with code 1; the message comes again" in told
    assert "orders" in told  # it says of which message it tells
    assert "Traceback" not in done.err


def test_a_command_that_keeps_failing_ends_it_after_so_many(rocketwire, filled):
    done = consume(rocketwire, filled, "--exec", "exit 3", "--max-failures", "4")
    assert done.code == 1
    assert len([line for line in done.err.splitlines() if "ended with code 3" in line]) == 4
    assert "Traceback" not in done.err
    assert "--max-failures" in done.err.splitlines()[-1]


def test_a_command_runs_in_a_shell_and_no_message_is_part_of_it(rocketwire, filled, tmp_path):
    with Producer(filled.name_server) as producer:
        producer.send(Message("traps", "$(touch trapped)", keys="$(touch trapped)"))
    line = f"cat > {tmp_path}/body && echo \"$ROCKETMQ_KEYS\" | tr -d '\\n' > {tmp_path}/keys"
    words = ("consume", "traps", "-g", "g", "--from", "earliest", "--limit", "1", "--exec", line)
    assert rocketwire(*words, cluster=filled).code == 0
    assert (tmp_path / "body").read_text() == "$(touch trapped)"
    assert (tmp_path / "keys").read_text() == "$(touch trapped)"
    assert not list(Path().glob("trapped"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_what_was_handled_is_committed(rocketwire, filled, tmp_path, number):
    words = ["consume", "orders", "-g", "g", "--from", "earliest", "--raw"]
    words += ["-n", filled.name_server]
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketwire", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": SOURCES},
    )
    lines = [process.stdout.readline() for _ in range(10)]
    members = rocketwire("group", "show", "g", "--json", cluster=filled).json
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert err == "10 messages handled\n"
    assert sorted(line.strip() for line in lines) == [str(n) for n in range(10)]
    (member,) = members["members"]
    owners = {queue["member"] for queue in members["queues"] if queue["topic"] == "orders"}
    assert owners == {member["client_id"]}
    assert rocketwire("group", "show", "g", "--json", cluster=filled).json["lag"] == 0


def test_a_reset_is_shown_first_and_done_with_yes(rocketwire, filled):
    consume(rocketwire, filled, "--limit", "10", "--raw")
    shown = rocketwire("group", "reset", "g", "--to", "earliest", cluster=filled)
    assert shown.code == 0
    assert "nothing was changed" in shown.out
    words = ("group", "reset", "g", "--to", "earliest", "--yes", "--dry-run")
    assert "nothing was changed" in rocketwire(*words, cluster=filled).out
    assert rocketwire("group", "show", "g", "--json", cluster=filled).json["lag"] == 0
    done = rocketwire("group", "reset", "g", "--to", "earliest", "--yes", "--json", cluster=filled)
    assert done.json["changed"]
    assert {queue["to"] for queue in done.json["queues"]} == {0}
    again = consume(rocketwire, filled, "--limit", "10", "--raw")
    assert sorted(again.out.split()) == [str(number) for number in range(10)]


def test_a_reset_to_the_end_skips_what_is_there(rocketwire, filled):
    consume(rocketwire, filled, "--limit", "2", "--raw")
    rocketwire(
        "group", "reset", "g", "--to", "latest", "--topic", "orders", "--yes", cluster=filled
    )
    assert rocketwire("group", "show", "g", "--json", cluster=filled).json["lag"] == 0


def test_an_unknown_group_is_one_line(rocketwire, filled):
    done = rocketwire("group", "show", "nobody", cluster=filled)
    assert done.code == 1
    assert "no broker knows the group nobody" in done.err


def test_a_group_needs_a_name(rocketwire, filled):
    done = rocketwire("consume", "orders", cluster=filled)
    assert done.code == 2
    assert "--group" in done.err


def test_groups_are_listed(rocketwire, filled):
    consume(rocketwire, filled, "--limit", "1", "--raw")
    assert "g" in rocketwire("group", "list", cluster=filled).out.split()
    listed = rocketwire("group", "list", "--json", cluster=filled).json
    assert {"group": "g", "brokers": ["broker-a"]} in listed


def test_a_group_is_cloned_and_deleted(rocketwire, filled):
    consume(rocketwire, filled, "--limit", "10", "--raw")
    words = ("group", "clone", "g", "copy", "--topic", "orders")
    assert "nothing was changed" in rocketwire(*words, cluster=filled).out
    assert rocketwire(*words, "--yes", "--json", cluster=filled).json["changed"]
    assert rocketwire("group", "show", "copy", "--json", cluster=filled).json["lag"] == 0
    refused = rocketwire("group", "delete", "copy", cluster=filled)
    assert refused.code == 2
    assert "--yes" in refused.err
    done = rocketwire("group", "delete", "copy", "--yes", "--json", cluster=filled)
    assert done.json == {"group": "copy", "deleted_on": ["broker-a"]}
    assert "no broker knows" in rocketwire("group", "show", "copy", cluster=filled).err

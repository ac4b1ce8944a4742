"""Java's words lead somewhere: each has a row with ours, a link and the difference."""

import re

import pytest
from tests.docs.markdown_blocks import ROOT

WORDS = [
    "MQFaultStrategy",
    "LatencyFaultTolerance",
    "FaultItem",
    "pickOneAtLeast",
    "latencyMax",
    "notAvailableDuration",
    "sendLatencyFaultEnable",
    "TopicPublishInfo",
    "sendWhichQueue",
    "lastBrokerName",
    "MQClientInstance",
    "MessageQueueSelector",
    "SelectMessageQueueByHash",
    "SelectMessageQueueByRandom",
    "SelectMessageQueueByMachineRoom",
    "SendCallback",
    "SendMessageHook",
    "enableMsgTrace",
    "createTopicKey",
    "DefaultMQProducerImpl",
    "sendKernelImpl",
    "tryToFindTopicPublishInfo",
    "ProcessQueue",
    "MessageListenerOrderly",
    "RebalanceService",
    "CommitLog",
    "ConsumeQueue",
    "IndexFile",
    "ReputMessageService",
]
PAGE = ROOT / "docs" / "howto" / "from-java.md"


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_java_has_ours_and_the_difference(word):
    section = PAGE.read_text(encoding="utf-8").split("## Java's words")[1]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    found = [row for row in rows if f"`{word}`" in row.split("|")[1]]
    assert len(found) == 1
    java, ours, difference = (cell.strip() for cell in found[0].strip("|").split("|"))
    assert all((java, ours, difference))


def test_only_the_other_protocol_is_not_there():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    missing = [row for row in rows if re.search(r"not there|not yet|missing|unsupported", row)]
    assert [row for row in missing if "gRPC" not in row] == []
    assert len(missing) == 1


def test_every_row_leads_to_a_page():
    section = PAGE.read_text(encoding="utf-8").split("## Java's words")[1]
    rows = [line for line in section.splitlines() if re.match(r"\| `", line)]
    assert len(rows) >= len(WORDS) // 2
    assert [row for row in rows if "](" not in row] == []


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_java_leads_somewhere_in_chinese_too(word):
    page = (ROOT / "docs" / "zh" / "howto" / "from-java.md").read_text(encoding="utf-8")
    rows = [line for line in page.split("\n## ")[2].splitlines() if line.startswith("|")]
    found = [row for row in rows if f"`{word}`" in row.split("|")[1]]
    assert len(found) == 1
    assert "](" in found[0].split("|")[2]

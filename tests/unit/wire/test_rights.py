"""Refusals for want of rights, as brokers of both generations and proxies word them."""

import pickle

import pytest

from rocketwire.errors import BrokerError, PermissionDeniedError
from rocketwire.wire.codes import ACTIONS, RequestCode, ResponseCode, error_for
from rocketwire.wire.rights import remedy_for

TOPIC = "User:shop has no permission to access Topic:orders from 127.0.0.1, no matched policies."
GROUP = "User:shop has no permission to access Group:billing from 127.0.0.1, no matched policies."
PLAIN = (
    "org.apache.rocketmq.acl.common.AclException: No default permission for {}, org.apache."
    "rocketmq.acl.plain.PlainPermissionManager.checkPerm(PlainPermissionManager.java:605)"
)
ADMIN = (
    "org.apache.rocketmq.acl.common.AclException: Need admin permission for request code=17, but "
    "accessKey=shop is not, org.apache.rocketmq.acl.plain.PlainPermissionManager.checkPerm"
)


@pytest.mark.parametrize(
    ("remark", "asked", "told"),
    [
        (TOPIC, RequestCode.SEND_MESSAGE_V2, "it takes Pub on Topic:orders"),
        (TOPIC, RequestCode.PULL_MESSAGE, "it takes Sub on Topic:orders"),
        (TOPIC, RequestCode.GET_MAX_OFFSET, "it takes Get on Topic:orders"),
        (TOPIC, RequestCode.GET_ROUTE_BY_TOPIC, "it takes Pub or Sub on Topic:orders"),
        (TOPIC, None, "it takes a right on Topic:orders"),
        (GROUP, RequestCode.SEND_MESSAGE_V2, "it takes Sub on Group:billing"),
        (GROUP, RequestCode.HEART_BEAT, "it takes Sub on Group:billing"),
        (PLAIN.format("topic:orders"), RequestCode.SEND_MESSAGE_V2, "it takes PUB on the topic orders"),
        (PLAIN.format("topic:%DLQ%g"), RequestCode.PULL_MESSAGE, "it takes SUB on the topic %DLQ%g"),
        (PLAIN.format("group:g"), RequestCode.SEND_MESSAGE_V2, "it takes SUB on the group g"),
        (ADMIN, RequestCode.UPDATE_AND_CREATE_TOPIC, "admin: true in plain_acl.yml, and shop is none"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_right_and_the_broker(remark, asked, told):
    for code in (ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION):
        error = error_for(code, remark, "broker-a", asked=asked)
        assert isinstance(error, PermissionDeniedError)
        assert told in str(error)
        assert str(error).startswith("broker-a answered")
        assert error.remark == remark
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.remedy) == (str(error), error.remedy)


@pytest.mark.parametrize(
    "remark",
    [
        "User:shop is not found.",
        "User:shop is disabled.",
        "check signature failed.",
        "username cannot be null.",
        "org.apache.rocketmq.acl.common.AclException: No acl config for shop",
    ],
)
def test_one_whom_nobody_knows_is_told_to_check_the_credentials(remark):
    error = error_for(ResponseCode.SYSTEM_ERROR, remark, "broker-a", asked=RequestCode.PULL_MESSAGE)
    assert isinstance(error, PermissionDeniedError)
    assert str(error).endswith("check the credentials, and what they may do")


def test_other_errors_stay_what_they_are():
    error = error_for(ResponseCode.SYSTEM_ERROR, "java.lang.NullPointerException", "broker-a")
    assert type(error) is BrokerError
    assert remedy_for("java.lang.NullPointerException", "") == ""
    known = {"Pub", "Sub", "Get", "List", "Create", "Update", "Delete", "Pub or Sub"}
    assert set(ACTIONS.values()) == known

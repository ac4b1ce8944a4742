"""Which exception an answer becomes."""

import pickle

import pytest

from rocketwire.errors import BrokerError, PermissionDeniedError
from rocketwire.wire.codes import RequestCode, ResponseCode, error_for


def test_a_refused_key_of_4x_is_a_permission_denied():
    """4.9 answers SYSTEM_ERROR with the name of its exception; users saw 'system error' alone."""
    remark = "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"
    error = error_for(ResponseCode.SYSTEM_ERROR, remark, "broker-a")
    assert type(error) is PermissionDeniedError
    assert error.code == 1


@pytest.mark.parametrize("remark", [None, "", "the store is broken"])
def test_other_system_errors_stay_what_they_are(remark):
    assert type(error_for(ResponseCode.SYSTEM_ERROR, remark, "broker-a")) is BrokerError


def test_a_denied_permission_tells_the_remedy_once_and_survives_pickling():
    error = error_for(ResponseCode.NO_PERMISSION, "username cannot be null.", "broker-a")
    again = pickle.loads(pickle.dumps(error))
    for each in (error, again):
        assert str(each).count("check the credentials") == 1
        assert "username cannot be null." in str(each)


@pytest.mark.parametrize("codes", [RequestCode, ResponseCode])
def test_no_code_has_two_names(codes) -> None:
    values = {name: value for name, value in vars(codes).items() if name.isupper()}
    assert len(values) > 10
    assert len(set(values.values())) == len(values)

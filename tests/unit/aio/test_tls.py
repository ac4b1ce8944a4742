"""Encrypted connections: verified unless told otherwise, with reasons when they fail."""

import asyncio
import ssl
import time

import pytest
import trustme

from rocketwire.config import Tls
from rocketwire.core.effects import invoke
from rocketwire.errors import ConfigError, ConnectFailedError
from rocketwire.wire.command import Command


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def files(authority, tmp_path):
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    client = authority.issue_cert("client@example.org")
    cert_file, key_file = tmp_path / "client.pem", tmp_path / "client.key"
    client.cert_chain_pems[0].write_to_path(str(cert_file))
    client.private_key_pem.write_to_path(str(key_file))
    return {"ca_file": str(ca_file), "cert_file": str(cert_file), "key_file": str(key_file)}


def server_context(authority, name="127.0.0.1", *, mutual=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    if mutual:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def ask(address):
    return invoke(address, Command(7, body=bytes(100_000)), time.monotonic() + 10)


def test_a_verified_connection_works(run, serve, driving, authority, files):
    async def main():
        context = server_context(authority)
        async with (
            serve(ssl=context) as server,
            driving(tls=Tls(ca_file=files["ca_file"])) as driver,
        ):
            replies = await asyncio.gather(*(driver.run(ask(server.address)) for _ in range(10)))
            assert [r.code for r in replies] == [0] * 10

    run(main())


def test_an_unknown_authority_is_not_accepted(run, serve, driving, authority):
    async def main():
        async with serve(ssl=server_context(authority)) as server, driving(tls=Tls()) as driver:
            with pytest.raises(
                ConnectFailedError, match=r"certificate .*check tls ca_file"
            ) as caught:
                await driver.run(ask(server.address))
            assert not caught.value.written

    run(main())


def test_another_name_in_the_certificate_is_not_accepted(run, serve, driving, authority, files):
    async def main():
        context = server_context(authority, "broker-a.example.org")
        settings = Tls(ca_file=files["ca_file"])
        async with serve(ssl=context) as server, driving(tls=settings) as driver:
            with pytest.raises(ConnectFailedError, match="certificate"):
                await driver.run(ask(server.address))

    run(main())


def test_the_name_to_expect_can_be_given(run, serve, driving, authority, files):
    async def main():
        context = server_context(authority, "broker-a.example.org")
        settings = Tls(ca_file=files["ca_file"], server_name="broker-a.example.org")
        async with serve(ssl=context) as server, driving(tls=settings) as driver:
            assert (await driver.run(ask(server.address))).code == 0

    run(main())


def test_verification_can_be_turned_off(run, serve, driving, authority):
    async def main():
        context = server_context(authority, "somebody.example.org")
        async with serve(ssl=context) as server, driving(tls=Tls(verify=False)) as driver:
            assert (await driver.run(ask(server.address))).code == 0

    run(main())


def test_a_client_certificate_is_shown(run, serve, driving, authority, files):
    async def main():
        context = server_context(authority, mutual=True)
        async with serve(ssl=context) as server, driving(tls=Tls(**files)) as driver:
            assert (await driver.run(ask(server.address))).code == 0

    run(main())


def test_a_server_without_tls_is_recognised(run, serve, driving):
    async def hang_up(peer):
        await peer.reader.read(1)

    async def main():
        async with serve(hang_up) as server, driving(tls=Tls(verify=False)) as driver:
            with pytest.raises(ConnectFailedError, match="did not agree on TLS"):
                await driver.run(ask(server.address))

    run(main())


def test_a_file_that_is_missing_is_told_at_once(run, driving):
    async def main():
        with pytest.raises(ConfigError, match=r"ca_file '/nowhere/ca.pem'"):
            async with driving(tls=Tls(ca_file="/nowhere/ca.pem")):
                pass

    run(main())

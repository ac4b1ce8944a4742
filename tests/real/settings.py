"""The files a name server or broker reads at start: configuration, logging, ACL, TLS.

Sizes are small so that three brokers fit beside a test run; limits that punish a slow machine
(waiting in the send queue, a busy page cache, a full disk) are raised so that only the faults a
test asks for are faults.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

CLUSTER = "RocketwireCluster"

_LOGBACK = """<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5level %logger{{0}} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="FILE"/></root>
</configuration>
"""

_BROKER = {
    "brokerClusterName": CLUSTER,
    "brokerId": "0",
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": str(20_000 * 20),
    "mappedFileSizeTimerLog": str(8 << 20),
    # Each flush copies the whole wheel of seven days: every second it keeps a sixth of a core busy.
    "timerFlushIntervalMs": "60000",
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceWarningLevelRatio": "99",
    "diskSpaceCleanForciblyRatio": "99",
    "waitTimeMillsInSendQueue": "3000",
    "osPageCacheBusyTimeOutMills": "5000",
    "registerNameServerPeriod": "10000",
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "autoCreateTopicEnable": "true",
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "3000",
    "fetchNamesrvAddrByAddressServer": "false",
}


@dataclass(frozen=True, slots=True)
class Account:
    """A user of a cluster with ACL. Keys need 6 characters or more, or 4.9 refuses the file."""

    access_key: str
    secret_key: str
    admin: bool = False


ADMIN = Account("rocketwire-admin", "admin-secret-1", admin=True)
WRITER = Account("rocketwire-writer", "writer-secret-1")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files made for one cluster, all signed by one CA of its own."""

    ca: Path
    server_certificate: Path
    server_key: Path
    client_certificate: Path
    client_key: Path
    strange_ca: Path
    """A CA that signed nothing here, for being refused."""


def make_tls_files(folder: Path, names: Sequence[str] = ("127.0.0.1", "localhost")) -> TlsFiles:
    """Make a CA, a server certificate for ``names`` and a client certificate in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, strange = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    strange.cert_pem.write_to_path(folder / "strange-ca.pem")
    lifetime = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=2)
    for name, issued in (
        ("server", authority.issue_cert(*names, not_after=lifetime)),
        ("client", authority.issue_cert("client.rocketwire.test", not_after=lifetime)),
    ):
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        (folder / f"{name}.pem").write_bytes(chain)
        (folder / f"{name}.key").write_bytes(_pkcs8(issued.private_key_pem.bytes()))
    return TlsFiles(
        folder / "ca.pem",
        folder / "server.pem",
        folder / "server.key",
        folder / "client.pem",
        folder / "client.key",
        folder / "strange-ca.pem",
    )


def _pkcs8(pem: bytes) -> bytes:
    # Netty reads a private key in this container only.
    key = load_pem_private_key(pem, password=None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def tls_options(folder: Path, files: TlsFiles, *, mutual: bool) -> list[str]:
    """Write ``tls.properties`` and return the JVM options that make a server insist on TLS."""
    path = folder / "tls.properties"
    lines = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": files.server_certificate,
        "tls.server.keyPath": files.server_key,
        "tls.server.need.client.auth": "require" if mutual else "none",
        "tls.server.authClient": "true" if mutual else "false",
        "tls.server.trustCertPath": files.ca,
        "tls.client.certPath": files.client_certificate,
        "tls.client.keyPath": files.client_key,
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": files.ca,
    }
    write_properties(path, {name: str(value) for name, value in lines.items()})
    # A broker is a client of its name server: it must use TLS, too.
    return ["-Dtls.server.mode=enforcing", "-Dtls.enable=true", f"-Dtls.config.file={path}"]


def acl_settings(home: Path, version: str, accounts: Sequence[Account]) -> dict[str, str]:
    """Write what the ACL of ``version`` reads and return the broker settings that turn it on.

    4.9 knows all accounts from its file. 5.x starts with the first admin alone; the others are
    made by commands to the running broker.
    """
    if version.startswith("4."):
        _write_plain_acl(home / "conf" / "plain_acl.yml", accounts)
        return {"aclEnable": "true"}
    admin = next(account for account in accounts if account.admin)
    package = "org.apache.rocketmq.auth"
    user = {"username": admin.access_key, "password": admin.secret_key}
    inner = {"accessKey": admin.access_key, "secretKey": admin.secret_key}
    return {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{package}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": (
            f"{package}.authentication.provider.LocalAuthenticationMetadataProvider"
        ),
        "initAuthenticationUser": json.dumps(user),
        "innerClientAuthenticationCredentials": json.dumps(inner),
        "authorizationEnabled": "true",
        "authorizationProvider": f"{package}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": (
            f"{package}.authorization.provider.LocalAuthorizationMetadataProvider"
        ),
    }


def proxy_security(files: TlsFiles, admin: Account) -> tuple[dict[str, object], list[str]]:
    """Settings and Java options with which a proxy checks rights and insists on TLS.

    It asks brokers for users and their policies, with the keys of ``admin``, and is late with what
    is new by a second instead of twenty.
    """
    auth, own = "org.apache.rocketmq.auth", "org.apache.rocketmq.proxy.auth"
    inner = {"accessKey": admin.access_key, "secretKey": admin.secret_key}
    values: dict[str, object] = {
        "authenticationEnabled": True,
        "authenticationProvider": f"{auth}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{own}.ProxyAuthenticationMetadataProvider",
        "authorizationEnabled": True,
        "authorizationProvider": f"{auth}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{own}.ProxyAuthorizationMetadataProvider",
        "innerClientAuthenticationCredentials": json.dumps(inner),
        "enableAclRpcHookForClusterMode": True,
        "userCacheRefreshSeconds": 1,
        "aclCacheRefreshSeconds": 1,
        "userCacheRefreshSecond": 1,
        "aclCacheRefreshSecond": 1,
        "tlsTestModeEnable": False,
        "tlsKeyPath": str(files.server_key),
        "tlsCertPath": str(files.server_certificate),
    }
    return values, ["-Dtls.server.mode=enforcing"]


def _write_plain_acl(path: Path, accounts: Sequence[Account]) -> None:
    lines = ["accounts:"]
    for account in accounts:
        lines += [
            f"- accessKey: {account.access_key}",
            f"  secretKey: {account.secret_key}",
            f"  admin: {str(account.admin).lower()}",
            "  defaultTopicPerm: PUB|SUB",
            "  defaultGroupPerm: PUB|SUB",
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def write_properties(path: Path, values: Mapping[str, str]) -> None:
    """A Java properties file; backslashes are the one character that needs care in our values."""
    text = "".join(f"{name}={value}\n".replace("\\", "\\\\") for name, value in values.items())
    path.write_text(text)


def write_logging(home: Path) -> None:
    """4.x starts from bare jars only with these files in its home."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for name in ("namesrv", "broker", "tools"):
        text = _LOGBACK.format(file=home / f"{name}.log")
        (conf / f"logback_{name}.xml").write_text(text)


def broker_settings(
    name: str, listen: str, advertised: str, name_server: str, ha_port: int, store: Path
) -> dict[str, str]:
    """The settings of one broker listening on ``listen`` and telling clients ``advertised``."""
    host, _, port = listen.rpartition(":")
    advertised_host, _, advertised_port = advertised.rpartition(":")
    if port != advertised_port:
        raise ValueError(f"a broker advertises its own port: {listen} and {advertised} differ")
    return _BROKER | {
        "brokerName": name,
        "bindAddress": host,
        "brokerIP1": advertised_host,
        "brokerIP2": host,
        "listenPort": port,
        "haListenPort": str(ha_port),
        "namesrvAddr": name_server,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
    }

"""Checks of name servers: are they there, and are they name servers at all?"""

from __future__ import annotations

from rocketwire.cli.admin import Inspector
from rocketwire.cli.doctor.findings import Report
from rocketwire.cli.doctor.reach import Peer, Sight, look_at
from rocketwire.cli.output import milliseconds
from rocketwire.errors import RocketMQError
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Reply

_WHAT_IT_MEANS = {
    Peer.UNKNOWN_HOST: (
        "the name server's name is unknown here",
        "check the spelling; inside a container or cluster, use a name that resolves from here",
    ),
    Peer.REFUSED: (
        "no name server runs there, or on another port",
        "start it (to try things out: rocketwire cluster), or give its address: --name-server",
    ),
    Peer.NO_ROUTE: (
        "a firewall, a wrong address, or a machine that is off",
        "try the address from another machine; open port 9876 to this one",
    ),
    Peer.SILENT: (
        "something listens, but does not answer RocketMQ's requests",
        "check that the port is the name server's (9876); a proxy in between may hold the line",
    ),
    Peer.CLOSES: (
        "something listens, but it does not speak RocketMQ's protocol",
        "check that the port is the name server's (9876)",
    ),
    Peer.HTTP: (
        "a web server, perhaps the RocketMQ dashboard or console",
        "give the name server's port instead, usually 9876",
    ),
    Peer.GRPC: (
        "the gRPC port of a RocketMQ 5 proxy, for clients of the newer kind",
        "give the name server's port instead, usually 9876, or the proxy's remoting port, usually 8080",
    ),
    Peer.TLS: (
        "the server only takes encrypted connections",
        "-o tls=true, and -o tls_ca_file=ca.pem if its certificate is your own",
    ),
    Peer.OTHER: (
        "something else listens there",
        "check host and port; a name server usually has port 9876",
    ),
}


def check_name_servers(
    report: Report, admin: Inspector, addresses: list[str], *, tls: bool
) -> bool:
    """Look at each; whether at least one can be used."""
    found = [_check_one(report, admin, address, tls=tls) for address in addresses]
    return any(found)


def _check_one(report: Report, admin: Inspector, address: str, *, tls: bool) -> bool:
    check = f"name server {address}"
    try:
        reply = admin.try_asking(address, RequestCode.GET_BROKER_CLUSTER_INFO)
    except RocketMQError as error:
        _explain(report, check, address, error, tls=tls)
        return False
    if reply.code == ResponseCode.SUCCESS:
        sight = look_at(address) if not tls else Sight(Peer.ROCKETMQ)
        taken = f", connected in {milliseconds(sight.connect_time)}" if sight.connect_time else ""
        report.well(check, f"it is a name server{taken}")
        return True
    if is_refused_for_credentials(reply):
        report_credentials(report, check, reply.remark or "")
        return False
    return _check_other_kinds(report, admin, check, address, reply)


def _check_other_kinds(
    report: Report, admin: Inspector, check: str, address: str, reply: Reply
) -> bool:
    """It speaks the protocol and is no name server: is it a broker, or a proxy?"""
    if admin.try_asking(address, RequestCode.GET_BROKER_CONFIG).code == ResponseCode.SUCCESS:
        report.ill(
            check,
            "it is a broker, not a name server",
            "clients ask a name server first, and it tells them where brokers are",
            "give the name server's address; its port is usually 9876, a broker's 10911",
        )
        return False
    route = admin.try_asking(
        address, RequestCode.GET_ROUTE_BY_TOPIC, {"topic": "rocketwire-doctor"}
    )
    if route.code in {ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST}:
        report.remark(
            check,
            "it is a RocketMQ 5 proxy: it gives routes, but knows nothing of clusters",
            "producers, consumers and readers go through it; operators' commands do not",
            "give the name server's address if you can reach it; see the page on managed clouds",
        )
        return True
    report.ill(
        check,
        f"it speaks RocketMQ's protocol, but answered code {reply.code}: {reply.remark or ''}",
        "it is neither a name server nor a broker that we know",
        "check host and port",
    )
    return False


def _explain(report: Report, check: str, address: str, error: RocketMQError, *, tls: bool) -> None:
    if tls:
        _explain_tls(report, check, address, error)
        return
    sight = look_at(address)
    if sight.peer is Peer.ROCKETMQ:
        report.ill(check, str(error), "it answered only the second time", "run the doctor again")
        return
    means, remedy = _WHAT_IT_MEANS[sight.peer]
    detail = f" ({sight.detail})" if sight.detail else ""
    report.ill(check, f"{sight.peer.value}{detail}", means, remedy)


def _explain_tls(report: Report, check: str, address: str, error: RocketMQError) -> None:
    text = str(error)
    sight = look_at(address)
    if sight.peer is Peer.ROCKETMQ:
        report.ill(
            check,
            f"TLS failed: {text}",
            "it answers unencrypted requests, so TLS is probably off there",
            "leave out tls=true, or turn TLS on at the server (tls.server.mode=enforcing)",
        )
    elif "alert" in text.lower():
        # An alert is the server's word: it has looked at our certificate, or missed it.
        report.ill(
            check,
            f"TLS failed: {text}",
            "the server speaks TLS, but refused us: it wants a certificate of ours that it trusts",
            "-o tls_cert_file=client.pem -o tls_key_file=client.key",
        )
    elif "certificate" in text.lower():
        report.ill(
            check,
            f"TLS failed: {text}",
            "the server's certificate is not trusted, or is for another name",
            "-o tls_ca_file=ca.pem for your own CA",
            "-o tls_server_name=NAME if the certificate has another name than the address",
        )
    elif sight.peer is Peer.TLS:
        report.ill(
            check,
            f"TLS failed: {text}",
            "the server speaks TLS, but refused us: perhaps it wants a certificate of ours",
            "-o tls_cert_file=client.pem -o tls_key_file=client.key",
        )
    else:
        means, remedy = _WHAT_IT_MEANS[sight.peer]
        report.ill(check, sight.peer.value, means, remedy)


def is_refused_for_credentials(reply: Reply) -> bool:
    """Whether an answer is about keys, by its code and by its words (versions differ in both)."""
    words = ("acl", "accesskey", "access key", "signature", "authenticat", "authoriz", "permission")
    remark = (reply.remark or "").lower()
    return reply.code == ResponseCode.NO_PERMISSION or (
        reply.code != ResponseCode.SUCCESS and any(word in remark for word in words)
    )


def is_about_identity(remark: str) -> bool:
    """Whether a refusal says that we are nobody, rather than that we may not do this."""
    # The last is 4.x's word for an access key that it does not know.
    words = ("signature", "accesskey", "access key", "username", "user:", "authenticat",
             "no acl config")  # fmt: skip
    return any(word in remark.lower() for word in words)


def report_credentials(report: Report, who: str, remark: str) -> None:
    """Say what is wrong with the keys, as far as the server told."""
    told = remark.splitlines()[0][:200] if remark else "no reason given"
    low = told.lower()
    if "signature" in low:
        means = "the secret key is wrong, or something changed the request on its way"
    elif is_about_identity(low):
        means = "the access key is missing, or unknown to the server"
    else:
        means = "the keys do not allow this"
    report.ill(
        f"credentials at {who}",
        f"refused: {told}",
        means,
        "give ROCKETWIRE_ACCESS_KEY and ROCKETWIRE_SECRET_KEY in the environment, or "
        "credentials_file (JSON) or access_key and secret_key in ~/.config/rocketwire/config.toml; "
        "-o access_key=... works, too, but all users of this machine see it in ps",
        "on the server: plain_acl.yml (4.x), or mqadmin createUser / createAcl (5.x)",
    )

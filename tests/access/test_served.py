"""The service as it runs: over TLS, with tokens of the command line and JWTs of an issuer."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gunicorn.config import Config

from gateway.cli.liveness import is_alive
from gateway.cli.main import main
from gateway.server import ServerError, run
from gateway.server.certificates import CertificateFiles
from gateway.server.openssl_errors import clear_errors
from gateway.settings import Settings
from gateway.settings.kinds import Address
from gateway.store.contract import StoreUnreachable, Unsent
from gateway.store.mongodb.tokens import MongoTokens
from gateway.tokens.issued import REMEMBERED_S
from tests.access.certificates import Authority, Signed
from tests.access.issuer import AUDIENCE, ISSUER, Issuer, Key, claims, token
from tests.patience import WAIT_S
from tests.service import RunningGateway, own_database

KEY = Key("served", "RS256")
PATH = "/v1/catalogs/team%2Fa"
# Told to nobody; looked for in all that was said and written.
PASSWORD = "pa55word-of-the-database"


class Served:
    def __init__(self, gateway: RunningGateway, ca: Path, uri: str, database: str) -> None:
        self.gateway = gateway
        self._ca = ca
        self._where = {"GATEWAY_MONGODB_URI": uri, "GATEWAY_DATABASE": database}
        self.secrets: list[str] = []

    def command(self, *arguments: str) -> Result:
        """`gateway token …`."""
        result = CliRunner().invoke(main, ["token", *arguments], env=self._where)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    def issue(self, name: str, *grants: str) -> str:
        given = [part for grant in grants for part in ("--grant", grant)]
        result = self.command("create", "--name", name, *given)
        assert result.exit_code == 0, result.output
        text = result.stdout.strip()
        self.secrets.append(text.rsplit("_", 1)[1])
        return text

    def connection(self, client: Signed | None = None) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self._ca)
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        return http.client.HTTPSConnection(
            "127.0.0.1", self.gateway.port, timeout=WAIT_S, context=context
        )

    def send(
        self, method: str, path: str, bearer: str | None = None, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        connection = self.connection()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if bearer is not None:
            named["Authorization"] = f"Bearer {bearer}"
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        named.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, raw, named)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(text) if text.startswith(b"{") else text


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def served(mongodb_uri: str, authority: Authority) -> Iterator[Served]:
    certificate = authority.sign("server")
    with Issuer(KEY).serving() as issuer:
        settings = {
            "access": True,
            "tls_certificate": certificate.certificate,
            "tls_key": certificate.key,
            "jwt_jwks_url": issuer.url,
            "jwt_issuer": ISSUER,
            "jwt_audience": AUDIENCE,
            "watch_bookmark_s": 1,
        }
        with (
            own_database(mongodb_uri) as database,
            RunningGateway(mongodb_uri, database, workers=2, **settings) as gateway,
        ):
            yield Served(gateway, authority.certificate, mongodb_uri, database)


def test_a_token_from_the_command_line_is_accepted_within_its_grants(served: Served) -> None:
    ann = served.issue("ann", "write:team/*", "read:*")
    assert served.send("PUT", f"{PATH}/documents/k", ann, {"a": 1})[0] == 201
    assert served.send("GET", f"{PATH}/documents/k", ann) == (200, {"a": 1})
    status, refused = served.send("PUT", "/v1/catalogs/other/documents/k", ann, 1)
    assert (status, refused["code"], refused["role"]) == (403, "forbidden", "write")
    status, refused = served.send("GET", f"{PATH}/documents/k")
    assert (status, refused["code"]) == (401, "unauthenticated")
    for path in ("/livez", "/readyz", "/openapi.yaml"):
        assert served.send("GET", path)[0] == 200
    _, commits = served.send("GET", f"{PATH}/commits", ann)
    assert [each["author"] for each in commits["commits"]] == ["ann"]


def test_a_jwt_of_the_issuer_is_accepted_within_its_grants(served: Served) -> None:
    good = token(KEY, sub="job", grants=["write:jwt"])
    assert served.send("PUT", "/v1/catalogs/jwt/documents/k", good, 1)[0] == 201
    assert served.send("PUT", f"{PATH}/documents/k", good, 1)[0] == 403
    expired = token(KEY, exp=claims()["iat"] - 60, grants=["admin:*"])
    status, refused = served.send("GET", "/v1/catalogs/jwt/documents/k", expired)
    assert (status, refused["detail"]) == (401, "the token expired")
    forged = token(Key("served", "RS256"), grants=["admin:*"])
    assert served.send("GET", "/v1/catalogs/jwt/documents/k", forged)[0] == 401


def test_a_revocation_soon_applies_in_every_worker_and_to_open_requests(
    served: Served, eventually: Callable[..., Any]
) -> None:
    """In both workers, also for a feed and a bulk request that run already."""
    bob = served.issue("bob", "write:team/*")
    root = served.issue("root", "admin:*")
    (line,) = [each for each in served.command("list").stdout.splitlines() if " bob " in each]
    feed = served.connection()
    feed.request(
        "GET",
        f"{PATH}/changes",
        headers={"Authorization": f"Bearer {bob}", "Accept": "text/event-stream"},
    )
    events = feed.getresponse()
    assert events.status == 200

    lines: list[bytes] = []
    begun = threading.Event()
    revoked = threading.Event()

    def in_bulk() -> None:
        def body() -> Iterator[bytes]:
            for key in ("before", "after"):
                put = {"catalog": "team/a", "op": "put", "key": key, "value": 1}
                yield json.dumps(put).encode() + b"\n"
                begun.set()
                revoked.wait(WAIT_S)

        bulk = served.connection()
        bulk.request(
            "POST",
            "/v1/bulk",
            body(),
            {"Authorization": f"Bearer {bob}", "Content-Type": "application/x-ndjson"},
            encode_chunked=True,
        )
        lines.extend(bulk.getresponse().read().splitlines())
        bulk.close()

    running = threading.Thread(target=in_bulk)
    running.start()
    assert begun.wait(WAIT_S)
    eventually(lambda: served.send("GET", f"{PATH}/documents/before", root)[0] == 200)
    assert served.send("GET", PATH, bob)[0] == 200

    assert served.command("revoke", line.split()[0]).exit_code == 0
    # Whatever a worker has read of the token before, it has forgotten by then.
    time.sleep(REMEMBERED_S)
    status, problem = served.send("GET", PATH, bob)
    assert (status, problem["detail"]) == (401, "the token was revoked")
    revoked.set()
    running.join(WAIT_S)
    assert [json.loads(each)["status"] for each in lines] == [201, 401]
    assert served.send("GET", f"{PATH}/documents/after", root)[0] == 404
    # The feed sends nothing that is committed now.
    served.send("PUT", f"{PATH}/documents/unseen", root, 1)
    told = events.read().decode()
    feed.close()
    assert "unseen" not in told
    assert '"code":"unauthenticated"' in told.rpartition("event: end")[2]


def test_tokens_are_listed_without_their_secrets(served: Served) -> None:
    text = served.issue("carol", "read:a", "write:b/*")
    result = served.command("list")
    (line,) = [each for each in result.stdout.splitlines() if " carol " in each]
    assert line.split()[0] == text.split("_")[1]
    assert line.endswith("read:a write:b/*")
    assert " valid " in line
    assert " never " in line
    assert not [secret for secret in served.secrets if secret in result.output]


def test_a_token_can_have_a_time_to_live(served: Served) -> None:
    made = served.command("create", "--name", "d", "--grant", "read:*", "--expires-in", "90d")
    assert made.exit_code == 0
    assert "of d (read:*); it expires 20" in made.stderr
    assert made.stdout.count("\n") == 1
    assert (
        served.command(
            "create", "--name", "d", "--grant", "read:*", "--expires-in", "20s"
        ).exit_code
        == 0
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["create", "--grant", "read:*"], 2, "--name"),
        (["create", "--name", "x"], 2, "--grant"),
        (["create", "--name", "x", "--grant", "own:*"], 2, "role:pattern"),
        (["create", "--name", "x", "--grant", "read:"], 2, "pattern"),
        (["create", "--name", " x", "--grant", "read:*"], 2, "space"),
        (["create", "--name", "x", "--grant", "read:*", "--expires-in", "5"], 2, "90d"),
        (["create", "--name", "x", "--grant", "read:*", "--expires-in", "0d"], 2, "90d"),
        (["create", "--name", "x", "--grant", "read:*", "--expires-in", "999999d"], 2, "at most"),
        (["revoke", "0123456789abcdef"], 1, "no token with this id"),
        (["revoke", "$ne"], 1, "no token with this id"),
    ],
)
def test_a_failing_token_command_prints_one_line(
    arguments: list[str], code: int, message: str, served: Served
) -> None:
    result = served.command(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_without_a_database_the_token_command_says_so() -> None:
    for arguments, code, message in (
        (["list"], 2, "no MongoDB chosen"),
        (
            ["list", "--mongodb-uri", f"mongodb://u:{PASSWORD}@127.0.0.1:9/?replicaSet=x"],
            6,
            "can't be reached",
        ),
    ):
        flags = [] if len(arguments) == 1 else ["--store-timeout-ms=200"]
        result = CliRunner().invoke(main, ["token", *arguments, *flags])
        assert result.exit_code == code
        assert message in result.stderr
        assert PASSWORD not in result.output


@pytest.mark.parametrize("how", ["create_token", "revoke_token"])
@pytest.mark.parametrize(("error", "code"), [(StoreUnreachable("lost"), 7), (Unsent("away"), 6)])
def test_a_token_change_whose_answer_was_lost_is_reported_as_unknown(
    how: str, error: StoreUnreachable, code: int, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = served.command("create", "--name", "e", "--grant", "read:*")
    token_id = made.stdout.split("_")[1]
    arguments = {
        "create_token": ["create", "--name", "e", "--grant", "read:*"],
        "revoke_token": ["revoke", token_id],
    }

    def lost(*_: object) -> None:
        raise error

    monkeypatch.setattr(MongoTokens, how, lost)
    result = served.command(*arguments[how])
    assert (result.exit_code, result.stdout) == (code, "")
    assert ("it is unknown whether that was done" in result.stderr) is (code == 7)


def livez(connection: http.client.HTTPConnection) -> bytes:
    connection.request("GET", "/livez")
    return connection.getresponse().read()


def test_a_client_without_the_authority_refuses_the_connection(served: Served) -> None:
    untrusting = http.client.HTTPSConnection("127.0.0.1", served.gateway.port, timeout=WAIT_S)
    with pytest.raises(ssl.SSLCertVerificationError):
        untrusting.request("GET", "/livez")
    plain = http.client.HTTPConnection("127.0.0.1", served.gateway.port, timeout=WAIT_S)
    with pytest.raises((http.client.HTTPException, OSError)):
        livez(plain)


def test_no_secret_is_in_the_log(served: Served) -> None:
    wrong = "1" * 64
    served.send("GET", f"{PATH}/documents/k", f"gwt_{'0' * 16}_{wrong}")
    log = served.gateway.log()
    audited = [json.loads(line) for line in log.splitlines() if '"gateway.audit"' in line]
    assert {"ann", "bob", f"{ISSUER}#job", "root"} <= {line.get("principal") for line in audited}
    assert any(line.get("code") == "unauthenticated" for line in audited)
    assert not [secret for secret in (*served.secrets, wrong, "eyJ") if secret in log]


@pytest.fixture(scope="module")
def guarded(mongodb_uri: str, authority: Authority) -> Iterator[Served]:
    """Lets no client in without a certificate of the authority."""
    server = authority.sign("guarded")
    settings = {
        "access": True,
        "tls_certificate": server.certificate,
        "tls_key": server.key,
        "tls_client_ca": authority.certificate,
    }
    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database, workers=1, **settings) as gateway,
    ):
        yield Served(gateway, authority.certificate, mongodb_uri, database)


def test_a_client_needs_both_a_certificate_and_a_token(
    guarded: Served, authority: Authority
) -> None:
    connection = guarded.connection(authority.sign("client"))
    assert livez(connection) == b'{"status":"alive"}\n'
    connection.request("GET", "/v1/catalogs")
    assert connection.getresponse().status == 401
    connection.close()


def test_a_connection_that_is_reset_ends_no_other(guarded: Served, authority: Authority) -> None:
    """With OpenSSL 3.4 or later, Python would report the error of the one as that of the other."""
    client = authority.sign("client")
    kept = guarded.connection(client)
    livez(kept)
    opened = kept.sock
    bearer = guarded.issue("breaking", "write:*")
    for _ in range(3):
        broken = guarded.connection(client)
        livez(broken)
        broken.putrequest("PUT", f"{PATH}/documents/k")
        broken.putheader("Authorization", f"Bearer {bearer}")
        broken.putheader("Content-Type", "application/json")
        broken.putheader("Content-Length", "9")
        broken.endheaders(b"{")
        livez(kept)  # meanwhile, the body is waited for
        broken.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        broken.close()
        livez(kept)
        livez(kept)
    assert kept.sock is opened
    kept.close()


@pytest.mark.parametrize("kind", ["served", "guarded"])
def test_the_health_check_of_the_image_uses_the_address_and_tls(
    kind: str, request: pytest.FixtureRequest, authority: Authority
) -> None:
    port = request.getfixturevalue(kind).gateway.port
    tls = {"tls_certificate": authority.certificate, "tls_key": authority.certificate}
    if kind == "guarded":
        tls["tls_client_ca"] = authority.certificate
    for host in ("127.0.0.1", "0.0.0.0"):
        assert is_alive(Settings(bind=Address(host, port), **tls))
    assert not is_alive(Settings(bind=Address("127.0.0.1", port)))  # it speaks TLS
    assert not is_alive(Settings(bind=Address("127.0.0.1", 9), **tls))


def test_a_client_without_a_certificate_of_the_authority_is_refused(
    guarded: Served, tmp_path: Path
) -> None:
    for client in (None, Authority(tmp_path, "another").sign("client")):
        connection = guarded.connection(client)
        with pytest.raises((http.client.HTTPException, OSError)):
            livez(connection)
        connection.close()


@pytest.mark.parametrize("wrong", ["absent", "empty", "of another key", "encrypted"])
def test_an_unusable_certificate_is_reported_in_one_line(wrong: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    good, other = authority.sign("good"), authority.sign("other", b"secret")
    certificate, key = good.certificate, good.key
    if wrong == "absent":
        certificate = tmp_path / "absent.pem"
    elif wrong == "empty":
        certificate = tmp_path / "empty.pem"
        certificate.touch()
    elif wrong == "of another key":
        key = authority.sign("third").key
    else:
        certificate, key = other.certificate, other.key
    settings = Settings(bind=Address("127.0.0.1", 0), tls_certificate=certificate, tls_key=key)
    with pytest.raises(ServerError, match=r"^can't use .*\.pem for TLS: [^\n]+$"):
        run(settings)


def test_a_renewed_certificate_needs_no_restart(
    mongodb_uri: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """Even one of another authority, with other authorities for clients. A broken one is logged."""
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    current = tmp_path / "current"
    current.mkdir()

    def put(server: Signed, clients: Authority) -> None:
        for source, name in ((server.certificate, "cert"), (server.key, "key")):
            (current / name).write_bytes(source.read_bytes())
        (current / "clients").write_bytes(clients.certificate.read_bytes())

    put(first.sign("old"), first)
    settings = {
        "tls_certificate": current / "cert",
        "tls_key": current / "key",
        "tls_client_ca": current / "clients",
    }
    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database, workers=1, **settings) as gateway,
    ):
        old, new = (
            Served(gateway, each.certificate, mongodb_uri, database) for each in (first, second)
        )

        def is_let_in(served: Served, client: Signed) -> bool:
            connection = served.connection(client)
            try:
                connection.request("GET", "/livez")
                return connection.getresponse().status == 200
            except OSError:
                clear_errors()  # else OpenSSL may report them of `kept`
                return False
            finally:
                connection.close()

        ours, theirs = first.sign("ours"), second.sign("theirs")
        assert is_let_in(old, ours)
        kept = old.connection(ours)
        kept.request("GET", "/livez")
        kept.getresponse().read()
        (current / "key").write_bytes(b"broken")
        assert eventually(lambda: "can't use" in gateway.log())
        assert is_let_in(old, ours), "the one of before stays in use"

        put(second.sign("new"), second)
        eventually(lambda: is_let_in(new, theirs))
        assert not is_let_in(old, ours)
        assert not is_let_in(new, ours), "authorities that were taken away let nobody in"
        kept.request("GET", "/livez")
        assert kept.getresponse().status == 200, "connections that were open stay so"
        kept.close()


def test_a_reload_with_a_broken_certificate_keeps_the_old_workers(
    mongodb_uri: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    authority = Authority(tmp_path, "authority")
    server = authority.sign("server")
    files = {"tls_certificate": server.certificate, "tls_key": server.key}
    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database, workers=1, **files) as gateway,
    ):
        workers = gateway.worker_pids()
        server.certificate.write_text("half of a certificate")
        os.kill(gateway.master_pid, signal.SIGHUP)
        eventually(lambda: "exited with code" in gateway.log())  # the new one
        assert f"a worker can't begin: can't use {server.certificate} for TLS" in gateway.log()
        assert gateway.worker_pids() == workers
        served = Served(gateway, authority.certificate, mongodb_uri, database)
        assert served.send("GET", "/livez")[0] == 200


def test_a_certificate_renewed_while_it_is_read_is_loaded_afterwards(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path, "authority")
    server, renewed = authority.sign("server"), authority.sign("renewed")
    config = Config()
    config.set("certfile", str(server.certificate))
    config.set("keyfile", str(server.key))
    read: list[bytes] = []

    def make(_: Config) -> ssl.SSLContext:
        read.append(server.certificate.read_bytes())
        if renewed.key.exists():
            renewed.key.replace(server.key)
            renewed.certificate.replace(server.certificate)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    files = CertificateFiles(config, make)
    files.context()
    assert files.renewed() is None, "it may still be written"
    assert files.renewed() is not None
    assert read[1] == server.certificate.read_bytes() != read[0]
    assert files.renewed() is None

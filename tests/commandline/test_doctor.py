"""`gateway doctor` finds what is wrong and says what to do, and finds nothing where nothing is."""

from __future__ import annotations

import socket
import ssl
import threading
from collections import namedtuple
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from time import time
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from gateway.cli import doctor as host_checks
from gateway.cli import doctor as service_checks
from gateway.cli.doctor import CheckFinding
from gateway.store.mongodb import connect
from gateway.store.mongodb.diagnosis import BackupAges, Diagnosis, diagnose
from gateway.store.mongodb.indexes import INDEXES
from patching.client import Unreachable
from tests.access.certificates import Authority
from tests.commandline.canned import Asked, Canned, Reply, problem
from tests.commandline.conftest import Commands
from tests.patience import WAIT_MS
from tests.store.contract_suite import commit, move


def states(ran: Any) -> dict[str, str]:
    return {each["check"]: each["state"] for each in ran.lines()}


def test_every_check_passes_on_a_gateway_and_its_mongodb(
    run: Commands, catalog: str, mongodb_uri: str, commandline_database: str
) -> None:
    run("put", "-q", catalog, "k", "1")
    settings = ("--mongodb-uri", mongodb_uri, "--database", commandline_database)
    ran = run("doctor", catalog, *settings, "--output=json")
    checks = (
        *("versions", "settings", "mongodb", "write concern", "indexes", "url", "livez"),
        *("clock", "readyz", "contract", "token", "tokens", "access"),
    )
    # The tests' own is old, and open to this machine.
    of_the_tests = {"mongodb": "warn", "mongodb users": "warn"}
    assert states(ran) == dict.fromkeys(checks, "ok") | of_the_tests
    details = {each["check"]: each["detail"] for each in ran.lines()}
    assert "replica set" in details["mongodb"]
    assert details["access"] == f"read, write, admin on {catalog!r}"
    assert run("log", catalog).stdout.count("\n") == 1, "nothing is changed by looking"
    assert run("doctor", "--quiet").stdout == ""
    shown = run("doctor").stdout.splitlines()
    assert all(line.startswith("ok    ") for line in shown)


def test_an_unreachable_gateway_fails_with_a_remedy() -> None:
    ran = Commands("http://127.0.0.1:1")("doctor", code=1)
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("FAIL")]
    assert line.startswith("FAIL  livez: unreachable")
    assert "check that it runs" in line


def test_a_certificate_of_an_unknown_authority_fails(tmp_path: Path) -> None:
    signed = Authority(tmp_path, "authority").sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.certificate, signed.key)

    def hand_shake(server: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(server.accept()[0], server_side=True):
            pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=hand_shake, args=(server,), daemon=True).start()
        ran = Commands(f"https://127.0.0.1:{server.getsockname()[1]}")("doctor", code=1)
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("FAIL")]
    assert "--ca-file" in line


@pytest.mark.parametrize(
    ("failing", "code", "check"),
    [
        ("/readyz", 503, "readyz"),
        ("/v1/catalogs?", 401, "token"),
        ("/v1/catalogs/c/documents", 403, "access"),
    ],
)
def test_a_refusal_by_the_gateway_fails_one_check(failing: str, code: int, check: str) -> None:
    def reply(asked: Asked) -> Reply:
        if asked.path.startswith(failing) or (code == 403 and "/catalogs/c/" in asked.path):
            return problem(code, "refused")
        return 200, {"catalogs": []}

    with Canned(reply) as canned:
        ran = Commands(canned.url)("doctor", "c", "--output=json", code=1)
    found = states(ran)
    assert found[check] == "FAIL"
    assert [name for name, state in found.items() if state == "FAIL"] == [check]


def test_the_roles_on_a_catalog_are_shown() -> None:
    def reply(asked: Asked) -> Reply:
        if asked.path.endswith("/compactions") or "/compactions?" in asked.path:
            return problem(403, "forbidden")
        if "/touch" in asked.path:
            assert "dry_run=true" in asked.path
        return 200, {"catalogs": []}

    with Canned(reply) as canned:
        ran = Commands(canned.url)("doctor", "c")
    assert "ok    access: read, write on 'c'" in ran.stdout


@pytest.mark.parametrize(
    ("ahead_s", "state"), [(0, "ok"), (10, "warn"), (-10, "warn"), (600, "FAIL"), (-600, "FAIL")]
)
def test_clocks_that_differ_are_reported(ahead_s: float, state: str) -> None:
    from patching.client.transport import HttpAnswer

    now_s = time()
    answer = HttpAnswer(200, {"Date": formatdate(now_s + ahead_s, usegmt=True)}, b"")
    assert service_checks.check_clock(answer, now_s).state == state
    assert service_checks.check_clock(HttpAnswer(200, {}, b""), now_s).state == "warn"


@pytest.mark.parametrize(
    ("diagnosis", "expected"),
    [
        (Diagnosis("7.0.1", "replica set rs of 3", True, 5.0, None), ["ok", "ok", "ok"]),
        (Diagnosis("8.2.0-rc1", "a sharded cluster", True, 900.0, None), ["ok", "warn", "ok"]),
        (Diagnosis("5.0.9", "replica set rs of 1", True, 5.0, None), ["FAIL", "ok", "ok"]),
        (Diagnosis("7.0.1", "a single server", False, 5.0, "no majority"), ["FAIL", "FAIL", "ok"]),
    ],
)
def test_the_requirements_for_a_mongodb(diagnosis: Diagnosis, expected: list[str]) -> None:
    found = list(host_checks.diagnosed(diagnosis, date(2026, 11, 1)))
    assert [each.state for each in found] == expected
    assert all(each.help for each in found if each.state != "ok")


def test_a_mongodb_out_of_support_or_without_passwords_is_reported(
    mongodb_uri: str, database_name: str
) -> None:
    old = Diagnosis("7.0.1", "replica set rs of 3", True, 5.0, None, open_to_all=True)
    last, after = date(2027, 8, 31), date(2027, 9, 1)
    assert "mongodb users" in [each.check for each in host_checks.diagnosed(old, last)]
    assert next(host_checks.diagnosed(old, last)).state == "ok"
    told = next(host_checks.diagnosed(old, after))
    assert (told.state, told.detail) == (
        "warn",
        "7.0.1, replica set rs of 3, out of support since 2027-08-31",
    )
    assert diagnose(mongodb_uri, database_name, 10_000).open_to_all


def test_an_old_or_missing_backup_is_reported() -> None:
    now = datetime(2026, 11, 20, tzinfo=UTC)

    def found(without: tuple[str, ...], days: float | None) -> tuple[str, str]:
        oldest = None if days is None else ("shop", now - timedelta(days=days))
        told = host_checks.check_backups(BackupAges(5, without, oldest), now)
        assert told.help or told.state == "ok"
        return told.state, told.detail

    assert found((), None) == ("ok", "no catalog has changed since its last backup")
    assert found((), 0.5)[0] == "ok"
    state, detail = found((), 9)
    assert (state, "9 days old: 'shop'" in detail) == ("warn", True)
    state, detail = found(("a", "b"), 0.5)
    assert (state, detail) == ("warn", "2 of 5 catalogs have none: 'a', 'b'")


def test_a_certificate_that_expires_soon_is_reported(tmp_path: Path) -> None:
    signed = Authority(tmp_path, "authority").sign("server")  # for an hour
    now = datetime.now(UTC)

    def found(now: datetime, key: Path = signed.key) -> CheckFinding:
        return host_checks.check_certificate(signed.certificate, key, None, now)

    assert found(now - timedelta(days=30)).state == "ok"
    assert found(now - timedelta(days=20)).state == "warn"
    assert found(now + timedelta(hours=2)).state == "FAIL"
    assert found(now, signed.certificate).state == "FAIL"


def test_an_expired_certificate_is_to_be_renewed() -> None:
    said = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired"
    assert "renew" in host_checks._advice(Unreachable(said, applied="no"))


def test_tokens_that_expire_soon_are_reported() -> None:
    now = datetime(2026, 11, 1, tzinfo=UTC)

    def token(name: str, expires: str | None, revoked: str | None = None) -> dict[str, Any]:
        return {"id": f"id-{name}", "name": name, "expires": expires, "revoked": revoked}

    fine = [
        token("forever", None),
        token("later", "2026-12-01T00:00:00.000000Z"),
        token("over", "2026-10-01T00:00:00.000000Z"),
        token("revoked", "2026-11-02T00:00:00.000000Z", "2026-10-30T00:00:00.000000Z"),
    ]
    assert service_checks.check_tokens(fine, now).state == "ok"
    soon = [*fine, token("nightly", "2026-11-10T00:00:00.000000Z")]
    told = service_checks.check_tokens(soon, now)
    assert (told.state, told.detail) == (
        "warn",
        "these expire soon: nightly (id-nightly) on 2026-11-10",
    )

    def reply(asked: Asked) -> Reply:
        return 200, {"catalogs": [], "tokens": soon if asked.path == "/v1/tokens" else []}

    with Canned(reply) as canned:
        assert states(Commands(canned.url)("doctor", "--output=json"))["tokens"] in ("ok", "warn")


@contextmanager
def _written(uri: str, name: str) -> Iterator[Database[dict[str, Any]]]:
    """A database with a commit."""
    with closing(connect(uri, name, timeout_ms=WAIT_MS)) as store:
        store.heads(["c"])
        store.move_heads([move(commit(1))])
    with MongoClient[dict[str, Any]](uri) as client:
        yield client[name]


def test_indexes_and_validators_that_refuse_writes_are_reported(
    mongodb_uri: str, database_name: str
) -> None:
    """Indexes that can't refuse anything may be added for queries of one's own."""
    with _written(mongodb_uri, database_name) as database:
        assert diagnose(mongodb_uri, database_name, 10_000).foreign == ()
        documents = database["documents"]
        documents.create_index("state.content.owner")
        documents.create_index([("state.content.$**", 1)])
        assert diagnose(mongodb_uri, database_name, 10_000).foreign == ()
        documents.create_index("state.content.mail", unique=True, name="mail")
        documents.create_index([("state.content.place", "2dsphere")], name="place")
        documents.create_index([("state.content.a", 1), ("state.content.b", 1)], name="both")
        documents.create_index("state.content.until", expireAfterSeconds=0, name="until")
        database["commits"].drop_index("reply_id_1")
        database["commits"].create_index("reply_id", name="reply_id_1", unique=True, sparse=True)
        database.command("collMod", "catalogs", validator={"revision": {"$exists": True}})
    diagnosis = diagnose(mongodb_uri, database_name, 10_000)
    assert diagnosis.foreign == (
        "catalogs: a validator",
        "commits: index 'reply_id_1' is not as the gateway makes it",
        "documents: index 'mail' is unique",
        "documents: index 'place' is of a kind (2dsphere) that refuses some values",
        "documents: index 'both' has several fields, of which two may be arrays",
        "documents: index 'until' deletes documents",
    )
    (found,) = [each for each in host_checks.diagnosed(diagnosis) if each.check == "indexes"]
    assert found.state == "FAIL"
    assert "index 'mail' is unique" in found.detail


def test_views_and_capped_collections_are_reported(mongodb_uri: str, database_name: str) -> None:
    """A view refuses writes; a capped collection takes them, and deletes what it had."""
    with _written(mongodb_uri, database_name) as database:
        assert diagnose(mongodb_uri, database_name, 10_000).misfits == ()
        database.command("convertToCapped", "commits", size=4096)
        database["documents"].rename("kept")
        database.command({"create": "documents", "viewOn": "kept", "pipeline": []})
    diagnosis = diagnose(mongodb_uri, database_name, 10_000)
    assert diagnosis.misfits == (
        "commits is capped: it deletes its oldest records",
        "documents is a view",
    )
    (found,) = [each for each in host_checks.diagnosed(diagnosis) if each.check == "collections"]
    assert found.state == "FAIL"


ALL_BUT_INDEXES = ["find", "insert", "update", "remove", "changeStream", "listCollections"]


@pytest.mark.parametrize(
    ("roles", "privileges", "forbidden"),
    [
        (["readWrite"], [], None),
        (
            ["read"],
            [],
            "insert, update on backups; createIndex, insert, remove, update on catalogs;"
            " createIndex, insert, remove, update on commits; …",
        ),
        (
            [],
            [("", [*ALL_BUT_INDEXES, "listIndexes"]), ("commits", ["createIndex"])],
            "createIndex on catalogs; createIndex on documents; createIndex on upload_parts; …",
        ),
        (
            [],
            [
                ("", [*ALL_BUT_INDEXES, "listIndexes"]),
                *((name, ["createIndex"]) for name in INDEXES),
            ],
            None,
        ),
        ([], [("", ["anyAction"])], None),
        (
            ["readWrite"],
            [("another", ["find"])],
            None,
        ),
    ],
)
def test_the_missing_rights_of_a_mongodb_user_are_listed(
    mongodb_uri: str,
    database_name: str,
    roles: list[str],
    privileges: list[tuple[str, list[str]]],
    forbidden: str | None,
) -> None:
    """Some of it is needed only later: at the next start, for the first document, for a token."""
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        database = client[database_name]
        on = [
            {"resource": {"db": database_name, "collection": name}, "actions": actions}
            for name, actions in privileges
        ]
        database.command("createRole", "narrow", privileges=on, roles=[])
        database.command("createUser", "gw", pwd="x", roles=[*roles, "narrow"])
    place = mongodb_uri.replace("//", "//gw:x@", 1)
    diagnosis = diagnose(f"{place}&authSource={database_name}", database_name, WAIT_MS)
    found = {each.check: each for each in host_checks.diagnosed(diagnosis)}
    told = found["mongodb rights"].detail if "mongodb rights" in found else None
    assert told == (None if forbidden is None else f"the user may not do {forbidden}")
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        client[database_name].command("dropUser", "gw")
        client[database_name].command("dropRole", "narrow")


def test_an_unreachable_mongodb_fails_without_showing_its_password(run: Commands) -> None:
    environment = {
        "GATEWAY_MONGODB_URI": "mongodb://user:s3cret@127.0.0.1:1/?replicaSet=x",
        "GATEWAY_STORE_TIMEOUT_MS": "200",
    }
    ran = run("doctor", environment=environment, code=1)
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("FAIL")]
    assert line.startswith("FAIL  mongodb: out of reach: 127.0.0.1:1")
    assert "s3cret" not in ran.stdout + ran.stderr
    wrong = {**environment, "GATEWAY_MONGODB_URI": "mongodb://user:s3cret@h:port/"}
    ran = run("doctor", environment=wrong, code=1)
    assert "s3cret" not in ran.stdout + ran.stderr


def test_wrong_or_misspelt_settings_are_reported(run: Commands) -> None:
    ran = run("doctor", "-q", environment={"GATEWAY_WORKERS": "none"}, code=1)
    assert ran.stdout.startswith("FAIL  settings: GATEWAY_WORKERS")
    ran = run("doctor", "-q", environment={"GATEWAY_WORKRES": "2"})
    assert ran.stdout.startswith("warn  settings: GATEWAY_WORKRES is not a setting")
    own = {"GATEWAY_TOKEN": "x", "GATEWAY_CA_FILE": __file__}
    assert run("doctor", "-q", environment=own).stdout == ""


@pytest.mark.parametrize(("free_mib", "state"), [(100_000, "ok"), (1000, "warn"), (100, "FAIL")])
def test_the_disk_of_the_embedded_mongodb(
    run: Commands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free_mib: int,
    state: str,
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(
        host_checks.shutil, "disk_usage", lambda _: usage(1, 1, free_mib * 1024 * 1024)
    )
    data_dir = str(tmp_path / "not" / "there" / "yet")
    code = 1 if state == "FAIL" else 0
    ran = run("doctor", "--embedded", "--data-dir", data_dir, "--output=json", code=code)
    assert states(ran)["disk"] == state
    assert not (tmp_path / "not").exists()


def test_an_unencrypted_token_is_a_warning() -> None:
    environment = {"GATEWAY_TOKEN": "x"}
    ran = Commands("http://gateway.invalid")(
        "doctor", "-q", "--timeout=0.1", environment=environment, code=1
    )
    assert "warn  url: http://gateway.invalid: the token is sent unencrypted" in ran.stdout


@pytest.mark.mongod
@pytest.mark.parametrize("number", [5, "four", None])
def test_a_database_of_an_unknown_format_is_named(
    mongodb_uri: str, database_name: str, number: object
) -> None:
    """No gateway of this version gets ready on it, whatever else is well."""
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        formats = client[database_name]["format"]
        formats.insert_one({"_id": "format", "number": number})
        diagnosis = diagnose(mongodb_uri, database_name, 10_000)
        (found,) = [each for each in host_checks.diagnosed(diagnosis) if each.check == "format"]
        assert (found.state, f"has format {number!r}" in found.detail) == ("FAIL", True)
        for known in (3, 4):
            formats.update_one({"_id": "format"}, {"$set": {"number": known}})
            assert diagnose(mongodb_uri, database_name, 10_000).unknown_format is None

"""The client and a gateway with access control, TLS that asks for certificates, and rates."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.cli.main import main
from patching.client import Catalog, Gateway, NotAuthorized, Retry, Unreachable
from tests.access.certificates import Authority
from tests.client.fake_documents import Opens
from tests.patience import WAIT_S
from tests.service import RunningGateway, own_database

_PER_S = 20

Connect = Callable[..., Gateway]


@pytest.fixture
def connect(secured: Connect, opens: Opens) -> Connect:
    """`connect(name, *grants, **options)` is a client with a token of its own."""
    return partial(secured, opens)


@pytest.fixture(scope="module")
def secured(mongodb_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    """As `connect`, which also says how the client is made."""
    authority = Authority(tmp_path_factory.mktemp("tls"), "authority")
    server, client = authority.sign("server"), authority.sign("client")
    opened: list[Gateway] = []
    own = {"certificate_file": str(client.certificate), "key_file": str(client.key)}

    def open_one(opens: Opens, name: str, *grants: str, **options: Any) -> Gateway:
        given = [part for grant in grants for part in ("--grant", grant)]
        where = {"GATEWAY_MONGODB_URI": mongodb_uri, "GATEWAY_DATABASE": database}
        made = CliRunner().invoke(main, ["token", "create", "--name", name, *given], env=where)
        assert made.exit_code == 0, made.output
        url = f"https://127.0.0.1:{running.port}"
        usual = {"token": made.stdout.strip, "ca_file": str(authority.certificate), **own}
        opened.append(opens(url, **{**usual, **options}))
        return opened[-1]

    settings: dict[str, Any] = {
        "tls_certificate": server.certificate,
        "tls_key": server.key,
        "tls_client_ca": authority.certificate,
        "access": True,
        "workers": 1,
        "principal_requests_per_s": _PER_S,
        "principal_window_s": 1,
    }
    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database, **settings) as running,
    ):
        yield open_one
        for each in opened:
            each.close()


@pytest.fixture
def one() -> str:
    """The name of a catalog that there isn't yet."""
    return uuid.uuid4().hex


def authors(catalog: Catalog) -> list[str]:
    return [commit.author for commit in catalog.commits()]


def test_commits_name_the_principal_and_an_admin_may_name_another(
    connect: Connect, one: str
) -> None:
    ann = connect("ann", f"write:{one}").catalog(one)
    root = connect("root", f"admin:{one}").catalog(one)
    ann.put("k", 1)
    with pytest.raises(NotAuthorized, match="403 forbidden") as raised:
        ann.put("k", 2, author="root")
    assert (raised.value.sends, raised.value.applied) == (1, "no")
    root.put("k", 2, author="Zoë, for all")
    transaction = root.transaction()
    transaction.then.touch()
    transaction.run(author="x")
    root.uploads.replace("k", b"3", author="y")
    assert authors(ann) == ["ann", "Zoë, for all", "x", "y"]
    for ask in (ann.delete_catalog, lambda: ann.settings.put({}), lambda: ann.compact(1)):
        with pytest.raises(NotAuthorized):
            ask()


def test_a_copy_is_right_again_when_an_acl_admits_its_principal_again(
    secured: Connect, one: str
) -> None:
    """A patch that fits whatever was hidden made a content that the document never had."""
    hides, admits = {"acl": {"read": []}}, {"acl": {"read": ["fay"]}}
    root = secured(Gateway, "root", f"admin:{one}").catalog(one)
    for key in ("a", "b"):
        root.put(key, {"n": 1, "m": 1})
    with secured(Gateway, "fay", f"read:{one}").follower(one) as follower:
        assert follower.current().documents["a"] == {"n": 1, "m": 1}
        for key in ("a", "b"):
            root.attributes.put(key, hides)
            hidden = root.patch(key, [{"op": "replace", "path": "/n", "value": 2}])
            follower.wait_for(hidden.revision or 0, WAIT_S)
            assert follower.current().documents[key] == {"n": 1, "m": 1}
            root.attributes.put(key, admits)
            seen = root.patch(key, [{"op": "replace", "path": "/m", "value": 3}])
            follower.wait_for(seen.revision or 0, WAIT_S)
        assert follower.current().documents == {key: {"n": 2, "m": 3} for key in "ab"}


def test_a_forbidden_request_is_sent_only_once(connect: Connect) -> None:
    reader = connect("bob", "read:two/*")
    with pytest.raises(NotAuthorized, match="403 forbidden"):
        reader.catalog("two/a").put("k", 1)
    for token in ("gwt_unknown_secret", "no.jwt.either"):
        with pytest.raises(NotAuthorized, match="401 unauthenticated") as raised:
            connect("eve", "read:*", token=token).catalog("two/a").get("k")
        assert raised.value.sends == 1
        assert token not in f"{raised.value!r} {vars(raised.value)}"


def test_the_client_waits_when_it_exceeds_a_rate(connect: Connect, one: str) -> None:
    """The client sends twice as many requests as the rate allows: some are refused, but none
    fails."""
    catalog = connect("cat", f"write:{one}").catalog(one)
    for number in range(2 * _PER_S):
        catalog.put("k", number)
    assert catalog.get("k").catalog_revision == 2 * _PER_S


def test_a_gateway_without_a_trusted_certificate_is_refused(connect: Connect) -> None:
    for other in ({"ca_file": None}, {"certificate_file": None, "key_file": None}):
        gateway = connect("dan", "read:*", retry=Retry(retries_max=0), **other)
        with pytest.raises(Unreachable):
            gateway.catalog("four").read()

"""Signing in by OpenID Connect: a person whom the provider lets in gets a token, and nobody else
does."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

import gateway.tokens.openid_sign_in
from gateway.assembly import authenticate, sign_in, web_tokens
from gateway.errors import KeysUnavailable, Unauthenticated
from gateway.http import create_app
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.settings import Settings
from gateway.settings.lookup import SettingError, resolve
from gateway.tokens.openid_sign_in import AT_ONCE_MAX, OpenIdClient, OpenIdSignIn
from gateway.tokens.web import FRESH_S, PAUSE_S, USABLE_S
from tests.access.provider import Provider
from tests.http.conftest import problem
from tests.memory_store import MemoryStore, MemoryTokens
from tests.patience import WAIT_S

HOME = "http://localhost/console/"
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().strip("=")


@pytest.fixture(scope="module")
def serving() -> Iterator[Provider]:
    with Provider(redirect_uri=HOME).serving() as running:
        yield running


@pytest.fixture
def provider(serving: Provider) -> Provider:
    serving.metadata, serving.lifetime_s, serving.client_secret = {}, 600, None
    serving.claims = {"ann": {"grants": ["write:shop"]}}
    return serving


def settings_of(provider: Provider, **changed: str) -> Settings:
    given = {
        "mongodb_uri": "mongodb://a",
        "jwt_issuer": provider.url,
        "jwt_jwks_url": f"{provider.url}/keys",
        "jwt_audience": provider.client_id,
        "oidc_client_id": provider.client_id,
        "jwt_subject_prefix": "-",
        **changed,
    }
    return resolve(given).settings


def client_of(settings: Settings) -> FlaskClient:
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    trusted = web_tokens(settings)
    let_in = authenticate(settings, MemoryTokens(), trusted)
    return create_app(
        gateway, authenticate=let_in, sign_in=sign_in(settings, trusted)
    ).test_client()


@pytest.fixture
def client(provider: Provider) -> FlaskClient:
    return client_of(settings_of(provider))


def code_of(client: FlaskClient, provider: Provider, name: str = "ann", **changed: str) -> str:
    """The code that the provider sends somebody back with, who says that this is the name."""
    offer = client.get("/console/sign-in").get_json()["sign_in"]
    asked = {
        "response_type": "code",
        "client_id": offer["client_id"],
        "scope": offer["scope"],
        "redirect_uri": HOME,
        "state": "s",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        **changed,
    }
    query = urllib.parse.urlencode(asked)
    form = urllib.parse.urlencode({"name": name, "answer": "yes"}).encode()
    opener = urllib.request.build_opener(_NoRedirect())
    answer = opener.open(f"{offer['authorization_endpoint']}?{query}", form, timeout=WAIT_S)
    given = urllib.parse.urlsplit(answer.headers["Location"])
    assert given.path == "/console/", provider.url
    return urllib.parse.parse_qs(given.query)["code"][0]


class _NoRedirect(urllib.request.HTTPErrorProcessor):
    def http_response(self, request: Any, response: Any) -> Any:
        del request
        return response


def exchanged(client: FlaskClient, given: str, **changed: Any) -> TestResponse:
    body = {"code": given, "code_verifier": VERIFIER, "redirect_uri": HOME, **changed}
    return client.post("/console/sign-in", json=body)


def test_a_code_is_exchanged_for_a_token_with_name_and_grants(
    client: FlaskClient, provider: Provider
) -> None:
    answer = exchanged(client, code_of(client, provider))
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    told = answer.get_json()
    assert told["name"] == "ann"
    bearer = {"Authorization": f"Bearer {told['token']}"}
    shown = client.get("/v1/principal", headers=bearer).get_json()
    assert shown == {"name": "ann", "grants": [{"role": "write", "pattern": "shop"}]}
    path = "/v1/catalogs/shop/documents/k"
    assert client.put(path, json=1, headers=bearer).status_code == 201
    assert client.put("/v1/catalogs/other/documents/k", json=1, headers=bearer).status_code == 403


def test_a_client_secret_is_sent() -> None:
    secret = "50% :of it"
    with Provider(client_secret=secret, redirect_uri=HOME).serving() as serving:
        for methods in ({}, {"token_endpoint_auth_methods_supported": ["client_secret_post"]}):
            serving.metadata = methods
            client = client_of(settings_of(serving, oidc_client_secret=secret))
            assert exchanged(client, code_of(client, serving)).status_code == 200
        client = client_of(settings_of(serving, oidc_client_secret="another"))
        problem(exchanged(client, code_of(client, serving)), 401, "unauthenticated")


def test_a_code_is_refused_without_its_verifier_or_the_second_time(
    client: FlaskClient, provider: Provider
) -> None:
    code = code_of(client, provider)
    refused = exchanged(client, code, code_verifier="w" * 43)
    assert "invalid_grant" in problem(refused, 401, "unauthenticated")["detail"]
    code = code_of(client, provider)
    assert exchanged(client, code).status_code == 200
    problem(exchanged(client, code), 401, "unauthenticated")
    problem(exchanged(client, "made-up"), 401, "unauthenticated")


def test_a_sign_in_is_audited(
    client: FlaskClient, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    code = code_of(client, provider)
    with caplog.at_level(logging.INFO, "gateway.audit"):
        assert exchanged(client, code).status_code == 200
    (line,) = [each for each in caplog.records if each.name == "gateway.audit"]
    assert (line.action, line.signed_in) == ("sign_in", "ann")  # type: ignore[attr-defined]


def test_the_name_is_a_claim_and_an_email_address_must_be_verified(provider: Provider) -> None:
    client = client_of(settings_of(provider, jwt_name_claim="email"))

    def signed_in(**claims: Any) -> TestResponse:
        provider.claims["ann"] = claims
        return exchanged(client, code_of(client, provider))

    assert signed_in(email="ann@example.org").get_json()["name"] == "ann@example.org"
    assert signed_in(email="a@example.org", email_verified=True).status_code == 200
    for claims in ({"email": "a@example.org", "email_verified": False}, {}, {"email": 1}):
        detail = problem(signed_in(**claims), 401, "unauthenticated")["detail"]
        assert "id_token isn't accepted" in detail


def test_a_token_that_the_gateway_refuses_is_not_handed_out(provider: Provider) -> None:
    client = client_of(settings_of(provider, jwt_audience="another service"))
    detail = problem(exchanged(client, code_of(client, provider)), 401, "unauthenticated")["detail"]
    assert "for another service (aud)" in detail
    provider.lifetime_s = -3_600
    client = client_of(settings_of(provider))
    problem(exchanged(client, code_of(client, provider)), 401, "unauthenticated")
    client = client_of(settings_of(provider, oidc_scopes="profile"))
    detail = problem(exchanged(client, code_of(client, provider)), 401, "unauthenticated")["detail"]
    assert "`openid`" in detail


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"issuer": "https://another.example"},
        {"token_endpoint": "http://10.0.0.1/token"},
        {"token_endpoint": None},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"end_session_endpoint": ["https://a.example"]},
    ],
)
def test_an_issuer_that_is_down_or_misconfigured_is_a_503(
    provider: Provider, metadata: dict[str, Any] | None
) -> None:
    provider.metadata = metadata
    client = client_of(settings_of(provider))
    problem(client.get("/console/sign-in"), 503, "keys_unavailable")
    problem(exchanged(client, "c"), 503, "keys_unavailable")


def test_without_a_client_id_or_access_control_no_sign_in_is_offered(provider: Provider) -> None:
    settings = settings_of(provider)
    for changed in ({"oidc_client_id": None}, {"access": False}):
        client = client_of(replace(settings, **changed))
        assert client.get("/console/sign-in").get_json() == {"sign_in": None}
        if "access" not in changed:
            problem(exchanged(client, "c"), 400, "invalid_body")


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"code": ""}, "/code"),
        ({"code": 1}, "/code"),
        ({"code": "c" * 4_001}, "/code"),
        ({"code_verifier": "short"}, "/code_verifier"),
        ({"code_verifier": "ä" * 43}, "/code_verifier"),
        ({"redirect_uri": "javascript:alert(1)"}, "/redirect_uri"),
        ({"more": 1}, "/more"),
    ],
)
def test_invalid_input_is_named(client: FlaskClient, changed: dict[str, Any], pointer: str) -> None:
    assert problem(exchanged(client, "c", **changed), 400, "invalid_body")["pointer"] == pointer


def test_a_large_body_of_an_unauthenticated_client_is_refused(client: FlaskClient) -> None:
    problem(exchanged(client, "c" * 20_000), 413, "body_too_large")


def test_concurrent_requests_to_the_issuer_are_bounded(provider: Provider) -> None:
    settings = settings_of(provider)
    signing_in = sign_in(settings, web_tokens(settings))
    assert signing_in is not None
    for _ in range(AT_ONCE_MAX):
        assert signing_in._asking.acquire(blocking=False)
    with pytest.raises(KeysUnavailable, match="too many"):
        signing_in.exchange("c", VERIFIER, HOME)


class _Issuer:
    """The answers of the issuer, a count of the requests, and a clock."""

    def __init__(self, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.away = 1_000.0, False
        self.asked: list[str] = []
        settings = settings_of(provider)
        tokens = web_tokens(settings)
        client = OpenIdClient("c", None, "openid")
        self.signing_in = OpenIdSignIn(provider.url, client, tokens, str, lambda: self.now_s)
        monkeypatch.setattr(gateway.tokens.openid_sign_in, "body_of", self._body_of)
        self._url = provider.url

    def _body_of(self, url: str, *_: Any) -> bytes:
        self.asked.append(url)
        if self.away:
            raise TimeoutError("the answer didn't arrive")
        place = f"{self._url}/there"
        told = {"issuer": self._url, "authorization_endpoint": place, "token_endpoint": place}
        return json.dumps(told).encode()


@pytest.fixture
def issuer(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> _Issuer:
    return _Issuer(provider, monkeypatch)


def test_the_metadata_of_an_issuer_that_is_down_is_requested_only_now_and_then(
    issuer: _Issuer,
) -> None:
    """However many people open the page. Earlier metadata stays valid for an hour."""
    issuer.away = True
    for _ in range(5):
        with pytest.raises(KeysUnavailable, match="didn't arrive"):
            issuer.signing_in.offer()
    assert len(issuer.asked) == 1
    issuer.now_s += PAUSE_S
    issuer.away = False
    assert issuer.signing_in.offer()
    issuer.away = True
    for later_s, asked in [(FRESH_S - 1, 2), (1, 3), (1, 3), (PAUSE_S, 4)]:
        issuer.now_s += later_s
        assert issuer.signing_in.offer()
        assert len(issuer.asked) == asked
    issuer.now_s += USABLE_S
    with pytest.raises(KeysUnavailable):
        issuer.signing_in.offer()


def test_concurrent_sign_ins_share_one_request_for_the_metadata(issuer: _Issuer) -> None:
    """The others wait for its answer, but only a limited number at a time."""
    waited: list[float] = []

    class Taken:
        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            if blocking:
                waited.append(timeout)
            return False

    vars(issuer.signing_in)["_discovering"] = Taken()
    for held in range(AT_ONCE_MAX + 1):
        with pytest.raises(KeysUnavailable, match="it hasn't answered yet"):
            issuer.signing_in.offer()
        assert len(waited) == min(held + 1, AT_ONCE_MAX)
        issuer.signing_in._waiting.acquire(blocking=False)
    assert issuer.asked == []
    assert min(waited) > 0


def test_unauthenticated_requests_occupy_nothing_while_the_issuer_does_not_answer(
    issuer: _Issuer,
) -> None:
    """After a code without an answer, the gateway asks the issuer about none for a while."""
    issuer.signing_in.offer()
    issuer.away = True
    for _ in range(5):
        with pytest.raises(KeysUnavailable):
            issuer.signing_in.exchange("c", VERIFIER, HOME)
    assert len(issuer.asked) == 2
    issuer.now_s += PAUSE_S
    issuer.away = False
    with pytest.raises(Unauthenticated):  # it answers again, if not with a token
        issuer.signing_in.exchange("c", VERIFIER, HOME)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"oidc_client_id": "a"}, "oidc_client_id has no effect without jwt_issuer"),
        ({"oidc_client_secret": "a"}, "oidc_client_secret has no effect without oidc_client_id"),
        (
            {
                "oidc_client_id": "a",
                "jwt_issuer": "our issuer",
                "jwt_audience": "a",
                "jwt_jwks_url": "https://a.example/keys",
            },
            "with oidc_client_id, jwt_issuer must be https://",
        ),
    ],
)
def test_contradictory_settings_are_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        resolve({"mongodb_uri": "mongodb://a", **given})

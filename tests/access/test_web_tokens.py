"""A JWT is accepted only if its signature and every claim are valid."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jwt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.access import Grant, Principal, Role
from gateway.assembly import authenticate, web_tokens
from gateway.errors import KeysUnavailable, Unauthenticated
from gateway.settings.lookup import resolve
from gateway.tokens.fetching import BYTES_MAX
from gateway.tokens.issued import Tokens
from gateway.tokens.web import (
    FRESH_S,
    KEYS_MAX,
    PAUSE_S,
    USABLE_S,
    WAITING_MAX,
    KeySet,
    Trust,
    WebTokens,
    fetch_from,
)
from tests.access.issuer import AUDIENCE, ISSUER, Issuer, Key, claims, token
from tests.memory_store import MemoryTokens
from tests.patience import WAIT_S

KEYS = {name: Key(f"key-{name}", name) for name in ("RS256", "ES256", "EdDSA")}
KEY = KEYS["ES256"]
STRANGER = Key(KEY.id)
TRUST = Trust(ISSUER, AUDIENCE, ("RS256", "ES256", "EdDSA"), "grants", "")

JWK = KEY.as_jwk()


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer(*KEYS.values()).serving() as serving:
        yield serving


@pytest.fixture(scope="module")
def verifier(issuer: Issuer) -> WebTokens:
    return WebTokens(KeySet(fetch_from(issuer.url)), TRUST)


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def assembled(header: Any, payload: Any, signature: bytes = b"") -> str:
    return f"{part(header)}.{part(payload)}.{part(signature)}"


def hmac_signed(secret: bytes, algorithm: str, **header: Any) -> str:
    """A JWT signed with the public key as if it were a shared secret."""
    digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[algorithm]
    signed = f"{part({'alg': algorithm, 'typ': 'JWT', **header})}.{part(claims())}"
    return f"{signed}.{part(hmac.new(secret, signed.encode(), digest).digest())}"


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_valid_jwt_identifies_subject_and_grants(algorithm: str, verifier: WebTokens) -> None:
    text = token(KEYS[algorithm])
    assert verifier.is_one(text)
    assert verifier.principal(text) == Principal("ann", (Grant(Role.WRITE, "shop/*"),))


def tampered() -> str:
    header, _, signature = token(KEY).split(".")
    return f"{header}.{part(claims(sub='root', grants=['admin:*']))}.{signature}"


def with_own_key() -> str:
    """The header brings the key along that it is to be verified with."""
    brought = {"jwk": STRANGER.as_jwk(), "jku": "https://evil.example/keys", "x5u": "https://e.x/"}
    return token(STRANGER, header=brought)


# What is sent, and a word of the reason.
BAD: dict[str, tuple[Callable[[], str], str]] = {
    "expired": (lambda: token(KEY, exp=claims()["iat"] - 60), "expired"),
    "not yet": (lambda: token(KEY, nbf=claims()["iat"] + 600), "isn't valid yet"),
    "of another audience": (lambda: token(KEY, aud="other"), "another service"),
    "of other audiences": (lambda: token(KEY, aud=["other", "metadata"]), "another service"),
    "of another issuer": (lambda: token(KEY, iss=ISSUER + "/"), "issuer"),
    "without exp": (lambda: token(KEY, exp=None), "lacks"),
    "without aud": (lambda: token(KEY, aud=None), "lacks"),
    "without iss": (lambda: token(KEY, iss=None), "lacks"),
    "without sub": (lambda: token(KEY, sub=None), "lacks"),
    "forged": (lambda: token(STRANGER), "signature"),
    "tampered": (tampered, "signature"),
    "with its own key": (with_own_key, "signature"),
    "of another key": (lambda: token(Key("other")), "doesn't publish"),
    "without a key": (lambda: token(KEY, header={"kid": None}), "kid"),
    "none": (lambda: assembled({"alg": "none", "kid": KEY.id}, claims()), "algorithm"),
    "None": (lambda: assembled({"alg": "None", "kid": KEY.id}, claims()), "algorithm"),
    "unsigned": (lambda: assembled({"alg": "ES256", "kid": KEY.id}, claims()), "signature"),
    "no algorithm": (lambda: assembled({"kid": KEY.id}, claims(), b"x"), "algorithm"),
    "another's algorithm": (
        lambda: token(KEY, header={"kid": KEYS["RS256"].id}),
        "algorithm|understood",
    ),
    "grants as a text": (lambda: token(KEY, grants="admin:*"), "grants"),
    "grants as an object": (lambda: token(KEY, grants={"admin": "*"}), "grants"),
    "a wrong grant": (lambda: token(KEY, grants=["admin:*", "own:*"]), "grant"),
    "an object for a grant": (lambda: token(KEY, grants=[{"$gt": ""}]), "grant"),
    "an object for a name": (lambda: token(KEY, sub={"$ne": "x"}), "understood"),
    "a number for a name": (lambda: token(KEY, sub=7), "understood"),
    "a name with NUL": (lambda: token(KEY, sub="a\0"), "name"),
    "half a surrogate": (lambda: token(KEY, sub="\ud800"), "name|understood"),
    "everybody's name": (lambda: token(KEY, sub="anonymous"), "name"),
    "no JSON": (lambda: "a.b.c", "understood"),
    "empty": (lambda: "..", "understood"),
    "nested": (lambda: f"{part(b'[' * 20_000)}.{part(b'{}')}.x", "understood"),
    "a list for a key": (
        lambda: assembled({"alg": "ES256", "kid": [KEY.id]}, claims()),
        "kid|understood",
    ),
    "critical": (
        lambda: token(KEY, header={"crit": ["b64"], "b64": False}),
        "understood|signature",
    ),
} | {
    f"{algorithm} by the public key": (
        lambda a=algorithm, k=key: hmac_signed(k.public_pem(), a, kid=k.id),
        "algorithm",
    )
    for algorithm in ("HS256", "HS384", "HS512")
    for key in (KEYS["RS256"], KEY)
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_token_is_refused_and_not_repeated(name: str, verifier: WebTokens) -> None:
    make, reason = BAD[name]
    text = make()
    with pytest.raises(Unauthenticated, match=reason) as refused:
        verifier.principal(text)
    assert refused.value.presented
    assert text not in refused.value.detail
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_the_algorithm_of_the_key_counts_not_the_allowed_ones(issuer: Issuer) -> None:
    """Even if HS256 were allowed, a public key isn't a shared secret."""
    careless = replace(TRUST, algorithms=("HS256", "ES256"))
    verifier = WebTokens(KeySet(fetch_from(issuer.url)), careless)
    with pytest.raises(Unauthenticated):
        verifier.principal(hmac_signed(KEY.public_pem(), "HS256", kid=KEY.id))


def test_an_algorithm_that_is_not_allowed_is_refused(issuer: Issuer) -> None:
    verifier = WebTokens(KeySet(fetch_from(issuer.url)), replace(TRUST, algorithms=("RS256",)))
    assert verifier.principal(token(KEYS["RS256"])).name == "ann"
    with pytest.raises(Unauthenticated, match="algorithm"):
        verifier.principal(token(KEY))


def test_a_jwt_without_grants_has_no_rights(verifier: WebTokens) -> None:
    assert verifier.principal(token(KEY, grants=None)) == Principal("ann", ())


def test_a_subject_never_equals_a_principal_of_the_gateways_tokens(issuer: Issuer) -> None:
    """Unless that is wanted: an issuer that is trusted for its own people names no others."""
    given = {"jwt_jwks_url": issuer.url, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    tokens = MemoryTokens()
    bearer = f"Bearer {token(KEY, sub='ann')}"
    issued = Tokens(tokens).issue("ann", [Grant(Role.READ, "a")], None)
    names = []
    for prefix in (None, "sso:", "-"):
        chosen = {"mongodb_uri": "mongodb://a", **given, "jwt_subject_prefix": prefix}
        settings = resolve(chosen).settings
        let_in = authenticate(settings, tokens, web_tokens(settings))
        assert let_in(f"Bearer {issued.text}").name == "ann"
        names.append(let_in(bearer).name)
    assert names == [f"{ISSUER}#ann", "sso:ann", "ann"]


@pytest.mark.parametrize("subject", ["", " ", "anonymous", "a" * 256, "a" * 250])
def test_a_prefix_does_not_make_an_invalid_name_valid(issuer: Issuer, subject: str) -> None:
    verifier = WebTokens(KeySet(fetch_from(issuer.url)), replace(TRUST, prefix="sso:---"))
    with pytest.raises(Unauthenticated, match="name"):
        verifier.principal(token(KEY, sub=subject))


def test_the_claim_of_the_grants_can_have_any_name(issuer: Issuer) -> None:
    named = replace(TRUST, grants_claim="https://example.org/grants")
    verifier = WebTokens(KeySet(fetch_from(issuer.url)), named)
    text = token(KEY, **{"https://example.org/grants": ["read:a"]})
    assert verifier.principal(text).grants == (Grant(Role.READ, "a"),)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
HEADERS = st.dictionaries(
    st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk"]),
    JSON | st.sampled_from(["ES256", "none", "HS256", KEY.id, KEYS["RS256"].id]),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(header=HEADERS | JSON, payload=JSON, signature=st.binary(max_size=70))
def test_arbitrary_input_is_refused_as_an_invalid_jwt(
    header: Any, payload: Any, signature: bytes, verifier: WebTokens
) -> None:
    with pytest.raises(Unauthenticated):
        verifier.principal(assembled(header, payload, signature))


@settings(max_examples=60, deadline=None)
@given(changed=st.dictionaries(st.sampled_from(list(claims())), JSON, min_size=1))
def test_arbitrary_claims_are_understood_or_refused(
    changed: dict[str, Any], verifier: WebTokens
) -> None:
    """A signature vouches for who wrote it, not for its sense."""
    signed = jwt.PyJWS().encode(
        json.dumps({**claims(), **changed}).encode(), KEY.private, "ES256", {"kid": KEY.id}
    )
    with suppress(Unauthenticated):
        assert verifier.principal(signed).name


class TestKeys:
    """How often they are fetched, at a time that is set."""

    @pytest.fixture
    def issuer(self) -> Iterator[Issuer]:
        with Issuer(KEY).serving() as serving:
            yield serving

    @pytest.fixture
    def clock(self) -> list[float]:
        return [0.0]

    @pytest.fixture
    def keys(self, issuer: Issuer, clock: list[float]) -> KeySet:
        return KeySet(fetch_from(issuer.url), lambda: clock[0])

    def test_keys_are_fetched_once_and_again_when_they_are_old(
        self, issuer: Issuer, keys: KeySet, clock: list[float]
    ) -> None:
        assert issuer.fetches == 0
        for _ in range(100):
            assert keys.key(KEY.id).key_id == KEY.id
        assert issuer.fetches == 1
        clock[0] += FRESH_S
        for _ in range(100):
            keys.key(KEY.id)
        assert issuer.fetches == 2

    def test_tokens_with_unknown_keys_cause_few_fetches(
        self, issuer: Issuer, keys: KeySet, clock: list[float]
    ) -> None:
        keys.key(KEY.id)
        for index in range(1000):
            clock[0] += PAUSE_S / 100
            with pytest.raises(Unauthenticated):
                keys.key(f"unknown {index}")
        assert issuer.fetches <= 1 + 10

    def test_a_key_that_is_new_is_found(
        self, issuer: Issuer, keys: KeySet, clock: list[float]
    ) -> None:
        keys.key(KEY.id)
        new = Key("new")
        issuer.show(new)
        clock[0] += PAUSE_S
        assert keys.key("new").key_id == "new"
        with pytest.raises(Unauthenticated):  # it isn't shown any more
            keys.key(KEY.id)

    @pytest.mark.parametrize(
        "broken", ["refused", b"[]", b"{}", b"<html>", b'{"keys":[]}', b"[" * 100_000, 500, 302]
    )
    def test_a_failed_key_fetch_is_distinguished_from_a_bad_token(
        self,
        broken: Any,
        issuer: Issuer,
        clock: list[float],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """And the log says why, once for each fetch."""
        url = issuer.url
        if broken == "refused":
            url = "http://127.0.0.1:1/keys"
        elif isinstance(broken, int):
            issuer.status = broken
        else:
            issuer.body = broken
        keys = KeySet(fetch_from(url), lambda: clock[0])
        for _ in range(5):
            with pytest.raises(KeysUnavailable):
                keys.key(KEY.id)
        assert issuer.fetches <= 1
        (line,) = caplog.messages
        assert line.removeprefix("the issuer's keys can't be fetched: ")
        if isinstance(broken, int):
            assert {500: "status 500", 302: "redirects"}[broken] in line
        if broken != "refused":
            issuer.status = 200
            issuer.show(KEY)
            clock[0] += PAUSE_S
            assert keys.key(KEY.id).key_id == KEY.id

    def test_cached_keys_are_valid_for_an_hour(
        self, issuer: Issuer, keys: KeySet, clock: list[float]
    ) -> None:
        keys.key(KEY.id)
        issuer.status = 503
        clock[0] = USABLE_S - 0.1
        assert keys.key(KEY.id).key_id == KEY.id
        with pytest.raises(KeysUnavailable):  # it may be new
            keys.key("unknown")
        clock[0] = USABLE_S
        with pytest.raises(KeysUnavailable):
            keys.key(KEY.id)

    def test_concurrent_lookups_cause_one_fetch(self, issuer: Issuer, keys: KeySet) -> None:
        found: list[str | None] = []
        issuer.answers.clear()
        asking = [
            threading.Thread(target=lambda: found.append(keys.key(KEY.id).key_id))
            for _ in range(20)
        ]
        for thread in asking:
            thread.start()
        issuer.answers.set()
        for thread in asking:
            thread.join(WAIT_S)
        assert found == [KEY.id] * 20
        assert issuer.fetches == 1

    def test_a_known_key_does_not_wait_for_a_fetch(
        self, issuer: Issuer, keys: KeySet, clock: list[float], eventually: Callable[..., Any]
    ) -> None:
        keys.key(KEY.id)
        clock[0] += FRESH_S
        issuer.answers.clear()
        first = threading.Thread(target=lambda: keys.key(KEY.id))
        first.start()
        eventually(lambda: issuer.fetches == 2)
        assert keys.key(KEY.id).key_id == KEY.id  # while the first one still fetches
        assert first.is_alive()
        issuer.answers.set()
        first.join(WAIT_S)

    @pytest.mark.parametrize(
        ("start", "piece"),
        [
            (b"", b"H"),
            (b"HTTP/1.1 200 OK\r\nX: ", b"y"),
            (b"HTTP/1.1 200 OK\r\n\r\n{", b" "),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
            # Cut off, it looks whole.
            (b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps({"keys": [KEY.as_jwk()]}).encode(), b" "),
        ],
        ids=["no line", "head", "body", "chunks", "whole"],
    )
    def test_a_key_set_that_arrives_too_slowly_is_abandoned(
        self, start: bytes, piece: bytes, issuer: Issuer
    ) -> None:
        """Each byte comes within the time of a socket; all of them take for ever."""
        issuer.drips = (start, piece)
        keys = KeySet(fetch_from(issuer.url, seconds=0.3))
        done = threading.Event()

        def ask() -> None:
            with pytest.raises(KeysUnavailable):
                keys.key(KEY.id)
            done.set()

        threading.Thread(target=ask, daemon=True).start()
        assert done.wait(WAIT_S)

    def test_an_endless_key_set_is_abandoned_after_a_mebibyte(self, issuer: Issuer) -> None:
        issuer.drips = (b"HTTP/1.1 200 OK\r\n\r\n{", b" " * 65536)
        with pytest.raises(ValueError, match="larger"):
            fetch_from(issuer.url, seconds=WAIT_S)()
        assert issuer.dripped_bytes < 64 * BYTES_MAX, "what lies in the kernel, beside it"

    @pytest.mark.parametrize(
        ("start", "piece"),
        [
            (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"1;" + b"x" * 60_000 + b"\r\n \r\n",
            ),
        ],
    )
    def test_the_size_of_headers_and_chunk_framing_is_bounded_too(
        self, start: bytes, piece: bytes, issuer: Issuer
    ) -> None:
        issuer.drips = (start, piece)
        with pytest.raises(OSError, match="larger than"):
            fetch_from(issuer.url, seconds=WAIT_S)()

    def test_keys_from_this_machine_do_not_pass_through_a_proxy(
        self, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        with Issuer(Key("of the proxy")).serving() as proxy:
            monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/keys"))
            assert fetch_from(issuer.url)().keys() == {KEY.id}
            assert proxy.fetches == 0

    def test_a_set_of_thousands_of_keys_is_refused(self, issuer: Issuer) -> None:
        issuer.show(*[KEY] * (KEYS_MAX + 1))
        with pytest.raises(ValueError, match=str(KEYS_MAX)):
            fetch_from(issuer.url, seconds=WAIT_S)()

    def test_waits_for_a_key_fetch_are_bounded_in_time_and_number(self) -> None:
        fetching, go_on = threading.Event(), threading.Event()

        def fetch() -> dict[str, Any]:
            fetching.set()
            go_on.wait(WAIT_S)
            raise OSError("it never came")

        impatient = KeySet(fetch, patience_s=0.0)
        fetcher = threading.Thread(target=_unavailable, args=(impatient,))
        fetcher.start()
        assert fetching.wait(WAIT_S)
        _unavailable(impatient)  # else this would wait until the fetch is over
        go_on.set()
        fetcher.join(WAIT_S)

    def test_only_some_unknown_tokens_wait_for_a_fetch(self) -> None:
        go_on = threading.Event()

        def fetch() -> dict[str, Any]:
            go_on.wait(WAIT_S)
            raise OSError("it never came")

        keys = KeySet(fetch, patience_s=WAIT_S)
        over = threading.Semaphore(0)

        def ask() -> None:
            _unavailable(keys)
            over.release()

        asking = [threading.Thread(target=ask) for _ in range(WAITING_MAX + 11)]
        for each in asking:
            each.start()
        for _ in range(10):
            assert over.acquire(timeout=WAIT_S), "they are told at once"
        assert not over.acquire(blocking=False), "the others wait"
        go_on.set()
        for each in asking:
            each.join(WAIT_S)


@pytest.mark.parametrize(
    "other",
    [
        *(5, None, [], "key", {}, {"kid": JWK["kid"]}),
        {"kty": "oct", "k": "c2VjcmV0", "kid": JWK["kid"]},
        {"kty": "new kind", "kid": JWK["kid"]},
        *({**JWK, "kid": each} for each in ({"a": 1}, [1], 5, "", None)),
        *({**JWK, "use": each} for each in ("enc", {"a": 1}, 5)),
        {"kty": "RSA", "kid": JWK["kid"], "n": "!!", "e": 5},
        {"kty": "RSA", "kid": JWK["kid"], "n": "AQ", "e": "AA"},
        {"kty": "EC", "kid": JWK["kid"], "crv": ["P-256"], "x": 1, "y": 2},
        {"kty": "OKP", "kid": JWK["kid"], "crv": "Ed25519", "x": {}},
        {"kty": ["RSA"], "kid": JWK["kid"]},
        {**JWK, "alg": "none"},
    ],
)
def test_invalid_entries_in_a_key_set_are_ignored(issuer: Issuer, other: Any) -> None:
    for entries in ([JWK, other], [other, JWK]):
        issuer.body = json.dumps({"keys": entries}).encode()
        verifier = WebTokens(KeySet(fetch_from(issuer.url)), TRUST)
        assert verifier.principal(token(KEY)).name == "ann"
    issuer.show(*KEYS.values())


def _unavailable(keys: KeySet) -> None:
    with pytest.raises(KeysUnavailable):
        keys.key("made up")

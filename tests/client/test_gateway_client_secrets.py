"""Where a token goes, and where it doesn't."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from patching.client import Gateway, RequestError
from patching.client.errors import UnexpectedAnswer
from tests.client.fake_documents import FakeDocuments, lose, refuse, retry
from tests.client.fake_gateway import Reply


def test_redirects_are_not_followed_and_the_token_is_sent_to_no_other_host(
    fake: FakeDocuments, elsewhere: list[dict[str, str]], other_url: str
) -> None:
    location = {"Location": f"{other_url}/v1/catalogs/c/documents/k"}
    fake.answer = lambda *_: Reply(307, {}, location)  # type: ignore[method-assign]
    with fake.opens(fake.url, token="gwt_secret", retry=retry(fake)) as gateway:
        catalog = gateway.catalog("c")
        for ask in (lambda: catalog.get("k"), lambda: catalog.put("k", 1)):
            with pytest.raises(UnexpectedAnswer):
                ask()
    assert elsewhere == []


def test_the_token_is_in_no_repr_and_no_error(
    fake: FakeDocuments, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    token = "gwt_abc_verysecret"
    with fake.opens(fake.url, token=token, retry=retry(fake, retries_max=1)) as gateway:
        catalog = gateway.catalog("c")
        shown = [repr(gateway), repr(catalog), repr(catalog.put("k", 2))]
        fake.unsent.extend([lose, lose, refuse(401, "unauthenticated")])
        for _ in range(2):
            with pytest.raises(RequestError) as raised:
                catalog.get("k")
            shown += [repr(raised.value), str(raised.value), repr(vars(raised.value))]
    assert fake.sent[0][1]["Authorization"] == f"Bearer {token}"
    with fake.opens(fake.url, token=f"{token}\nX: y") as gateway:
        with pytest.raises(ValueError, match="token") as refused:
            gateway.catalog("c").get("k")
        shown.append(str(refused.value))
    with pytest.raises(ValueError, match="credentials") as named:
        Gateway("http://me:verysecret@localhost")
    shown.append(str(named.value))
    assert "verysecret" not in "".join(shown) + caplog.text


@pytest.fixture
def elsewhere() -> list[dict[str, str]]:
    """The headers of what another server was asked."""
    return []


@pytest.fixture
def other_url(elsewhere: list[dict[str, str]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            elsewhere.append(dict(self.headers))
            self.send_response(200)
            self.end_headers()

        do_PUT = do_GET  # noqa: N815 - the name that http.server calls

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()

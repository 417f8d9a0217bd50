"""A proxy may serve the gateway below a path, which clients, commands and pages then go by."""

from __future__ import annotations

import asyncio
import http.client
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
import urllib3

from patching.client import Gateway, aio
from tests.commandline.conftest import Commands
from tests.ports import own_port
from tests.service import RunningGateway

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
# Names that a proxy changes if it decodes the path, or encodes it again.
NAMES = ["a/b", "a//b", "a/../b", "100%", "a%2Fb", "q?x#y;z", "ä ö", ".."]


@contextmanager
def stripping(upstream: str, folder: Path) -> Iterator[str]:
    """A proxy that takes the prefix off, and leaves the rest of the path as it came."""
    del folder
    to = urlsplit(upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked = http.client.HTTPConnection(to)
            path = self.path.removeprefix("/metadata")
            asked.request(self.command, path, body, dict(self.headers.items()))
            answer = asked.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name not in ("Transfer-Encoding", "Content-Length", "Connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_PUT = do_PATCH = do_GET  # noqa: N815 - as the base class names them

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/metadata"
        server.shutdown()
        thread.join()


@contextmanager
def nginx(upstream: str, folder: Path) -> Iterator[str]:
    """As the page configures it, but without TLS."""
    found = shutil.which("nginx")
    if found is None:
        pytest.skip("there is no nginx")
    (written,) = re.findall(r"(?s)```nginx\n(.*?)```", PAGE.read_text())
    port = own_port()
    written = re.sub(r"(?m)^ *ssl_.*\n", "", written)
    written = written.replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
    written = written.replace("http://127.0.0.1:8080", upstream)
    assert f":{port};" in written
    assert upstream in written
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"daemon off;\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{places}\n{written}}}\n"
    )
    with subprocess.Popen([found, "-c", configuration, "-p", folder]) as process:
        try:
            retries = urllib3.Retry(connect=40, backoff_factor=0.1, backoff_max=0.5)
            urllib3.request("GET", f"http://127.0.0.1:{port}/metadata/livez", retries=retries)
            yield f"http://127.0.0.1:{port}/metadata"
        finally:
            process.terminate()


@pytest.fixture(params=[stripping, nginx], ids=["stripping", "nginx"])
def url(request: pytest.FixtureRequest, service: RunningGateway, tmp_path: Path) -> Iterator[str]:
    with ExitStack() as stack:
        yield stack.enter_context(request.param(service.url, tmp_path))


def test_names_pass_a_proxy_unchanged(url: str, service: RunningGateway) -> None:
    with Gateway(url) as behind, Gateway(service.url) as direct:
        for number, name in enumerate(NAMES):
            behind.catalog(f"behind/{name}").put(name, number)
            assert direct.catalog(f"behind/{name}").get(name).value == number

    async def read() -> list[object]:
        async with aio.Gateway(url) as gateway:
            catalogs = [(gateway.catalog(f"behind/{name}"), name) for name in NAMES]
            return [(await catalog.get(name)).value for catalog, name in catalogs]

    assert asyncio.run(read()) == [*range(len(NAMES))]
    run = Commands(url)
    for number, name in enumerate(NAMES):
        assert run("get", f"behind/{name}", name).json() == number


def test_pages_are_found_below_the_path_of_a_proxy(url: str) -> None:
    for page in ("/", "/docs"):
        answer = urllib3.request("GET", url + page)
        assert answer.status == 200
        at = urljoin(url + page, answer.url or "")
        assert at.startswith(url)
        links = re.findall(r'(?:href|src)="([^"#]+)"', answer.data.decode())
        ours = {urljoin(at, each) for each in links if "://" not in each}
        assert len(ours) > 2
        for each in ours:
            assert each.startswith(url), each
            assert urllib3.request("GET", each).status == 200, each

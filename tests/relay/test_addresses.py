"""A subscription delivers to the public internet, and to this machine where it says so: whatever
its name resolves to, and however often that changes."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from gateway.relay import addresses
from gateway.relay.addresses import AddressRefused, require_allowed, target_of
from gateway.relay.posting import Deliverer, Outrun, Undelivered
from gateway.runtime import ThreadRuntime
from tests.access.certificates import Authority
from tests.relay.receiver import Receiver

PUBLIC = target_of("https://receiver.example/in")
HERE = target_of("http://localhost:8080/in")


@pytest.mark.parametrize(
    "address",
    [
        *("10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1", "100.100.100.200"),
        *("169.254.169.254", "168.63.129.16", "192.0.0.192", "0.0.0.0", "255.255.255.255"),
        *("127.0.0.1", "127.8.8.8", "224.0.0.1", "198.18.0.1", "203.0.113.9"),
        *("::1", "::", "fe80::1", "fd00:ec2::254", "fc00::1", "ff02::1", "2001:db8::1"),
        *("::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "::127.0.0.1"),
        *("2002:a9fe:a9fe::1", "2002:7f00:1::", "64:ff9b:1::7f00:1"),
        *("fec0::1", "::ffff:0:10.0.0.1", "64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1::808:808"),
        *("::8.8.8.8", "5f00::1", "4000::1"),
    ],
)
def test_a_name_that_is_a_special_address_is_refused(address: str) -> None:
    with pytest.raises(AddressRefused):
        require_allowed(ip_address(address), PUBLIC, ())


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"])
def test_the_public_internet_is_allowed(address: str) -> None:
    require_allowed(ip_address(address), PUBLIC, ())


def test_this_machine_is_allowed_if_the_url_names_it() -> None:
    for address in ("127.0.0.1", "::1", "127.5.5.5"):
        require_allowed(ip_address(address), HERE, ())
    for address in ("93.184.216.34", "10.0.0.1"):
        with pytest.raises(AddressRefused):
            require_allowed(ip_address(address), HERE, ())


def test_a_setting_allows_private_networks_over_https() -> None:
    networks = (ip_network("10.1.0.0/16"), ip_network("fd00::/8"))
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1"):
        require_allowed(ip_address(address), PUBLIC, networks)
    for address in ("10.2.0.1", "127.0.0.1"):
        with pytest.raises(AddressRefused):
            require_allowed(ip_address(address), PUBLIC, networks)


@pytest.mark.parametrize(
    "url",
    [
        *("http://receiver.example/", "http://10.0.0.1/", "ftp://a.example/", "receiver.example"),
        *("https://", "https:///x", "https://a.example/#f", "https://u@a.example", "//a.example"),
        *("https://a.example:99999/", "https://a.example/a b", "https://ü.example/"),
        *("https://a.example\\@10.0.0.1/", "https://a.example/\n", "file:///etc/passwd"),
        *(
            "http://localhost.example/",
            "http://127.0.0.1.example/",
            "https://[::1",
            "http://2130706433/",
        ),
        "https://a.example/" + "x" * 2048,
    ],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(AddressRefused):
        target_of(url)


def test_a_url_is_requested_as_it_is_written() -> None:
    target = target_of("https://Receiver.example:8443/in/%20?a=b&c")
    assert (target.host, target.port, target.path) == ("receiver.example", 8443, "/in/%20?a=b&c")
    assert target.authority == "receiver.example:8443"
    assert target_of("https://[2606::1]").authority == "[2606::1]"
    assert target_of("https://a.example").path == "/"


def resolving(*answers: str) -> Any:
    """A name server that gives another answer each time, the last one from then on."""
    given = iter(answers)
    last = answers[-1]

    def resolve(_host: str, port: int, **_: Any) -> list[Any]:
        address = next(given, last)
        family = addresses.socket.AF_INET6 if ":" in address else addresses.socket.AF_INET
        return [(family, addresses.socket.SOCK_STREAM, 6, "", (address, port))]

    return resolve


def delivered(url: str, **given: Any) -> None:
    Deliverer(ThreadRuntime(), **given).post(url, b"{}", {}, lambda: True)


class TestConnections:
    @pytest.fixture
    def receiver(self) -> Iterator[Receiver]:
        with Receiver() as listening:
            yield listening

    def test_the_address_of_a_name_is_checked_for_every_connection(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each connection resolves the name once; the second time, it names this machine."""
        connected: list[Any] = []

        class Recording(addresses.socket.socket):
            def connect(self, address: Any) -> None:
                connected.append(address)
                raise ConnectionRefusedError

        monkeypatch.setattr(addresses.socket, "socket", Recording)
        resolve = resolving("93.184.216.34", "127.0.0.1")
        url = f"https://receiver.example:{receiver.port}/"
        deliverer = Deliverer(ThreadRuntime(), resolve=resolve)
        with pytest.raises(Undelivered) as first:
            deliverer.post(url, b"{}", {}, lambda: True)
        assert first.value.code == "unreachable"
        assert connected == [("93.184.216.34", receiver.port)]
        with pytest.raises(Undelivered) as second:
            deliverer.post(url, b"{}", {}, lambda: True)
        assert second.value.code == "address_refused"
        assert connected == [("93.184.216.34", receiver.port)]
        assert receiver.posts == []

    def test_every_address_of_a_name_must_be_allowed(self, receiver: Receiver) -> None:
        def resolve(_host: str, port: int, **_: Any) -> list[Any]:
            both = ("93.184.216.34", port), ("10.0.0.1", port)
            return [(addresses.socket.AF_INET, 1, 6, "", each) for each in both]

        with pytest.raises(Undelivered) as refused:
            delivered(f"https://receiver.example:{receiver.port}/", resolve=resolve)
        assert refused.value.code == "address_refused"

    def test_localhost_with_another_address_is_refused(self, receiver: Receiver) -> None:
        with pytest.raises(Undelivered) as refused:
            delivered(f"http://localhost:{receiver.port}/", resolve=resolving("10.0.0.1"))
        assert refused.value.code == "address_refused"

    def test_a_redirect_is_not_followed(self, receiver: Receiver) -> None:
        with Receiver() as elsewhere:
            receiver.answer = lambda _: 307
            receiver.headers = {"Location": elsewhere.url}
            with pytest.raises(Undelivered) as refused:
                delivered(receiver.url)
            assert (refused.value.code, elsewhere.posts) == ("answered_307", [])

    def test_no_proxy_is_used(self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        delivered(receiver.url)
        (post,) = receiver.posts
        assert post.headers["Host"] == f"127.0.0.1:{receiver.port}"

    def test_a_worker_that_lost_its_claim_while_connecting_sends_nothing(
        self, receiver: Receiver
    ) -> None:
        deliverer = Deliverer(ThreadRuntime())
        with pytest.raises(Outrun):
            deliverer.post(receiver.url, b"{}", {}, lambda: False)
        assert receiver.posts == []


def test_a_certificate_must_match_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path, "authority")
    signed = authority.sign("receiver")
    receiver = Receiver()
    receiver.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    receiver.tls.load_cert_chain(signed.certificate, signed.key)
    with receiver:
        with pytest.raises(Undelivered, match="certificate verify failed"):
            delivered(receiver.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        delivered(receiver.url)
        with pytest.raises(Undelivered, match="certificate verify failed"):
            delivered(receiver.url.replace("127.0.0.1", "localhost"))
        assert len(receiver.posts) == 1

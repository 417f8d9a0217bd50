"""A pin belongs to the principal that made it: nobody else can renew it, delete it, or take its
place."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import AboveLimit
from gateway.http import create_app
from gateway.http.wire.codes import KINDS
from gateway.limits import RetentionLimits, ServiceLimits
from gateway.read.listing import as_is
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.settings import Settings
from tests.access.service import Caller, Service, catalog_path, document_path
from tests.memory_store import MemoryStore
from tests.without_http import WatchedStore, once

PINS = f"{catalog_path('c')}/pins"


@pytest.fixture
def service() -> Service:
    service = Service()
    assert service.caller("writer", "write:c").send("PUT", document_path("c"), 1).status_code == 201
    return service


def pinned(caller: Caller, seconds: int = 600, **more: Any) -> Any:
    answer = caller.send("POST", PINS, {"seconds": seconds, **more})
    assert answer.status_code == 201, answer.text
    return answer.get_json()


def problem(answer: Any, code: str) -> Any:
    content = answer.get_json()
    assert (content["code"], answer.status_code) == (code, KINDS[code].status)
    return content


def test_a_pin_belongs_to_the_principal_that_made_it(service: Service) -> None:
    ann = service.caller("ann", "read:c")
    pin = pinned(ann, note="nightly")
    assert (pin["owner"], pin["note"]) == ("ann", "nightly")
    assert pinned(ann)["note"] == ""
    refused = problem(ann.send("POST", PINS, {"seconds": 1, "owner": "bob"}), "invalid_body")
    assert refused["pointer"] == "/owner"


@pytest.mark.parametrize("grant", ["read:c", "write:c"])
def test_the_pin_of_another_principal_cannot_be_renewed_or_deleted(
    service: Service, grant: str
) -> None:
    ann, eve = service.caller("ann", "read:c"), service.caller("eve", grant)
    pin = pinned(ann)
    path = f"{PINS}/{pin['pin']}"
    assert "'ann'" in problem(eve.send("PUT", path, {"seconds": 1}), "forbidden")["detail"]
    assert "'ann'" in problem(eve.send("DELETE", path), "forbidden")["detail"]
    assert eve.send("GET", path).get_json() == pin, "it is seen, and as it was"
    assert ann.send("PUT", path, {"seconds": 700}).status_code == 200
    assert ann.send("DELETE", path).status_code == 204
    problem(eve.send("DELETE", path), "pin_not_found")


def test_an_admin_deletes_every_pin_and_renews_its_own_alone(service: Service) -> None:
    pin = pinned(service.caller("ann", "read:c"))
    path = f"{PINS}/{pin['pin']}"
    elsewhere = service.caller("other root", "admin:d", "write:c")
    problem(elsewhere.send("DELETE", path), "forbidden")
    root = service.caller("root", "admin:c")
    problem(root.send("PUT", path, {"seconds": 1}), "forbidden")
    assert root.send("DELETE", path).status_code == 204


def test_one_principal_cannot_use_up_all_pins(service: Service) -> None:
    eve = service.caller("eve", "read:c")
    share = Settings().pins_per_principal_max
    for _ in range(share):
        pinned(eve)
    for _ in range(2):  # nor by another of its tokens
        told = problem(eve.send("POST", PINS, {"seconds": 1}), "over_limit")
        assert (told["limit"], told["maximum"]) == ("pins_per_principal_max", share)
        eve = service.caller("eve", "admin:*")
    assert pinned(service.caller("ann", "read:c"))["owner"] == "ann"


def test_pins_made_at_the_same_moment_stay_within_the_limit() -> None:
    store = MemoryStore()
    limits = ServiceLimits(retention=RetentionLimits(pins_per_principal_max=2))
    watched: Any = WatchedStore(store)
    first, other = (GatewayService(each, ThreadRuntime(), limits) for each in (watched, store))
    Service(gateway=other).caller("ann", "write:c").send("PUT", document_path("c"), 1)

    def two_others() -> None:
        for _ in range(2):
            other.retention.pin("c", None, 60, "eve")

    watched.before["set_pin"] = once(two_others)
    with pytest.raises(AboveLimit):
        first.retention.pin("c", None, 60, "eve")
    assert len(other.retention.pins("c")) == 2


def test_the_pin_of_an_export_belongs_to_its_principal() -> None:
    limits = ServiceLimits()
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), limits)
    service = Service(gateway=gateway)
    writer = service.caller("writer", "write:c")
    lines = [{"catalog": "c", "key": f"k{n}", "op": "put", "value": n} for n in range(501)]
    assert {line["status"] for line in writer.bulk(*lines)} == {201}
    share = limits.retention.pins_per_principal_max
    exports = [gateway.listing.export("c", as_is, owner="eve") for _ in range(share)]
    assert {(pin.owner, pin.note) for pin in gateway.retention.pins("c")} == {("eve", "export")}
    with pytest.raises(AboveLimit):
        gateway.listing.export("c", as_is, owner="eve")
    other = gateway.listing.export("c", as_is, owner="ann")
    assert sum(map(len, other.pages)) == 501
    eve = service.caller("eve", "read:c")
    problem(eve.send("GET", f"{catalog_path('c')}/export"), "over_limit")
    for export in exports:
        export.close()
    assert sum(map(len, gateway.listing.export("c", as_is, owner="eve").pages)) == 501
    assert eve.send("GET", f"{catalog_path('c')}/export").status_code == 200
    assert not gateway.retention.pins("c")


def test_without_access_control_all_pins_belong_to_one_principal(service: Service) -> None:

    client = create_app(service.gateway).test_client()
    made = client.post(PINS, json={"seconds": 600}).get_json()
    assert made["owner"] == "anonymous"
    assert client.put(f"{PINS}/{made['pin']}", json={"seconds": 1}).status_code == 200
    anns = pinned(service.caller("ann", "read:c"))
    assert client.delete(f"{PINS}/{anns['pin']}").status_code == 204

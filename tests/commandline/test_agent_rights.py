"""Rule: an agent learns what its token may read, and nothing of what it may not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from click.testing import CliRunner
from mcp import Client
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

from gateway.cli.main import main
from patching.client import Catalog, Gateway
from tests.commandline.agents import Agent, acting, command
from tests.patience import WAIT_S
from tests.service import RunningGateway, own_database

SECRET: Final = "Zq7Secret"
SHOP, KEY = "shop", "salaries/2026"
NOT_THERE = "no-such-name"
TEST = {"op": "test", "path": "/n", "value": f"{SECRET}-not"}
# The calls of each tool, of a document.
CALLS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("find", {}),
    ("find", {"prefix": "{key}"}),
    ("find", {"contains": "{key}"}),
    ("find", {"after": "{key}"}),
    ("read", {"key": "{key}"}),
    ("read", {"key": "{key}", "pointer": "/n"}),
    ("read", {"key": "{key}", "revision": 1}),
    ("history", {}),
    ("history", {"key": "{key}"}),
    ("history", {"after": 1}),
    ("preview", {"key": "{key}", "operations": [{"op": "set", "path": "/n", "value": 1}]}),
    ("preview", {"key": "{key}", "operations": [TEST]}),
    ("change", {"key": "{key}", "operations": [{"op": "set", "path": "/n", "value": 1}]}),
    ("change", {"key": "{key}", "operations": [TEST]}),
    (
        "change",
        {
            "key": "{key}",
            "operations": [{"op": "set", "path": "/n", "value": 1}],
            "token": "1-00000000",
        },
    ),
    ("apply", {"key": "{key}", "wanted": {"n": 1}}),
    ("apply", {"key": "{key}", "wanted": {"n": 1}, "skip_what_others_own": True}),
    ("undo", {"revision": 1}),
    ("undo", {"revision": 1_000}),
]


class Guarded:
    """A running gateway that asks for tokens."""

    def __init__(self, running: RunningGateway, where: dict[str, str]) -> None:
        self.url = running.url
        self._where = where

    def token(self, name: str, *grants: str) -> str:
        given = [part for grant in grants for part in ("--grant", grant)]
        arguments = ["token", "create", "--name", name, *given]
        result = CliRunner().invoke(main, arguments, env=self._where)
        assert result.exit_code == 0, result.output
        return result.stdout.strip()

    def as_(self, name: str, *grants: str) -> Gateway:
        return Gateway(self.url, token=self.token(name, *grants))


@pytest.fixture(scope="module")
def guarded(mongodb_uri: str) -> Iterator[Guarded]:
    """In the catalog `shop`, ann keeps `salaries/2026` to herself, and `open` is open."""
    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database, access=True) as running,
    ):
        guarded = Guarded(
            running, {"GATEWAY_MONGODB_URI": mongodb_uri, "GATEWAY_DATABASE": database}
        )
        with guarded.as_("ann", "write:*") as gateway:
            shop = gateway.catalog(SHOP)
            shop.put(KEY, {"n": SECRET, SECRET: [SECRET]}, message=f"{SECRET} is in it")
            shop.attributes.put(KEY, {"acl": {"read": ["ann"], "write": ["ann"]}})
            shop.put(KEY, {"n": SECRET}, message=f"{SECRET} is in it")
            shop.put("open", {"n": 1})
        yield guarded


def filled(arguments: dict[str, Any], key: str) -> dict[str, Any]:
    return {
        name: value.replace("{key}", key) if isinstance(value, str) else value
        for name, value in arguments.items()
    }


async def answers(client: Client, catalog: str, key: str) -> list[str]:
    """The texts of all answers to tools and resources, without the arguments and the request's
    id."""
    agent = Agent(client, catalog)
    said = [(await agent(tool, **filled(arguments, key))).text for tool, arguments in CALLS]
    try:
        await client.read_resource(f"metadata://{catalog}/{key}")
    except MCPError as error:
        said.append(str(error))
    else:
        said.append("a resource")
    return [
        re.sub(r'"request_id":"[^"]*"', "", each).replace(catalog, "CATALOG").replace(key, "KEY")
        for each in said
    ]


def test_an_agent_without_rights_in_a_catalog_learns_nothing_about_it(guarded: Guarded) -> None:
    """Neither whether it is there, nor whether a document is."""
    told: dict[tuple[str, str], list[str]] = {}

    async def act(agent: Agent) -> None:
        for catalog, key in ((SHOP, KEY), (SHOP, NOT_THERE), (NOT_THERE, KEY)):
            told[catalog, key] = await answers(agent.client, catalog, key)

    with guarded.as_("eve", "write:elsewhere") as gateway:
        acting(gateway, SHOP, act)
    for said in told.values():
        assert said == told[SHOP, KEY]
        for (tool, arguments), each in zip(CALLS, said, strict=False):
            blind = (
                tool == "change"
                and "token" not in arguments
                and TEST not in arguments["operations"]
            )
            assert ("precondition_required" if blind else "forbidden") in each, (tool, arguments)
        assert SECRET not in str(said)


def test_an_invalid_token_learns_nothing(guarded: Guarded) -> None:
    told = []

    async def act(agent: Agent) -> None:
        told.append(await answers(agent.client, SHOP, KEY))
        told.append(await answers(agent.client, NOT_THERE, NOT_THERE))

    with Gateway(guarded.url, token="gwt_0000_0000") as gateway:
        acting(gateway, SHOP, act)
    assert told[0] == told[1]
    assert "unauthenticated" in told[0][0]


@pytest.mark.parametrize("grant", ["read:shop", "write:shop"])
def test_an_agent_never_sees_a_document_closed_to_it(guarded: Guarded, grant: str) -> None:
    """Its name, where the agent says it, is no secret (docs/acl.md)."""

    async def act(agent: Agent) -> None:
        assert (await agent("find"))["keys"] == ["open"]
        assert (await agent("find"))["folders"] == []
        for each in await answers(agent.client, SHOP, KEY):
            assert SECRET not in each
            assert "KEY" not in re.sub(r"'KEY'|\"key\":\"KEY\"|/KEY", "", each), each
        commits = (await agent("history"))["commits"]
        assert [len(each["changes"]) for each in commits] == [0, 0, 0, 1]
        assert [each["message"] for each in commits] == [None] * 4
        for tool, more in (
            ("preview", {"operations": [TEST]}),
            ("apply", {"wanted": {"n": 1}}),
            ("read", {}),
        ):
            refused = await agent(tool, key=KEY, **more)
            assert (refused.refused, refused["code"]) == (True, "forbidden"), tool

    with guarded.as_("bob", grant) as gateway:
        acting(gateway, SHOP, act)
    with guarded.as_("ann", "write:*") as gateway:
        assert gateway.catalog(SHOP).get(KEY).value == {"n": SECRET}


def test_a_commit_whose_message_names_the_agent_is_not_taken_for_its_own(
    guarded: Guarded,
) -> None:
    """Its message says that it is; the agent doesn't undo it for that."""
    with guarded.as_("mallory", "write:marks") as gateway:
        gateway.catalog("marks").put("k", 1)
        forged = gateway.catalog("marks").put("k", 2, message="[agent ada] mine").catalog_revision

    async def act(agent: Agent) -> None:
        own = (await agent("apply", key="mine", wanted={"a": 1}))["revision"]
        commits = (await agent("history"))["commits"]
        assert {each["revision"]: each["yours"] for each in commits} == {
            1: False,
            forged: False,
            own: True,
        }
        refused = await agent("undo", revision=forged)
        assert (refused.refused, refused["code"]) == (True, "not_yours")
        assert (await agent("undo", revision=own))["changed"]

    with guarded.as_("ada-principal", "write:marks") as gateway:
        acting(gateway, "marks", act)
        assert gateway.catalog("marks").get("k").value == 2


def test_agents_get_no_notice_of_documents_that_they_may_not_read(guarded: Guarded) -> None:
    """Bob, of what is open to him, when it changes; eve of nothing."""
    uris = [f"metadata://{SHOP}/{key}" for key in (KEY, NOT_THERE, "open")]

    def agent(name: str, grant: str) -> Client:
        token = guarded.token(name, grant)
        watching = ("--watch", SHOP, "--watch", NOT_THERE)
        return Client(stdio_client(command(guarded.url, *watching, token=token)))

    async def run(shop: Catalog) -> None:
        async with (
            asyncio.timeout(WAIT_S),
            agent("bob", "read:shop") as bob,
            agent("eve", "read:elsewhere") as eve,
            bob.listen(resource_subscriptions=uris) as told_bob,
            eve.listen(resource_subscriptions=uris) as told_eve,
        ):
            heard = 0
            for number in range(100):  # the servers begin to watch when they can
                shop.put(KEY, {"n": SECRET, "again": number})
                shop.put("open", {"n": number})
                try:
                    event = await asyncio.wait_for(anext(told_bob), 0.5)
                except TimeoutError:
                    continue
                assert event.uri == uris[2]
                heard += 1
                if heard == 2:
                    break
            assert heard == 2
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(told_eve), 0.2)

    with guarded.as_("ann", "write:*") as ann:
        asyncio.run(run(ann.catalog(SHOP)))

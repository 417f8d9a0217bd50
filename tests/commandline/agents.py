"""An agent's calls of the tools that `gateway mcp` serves, by the protocol's own client."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters

from gateway.cli.agent_server import mcp_server
from gateway.cli.agent_tools import Agent as AgentName
from gateway.cli.agent_tools import AgentTools, Scope
from patching.client import Gateway
from tests.patience import WAIT_S

ADA = AgentName("ada", "m-1", "c-7")
EVERYTHING = Scope()


class Answer:
    def __init__(self, result: Any) -> None:
        self.refused = bool(result.is_error)
        (text,) = result.content
        self.text = text.text
        try:
            self.value = json.loads(text.text)
        except json.JSONDecodeError:
            self.value = text.text

    def __getitem__(self, name: str) -> Any:
        return self.value[name]


class Agent:
    """`await agent("read", key="k")` calls a tool of one catalog."""

    def __init__(self, client: Client, catalog: str) -> None:
        self.client = client
        self._catalog = catalog

    async def __call__(self, tool: str, **arguments: Any) -> Answer:
        given = {"catalog": self._catalog, **arguments}
        return Answer(await self.client.call_tool(tool, given))


def command(url: str, *options: str, token: str | None = None) -> StdioServerParameters:
    arguments = ["-m", "gateway.cli", "mcp", "--url", url, *options]
    environment = {} if token is None else {"GATEWAY_TOKEN": token}
    return StdioServerParameters(command=sys.executable, args=arguments, env=environment)


def acting(
    gateway: Gateway,
    catalog: str,
    act: Callable[[Agent], Awaitable[None]],
    name: AgentName = ADA,
    scope: Scope = EVERYTHING,
) -> None:
    """By a server in this process."""
    server = mcp_server(AgentTools(gateway, name, scope), gateway)

    async def run() -> None:
        async with asyncio.timeout(WAIT_S), Client(server) as client:
            await act(Agent(client, catalog))

    asyncio.run(run())

"""`gateway mcp`: what agents can do with documents, over the Model Context Protocol."""

from __future__ import annotations

import os
import signal

import click

from gateway.cli import exit_codes
from gateway.cli.command import ClientCommand, Session
from gateway.cli.names import CATALOG

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command("mcp", cls=ClientCommand)
@click.option("--agent", default="agent", metavar="NAME", help="The agent's name, for its commits.")
@click.option("--model", metavar="NAME", help="The agent's language model, for its commits.")
@click.option("--conversation", metavar="ID", help="The conversation, for its commits.")
@click.option("--prefix", default="", help="Only documents whose keys begin with this.")
@click.option("--read-only", is_flag=True, help="Leave out the tools that change something.")
@click.option("--dry-run-only", is_flag=True, help="Only try changes, as dry runs.")
@click.option(
    "--watch",
    "watched",
    type=CATALOG,
    multiple=True,
    metavar="CATALOG",
    help="Tell clients when documents of the catalog change. Repeatable.",
)
@click.option(
    "--http",
    "address",
    metavar="HOST:PORT",
    help="Serve streamable HTTP there, at /mcp, instead of stdin and stdout. HOST must be this"
    " machine, because whoever reaches the port acts with this command's token.",
)
@click.pass_obj
def mcp(
    session: Session,
    agent: str,
    model: str | None,
    conversation: str | None,
    prefix: str,
    read_only: bool,
    dry_run_only: bool,
    watched: tuple[str, ...],
    address: str | None,
) -> None:
    """Let an agent find, read and change documents.

    This is a server of the Model Context Protocol. It reads requests on stdin and answers on stdout
    until stdin ends. Needs the extra mcp.
    """
    try:
        from gateway.cli.agent_server import mcp_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise click.ClickException(
            "gateway mcp needs the extra 'mcp': pip install '.[mcp]' in the gateway's repository"
        ) from error
    from gateway.cli.agent_tools import Agent, AgentTools, Scope

    try:
        acting = Agent(agent, model, conversation)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    tools = AgentTools(session.gateway, acting, Scope(prefix, read_only, dry_run_only))
    server = mcp_server(tools, session.gateway, watched)
    if address is None:
        # At once: otherwise, Python would wait for the thread that reads stdin.
        signal.signal(signal.SIGINT, lambda *_: os._exit(exit_codes.INTERRUPTED))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        server.run("stdio")
        return
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if host not in _LOOPBACK or not port.isdigit() or int(port) > 65_535:
        wanted = "an address of this machine with a port, such as 127.0.0.1:8765"
        raise click.UsageError(f"--http must be {wanted}, not {address!r}")
    server.run("streamable-http", host=host, port=int(port))

"""A MongoDB that is some milliseconds away: what goes to it and back is held up on the way."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from pymongo.uri_parser import parse_uri

from benchmarks.processes import free_port, server

_CHUNK_BYTES = 1 << 20


@contextmanager
def distant(uri: str, milliseconds: float) -> Iterator[str]:
    """The URI of the same member, that far away there and back."""
    host, number = parse_uri(uri)["nodelist"][0]
    there = unquote(host) if number is None else f"{host}:{number}"
    port = free_port()
    module = ("-m", "benchmarks.distant")
    command = (sys.executable, *module, there, f"{port}", f"{milliseconds / 2_000}")
    with server(command, port):
        yield f"mongodb://127.0.0.1:{port}/?directConnection=true"


async def _serve(there: str, port: int, delay_s: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if Path(there).is_socket():
            back, forth = await asyncio.open_unix_connection(there)
        else:
            host, _, number = there.rpartition(":")
            back, forth = await asyncio.open_connection(host, int(number))
        await asyncio.gather(_pump(reader, forth, delay_s), _pump(back, writer, delay_s))

    async with await asyncio.start_server(connected, "127.0.0.1", port) as listening:
        await listening.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    later = asyncio.get_running_loop().call_later
    try:
        while chunk := await reader.read(_CHUNK_BYTES):
            later(delay_s, writer.write, chunk)
    except OSError:
        pass
    later(delay_s, writer.close)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))

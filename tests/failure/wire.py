"""The network between a gateway and the members of a replica set, which can be cut.

A TCP proxy stands in front of each member. Members tell the driver their own addresses; the proxies
replace them in every answer, with addresses of the same length, so that the driver stays behind the
proxies.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from struct import unpack_from
from types import TracebackType
from typing import Literal, Self

from tests.failure.replica_set import NAME
from tests.patience import WAIT_S

# The length, the message's own id, the id of what it answers, and its kind.
_HEAD_BYTES = 16
_MESSAGE = 2013
_MOVE = ("update", "catalogs")
_WRITES = ("update", "insert")
Cut = Literal["silent", "closed"]


class Wire:
    """Entered, it passes everything. ``lost_moves`` counts the answers to moves of heads that were
    lost on it."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.lost_moves = 0
        self._addresses = addresses
        self._names: list[tuple[bytes, bytes]] = []
        self._cut: Cut | None = None
        self._breaks = False
        self._loop = asyncio.new_event_loop()
        self._whole = asyncio.Event()
        self._served: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def uri(self) -> str:
        places = ",".join(place.decode() for _, place in self._names)
        return f"mongodb://{places}/?replicaSet={NAME}"

    def partition(self) -> None:
        """From the next move of a head on nothing arrives on either side, until ``heal``: what was
        sent arrives then, that move included."""
        self._breaks = True

    @property
    def is_partitioned(self) -> bool:
        return not self._whole.is_set()

    def cut_answers(self, how: Cut) -> None:
        """Writes arrive, their answers don't; ``closed``: the connection breaks instead."""
        self._cut = how

    def heal(self) -> None:
        self._cut, self._breaks = None, False
        self._call(self._whole.set)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(WAIT_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(WAIT_S)
        self._call(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, action: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(action)

    async def _open(self) -> None:
        self._whole.set()
        for address in self._addresses:
            port = int(address.partition(":")[2])

            async def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int = port
            ) -> None:
                task = asyncio.current_task()
                assert task is not None
                self._served.add(task)
                try:
                    await self._serve(reader, writer, port)
                except (OSError, asyncio.IncompleteReadError):
                    pass  # one side is gone, and so is the other one
                finally:
                    self._served.discard(task)
                    writer.close()

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            assert len(place) == len(address), (place, address)
            self._names.append((address.encode(), place.encode()))

    async def _close(self) -> None:
        for task in self._served:
            task.cancel()
        await asyncio.gather(*self._served, return_exceptions=True)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        await self._whole.wait()
        from_member, to_member = await asyncio.open_connection("127.0.0.1", port)
        asked: dict[int, tuple[str, str]] = {}
        pumps = [
            asyncio.ensure_future(self._requests(reader, to_member, asked)),
            asyncio.ensure_future(self._answers(from_member, writer, asked)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            to_member.close()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        to_member: asyncio.StreamWriter,
        asked: dict[int, tuple[str, str]],
    ) -> None:
        while True:
            message = await _message(reader)
            command = _command(message)
            asked[unpack_from("<i", message, 4)[0]] = command
            if self._breaks and command == _MOVE:
                self._whole.clear()
            await self._whole.wait()
            to_member.write(message)
            await to_member.drain()

    async def _answers(
        self,
        from_member: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[int, tuple[str, str]],
    ) -> None:
        while True:
            message = await _message(from_member)
            # A look that goes on by itself is answered many times, by its first id or none.
            command = asked.pop(unpack_from("<i", message, 8)[0], ("", ""))
            await self._whole.wait()
            cut = self._cut
            if cut is not None and command[0] in _WRITES:
                self.lost_moves += command == _MOVE
                if cut == "closed":
                    return
                continue
            for name, place in self._names:
                message = message.replace(name, place)
            writer.write(message)
            await writer.drain()


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(_HEAD_BYTES)
    return head + await reader.readexactly(unpack_from("<i", head)[0] - _HEAD_BYTES)


def _command(message: bytes) -> tuple[str, str]:
    """The name of a command, and the collection that it is about; "" for what is none."""
    if unpack_from("<i", message, 12)[0] != _MESSAGE:
        return "", ""
    # Behind the head: flags, the kind of section, the length of the document, the first type.
    kind, begin = message[25], 26
    end = message.index(0, begin)
    about = b""
    if kind == 2:  # a text: its length, itself
        about = message[end + 5 : message.index(0, end + 5)]
    return message[begin:end].decode(), about.decode()

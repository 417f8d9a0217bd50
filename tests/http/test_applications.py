"""Applications: a version's rows are applied once, whoever of those who share it sends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from werkzeug.test import TestResponse

from gateway.http.wire.problems import encode_refusal
from gateway.limits import RetentionLimits, ServiceLimits
from gateway.service import GatewayService
from tests.access.service import Caller, Service, catalog_path, document_path
from tests.http.conftest import problem
from tests.memory_store import MemoryStore
from tests.without_http import SetClock

ETL = f"{catalog_path('c')}/applications/etl"
KEPT_S = 1_000
Sent = tuple[int, dict[str, Any]]


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def service(clock: SetClock) -> Service:
    limits = ServiceLimits(retention=RetentionLimits(idempotency_s=KEPT_S))
    gateway = GatewayService(MemoryStore(), clock, limits, encode_refusal=encode_refusal)
    return Service(gateway=gateway)


@pytest.fixture
def ann(service: Service) -> Caller:
    return service.caller("ann", "write:c")


@pytest.fixture
def bob(service: Service) -> Caller:
    return service.caller("bob", "write:c")


def begin_version(caller: Caller, version: int, *principals: str, finished: bool = False) -> Any:
    asked: dict[str, Any] = {"version": version, "finished": finished}
    if principals:
        asked["principals"] = list(principals)
    answer = caller.send("PUT", ETL, asked)
    assert answer.status_code == 200, answer.text
    return answer.get_json()


def refused(caller: Caller, version: int, *principals: str, status: int = 409) -> str:
    asked: dict[str, Any] = {"version": version}
    if principals:
        asked["principals"] = list(principals)
    code = "application_conflict" if status == 409 else "forbidden"
    return str(problem(caller.send("PUT", ETL, asked), status, code)["detail"])


def appended(item: Any, fence: str, key: str = "row", **members: Any) -> dict[str, Any]:
    patch = [{"op": "add", "path": "/log/-", "value": item}]
    line = {"catalog": "c", "key": "k", "op": "patch", "patch": patch, "fence": fence}
    return line | {"idempotency_key": key} | members


def answer_to(caller: Caller, line: dict[str, Any]) -> dict[str, Any]:
    (answer,) = caller.bulk(line)
    return dict(answer)


def code(answer: dict[str, Any]) -> str:
    return str(answer["problem"]["code"])


@pytest.fixture
def log(ann: Caller) -> Callable[[], list[Any]]:
    assert ann.send("PUT", document_path("c"), {"log": []}).status_code == 201

    def read() -> list[Any]:
        content: dict[str, Any] = ann.send("GET", document_path("c")).get_json()
        return list(content["log"])

    return read


def test_a_second_principal_continues_a_version_where_the_first_stopped(
    ann: Caller, bob: Caller, log: Callable[[], list[Any]]
) -> None:
    fence = begin_version(ann, 7, "bob")["fence"]
    assert answer_to(ann, appended("a", fence))["changed"]
    assert begin_version(bob, 7, "ann")["fence"] == fence
    again = answer_to(bob, appended("a", fence))
    assert (again["replayed"], again["changed"]) == (True, True)
    assert answer_to(bob, appended("b", fence, "next"))["changed"]
    assert log() == ["a", "b"]
    assert code(answer_to(bob, appended("else", fence))) == "idempotency_key_reused"
    # The key is the application's: each has others of its own by that name.
    own = appended("c", fence)
    del own["fence"]
    assert not answer_to(bob, own).get("replayed")
    assert not answer_to(ann, own).get("replayed")
    assert log() == ["a", "b", "c", "c"]


def test_a_replayed_refusal_hides_values_from_a_principal_without_read_access(
    ann: Caller, bob: Caller
) -> None:
    """The refusal that is replayed was of a principal that may see the value in it."""
    acl = {"mode": "replace", "value": {"acl": {"read": ["ann"], "write": ["ann", "bob"]}}}
    line = {"catalog": "c", "key": "k", "op": "put", "value": {"secret": "s3cr3t"}}
    assert answer_to(ann, line | {"attributes": acl})["changed"]
    fence = begin_version(ann, 7, "bob")["fence"]
    guess = [{"op": "test", "path": "/secret", "value": "?"}]
    asked = appended("a", fence) | {"patch": guess}
    assert answer_to(ann, asked)["problem"]["actual"] == "s3cr3t"
    told = answer_to(bob, asked)["problem"]
    assert "s3cr3t" not in str(told)
    assert (told["code"], told["right"]) == ("forbidden", "read")
    assert answer_to(ann, asked)["problem"]["actual"] == "s3cr3t"


def test_a_replayed_answer_hides_skipped_places_from_a_principal_without_read_access(
    ann: Caller, bob: Caller
) -> None:
    acl = {"mode": "replace", "value": {"acl": {"read": ["ann"], "write": ["ann", "bob"]}}}
    line = {"catalog": "c", "key": "k", "op": "put", "value": {}}
    assert answer_to(ann, line | {"attributes": acl})["changed"]
    apply = {"catalog": "c", "key": "k", "op": "apply"}
    assert answer_to(ann, apply | {"value": {"secret": 1}, "manager": "pipeline"})["changed"]
    wanted = {"value": {"secret": 2, "n": 1}, "manager": "job", "conflict": "skip"}
    asked = (
        apply | wanted | {"idempotency_key": "a", "fence": begin_version(ann, 7, "bob")["fence"]}
    )
    assert answer_to(ann, asked)["skipped"]
    told = answer_to(bob, asked)
    assert told["replayed"]
    assert "skipped" not in told
    assert answer_to(ann, asked)["skipped"]


def test_the_number_of_principals_of_an_application_is_bounded(ann: Caller) -> None:
    """A thousand applications share a document: one may not take the room of others."""
    names = [f"{number}" + "\N{GRINNING FACE}" * 200 for number in range(20)]
    answer = ann.send("PUT", ETL, {"version": 1, "principals": ["ann", *names[:19]]})
    told = problem(answer, 413, "over_limit")
    assert (told["limit"], told["maximum"]) == ("application_bytes_max", 3072)


def test_a_late_line_of_a_finished_version_is_refused(
    ann: Caller, log: Callable[[], list[Any]]
) -> None:
    fence = begin_version(ann, 7)["fence"]
    answer_to(ann, appended("a", fence))
    told = begin_version(ann, 7, finished=True)
    assert (told["version"], told["finished"]) == (7, 7)
    assert begin_version(ann, 7) == told, "nothing to do"
    for line in (appended("b", fence, "late"), appended("a", fence)):
        answer = answer_to(ann, line)
        assert code(answer) == "application_conflict"
        assert answer["problem"]["retryable"] is False
        assert "version 7 of application 'etl' is finished" in answer["problem"]["detail"]
    assert log() == ["a"]
    # What was refused for the fence decided nothing under its key.
    assert answer_to(ann, appended("b", begin_version(ann, 8)["fence"], "late"))["changed"]
    assert log() == ["a", "b"]


def test_versions_only_increase(ann: Caller) -> None:
    assert begin_version(ann, 7, finished=True)["finished"] == 7
    assert begin_version(ann, 3)["finished"] == 7, "it is finished, as every one up to 7"
    old = begin_version(ann, 8)["fence"]
    begin_version(ann, 9)
    assert "8 of application 'etl' is over: version 9 was begun before it" in refused(ann, 8)
    line = appended("a", old) | {"op": "put", "value": 1}
    del line["patch"]
    answer = answer_to(ann, line)
    assert "isn't the current one, which is 9" in answer["problem"]["detail"]
    ahead = old.replace("8.", "10.", 1)
    assert code(answer_to(ann, line | {"fence": ahead})) == "application_conflict"


def test_a_version_older_than_the_key_retention_is_refused(
    ann: Caller, clock: SetClock, log: Callable[[], list[Any]]
) -> None:
    fence = begin_version(ann, 7)["fence"]
    answer_to(ann, appended("a", fence))
    clock.passed_s = KEPT_S - 10
    assert answer_to(ann, appended("a", fence))["replayed"]
    clock.passed_s = KEPT_S + 1
    assert "was begun more than 1000 seconds ago" in refused(ann, 7)
    answer = answer_to(ann, appended("a", fence))
    assert "idempotency_retention_s" in answer["problem"]["detail"]
    assert log() == ["a"]
    begin_version(ann, 7, finished=True)  # who has seen to it says so
    assert answer_to(ann, appended("b", begin_version(ann, 8)["fence"], "new"))["changed"]


def test_a_principal_outside_the_application_can_neither_continue_nor_disturb_it(
    service: Service, ann: Caller, bob: Caller, log: Callable[[], list[Any]]
) -> None:
    fence = begin_version(ann, 7)["fence"]
    assert "shared by 'ann', not by 'bob'" in refused(bob, 7, "ann", status=403)
    assert code(answer_to(bob, appended("x", fence))) == "forbidden"
    root = service.caller("root", "admin:*")
    assert code(answer_to(root, appended("x", fence))) == "forbidden", "nor an admin"
    for body in ({"principals": ["bob"]}, {"version": 7, "finished": True}):
        problem(bob.send("PUT", ETL, body), 403, "forbidden")
    problem(bob.send("DELETE", ETL), 403, "forbidden")
    assert answer_to(ann, appended("a", fence))["changed"]
    assert log() == ["a"]
    # An admin may let it in. But then ann says so too, or she would trust what it finished.
    assert root.send("PUT", ETL, {"principals": ["ann", "bob"]}).status_code == 200
    begin_version(bob, 8, "ann", finished=True)
    assert "shared with 'bob': if you trust them, name them" in refused(ann, 8)
    assert begin_version(ann, 8, "bob")["finished"] == 8
    assert root.send("PUT", ETL, {"principals": ["ann"]}).status_code == 200
    problem(bob.send("PUT", ETL, {"version": 9, "principals": ["ann"]}), 403, "forbidden")


def test_a_re_created_application_has_other_idempotency_keys(
    ann: Caller, bob: Caller, log: Callable[[], list[Any]]
) -> None:
    old = begin_version(ann, 7)["fence"]
    answer_to(ann, appended("a", old))
    assert ann.send("DELETE", ETL).status_code == 204
    assert ann.send("DELETE", ETL).status_code == 204, "nothing to do"
    assert code(answer_to(ann, appended("b", old, "late"))) == "application_conflict"
    new = begin_version(bob, 7)["fence"]
    assert new != old
    answer = answer_to(bob, appended("a", new))
    assert not answer.get("replayed"), "nothing of what ann's keys decided is told"
    assert log() == ["a", "a"]


@pytest.mark.usefixtures("log")
def test_steps_appear_in_the_history_only(service: Service, ann: Caller) -> None:
    """They are in the history, hold through deletion, and in no listing."""
    begin_version(ann, 7, "bob")
    listed = ann.send("GET", f"{catalog_path('c')}/applications").get_json()["applications"]
    (record,) = listed
    assert record.pop("begun").endswith("Z")
    assert record == {
        "application": "etl",
        "version": 7,
        "finished": None,
        "principals": ["ann", "bob"],
        "keys": None,
        "open": False,
        "ended": [],
    }
    commit = ann.send("GET", f"{catalog_path('c')}/commits/2").get_json()
    assert commit["message"] == "version 7 of application etl begun"
    assert (commit["author"], commit["changes"]) == ("ann", [])
    for route in ("documents", "documents?select=digest", "export", "documents?prefix=%00"):
        answer = ann.send("GET", f"{catalog_path('c')}/{route}")
        assert answer.status_code == 200
        assert "applications" not in answer.text
    events = ann.send("GET", f"{catalog_path('c')}/changes?after=1&timeout=0").get_json()
    assert [each["changes"] for each in events["commits"]] == [[]]
    own = document_path("c", "\0applications")
    for method, body in (("GET", None), ("PUT", {})):
        problem(ann.send(method, own, body), 400, "invalid_name")
    shown = {"If_Match": '"%00applications=absent"', "Prefer": "refusal=representation"}
    told = problem(ann.send("PUT", document_path("c"), {}, **shown), 400, "invalid_condition")
    assert "current" not in told
    service.caller("root", "admin:c").send("DELETE", catalog_path("c"))
    ann.send("PUT", document_path("c"), {})
    told = ann.send("GET", f"{catalog_path('c')}/applications").get_json()
    assert told == {"applications": []}


def test_a_step_cannot_be_reverted(
    service: Service, ann: Caller, log: Callable[[], list[Any]]
) -> None:
    """Neither is the one that finished a version undone, nor do rules for documents hold there."""
    fence = begin_version(ann, 7)["fence"]
    answer_to(ann, appended("a", fence))
    begin_version(ann, 7, finished=True)
    root = service.caller("root", "admin:*")
    told = root.send("GET", f"{catalog_path('c')}/commits").get_json()["commits"]
    (finished,) = (each["revision"] for each in told if "finished" in (each["message"] or ""))
    for body in ({"revisions": [finished]}, {"to": finished - 1}):
        answer = root.send("POST", f"{catalog_path('c')}/reverts", body)
        assert answer.status_code == 200, answer.text
    assert begin_version(ann, 7)["finished"] == 7
    assert log() == ["a"]
    rules = {"schemas": {"*": {"required": ["log"]}}, "require_precondition": True}
    assert root.send("PUT", catalog_path("c"), rules).status_code == 201
    assert begin_version(ann, 8)["version"] == 8


BAD_BODIES: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"finished": True, "principals": ["ann"]}, "/finished"),
    ({"version": -1}, "/version"),
    ({"version": 10**18}, "/version"),
    ({"version": "7"}, "/version"),
    ({"version": 7, "principals": []}, "/principals"),
    ({"version": 7, "principals": ["a\n"]}, "/principals"),
    ({"version": 7, "more": 1}, "/more"),
    ({"version": 7, "run": "x"}, "/run"),
    ({"version": 7, "ended": True}, "/ended"),
    ({"version": 7, "run": "1f", "ended": True, "finished": True}, "/ended"),
    ({"run": "1f", "principals": ["ann"], "ended": True}, "/ended"),
    ({"version": 7, "keys": "-"}, "/keys"),
]


@pytest.mark.parametrize(("body", "pointer"), BAD_BODIES)
def test_an_invalid_step_is_refused(ann: Caller, body: dict[str, Any], pointer: str) -> None:
    told = problem(ann.send("PUT", ETL, body), 400, "invalid_body")
    assert told["pointer"] == pointer


def test_bad_names_and_fences_are_refused(ann: Caller) -> None:
    for name in ("a%00b", "a" * 256, "%ff"):
        path = f"{catalog_path('c')}/applications/{name}"
        problem(ann.send("PUT", path, {"version": 1}), 400, "invalid_name")
    for fence in ("", "7.5f0c", "x.5f0c.etl", f"{'9' * 30}.a.etl", 7, None):
        answer = answer_to(ann, appended("a", fence))  # type: ignore[arg-type]
        assert (code(answer), answer["problem"]["pointer"]) == ("invalid_body", "/fence")
    bare = appended("a", "7.5f0c.etl")
    del bare["idempotency_key"]
    assert answer_to(ann, bare)["problem"]["detail"].endswith("it needs an idempotency_key")
    missing: TestResponse = ann.send("GET", f"{catalog_path('c')}/applications")
    problem(missing, 404, "catalog_not_found")


def test_an_application_may_have_any_name_and_their_number_is_bounded(ann: Caller) -> None:
    for name in ("a/b~c.d", "$x.y", "ü 😀\n", "1"):
        path = f"{catalog_path('c')}/applications/"
        answer = ann.send("PUT", path + quote(name, safe=""), {"version": 1}).get_json()
        assert answer["application"] == name
        assert answer_to(ann, appended("a", answer["fence"]) | {"key": "none"})["status"] == 404
    for number in range(4, 1000):
        ann.send("PUT", f"{catalog_path('c')}/applications/n{number}", {"version": 1})
    told = problem(ann.send("PUT", ETL, {"version": 1}), 413, "over_limit")
    assert (told["limit"], told["maximum"]) == ("applications_max", 1000)


def stepped(caller: Caller, name: str, version: int, **members: Any) -> TestResponse:
    path = f"{catalog_path('c')}/applications/{name}"
    return caller.send("PUT", path, {"version": version, **members})


def test_a_full_list_of_applications_drops_those_that_can_send_nothing_more(
    ann: Caller, clock: SetClock
) -> None:
    """Open ones that are finished, and whatever is too old to be finished; never a finished one
    that is shared: it may be started again. Who was begun first leaves first."""

    def fill(first: int, last: int, *, finished: bool = True, **members: Any) -> None:
        for number in range(first, last):
            clock.passed_s += 0.001
            answer = stepped(ann, f"n{number}", 1, finished=finished, **members)
            assert answer.status_code == 200, answer.text

    def names() -> set[str]:
        listed = ann.send("GET", f"{catalog_path('c')}/applications").get_json()["applications"]
        return {record["application"] for record in listed}

    fill(0, 2, finished=False)
    fill(2, 4, open=True)
    fill(4, 5, open=True, finished=False)
    fill(5, 1_000)
    late = stepped(ann, "n2", 1, open=True).get_json()["fence"]
    for new, left in (("a", "n2"), ("b", "n3")):
        assert stepped(ann, new, 1).status_code == 200
        assert left not in names()
        assert {"n0", "n1", "n4", new} < names()
    problem(stepped(ann, "c", 1), 413, "over_limit")
    answer = answer_to(ann, appended("a", late))
    assert "with this fence: it was deleted, or never existed" in answer["problem"]["detail"]
    clock.passed_s += KEPT_S + 1
    for new in "cde":
        assert stepped(ann, new, 1, finished=True).status_code == 200
    assert {"n5", "n999", "c", "d", "e"} < names()
    assert names().isdisjoint({"n0", "n1", "n4"})


def test_an_open_application_is_for_every_writer_and_only_guards(
    ann: Caller, bob: Caller, log: Callable[[], list[Any]]
) -> None:
    fence = stepped(ann, "sync", 7, open=True).get_json()["fence"]
    assert answer_to(ann, appended("a", fence))["changed"]
    assert answer_to(ann, appended("a", fence))["replayed"]
    assert not answer_to(bob, appended("b", fence)).get("replayed"), "its key is bob's own"
    bare = appended("c", fence)
    del bare["idempotency_key"]
    assert answer_to(bob, bare)["changed"]
    told = stepped(bob, "sync", 8, open=True).get_json()
    assert (told["version"], told["open"], told["principals"]) == (8, True, ["bob"])
    for caller in (ann, bob):
        assert code(answer_to(caller, appended("late", fence, "late"))) == "application_conflict"
    assert log() == ["a", "b", "c"]
    detail = problem(stepped(ann, "sync", 9), 409, "application_conflict")["detail"]
    assert detail == (
        "application 'sync' is open to all who may write the catalog; send \"open\": true"
    )
    assert stepped(ann, "etl", 1).status_code == 200
    problem(stepped(ann, "etl", 2, open=True), 409, "application_conflict")


def test_beginning_a_version_again_reports_how_its_keys_are_made(ann: Caller) -> None:
    assert stepped(ann, "etl", 1, keys="row").get_json()["keys"] == "row"
    assert stepped(ann, "etl", 1, keys="place").get_json()["keys"] == "row"
    assert stepped(ann, "etl", 2).get_json()["keys"] is None


def test_another_run_decides_refused_lines_again(ann: Caller, log: Callable[[], list[Any]]) -> None:
    """The run is in the fence; what was applied is applied once, whichever run sends it."""
    one, two = (stepped(ann, "etl", 1, run=run).get_json()["fence"] for run in ("1f", "2f"))
    assert one != two
    line = appended("a", one) | {"key": "new"}
    for _ in range(2):
        assert answer_to(ann, line)["status"] == 404
    assert ann.send("PUT", document_path("c", "new"), {"log": []}).status_code == 201
    assert answer_to(ann, line)["replayed"]
    assert answer_to(ann, line | {"fence": two})["changed"]
    for fence in (one, two):
        answer = answer_to(ann, line | {"fence": fence})
        assert (answer["replayed"], answer["status"]) == (True, 200)
    assert ann.send("GET", document_path("c", "new")).get_json() == {"log": ["a"]}
    assert log() == []


def test_nothing_is_applied_for_an_ended_run_while_others_go_on(
    ann: Caller, log: Callable[[], list[Any]]
) -> None:
    """Not even if its first line, which begins the version, comes after its end."""
    one, two = (stepped(ann, "etl", 1, run=run).get_json()["fence"] for run in ("1f", "2f"))
    assert answer_to(ann, appended("a", one))["changed"]
    for run in ("1f", "3f", "1f"):
        told = stepped(ann, "etl", 1, run=run, ended=True).get_json()
    assert told["ended"] == ["1f", "3f"]
    begin = {"application": "etl", "version": 1, "run": "3f"}
    late = appended("late", one, "late")
    begins = {name: value for name, value in late.items() if name != "fence"} | {"begin": begin}
    for line in (late, begins):
        assert code(answer_to(ann, line)) == "application_conflict"
    problem(stepped(ann, "etl", 1, run="1f", finished=True), 409, "application_conflict")
    assert answer_to(ann, appended("a", two))["replayed"]
    assert answer_to(ann, appended("b", two, "next"))["changed"]
    for run in map(str, range(100, 116)):
        stepped(ann, "etl", 1, run=run, ended=True)
    assert answer_to(ann, late)["changed"], "so many runs are remembered"
    assert stepped(ann, "etl", 2, run="1f").get_json()["ended"] == []
    assert log() == ["a", "b", "late"]


def test_a_run_is_ended_without_naming_who_came_to_share_the_application(
    service: Service, ann: Caller, log: Callable[[], list[Any]]
) -> None:
    """Its late lines would be applied: who ends it relies on nothing that others do."""
    fence = stepped(ann, "etl", 1, run="1f").get_json()["fence"]
    root = service.caller("root", "admin:*")
    assert root.send("PUT", ETL, {"principals": ["ann", "bob"]}).status_code == 200
    assert stepped(ann, "etl", 1, run="1f", ended=True).get_json()["ended"] == ["1f"]
    assert code(answer_to(ann, appended("late", fence))) == "application_conflict"
    assert log() == []
    refused(ann, 1)

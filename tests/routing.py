"""Every command on `documents` and `commits` names its catalog, by `_id`: so a sharded cluster
sends it to the shards that have the catalog, and not to all.

The commands of all stores are watched that tests make, in their own process and (run as a program,
this is `gateway`) in those of the gateways they start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import Any, Final

_SHARDED: Final = ("documents", "commits")
# What is about a collection as a whole.
_OF_ALL: Final = ("$changeStream", "$collStats")
# Before what a gateway writes on its log about a command that names none.
UNROUTED: Final = "UNROUTED"
# The variable that names another application for the workers.
APPLICATION: Final = "TESTED_APPLICATION"
# The variable that says how long a connection may idle.
KEEPALIVE_S: Final = "TESTED_KEEPALIVE_S"
_APPLICATION: Final = "tests.routing:create_application"


def unrouted(command: Mapping[str, Any]) -> list[Any]:
    """The filters of a command that name no catalog."""
    if command[next(iter(command))] not in _SHARDED:
        return []
    return [query for query in _filters(command) if not _names_catalogs(query)]


def _filters(command: Mapping[str, Any]) -> Iterator[Any]:
    name = next(iter(command))
    if name == "find":
        if not _asks_for_a_name(command):
            yield command.get("filter", {})
    elif name in ("count", "distinct", "findAndModify"):
        yield command.get("query", {})
    elif name in ("update", "delete"):
        yield from (each["q"] for each in command.get("updates") or command.get("deletes") or ())
    elif name == "aggregate":
        first = command["pipeline"][0]
        if not set(first) & set(_OF_ALL):
            yield first.get("$match", {})


def _asks_for_a_name(command: Mapping[str, Any]) -> bool:
    """Which catalog comes next, whether or not there is a head of it, no catalog can tell."""
    asked = {name: command.get(name) for name in ("limit", "projection", "sort")}
    return asked == {"limit": 1, "projection": {"_id": 1}, "sort": {"_id": 1}}


def _names_catalogs(query: Mapping[str, Any]) -> bool:
    branches: Sequence[Mapping[str, Any]] = query.get("$or", ())
    if branches and all(_names_catalogs(each) for each in branches):
        return True
    name = query.get("_id")
    if isinstance(name, str):
        return "\0" in name
    if not isinstance(name, Mapping):
        return False
    if "$in" in name:
        return all("\0" in each for each in name["$in"])
    lowest, highest = name.get("$gt", name.get("$gte", "")), name.get("$lt", name.get("$lte", ""))
    named = query.get("catalog")
    several = sorted(named["$in"]) if isinstance(named, Mapping) else [lowest.partition("\0")[0]]
    first, last = several[0], several[-1]
    return lowest.startswith(f"{first}\0") and highest.startswith((f"{last}\0", f"{last}\1"))


def watch(report: Callable[[str], None]) -> None:
    """Tell of every command of this process's stores that names no catalog."""
    from pymongo import MongoClient, monitoring

    from gateway.store.mongodb import connection

    class Watcher(monitoring.CommandListener):
        def started(self, event: monitoring.CommandStartedEvent) -> None:
            for query in unrouted(event.command):
                report(f"{event.command_name} {event.command[event.command_name]}: {query}")

        def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
            pass

        def failed(self, event: monitoring.CommandFailedEvent) -> None:
            pass

    connection.MongoClient = partial(MongoClient, event_listeners=[Watcher()])  # type: ignore[misc,assignment]


def create_application(settings: Any) -> Any:
    """The gateway's, in a worker whose commands are watched."""
    from gateway.assembly import create_application as create

    watch(lambda found: print(f"{UNROUTED} {found}", file=sys.stderr, flush=True))
    urls_are_built_when_asked()
    return create(settings)


def urls_are_built_when_asked() -> None:
    """What makes a rule's URLs is compiled when one is asked for, which hardly any test does.

    Else that takes two thirds of the time to make an application, and thousands of tests make one,
    and each worker.
    """
    from werkzeug.routing import Rule

    compile_builder = Rule._compile_builder

    def build_when_asked(_: Rule, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        def build(rule: Rule, **values: Any) -> tuple[str, str]:
            return compile_builder(rule, append_unknown)(rule, **values)

        return build

    Rule._compile_builder = build_when_asked  # type: ignore[method-assign]


def without_what_it_needs_not() -> None:
    """A start without the parts that tests don't need, which take a third of its time."""
    # gevent asks a dozen times in each worker what is installed: a fifth of the worker's start.
    installed = metadata.entry_points()
    metadata.entry_points = installed.select  # type: ignore[assignment]
    # structlog takes it along where it is installed: a tenth of a start. The gateway needs it not.
    sys.modules["rich"] = None  # type: ignore[assignment]


def run(arguments: Sequence[str]) -> None:
    """`gateway` with these arguments."""
    from gateway.cli.main import main
    from gateway.server import master

    master.KEEPALIVE_S = int(os.environ.get(KEEPALIVE_S, master.KEEPALIVE_S))
    master.run.__kwdefaults__["application"] = os.environ.get(APPLICATION, _APPLICATION)
    main(arguments)


if __name__ == "__main__":
    without_what_it_needs_not()
    run(sys.argv[1:])

"""Record histories and check them: `make histories`, or `python -m tests.histories --help`.

Two gateways on a replica set of three, each behind a network of its own; their clients write, read,
page and transact, while primaries die, stop and step down and networks break.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

from tests.failure.faults import FAULTS, Scene
from tests.failure.replica_set import ReplicaSet
from tests.failure.wire import Wire
from tests.failure.workload import Workload
from tests.histories import convert_history
from tests.histories.recorded import Fault, history_of
from tests.service import RunningGateway

CHECKER = Path(__file__).with_name("check_history.py")


@contextmanager
def two_gateways(replica_set: ReplicaSet) -> Iterator[tuple[Mapping[str, Wire], Mapping[str, int]]]:
    """Their networks and their ports, by name."""
    with ExitStack() as stack:
        wires, ports = {}, {}
        for name in ("near", "far"):
            addresses = [member.address for member in replica_set.members]
            wires[name] = wire = stack.enter_context(Wire(addresses))
            service = RunningGateway(
                wire.uri, "failover", workers=1, store_timeout_ms=1000, deadline_ms=3000
            )
            ports[name] = stack.enter_context(service).port
        yield wires, ports


def happening(scene: Scene, faults: Sequence[str], writes: int) -> list[Fault]:
    """While the workload of the scene runs: ``writes`` acknowledged by each gateway before, between
    and after these faults."""
    happened = []
    with ExitStack() as ended:
        for wire in scene.wires.values():
            ended.callback(wire.heal)
        scene.workload.await_writes(writes)
        for name in faults:
            happened.append(Fault(time.monotonic(), f"{name} begins"))
            FAULTS[name](scene)
            happened.append(Fault(time.monotonic(), f"{name} has ended"))
            scene.workload.await_writes(writes)
        scene.workload.await_every_kind()
    return happened


def recorded(
    replica_set: ReplicaSet, faults: Sequence[str], *, seed: int, catalogs: int, writes: int
) -> Iterator[str]:
    """The lines of one history, of catalogs that are new."""
    names = [f"history-{uuid4().hex[:8]}" for _ in range(catalogs)]
    with two_gateways(replica_set) as (wires, ports):
        workload = Workload(ports, names, seed)
        scene = Scene(replica_set, wires, workload)
        yield from history_of(workload, lambda: happening(scene, faults, writes), faults=faults)


def check(paths: Sequence[Path]) -> int:
    """By the command that anybody would use: without what is installed here."""
    command = [sys.executable, "-I", "-S", str(CHECKER), *map(str, paths)]
    return subprocess.run(command, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/histories"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--catalogs", type=int, default=2, help="in each history")
    parser.add_argument(
        "--writes", type=int, default=50, help="by each gateway, before, between and after faults"
    )
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(FAULTS)}")
    chosen = parser.parse_args()
    if unknown := set(chosen.faults) - set(FAULTS):
        parser.error(f"no such faults: {', '.join(sorted(unknown))}")
    chosen.folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with tempfile.TemporaryDirectory() as data, ReplicaSet(Path(data)) as replica_set:
        names = chosen.faults or list(FAULTS)
        for faults in [*([each] for each in names), *([names] if len(names) > 1 else [])]:
            replica_set.await_healthy()
            name = faults[0] if len(faults) == 1 else "all-faults"
            path = chosen.folder / f"{name}.ndjson"
            made = recorded(
                replica_set,
                faults,
                seed=chosen.seed,
                catalogs=chosen.catalogs,
                writes=chosen.writes,
            )
            path.write_text("".join(f"{line}\n" for line in made), encoding="utf-8")
            paths.append(path)
            for form in convert_history.write_forms(path):
                print(f"{form}: written")
    return check(paths)


if __name__ == "__main__":
    sys.exit(main())

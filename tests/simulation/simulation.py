"""One simulated history: workers, clients and a store under a seed; what happened, recorded.

recording = simulate(seed)
violations = check(recording)
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import product
from typing import Any
from unittest.mock import patch

from gateway.decide import performing, reverting
from gateway.decide.request import Applied
from gateway.errors import CatalogNotFound, DocumentNotFound, RevisionCompacted
from gateway.feed.channel import Selection
from gateway.limits import ServiceLimits
from gateway.model import Head, Skipped
from gateway.retention.verification import Verification
from gateway.service import GatewayService

from .asks import SETTINGS, Action, Name, write
from .clients import Client
from .faults import FaultyStore, Network
from .followers import Follower, selections
from .plan import Plan, plan
from .recorder import Call, Recording, RecordingStore
from .scheduler import Process, Scheduler, Stuck
from .sim_runtime import EPOCH_US, SimEvent, SimRuntime
from .sim_turns import Machine, SimNeighbours, SimTurns
from .worker import Worker
from .workload import Wishes

# After the last call: longer than writes are under way, workers stand still or calls last. What
# there is to see once all of these are over is seen sooner.
_SETTLING_S = 300.0
_QUIET_S = 60.0
_LOOK_EVERY_S = 5.0
_CATCHING_UP_S = 120.0


def simulate(seed: int, adjust: Callable[[Plan], Plan] = lambda chosen: chosen) -> Recording:
    """Run the history of ``seed``; the same seed gives the same history.

    ``adjust`` changes the plan that the seed has chosen.
    """
    rng = random.Random(seed)
    chosen = adjust(plan(rng))
    recording = Recording(
        faulty=chosen.faulty,
        longest_s=chosen.limits.deadline_ms / 1000,
        skew_us=2 * chosen.skew_us + (5_000_000 if chosen.clock_steps else 0),
    )
    world = World(rng, chosen, recording)
    with _logged_defects(recording), _plain_keys():
        try:
            world.run()
        except Stuck as stuck:
            recording.defects.append(f"stuck: {stuck}")
        finally:
            world.scheduler.close()
    recording.defects += [f"{name}: {error!r}" for name, error in world.scheduler.failures]
    return recording


class World:
    """Everything that takes part in one history."""

    def __init__(self, rng: random.Random, chosen: Plan, recording: Recording) -> None:
        self.scheduler = Scheduler(rng)
        self._rng = rng
        self._plan = chosen
        self._recording = recording
        self._store = RecordingStore(recording)
        self._network = Network(self.scheduler, rng, chosen.faults, strays=chosen.strays)
        self._catalogs = [Name(f"c{number}") for number in range(chosen.catalogs)]
        self._keys = [Name(f"k{number}") for number in range(chosen.keys)]
        self._machine = Machine()
        self._workers: list[Worker] = []
        self._clients_left = chosen.clients
        self._people = Process("people")
        self.scheduler.before_time_passes = self._note_idle_leaders

    def run(self) -> None:
        """Raises Stuck."""
        for _ in range(self._plan.workers):
            self._start_worker()
        for number in range(self._plan.clients):
            self._start_client(f"u{number}")
        for _ in range(self._plan.followers):
            self._start_follower()
        if self._plan.outages:
            self.scheduler.spawn(self._people, self._outages, "outages")
        self.scheduler.run(lambda: not self._clients_left)
        self._settle()
        self._probe()
        self._catch_up()
        looked_back: list[bool] = []
        self.scheduler.spawn(self._people, lambda: self._look_back(looked_back), "look back")
        self.scheduler.run(lambda: bool(looked_back) or bool(self.scheduler.failures))
        self._recording.commits, self._recording.documents = self._store.everything()
        self._recording.lost_verdicts = self._store.lost_verdicts()

    def _start_worker(self) -> Worker:
        process = Process(f"w{len(self._workers)}")
        gateway = self._gateway(process)
        worker = Worker(process, gateway, self.scheduler, self._recording)
        if self._plan.compactor:
            gateway.retention.compactor.start()
        gateway.janitor.start()
        worker.falls_behind = self._plan.preempt > 0
        self._workers.append(worker)
        return worker

    def _gateway(self, process: Process) -> GatewayService:
        store = FaultyStore(self._store, self._network, self.scheduler, process, self._rng)
        skew = self._plan.skew_us
        runtime = SimRuntime(
            self.scheduler,
            process,
            self._rng,
            skew_us=self._rng.randrange(-skew, skew + 1),
            clock_steps=self._plan.clock_steps,
            preempt=self._plan.preempt,
        )
        if not self._plan.turns:
            return GatewayService(store, runtime, _limits(self._plan))
        number = self._machine.workers[process] = len(self._machine.workers) + 1
        turns = SimTurns(self._machine, process)
        neighbours = SimNeighbours(self._machine, process, self.scheduler)
        gateway = GatewayService(store, runtime, _limits(self._plan), turns, neighbours=neighbours)
        self._machine.gateways[number] = gateway
        return gateway

    def _pick(self) -> Worker:
        """One that lives, even if it stands still; now and then a new one."""
        if self._plan.restarts and self._rng.random() < 0.01:
            return self._start_worker()
        return self._pick_living()

    def _pick_living(self) -> Worker:
        living = [worker for worker in self._workers if worker.process.alive]
        return self._rng.choice(living) if living else self._start_worker()

    def _start_client(self, name: str) -> None:
        wishes = Wishes(
            name,
            self._rng,
            self._catalogs,
            self._keys,
            self._plan.tastes,
            lambda: EPOCH_US + int(self.scheduler.now * 1e6),
        )
        client = Client(self._people, self.scheduler, self._rng, wishes, self._pick)

        def run() -> None:
            client.run(self._plan.calls, self._plan.think_s)
            self._clients_left -= 1

        self.scheduler.spawn(self._people, run, name)

    def _start_follower(self) -> None:
        catalog = self._rng.choice(self._catalogs)
        selection = selections(self._keys, self._rng)
        if self._plan.from_state:
            selection = Selection(prefix=self._rng.choice(("", "", self._keys[0])))
        follower = Follower(
            self.scheduler,
            self._rng,
            self._recording,
            catalog,
            selection,
            self._pick_living,
            from_state=self._plan.from_state,
        )
        self.scheduler.spawn(self._people, follower.run, "follower")

    def _outages(self) -> None:
        while self._clients_left:
            self.scheduler.sleep(self._rng.choice((0.05, 1.0)) * self._rng.random())
            lasting_s = self._rng.choice((0.01, 0.5, 5.0, 30.0))
            self._network.down_until = self.scheduler.now + lasting_s
            self.scheduler.sleep(lasting_s)

    def _settle(self) -> None:
        """Let writes arrive, workers wake and calls end; nothing fails any more."""
        self._network.stop()
        end_s = self.scheduler.now + _SETTLING_S
        quiet_s = 0.0
        while self.scheduler.now < end_s and quiet_s < _QUIET_S:
            look_s = self.scheduler.now + _LOOK_EVERY_S
            self.scheduler.at(look_s, lambda: None)
            self.scheduler.run(lambda: self.scheduler.now >= look_s)  # noqa: B023
            quiet_s = quiet_s + _LOOK_EVERY_S if self._is_quiet() else 0.0
        for call in self._unanswered():
            self._recording.defects.append(f"{call.ask.label} was never answered")
        self._recording.deaf += self._deaf()

    def _is_quiet(self) -> bool:
        """Whether nothing is under way, and everybody awake, answered and told."""
        now = self.scheduler.now
        stand_still = any(
            worker.process.alive and worker.process.resumes_at > now for worker in self._workers
        )
        return not (
            self._network.under_way or stand_still or any(self._unanswered()) or any(self._deaf())
        )

    def _unanswered(self) -> Iterator[Call]:
        living = {worker.process.name for worker in self._workers if worker.process.alive}
        for call in self._recording.calls:
            if call.answered is None and call.worker in living:
                yield call

    def _deaf(self) -> Iterator[str]:
        """Who has not heard of the head."""
        heads = self._store.heads(self._catalogs)
        for following in self._recording.followings:
            head = heads.get(following.catalog)
            if head is not None and following.position < head.revision:
                yield f"{following.position} of {head}: {following.heard}"

    def _probe(self) -> None:
        """Nothing fails now: every worker that lives must be able to write every document."""
        living = [worker for worker in self._workers if worker.process.alive]
        self._rng.shuffle(living)
        probes: list[Call] = []

        def probe() -> None:
            for worker in living:
                for catalog, key in product(self._catalogs, (SETTINGS, *self._keys)):
                    label = f"probe {worker.process.name} {catalog} {key}"
                    # The settings go first, for they may want a precondition, or other contents.
                    action = Action("put" if key else "delete", key, label)
                    done = SimEvent(self.scheduler)
                    call = worker.call(write(label, catalog, action), done)
                    done.wait(60.0)
                    if key:
                        probes.append(call)
            ended.append(True)

        ended: list[bool] = []
        self.scheduler.spawn(self._people, probe, "probe")
        self.scheduler.run(lambda: bool(ended))
        for call in probes:
            if not isinstance(call.outcome, Applied):
                self._recording.defects.append(f"{call.ask.label}: {call.outcome} {call.error}")

    def _catch_up(self) -> None:
        """Watchers have some time to hear of everything."""
        heads = self._store.heads(self._catalogs)
        end_s = self.scheduler.now + _CATCHING_UP_S

        def is_over() -> bool:
            behind = any(
                following.catalog in heads
                and following.position < heads[following.catalog].revision
                for following in self._recording.followings
            )
            return not behind or self.scheduler.now >= end_s

        self.scheduler.at(end_s, lambda: None)
        self.scheduler.run(is_over)

    def _note_idle_leaders(self) -> None:
        """Time is about to pass: nobody may be waiting who could be served."""
        now = self.scheduler.now
        for worker in self._workers:
            if worker.process.alive and worker.process.resumes_at <= now:
                for catalog in worker.neglected(now):
                    self._recording.neglected.append(f"{catalog} at {worker.process.name}, {now} s")

    def _look_back(self, done: list[bool]) -> None:
        """What a gateway that has just started makes of what the store holds."""
        gateway = self._gateway(self._people)
        for catalog in self._catalogs:
            gateway._settler.settle(catalog)
            head = self._store.heads([catalog]).get(catalog, Head(catalog))
            for key in (SETTINGS, *self._keys):
                self._recording.fresh[catalog, key] = gateway.read(catalog, key)
                if self._plan.tastes.retention:
                    for revision in {head.floor, (head.floor + head.revision) // 2}:
                        self._read_past(gateway, catalog, key, revision)
            verification = Verification(gateway._store, gateway._settler, gateway._runtime)
            with suppress(CatalogNotFound):
                self._recording.findings += map(str, verification.verify(catalog))
        done.append(True)

    def _read_past(self, gateway: GatewayService, catalog: str, key: str, revision: int) -> None:
        document = None
        try:
            document = gateway.read_at_revision(catalog, key, revision).document
        except DocumentNotFound:
            pass
        except RevisionCompacted:
            return
        self._recording.past[catalog, key, revision] = document


class _Defects(logging.Handler):
    def __init__(self, recording: Recording) -> None:
        super().__init__(logging.ERROR)
        self._recording = recording

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._recording.defects.append(f"{record.getMessage()}: {error!r}")


@contextmanager
def _logged_defects(recording: Recording) -> Iterator[None]:
    """A leader that runs into a defect logs it and goes on; here it is a violation."""
    log = logging.getLogger("gateway")
    handler = _Defects(recording)
    level, propagate = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate


def _plain_key(key: str, *given: Any) -> Skipped:
    return Skipped(str(key), *given)


@contextmanager
def _plain_keys() -> Iterator[None]:
    """Of what a commit left to others the keys are encoded, which no subclass of str can be."""
    with (
        patch.object(performing, "Skipped", _plain_key),
        patch.object(reverting, "Skipped", _plain_key),
    ):
        yield


def _limits(chosen: Plan) -> ServiceLimits:
    return replace(
        chosen.limits,
        cached_catalogs_max=chosen.cached_catalogs_max,
        catch_up_commits_max=chosen.catch_up_max,
        history_page_bytes_max=chosen.page_bytes_max,
        listing_page_bytes_max=chosen.page_bytes_max,
        listing_page_documents=chosen.export_page,
        watch=replace(chosen.limits.watch, linger_s=2.0),
    )

"""Run histories by hand: ``python -m tests.simulation --help``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable

from .checker import check
from .mutations import MUTATIONS, broken
from .plan import Plan, as_chosen, listing, owning, repeating
from .plans import from_state
from .simulation import simulate
from .trace import history, outcome_name


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="the number of seeds, from there on")
    parser.add_argument("--trace", action="store_true", help="print the whole history")
    parser.add_argument("--without", choices=MUTATIONS, help="break this rule of the protocol")
    parser.add_argument("--owners", action="store_true", help="with managers and reverts")
    parser.add_argument("--lists", action="store_true", help="the same, and lists with keys")
    parser.add_argument("--from-state", action="store_true", help="watchers begin with the state")
    parser.add_argument(
        "--repeating", action="store_true", help="also with writes that may be sent twice"
    )
    arguments = parser.parse_args()
    if arguments.without:
        with broken(arguments.without) as mutation:
            return run(arguments, mutation.adjust)
    return run(arguments, _adjusted(arguments))


def _adjusted(arguments: argparse.Namespace) -> Callable[[Plan], Plan]:
    if arguments.from_state:
        return from_state
    adjust = as_chosen
    if arguments.owners or arguments.lists:
        adjust = listing if arguments.lists else owning
    return (lambda chosen: repeating(adjust(chosen))) if arguments.repeating else adjust


def run(arguments: argparse.Namespace, adjust: Callable[[Plan], Plan]) -> int:
    started_s = time.perf_counter()
    outcomes: Counter[str] = Counter()
    failed = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        recording = simulate(seed, adjust)
        violations = check(recording)
        outcomes.update(outcome_name(call) for call in recording.calls)
        if arguments.trace:
            print(history(recording))
        for violation in violations:
            print(f"seed {seed}: {violation.kind}: {violation.detail}")
        failed += bool(violations)
    took_s = time.perf_counter() - started_s
    print(f"{arguments.count} histories in {took_s:.1f} s, {failed} of them wrong")
    print(", ".join(f"{name} {count}" for name, count in outcomes.most_common()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

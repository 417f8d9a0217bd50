"""Explore the commit protocol: ``python -m tests.model --help``."""

from __future__ import annotations

import argparse
import sys

from .explore import Explored, explore
from .rules import RULES, left_out
from .worlds import WORLDS, bounded


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--bound", type=int, default=3, help="requests (default: 3)")
    parser.add_argument("--workers", type=int, default=2, help="workers (default: 2)")
    parser.add_argument("--world", choices=[each.name for each in WORLDS], help="only this world")
    parser.add_argument(
        "--without", default="", metavar="RULE[,RULE]", help=f"break rules: {', '.join(RULES)}"
    )
    arguments = parser.parse_args()
    try:
        without = left_out(arguments.without)
    except KeyError as unknown:
        parser.error(f"no such rule: {unknown}")
    for rule in without:
        print(f"without {rule}: {RULES[rule]}")
    for world in WORLDS:
        if arguments.world in (None, world.name):
            explored = explore(bounded(world, arguments.bound, arguments.workers), without)
            print(_report(explored))
            if explored.wrong:
                return 1
    return 0


def _report(explored: Explored) -> str:
    lines = [
        f"{explored.world.name:10} {explored.states:8} states {explored.transitions:9} transitions"
        f"  depth {explored.depth:3} {explored.seconds:7.1f} s  {explored.world.about}"
    ]
    if explored.wrong:
        lines += ["", *(f"{n:3}  {step}" for n, step in enumerate(explored.history, 1))]
        lines += [f"     WRONG: {explored.wrong}"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

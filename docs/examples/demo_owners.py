"""A nightly job and people in the same documents: each keeps what it wrote.

Every night, the job applies what it knows about packages. In between, people describe packages and
correct them. In the second night, packages have new versions, the job no longer sends one member,
and two packages are gone. By then, one leaf belongs to a person, so the job gets a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.table import Table

import patching
import patching.ownership
from patching.client import Catalog, Conflict, Gateway, contested
from patching.client.results import ContestedLeaf

PACKAGES: Final = "packages"
JOB: Final = "nightly"
CORRECTED: Final = "pool/curl"
NOTED: Final = "pool/ftp"
GONE: Final = "pool/gzip"
_NAMES: Final = ("bash", "curl", "dash", "ftp", "gawk", "git", "grep", "gzip", "htop", "jq", "tar")

Package = dict[str, Any]


@dataclass(slots=True)
class Night:
    """A run of the job: how many documents it changed, and which leaves were contested."""

    changed: int = 0
    unchanged: int = 0
    left: int = 0
    contested: dict[str, tuple[ContestedLeaf, ...]] = field(default_factory=dict)


def first_night() -> dict[str, Package]:
    return {
        f"pool/{name}": {
            "version": "1.0",
            "maintainer": {"name": "Debian QA", "email": "qa@example.org"},
            "depends": ["libc6"],
            "priority": "optional",
        }
        for name in _NAMES
    }


def second_night() -> dict[str, Package]:
    """Two packages are gone, and people wrote a note on one of them; all others have a new version
    and no priority any more."""
    packages = first_night()
    del packages[GONE], packages[NOTED]
    for package in packages.values():
        package["version"] = "1.1"
        del package["priority"]
    return packages


def by_people() -> dict[str, Package]:
    """Return the merge patches that people send, by key."""
    described = {
        f"pool/{name}": {"description": f"what {name} is for", "contact": {"team": "platform"}}
        for name in _NAMES[::2]
    }
    corrected = {CORRECTED: {"maintainer": {"name": "Curl team"}}}
    return {**described, **corrected, NOTED: {"note": "replaced by sftp"}}


def run_night(
    catalog: Catalog,
    packages: Mapping[str, Package],
    last: Mapping[str, Package],
    conflict: patching.ownership.OnConflict = "refuse",
) -> Night:
    """Run the job: apply ``packages``, and let go of those that only ``last`` has."""
    night = Night()
    for key, package in packages.items():
        try:
            written = catalog.apply(key, package, manager=JOB, conflict=conflict)
        except Conflict as error:
            night.contested[key] = contested(error)
        else:
            night.changed += written.changed
            night.unchanged += not written.changed
    for key in last.keys() - packages.keys():
        night.left += catalog.let_go(key, manager=JOB, prune=True).changed
    return night


def show_owners(gateway: Gateway, console: Console) -> list[str]:
    """Run both nights and the day between, and print what happens; return a line for each fault."""
    catalog = gateway.catalog(PACKAGES)
    table = Table(title="A nightly job and people in the same documents")
    for column in ("", "changed", "unchanged", "let go of", "refused"):
        table.add_column(column, justify="right" if column else "left")

    def row(step: str, night: Night) -> None:
        counts = (night.changed, night.unchanged, night.left, len(night.contested))
        table.add_row(step, *map(str, counts))

    first, packages = first_night(), second_night()
    row("first night", run_night(catalog, first, {}))
    people = by_people()
    for key, members in people.items():
        catalog.merge(key, members)
    row(f"{len(people)} packages described by people", Night(changed=len(people)))
    second = run_night(catalog, packages, first)
    row("second night", second)
    resolved = run_night(catalog, packages, packages, "skip")
    row("again, and what is theirs stays theirs", resolved)
    again = run_night(catalog, packages, packages, "skip")
    row("once more", again)
    console.print(table)
    for key, leaves in second.contested.items():
        for leaf in leaves:
            owner = leaf.owners[0]
            console.print(
                f"{key} {leaf.pointer}: {leaf.value!r} is {owner.manager}'s since revision"
                f" {owner.since}, {JOB} wants {leaf.wanted!r}",
                markup=False,
            )
    return faults(catalog, second, again)


def faults(catalog: Catalog, second: Night, again: Night) -> list[str]:
    """Return a line for whatever isn't as both sides want it."""
    found = []
    met = {key: [leaf.pointer for leaf in leaves] for key, leaves in second.contested.items()}
    if met != {CORRECTED: ["/maintainer/name"]}:
        found.append(f"the second night is refused for {met}")
    if again.changed or again.left:
        found.append(f"once more, the same night changes {again.changed + again.left} documents")
    expected: dict[str, Any] = {key: dict(package) for key, package in second_night().items()}
    for key, members in by_people().items():
        expected[key] = patching.merge(expected.get(key, {}), members)
    there = {document.key: document.value for document in catalog.documents(prefix="pool/")}
    for key in sorted(there.keys() | expected.keys()):
        if there.get(key) != expected.get(key):
            found.append(f"{key} is {there.get(key)}, wanted was {expected.get(key)}")
    return found

"""What other systems publish of themselves, to be read beside absolute figures: other machines,
other sizes, other promises. Each with its source."""

from __future__ import annotations

from benchmarks.results import Table

_LIMITS = (
    (
        "etcd, three members, the whole cluster",
        "more than 30,000 requests/s under heavy load",
        "https://etcd.io/docs/v3.6/op-guide/performance/",
    ),
    (
        "DynamoDB, one partition",
        "1,000 writes/s of 1 KB",
        "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/"
        "bp-partition-key-design.html",
    ),
    (
        "Firestore, one document",
        "1 write/s (quota of 2019; today's page names no number)",
        "https://web.archive.org/web/20190411040400/https://firebase.google.com/docs/firestore/quotas",
    ),
    (
        "FoundationDB, one core, SSD engine",
        "20,000 writes/s of 8 to 100 bytes, many at a time",
        "https://apple.github.io/foundationdb/performance.html",
    ),
)


def limits() -> Table:
    return Table("Published by others", ("system", "limit", "source"), _LIMITS)

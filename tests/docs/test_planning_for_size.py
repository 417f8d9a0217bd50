"""What operations.md says of large jobs is what the simulations say."""

from __future__ import annotations

from benchmarks.planning import ENTRY_BYTES, WINDOW, missed, turns
from gateway.http.routes import bulk
from tests.docs.pages import DOCS, Page

TEXT = Page(DOCS / "operations.md").text.partition("### Planning for size")[2].partition("###")[0]


def rows(first: str) -> list[list[str]]:
    lines = TEXT.partition(f"| {first} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_turns_longer_than_the_timeout_block_everything() -> None:
    assert WINDOW == bulk._WINDOW_LINES_MIN
    for tasks, fast, slow, short, long in rows("tasks at once"):
        streams = int(tasks.replace(",", ""))
        assert [fast, slow] == [f"{streams * WINDOW / rate:.0f} s" for rate in (5_000, 2_500)]
        for rate in (5_000, 2_500):
            found = turns(streams, 60, rate, lines_each=200)
            expected = streams * WINDOW / rate < 60
            assert (found.useful > 0.99) is expected
            assert (found.useful < 0.4) is not expected
            assert expected or "nothing" in short
            assert turns(streams, 300, rate, lines_each=200).useful == 1
        assert long == "good"


def test_keys_that_do_not_fit_into_the_cache_cost_a_page_each() -> None:
    for (told, index, *shares), keys in zip(
        rows("rows in the time that keys are kept"), (10_000_000, 100_000_000), strict=True
    ):
        assert told == f"{keys // 1_000_000} million"
        assert abs(float(index.split()[0]) - keys * ENTRY_BYTES / 0.67 / 1e9) < 0.2
        for share, cache in zip(shares, (0.25, 1, 4, 16), strict=True):
            scale = 100 if keys < 10**8 else 1_000
            assert abs(float(share) - missed(keys, int(cache * 1e9), scale=scale)) < 0.03

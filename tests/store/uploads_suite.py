"""What every store of uploads must do."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace

from gateway.store.contract import UploadPart, UploadRecord, UploadsHeld, UploadStore
from tests.store.retention_suite import race


def upload(name: str = "u1", **fields: object) -> UploadRecord:
    now_us = time.time_ns() // 1000
    made = UploadRecord(
        id=name,
        catalog="c",
        key="päth/k",
        principal="ann",
        terms={"if_match": ["1-a"], "$set": {"a.b": 2**62}, "message": None},
        created_us=now_us,
        expires_us=now_us + 3_600_000_000,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


class UploadsContract:
    """Subclasses give the fixture ``uploads``."""

    def test_an_upload_is_read_back_as_it_was_opened(self, uploads: UploadStore) -> None:
        made = upload()
        assert uploads.upload("c", "u1") is None
        uploads.create_upload(made)
        assert uploads.upload("c", "u1") == made
        assert uploads.upload("d", "u1") is None
        assert uploads.parts(made) == []

    def test_parts_are_listed_by_number(self, uploads: UploadStore) -> None:
        made, other = upload(), upload("u11")
        for number in (300, 2, 10, 0):
            content = b"\0\xff" * number
            digest = hashlib.sha256(content).hexdigest()
            assert uploads.put_part(made, number, content) == UploadPart(number, 2 * number, digest)
        uploads.put_part(other, 1, b"x")
        assert [part.number for part in uploads.parts(made)] == [0, 2, 10, 300]
        assert uploads.part_content(made, 2) == b"\0\xff\0\xff"
        assert uploads.part_content(made, 0) == b""
        assert uploads.part_content(made, 1) is None

    def test_a_part_replaces_the_one_with_its_number(self, uploads: UploadStore) -> None:
        made = upload()
        uploads.put_part(made, 1, b"old")
        new = uploads.put_part(made, 1, b"new one")
        assert uploads.parts(made) == [new]
        assert uploads.part_content(made, 1) == b"new one"

    def test_the_uploads_and_bytes_that_a_principal_holds_are_counted(
        self, uploads: UploadStore
    ) -> None:
        now_us = time.time_ns() // 1000
        assert uploads.held("ann", now_us) == (UploadsHeld(), UploadsHeld())
        anns = [upload(f"u{n}") for n in range(3)]
        odd = upload("u1", catalog="d", principal="$bob")
        late = upload("late", expires_us=now_us - 1)
        for each in (*anns, odd, late):
            uploads.create_upload(each)
            assert uploads.make_room(each, 1, 10, 100)
        assert uploads.make_room(anns[0], 2, 5, 100)
        assert uploads.held("ann", now_us) == (UploadsHeld(4, 45), UploadsHeld(3, 35))
        assert uploads.held("$bob", now_us) == (UploadsHeld(4, 45), UploadsHeld(1, 10))
        assert uploads.held("eve", now_us) == (UploadsHeld(4, 45), UploadsHeld())
        uploads.end_upload(anns[0])
        assert uploads.upload("c", "u0") == replace(anns[0], is_open=False)
        uploads.drop_upload(anns[1])
        assert uploads.held("ann", now_us) == (UploadsHeld(2, 20), UploadsHeld(1, 10))

    def test_room_is_granted_within_the_bound(self, uploads: UploadStore) -> None:
        made, gone = upload(), upload("u2")
        uploads.create_upload(made)
        assert uploads.make_room(made, 1, 6, 10)
        assert not uploads.make_room(made, 2, 5, 10)
        assert uploads.make_room(made, 2, 4, 10)
        # The largest counts that may be there.
        assert uploads.make_room(made, 1, 1, 10)
        assert not uploads.make_room(made, 2, 5, 10)
        assert uploads.held("ann", made.created_us)[1] == UploadsHeld(1, 10)
        assert not uploads.make_room(gone, 1, 1, 10)
        uploads.end_upload(made)
        assert not uploads.make_room(made, 1, 1, 10)

    def test_racing_requests_for_room_get_no_more_than_there_is(self, uploads: UploadStore) -> None:
        made = upload()
        uploads.create_upload(made)
        asked = [lambda n=n: uploads.make_room(made, n, 3, 10) for n in range(8)]
        assert sum(race(*asked)) == 3

    def test_a_part_put_many_times_at_once_is_there_once(self, uploads: UploadStore) -> None:
        made = upload()
        contents = [bytes([n]) * 1000 for n in range(8)]
        puts = [lambda c=c: uploads.put_part(made, 1, c).size_bytes == 1000 for c in contents]
        assert race(*puts) == [True] * 8
        (part,) = uploads.parts(made)
        content = uploads.part_content(made, 1)
        assert content in contents
        assert part.sha256 == hashlib.sha256(content).hexdigest()

    def test_a_large_part_fits(self, uploads: UploadStore) -> None:
        made, content = upload(), b"x" * (12 * 1024 * 1024)
        uploads.put_part(made, 1, content)
        assert uploads.part_content(made, 1) == content

    def test_an_upload_is_dropped_with_its_parts(self, uploads: UploadStore) -> None:
        made, other = upload(), upload("u11")
        for each in (made, other):
            uploads.create_upload(each)
            uploads.put_part(each, 1, b"x")
        uploads.drop_upload(made)
        uploads.drop_upload(made)
        assert uploads.upload("c", "u1") is None
        assert uploads.parts(made) == []
        assert uploads.upload("c", "u11") == other
        assert len(uploads.parts(other)) == 1

    def test_ending_a_dropped_upload_does_not_re_create_it(self, uploads: UploadStore) -> None:
        uploads.create_upload(made := upload())
        uploads.drop_upload(made)
        uploads.end_upload(made)
        assert uploads.upload(made.catalog, made.id) is None

    def test_unexpired_uploads_are_counted(self, uploads: UploadStore) -> None:
        """To the second: what a database keeps of a time may be less than a microsecond."""
        made = upload()
        earlier_us, later_us = made.expires_us - 1_000_000, made.expires_us + 1_000_000
        before = uploads.count_uploads(earlier_us)
        uploads.create_upload(made)
        assert uploads.count_uploads(earlier_us) == before + 1
        assert uploads.count_uploads(later_us) == 0
        uploads.drop_upload(made)
        assert uploads.count_uploads(earlier_us) == before

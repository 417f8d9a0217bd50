"""Why an upload is refused: errors of the tree in ``gateway.errors``."""

from __future__ import annotations

from gateway.conflict import Conflict
from gateway.errors import CommitError, PreconditionFailed


class UploadConflict(PreconditionFailed):
    code = "upload_conflict"

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(conflict)
        self.detail = f"the document changed since the upload was opened: {self.detail}"


class UploadNotFound(CommitError):
    code = "upload_not_found"

    def __init__(self, upload_id: str) -> None:
        super().__init__(f"there is no upload {upload_id!r}; it may have expired")


class UploadIncomplete(CommitError):  # ``part``: the first one missing, None where all are
    code = "upload_incomplete"

    def __init__(self, part: int | None) -> None:
        missing = "it has no parts" if part is None else f"part {part} is missing"
        super().__init__(f"the upload can't be committed: {missing}")
        self.part = part


class UploadCommitted(CommitError):
    code = "upload_committed"

    def __init__(self, upload_id: str) -> None:
        super().__init__(f"upload {upload_id!r} was committed; it takes no more parts")


class TooManyUploads(CommitError):  # ``holder``: whose share is used up, if it is that
    code = "too_many_uploads"
    retryable = True

    def __init__(self, setting: str, maximum: int, holder: str | None = None) -> None:
        detail = f"open uploads can't come to more than {maximum} in all"
        if holder is not None:
            detail = f"principal {holder!r} holds as much of open uploads as it leaves to others"
        super().__init__(f"{detail} ({setting}); commit or drop some, or wait until they expire")

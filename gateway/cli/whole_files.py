"""Files that commands write whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import click

Write = Callable[[bytes], object]


@contextmanager
def whole_file(path: Path, *, is_new: bool = False) -> Iterator[BinaryIO]:
    """A file of a name of its own, which takes its place at ``path`` at the end of the block.

    ``is_new``: it takes no other file's place; UsageError where there is one by then.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise click.ClickException(f"can't write beside {str(path)!r}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        (_take_free_name if is_new else os.replace)(name, path)
        _keep_names(path.parent)
    except FileExistsError as error:
        raise click.UsageError(f"there is a file {str(path)!r}") from error
    except OSError as error:
        raise click.ClickException(f"can't write {str(path)!r}: {error.strerror}") from error
    finally:
        with suppress(FileNotFoundError):  # it has taken its place
            os.unlink(name)


def _take_free_name(name: str, path: Path) -> None:
    """Raises FileExistsError."""
    try:
        os.link(name, path)
    except FileExistsError:
        raise
    except OSError as error:  # a file system without links
        if path.exists():
            raise FileExistsError(str(path)) from error
        os.replace(name, path)


def _keep_names(folder: Path) -> None:
    """Have the names in a folder outlast a loss of power, where its file system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    """The umask, which gives the temporary file, made for its owner only, an ordinary mode."""
    mask = os.umask(0)
    os.umask(mask)
    return mask

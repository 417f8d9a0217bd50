"""The files of TLS, and a worker that follows them: a renewed certificate needs no restart.

Whoever renews writes two files, one after the other, so what doesn't fit together for a moment is
only waited out. What stays unusable is said once, and the last usable context stays.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from gunicorn.config import Config

_log = logging.getLogger(__name__)

_Stamp = tuple[tuple[int, int, int] | None, ...]


class CertificateUnusable(Exception):
    """TLS can't be served with the file at ``path``. ``reason`` says why, in words."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"can't use {path} for TLS: {reason}")


def require_usable(certificate: Path, key: Path, client_ca: Path | None) -> None:
    """Raise CertificateUnusable for files that no TLS can be served with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tried = certificate
    try:
        tried.read_bytes()
        context.load_cert_chain(tried, key, _no_password)
        if client_ca is not None:
            tried = client_ca
            context.load_verify_locations(tried)
    except (OSError, ValueError) as error:
        raise CertificateUnusable(tried, getattr(error, "strerror", None) or error) from error


def _no_password() -> str:
    raise ValueError("it is encrypted")


class CertificateFiles:
    """Those of a worker. ``make`` makes a context of them."""

    def __init__(self, config: Config, make: Callable[[Config], ssl.SSLContext]) -> None:
        self._config = config
        self._make = make
        self._stamp: _Stamp = ()
        self._seen: _Stamp = ()
        self._is_said = False

    def context(self) -> ssl.SSLContext:
        """That of the files as they are. Raises OSError and ValueError."""
        # What is renewed while they are read is seen by the next look.
        stamp = self._look()
        made = self._make(self._config)
        self._stamp = self._seen = stamp
        return made

    def renewed(self) -> ssl.SSLContext | None:
        """A new context where they have changed since. Blocks for as long as it takes to stat three
        files."""
        stamp = self._look()
        if stamp != self._seen:  # they may still be written
            self._seen, self._is_said = stamp, False
            return None
        if stamp == self._stamp or self._is_said:
            return None
        certificate, key, *rest = self._files()
        try:
            require_usable(certificate, key, rest[0] if rest else None)
            made = self.context()
        except (CertificateUnusable, OSError, ValueError) as error:
            self._is_said = True
            _log.error("%s; the previous certificate stays in use", error)
            return None
        _log.warning("the files of TLS have changed: new connections use %s", certificate)
        return made

    def _files(self) -> Sequence[Path]:
        config = self._config
        return [Path(each) for each in (config.certfile, config.keyfile, config.ca_certs) if each]

    def _look(self) -> _Stamp:
        return tuple(map(_stamp, self._files()))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino

"""The files of TLS, which a worker watches: a renewed certificate needs no restart.

Two files are renewed one after the other, so for a moment they may not fit together: then the
worker just waits. If they stay unusable, it logs that once, and keeps the last usable context.
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
    """TLS can't be served with the file at ``path``; ``reason`` says why."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"can't use {path} for TLS: {reason}")


def require_usable(certificate: Path, key: Path, client_ca: Path | None) -> None:
    """Raise CertificateUnusable for files with which TLS can't be served."""
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
    """The files of TLS of one worker. ``make`` makes a context from them."""

    def __init__(self, config: Config, make: Callable[[Config], ssl.SSLContext]) -> None:
        self._config = config
        self._make = make
        self._stamp: _Stamp = ()
        self._last_stamp: _Stamp = ()
        self._is_said = False

    def context(self) -> ssl.SSLContext:
        """A context of the present files. Raises CertificateUnusable, OSError and ValueError."""
        # Stamped first, so that a file that is renewed meanwhile is noticed the next time.
        stamp = self._read_stamp()
        certificate, key, *rest = self._files()
        require_usable(certificate, key, rest[0] if rest else None)
        made = self._make(self._config)
        self._stamp = self._last_stamp = stamp
        return made

    def renewed(self) -> ssl.SSLContext | None:
        """A new context if the files have changed since; else None. Blocks while it stats them."""
        stamp = self._read_stamp()
        if stamp != self._last_stamp:  # they may still be being written
            self._last_stamp, self._is_said = stamp, False
            return None
        if stamp == self._stamp or self._is_said:
            return None
        try:
            made = self.context()
        except (CertificateUnusable, OSError, ValueError) as error:
            self._is_said = True
            _log.error("%s; the previous certificate stays in use", error)
            return None
        certificate = self._files()[0]
        _log.warning("the TLS files have changed: new connections use %s", certificate)
        return made

    def _files(self) -> Sequence[Path]:
        config = self._config
        return [Path(each) for each in (config.certfile, config.keyfile, config.ca_certs) if each]

    def _read_stamp(self) -> _Stamp:
        return tuple(map(_stamp, self._files()))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino

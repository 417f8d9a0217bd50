"""An issuer of JWTs: keys, the key set that it shows on the web, and tokens, good and bad."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.patience import WAIT_S

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "metadata-gateway"

_MAKERS: Final[dict[str, Callable[[], Any]]] = {
    "RS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


class Key:
    def __init__(self, key_id: str, algorithm: str = "ES256") -> None:
        self.id = key_id
        self.algorithm = algorithm
        self.private = _MAKERS[algorithm]()

    def public_pem(self) -> bytes:
        public = self.private.public_key()
        pem: bytes = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return pem

    def as_jwk(self) -> dict[str, Any]:
        made = jwt.get_algorithm_by_name(self.algorithm).to_jwk(self.private.public_key(), True)
        return {**made, "kid": self.id, "use": "sig", "alg": self.algorithm}


def claims(**changed: Any) -> dict[str, Any]:
    """Those of a good token, changed; None leaves one out."""
    now_s = int(time.time())
    made = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ann",
        "iat": now_s,
        "exp": now_s + 600,
        "grants": ["write:shop/*"],
        **changed,
    }
    return {name: value for name, value in made.items() if value is not None}


def token(key: Key, *, header: dict[str, Any] | None = None, **changed: Any) -> str:
    named = {"kid": key.id, **(header or {})}
    named = {name: value for name, value in named.items() if value is not None}
    return jwt.encode(claims(**changed), key.private, key.algorithm, headers=named)


class Issuer:
    """Serves ``body`` at ``url``, and counts the requests for it."""

    def __init__(self, *keys: Key) -> None:
        self.url = ""
        self.status = 200
        self.fetches = 0
        self.body = b""
        self.answers = threading.Event()
        self.answers.set()
        # Instead of an answer: what it begins with, and what it repeats until it stops.
        self.drips: tuple[bytes, bytes] | None = None
        self.stops = threading.Event()
        self.dripped_bytes = 0
        self.show(*keys)

    def show(self, *keys: Key) -> None:
        self.body = json.dumps({"keys": [key.as_jwk() for key in keys]}).encode()

    @contextmanager
    def serving(self) -> Iterator[Issuer]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.fetches += 1
                issuer.answers.wait(WAIT_S)
                if issuer.drips is not None:
                    self.drip(*issuer.drips)
                    return
                self.send_response(issuer.status)
                if issuer.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(issuer.body)))
                self.end_headers()
                self.wfile.write(issuer.body)

            def drip(self, start: bytes, piece: bytes) -> None:
                with suppress(OSError):  # who asked is gone
                    self.wfile.write(start)
                    while not issuer.stops.is_set():
                        self.wfile.write(piece)
                        if len(piece) < 1024:
                            issuer.stops.wait(0.01)
                        else:
                            issuer.dripped_bytes += len(piece)

            def log_message(self, *_: Any) -> None: ...

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
            serving.start()
            self.url = f"http://127.0.0.1:{server.server_address[1]}/keys"
            try:
                yield self
            finally:
                self.stops.set()
                server.shutdown()
                serving.join()

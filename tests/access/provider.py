"""A provider of OpenID Connect, as Authlib makes one: codes only with PKCE, tokens only for codes.

Whoever gives a name is let in by it. Access tokens are opaque, as those of many providers; the ID
token is a JWT for the client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import OpenIDCode, UserInfo
from flask import Flask, Response, jsonify, redirect, request
from joserfc.jwk import RSAKey
from werkzeug.serving import make_server

_FORM = """<!doctype html><title>Provider</title><form method="post">
<label>Who are you? <input name="name" autofocus></label>
<button name="answer" value="yes">Let me in</button>
<button name="answer" value="no">I won't say</button></form>"""


@dataclass
class _Client(ClientMixin):  # type: ignore[misc]
    id: str
    secret: str | None
    redirect_uri: str

    def get_client_id(self) -> str:
        return self.id

    def get_default_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri == self.redirect_uri

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == self.secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        del endpoint
        return (method == "none") == (self.secret is None)

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


@dataclass
class _Code:
    code: str
    name: str
    redirect_uri: str
    scope: str
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> None: ...

    def get_auth_time(self) -> None: ...

    def get_acr(self) -> None: ...

    def get_amr(self) -> None: ...


@dataclass
class Provider:
    """``claims`` of the ID token, by who signs in."""

    client_id: str = "gateway-console"
    client_secret: str | None = None
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    lifetime_s: int = 600
    url: str = ""
    redirect_uri: str = ""
    ended: int = 0
    # By name; None: the provider is away.
    metadata: dict[str, Any] | None = field(default_factory=dict)
    _codes: dict[str, _Code] = field(default_factory=dict)
    _key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}))

    @contextmanager
    def serving(self) -> Iterator[Provider]:
        server = make_server("127.0.0.1", 0, self._app(), threaded=True)
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def _app(self) -> Flask:
        provider = self
        app = Flask("provider")
        client = _Client(self.client_id, self.client_secret, "")

        def query_client(client_id: str) -> _Client | None:
            client.redirect_uri = provider.redirect_uri
            return client if client_id == client.id else None

        server = AuthorizationServer(app, query_client=query_client, save_token=lambda *_: None)

        class CodeGrant(grants.AuthorizationCodeGrant):  # type: ignore[misc]
            TOKEN_ENDPOINT_AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post")

            def save_authorization_code(self, code: str, asked: Any) -> None:
                data = asked.payload.data
                provider._codes[code] = _Code(
                    code,
                    asked.user,
                    asked.payload.redirect_uri,
                    asked.payload.scope,
                    data["code_challenge"],
                    data["code_challenge_method"],
                )

            def query_authorization_code(self, code: str, client: _Client) -> _Code | None:
                del client
                return provider._codes.get(code)

            def delete_authorization_code(self, authorization_code: _Code) -> None:
                del provider._codes[authorization_code.code]

            def authenticate_user(self, authorization_code: _Code) -> str:
                return authorization_code.name

        class IdToken(OpenIDCode):  # type: ignore[misc]
            def exists_nonce(self, *_: Any) -> bool:
                return False

            def resolve_client_private_key(self, client: _Client) -> RSAKey:
                del client
                return provider._key

            def get_encode_header(self, client: _Client) -> dict[str, str]:
                del client
                return {"alg": "RS256", "kid": "one"}

            def get_client_claims(self, client: _Client) -> dict[str, Any]:
                return {
                    "iss": provider.url,
                    "aud": client.id,
                    "exp": int(time.time()) + provider.lifetime_s,
                }

            def generate_user_info(self, user: str, scope: str) -> UserInfo:
                del scope
                return UserInfo(sub=user, **provider.claims.get(user, {}))

        server.register_grant(CodeGrant, [IdToken(), CodeChallenge(required=True)])

        @app.get("/.well-known/openid-configuration")
        def discovery() -> tuple[Response, int]:
            if provider.metadata is None:
                return jsonify({}), 503
            told = {
                "issuer": provider.url,
                "authorization_endpoint": f"{provider.url}/authorize",
                "token_endpoint": f"{provider.url}/token",
                "end_session_endpoint": f"{provider.url}/end",
            }
            return jsonify({**told, **provider.metadata}), 200

        @app.get("/keys")
        def keys() -> Response:
            return jsonify({"keys": [provider._key.as_dict(private=False, use="sig")]})

        @app.route("/authorize", methods=["GET", "POST"])
        def authorize() -> Any:
            if request.method == "GET":
                return _FORM
            user = request.form["name"] if request.form["answer"] == "yes" else None
            return server.create_authorization_response(
                server.get_consent_grant(end_user=user), grant_user=user
            )

        @app.post("/token")
        def token() -> Any:
            return server.create_token_response()

        @app.get("/end")
        def end() -> Any:
            provider.ended += 1
            return redirect(request.args["post_logout_redirect_uri"])

        return app

"""The ceiling of the web server: parses a patch from a request, returns a small JSON."""

from __future__ import annotations

from flask import Flask, Response, jsonify, request

application = Flask(__name__)


@application.patch("/v1/catalogs/<catalog>/documents/<path:key>")
def patch(catalog: str, key: str) -> Response:
    operations = request.get_json(force=True)  # the media type is application/json-patch+json
    return jsonify(catalog=catalog, key=key, operations=len(operations))

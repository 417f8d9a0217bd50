"""The ceiling of a read: a plain Flask application whose GET is one `find_one`.

Environment: BENCHMARK_MONGODB_URI, BENCHMARK_DATABASE.
"""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, Response, abort, jsonify
from pymongo import MongoClient

application = Flask(__name__)
_client = MongoClient[dict[str, Any]](os.environ["BENCHMARK_MONGODB_URI"])
_documents = _client[os.environ["BENCHMARK_DATABASE"]].documents


@application.get("/documents/<path:key>")
def get(key: str) -> Response:
    found = _documents.find_one({"_id": key})
    if found is None:
        abort(404)
    return jsonify(found["content"])

"""Compare-and-set as one would write it in an afternoon: plain Flask, GET and PUT If-Match.

Environment: BENCHMARK_MONGODB_URI, BENCHMARK_DATABASE.
"""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, Response, abort, jsonify, request
from pymongo import MongoClient, WriteConcern

application = Flask(__name__)
_client = MongoClient[dict[str, Any]](os.environ["BENCHMARK_MONGODB_URI"])
_documents = _client[os.environ["BENCHMARK_DATABASE"]].get_collection(
    "documents", write_concern=WriteConcern(w="majority", j=True)
)


@application.get("/documents/<path:key>")
def get(key: str) -> Response:
    found = _documents.find_one({"_id": key})
    if found is None:
        abort(404)
    answer = jsonify(found["content"])
    answer.set_etag(str(found["version"]))
    return answer


@application.put("/documents/<path:key>")
def put(key: str) -> Response:
    """Replace the document if its version is the one of If-Match; without If-Match, always."""
    content = request.get_json()
    if not request.if_match:
        new = {"version": 1, "content": content}
        _documents.replace_one({"_id": key}, new, upsert=True)
        return _written(1)
    version = int(next(iter(request.if_match)))
    result = _documents.replace_one(
        {"_id": key, "version": version}, {"version": version + 1, "content": content}
    )
    if result.matched_count == 0:
        abort(412)
    return _written(version + 1)


def _written(version: int) -> Response:
    answer = jsonify(version=version)
    answer.set_etag(str(version))
    return answer

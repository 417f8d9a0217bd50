"""How large a request and its parts may be; meaning and defaults: ``gateway.settings``."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What is checked before a request reaches ``gateway.commits``. Sizes are in bytes.

    ``watch_bookmark_s`` is about event streams, ``send_stall_s`` about answers to bulk requests.
    """

    body_bytes_max: int = 8 * MIB
    document_bytes_max: int = 4 * MIB
    depth_max: int = 100
    body_values_max: int = 2**19
    key_bytes_max: int = 1024
    catalog_name_bytes_max: int = 512
    transaction_actions_max: int = 4096
    watch_bookmark_s: int = 10
    send_stall_s: int = 30
    bulk_line_bytes_max: int = 8 * MIB
    bulk_answers_bytes_max: int = 256 * MIB
    bulk_refused_lines_max: int = 1000

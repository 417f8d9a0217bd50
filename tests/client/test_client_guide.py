"""The guide's program runs as it is printed."""

from __future__ import annotations

import re
from typing import Any

from tests.service import RunningGateway
from tests.test_layers import ROOT

_GUIDE = ROOT / "docs" / "client.md"


def test_the_examples_of_the_guide_run_one_after_the_other(service: RunningGateway) -> None:
    text = _GUIDE.read_text()
    blocks = list(re.finditer(r"(?ms)^```python\n(.*?)^```$", text))
    assert len(blocks) >= 7
    names: dict[str, Any] = {"url": service.url, "token": None}
    try:
        for block in blocks:
            line = text.count("\n", 0, block.start(1))
            code = compile("\n" * line + block[1], str(_GUIDE), "exec")
            exec(code, names)
    finally:
        for each in ("gateway", "patient", "once"):
            if each in names:
                names[each].close()
    assert names["contents"]["customers"] == {"tier": 1}
    assert names["result"].changed

"""Dashboard, alerts and manifest speak of metrics, settings and routes that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.http.wire.codes import KINDS
from gateway.metrics.definitions import METRICS
from gateway.settings import SETTINGS
from gateway.settings.table import PREFIX
from tests.patience import RUN_S

DOCS = Path(__file__).resolve().parents[2] / "docs"
FILES = DOCS / "operations"
SERIES = {name: metric for metric in METRICS for name in metric.series}
DEFAULTS = {row.variable: row for row in SETTINGS}
# What Prometheus adds to every series.
TARGET_LABELS = {"job", "instance"}


def dashboard() -> Any:
    return json.loads((FILES / "grafana-dashboard.json").read_text())


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@cache
def kubernetes() -> dict[str, Any]:
    """What the example puts together, by kind: as `kubectl` does it, or where that isn't there, the
    resources as they are written."""
    example = FILES / "kubernetes" / "example"
    if (kubectl := shutil.which("kubectl")) is None:
        texts = "---\n".join(path.read_text() for path in _resources(example))
    else:
        rendered = subprocess.run(
            (kubectl, "kustomize", str(example)), capture_output=True, text=True, timeout=RUN_S
        )
        assert rendered.returncode == 0, rendered.stderr
        texts = rendered.stdout
    return {each["kind"]: each for each in yaml.safe_load_all(texts)}


def _resources(folder: Path) -> Iterator[Path]:
    """The manifests that a kustomization is made of."""
    made_of = yaml.safe_load((folder / "kustomization.yaml").read_text())
    for name in (*made_of.get("resources", ()), *made_of.get("components", ())):
        if (folder / name).is_dir():
            yield from _resources(folder / name)
        else:
            yield folder / name


def container() -> Any:
    return kubernetes()["Deployment"]["spec"]["template"]["spec"]["containers"][0]


def expressions() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]
    yield from (rule["expr"] for rule in alerts())


def test_the_memory_alert_fires_below_the_limit_of_the_manifest() -> None:
    """It was about one worker, and two of them ended below it."""
    (rule,) = (each for each in alerts() if each["alert"] == "GatewayMemoryHigh")
    found = re.fullmatch(
        r"sum by \(instance\) \(gateway_worker_resident_bytes\) > (\S+)", rule["expr"]
    )
    assert found is not None
    assert 0.7 < float(found[1]) / memory_limit() < 0.85


def test_the_limit_of_the_manifest_covers_what_its_workers_take_at_the_worst() -> None:
    set_there = {each["name"]: each["value"] for each in container()["env"] if "value" in each}
    (table,) = re.findall(
        r"(?s)\| a worker takes for \|.*?\n\n", (DOCS / "operations.md").read_text()
    )
    a_worker = 0.0
    for row in table.strip().splitlines()[2:]:
        _, _, names, defaults, _ = row.split("|")
        for name, default in zip_longest(re.findall(r"`(\w+)`", names), numbers(defaults)):
            given = set_there.get(f"GATEWAY_{name}".upper(), f"{default}MiB")
            a_worker += float(given.removesuffix("MiB"))
    assert a_worker > 1000
    gateway = 100 + int(set_there["GATEWAY_WORKERS"]) * a_worker
    assert gateway < memory_limit() / 2**20 < 1.2 * gateway


def memory_limit() -> int:
    mebibytes: str = container()["resources"]["limits"]["memory"]
    return int(mebibytes.removesuffix("Mi")) << 20


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+", text)


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_expression_uses_existing_series_and_labels(expression: str) -> None:
    names = re.findall(r"\bgateway_\w+", expression)
    assert names
    assert set(names) <= SERIES.keys()
    assert expression.count("(") == expression.count(")")
    for name, matchers in re.findall(r"\b(gateway_\w+)\{(.*?)\}(?=[\[),\s]|$)", expression):
        labels = set(re.findall(r"(\w+)=~?\"", matchers))
        assert labels <= {*SERIES[name].labels, *TARGET_LABELS}, name
        for code in re.findall(r"code=~?\"([^\"]*)\"", matchers):
            assert set(code.split("|")) <= KINDS.keys()
    by = {
        label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")
    }
    known = {label for name in names for label in SERIES[name].labels}
    assert {label.strip() for label in by} <= known | TARGET_LABELS | {"le"}
    # A quantile is of buckets, and rates are of what only grows.
    for name in re.findall(r"histogram_quantile\([^g]*?(gateway_\w+)", expression):
        assert name.endswith("_bucket"), name
    for name in re.findall(r"(?:rate|increase)\((gateway_\w+)", expression):
        assert SERIES[name].kind in ("counter", "histogram"), name


def test_every_metric_is_on_the_dashboard() -> None:
    shown = set(re.findall(r"\bgateway_\w+", json.dumps(dashboard())))
    assert [metric.name for metric in METRICS if not shown.intersection(metric.series)] == []


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_every_alert_has_a_summary_and_a_runbook_section() -> None:
    headings = re.findall(r"^### (Gateway\w+)$", (DOCS / "operations.md").read_text(), re.M)
    assert sorted(headings) == sorted(rule["alert"] for rule in alerts())
    for rule in alerts():
        assert rule["labels"]["severity"] in ("warning", "critical")
        anchor = f"docs/operations.md#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook"] == anchor
        assert rule["annotations"]["summary"]


def test_the_manifest_sets_existing_settings_to_valid_values() -> None:
    for variable in container()["env"]:
        name = variable["name"]
        assert name.startswith(PREFIX)
        row = DEFAULTS[name.removesuffix("_FILE")]
        if not name.endswith("_FILE"):
            row.parse(variable["value"], name)


def test_the_manifest_takes_the_uri_from_a_secret() -> None:
    spec = kubernetes()["Deployment"]["spec"]["template"]["spec"]
    (secret,) = [each for each in spec["volumes"] if "secret" in each]
    (mount,) = [each for each in container()["volumeMounts"] if each["name"] == secret["name"]]
    (item,) = secret["secret"]["items"]
    given = {each["name"]: each["value"] for each in container()["env"]}
    assert given["GATEWAY_MONGODB_URI_FILE"] == f"{mount['mountPath']}/{item['path']}"
    assert "mongodb://" not in json.dumps(kubernetes())


def test_the_manifest_probes_livez_and_readyz() -> None:
    assert container()["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container()["readinessProbe"]["httpGet"]["path"] == "/readyz"
    settings = {each["name"]: each["value"] for each in container()["env"]}
    port = container()["ports"][0]
    assert settings["GATEWAY_BIND"].endswith(f":{port['containerPort']}")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        assert container()[probe]["httpGet"]["port"] == port["name"]
    assert kubernetes()["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]


def test_the_manifest_gives_the_gateway_time_to_finish() -> None:
    spec = kubernetes()["Deployment"]["spec"]["template"]["spec"]
    (settle,) = container()["lifecycle"]["preStop"]["exec"]["command"][1:]
    settings = {each["name"]: each["value"] for each in container()["env"]}
    needed = int(settle) + int(settings["GATEWAY_GRACEFUL_TIMEOUT_S"])
    assert spec["terminationGracePeriodSeconds"] > needed


def test_the_manifest_runs_without_privileges() -> None:
    spec = kubernetes()["Deployment"]["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001  # the image's
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    inner = container()["securityContext"]
    assert inner["readOnlyRootFilesystem"] is True
    assert inner["allowPrivilegeEscalation"] is False
    assert inner["capabilities"] == {"drop": ["ALL"]}
    writable = {
        each["mountPath"] for each in container()["volumeMounts"] if not each.get("readOnly")
    }
    assert writable == {"/tmp", "/dev/shm"}
    assert container()["resources"].keys() == {"requests", "limits"}


def test_the_ingress_and_the_monitor_lead_to_the_service() -> None:
    found = kubernetes()
    service, (rule,) = found["Service"], found["Ingress"]["spec"]["rules"]
    (port,) = service["spec"]["ports"]
    (path,) = rule["http"]["paths"]
    led = path["backend"]["service"]
    assert (led["name"], led["port"]["name"]) == (service["metadata"]["name"], port["name"])
    assert [rule["host"]] == found["Ingress"]["spec"]["tls"][0]["hosts"]
    monitor = found["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == (port["name"], "/metrics")
    secret = endpoint["authorization"]["credentials"]
    guide = (DOCS / "operations.md").read_text()
    assert f"secret generic {secret['name']} --from-literal={secret['key']}=" in guide


def test_the_ingress_timeouts_exceed_the_silence_of_the_gateway() -> None:
    """A feed says something every `watch_bookmark_s`, a write is decided within `deadline_ms`."""
    annotations = kubernetes()["Ingress"]["metadata"]["annotations"]
    silent_s = int(annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"])
    bookmark, deadline = DEFAULTS["GATEWAY_WATCH_BOOKMARK_S"], DEFAULTS["GATEWAY_DEADLINE_MS"]
    assert silent_s >= 2 * max(bookmark.make_default(), deadline.make_default() / 1000)
    assert annotations["nginx.ingress.kubernetes.io/proxy-next-upstream"] == "off"
    assert annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"


def test_every_folder_of_manifests_is_used_and_described() -> None:
    """By the example, so that the tests above are about all of them."""
    folder = FILES / "kubernetes"
    used = {path.resolve() for path in _resources(folder / "example")}
    there = {path for path in folder.rglob("*.yaml") if path.name != "kustomization.yaml"}
    assert used == there
    guide = (DOCS / "operations.md").read_text()
    for each in folder.iterdir():
        assert f"| `{each.name}` |" in guide


def test_the_manifest_selects_its_own_pods() -> None:
    found = kubernetes()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    for selector in (
        found["Service"]["spec"]["selector"],
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels


def test_the_page_names_the_critical_alerts() -> None:
    page = (DOCS / "operations.md").read_text()
    listed = page.partition("\n## Alerts\n")[2].partition("\n### ")[0]
    critical = {rule["alert"] for rule in alerts() if rule["labels"]["severity"] == "critical"}
    assert set(re.findall(r"`(Gateway\w+)`", listed)) == critical

"""A setting comes from its flag, else its variable, else its default; a wrong one is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.cli.main import main, settings_listing
from gateway.settings import SETTINGS, SettingError
from gateway.settings.kinds import MIB, Address, mask_uri
from gateway.settings.lookup import resolve, unknown_variables
from gateway.settings.table import REMOVED, flag_of, variable_of
from gateway.store.embedded import EmbeddedMongod

ROOT = Path(__file__).resolve().parent.parent
URI = "mongodb://writer:s3cret@a.example:27017,b.example/?replicaSet=rs"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("GATEWAY_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(("cores", "workers"), [(None, 1), (1, 1), (2, 1), (3, 2), (64, 2)])
def test_the_default_number_of_workers_depends_on_the_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, workers: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert resolve({}).settings.workers == workers


def test_a_flag_overrides_the_variable_and_the_variable_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert (resolve({}).settings.workers, resolve({}).sources["workers"]) == (2, "default")
    monkeypatch.setenv("GATEWAY_WORKERS", "3")
    by_variable = resolve({})
    assert by_variable.settings.workers == 3
    assert by_variable.sources["workers"] == "GATEWAY_WORKERS"
    by_flag = resolve({"workers": "4"})
    assert (by_flag.settings.workers, by_flag.sources["workers"]) == (4, "--workers")


def test_every_default_is_a_valid_value() -> None:
    settings = resolve({}).settings
    for row in SETTINGS:
        value = getattr(settings, row.name)
        if value is not None:
            assert row.parse(row.show(value), "default") == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bind", "8080"),
        ("bind", "127.0.0.1:65536"),
        ("bind", "a b:1"),
        ("bind", "::1:8080"),
        ("workers", "0"),
        ("workers", "two"),
        ("workers", "-1"),
        ("workers", "1_0"),
        ("workers", " 1"),
        ("workers", "²"),
        ("workers", ""),
        ("log_format", "xml"),
        ("mongodb_uri", "http://a.example"),
        ("mongodb_uri", "mongodb://"),
        ("database", "a.b"),
        ("database", ""),
        ("database", "ü" * 32),
        ("data_dir", ""),
        ("document_bytes_max", "4 MB"),
        ("document_bytes_max", "13MiB"),
        ("document_bytes_max", "-4MiB"),
        ("depth_max", "101"),
    ],
)
def test_a_wrong_value_is_refused_with_setting_source_and_allowed_values(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = next(row for row in SETTINGS if row.name == name)
    with pytest.raises(SettingError) as by_flag:
        resolve({name: text})
    monkeypatch.setenv(row.variable, text)
    with pytest.raises(SettingError) as by_variable:
        resolve({})
    for error, source in ((by_flag.value, row.flag), (by_variable.value, row.variable)):
        assert (error.setting, error.source) == (name, source)
        assert str(error).startswith(f"{source}: ")
        assert row.kind.allowed in str(error)
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "value"),
    [("4096", 4096), ("4KiB", 4096), ("4 KiB", 4096), ("3MiB", 3 * MIB)],
)
def test_sizes_are_bytes_or_binary_units(text: str, value: int) -> None:
    assert resolve({"document_bytes_max": text}).settings.document_bytes_max == value


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0.0.0.0:80", Address("0.0.0.0", 80)),
        ("[::1]:8080", Address("::1", 8080)),
        ("gateway.example:0", Address("gateway.example", 0)),
    ],
)
def test_addresses_are_parsed_and_shown_in_the_same_form(text: str, address: Address) -> None:
    assert resolve({"bind": text}).settings.bind == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["true", "1", "YES"])
def test_a_switch_can_be_set_by_its_variable(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_EMBEDDED", text)
    assert resolve({}).settings.embedded is True
    assert resolve({"embedded": False}).settings.embedded is False


def test_a_flag_for_one_mongodb_overrules_a_variable_for_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GATEWAY_MONGODB_URI", URI)
    embedded = resolve({"embedded": True})
    assert (embedded.settings.embedded, embedded.settings.mongodb_uri) == (True, None)
    assert embedded.sources["mongodb_uri"] == "overridden by --embedded"
    monkeypatch.setenv("GATEWAY_EMBEDDED", "true")
    by_uri = resolve({"mongodb_uri": URI})
    assert (by_uri.settings.embedded, by_uri.settings.mongodb_uri) == (False, URI)


def test_two_mongodb_settings_of_the_same_source_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SettingError, match="--embedded and --mongodb-uri"):
        resolve({"embedded": True, "mongodb_uri": URI})
    monkeypatch.setenv("GATEWAY_MONGODB_URI", URI)
    monkeypatch.setenv("GATEWAY_EMBEDDED", "true")
    with pytest.raises(SettingError, match="GATEWAY_EMBEDDED and GATEWAY_MONGODB_URI"):
        resolve({})


@pytest.mark.parametrize(
    "flags",
    [
        {"document_bytes_max": "9MiB"},
        {"batch_bytes_max": "3MiB"},
        {"body_bytes_max": "1MiB"},
        {"queue_bytes_max": "1MiB"},
    ],
)
def test_limits_that_contradict_each_other_are_refused(flags: dict[str, str]) -> None:
    (given,) = flags
    with pytest.raises(SettingError, match="must not be above") as refused:
        resolve(flags)
    assert refused.value.setting == given


def test_a_variable_can_name_a_file_with_the_value(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "uri"
    secret.write_text(URI + "\n")
    monkeypatch.setenv("GATEWAY_MONGODB_URI_FILE", str(secret))
    assert resolve({}).settings.mongodb_uri == URI
    monkeypatch.setenv("GATEWAY_MONGODB_URI_FILE", str(tmp_path / "absent"))
    with pytest.raises(SettingError, match="GATEWAY_MONGODB_URI_FILE"):
        resolve({})


def test_derived_settings_are_shown_with_their_effective_value() -> None:
    """It was - where the prefix follows from the issuer, and where there is none."""

    def shown(**flags: str) -> str:
        lines = settings_listing(resolve(flags)).splitlines()
        (line,) = (each for each in lines if each.startswith("jwt_subject_prefix "))
        return line.split()[1]

    issuer = {
        "jwt_issuer": "https://issuer.example",
        "jwt_audience": "gateway",
        "jwt_jwks_url": "https://issuer.example/keys",
    }
    assert shown() == "-"
    assert shown(**issuer) == "https://issuer.example#"
    assert shown(**issuer, jwt_subject_prefix="-") == '""'
    assert shown(**issuer, jwt_subject_prefix="sso:") == "sso:"


def test_the_connection_string_of_an_embedded_mongodb_is_shown(tmp_path: Path) -> None:
    def shown(**flags: Any) -> str:
        lines = settings_listing(resolve({"data_dir": str(tmp_path), **flags})).splitlines()
        (line,) = (each for each in lines if each.startswith("mongodb_uri "))
        return line.split()[1]

    assert shown() == "-"
    assert shown(embedded="true") == EmbeddedMongod(tmp_path).uri
    assert shown(mongodb_uri="mongodb://a.example") == "mongodb://a.example"


def test_credentials_are_never_shown() -> None:
    resolved = resolve({"mongodb_uri": URI})
    listing = settings_listing(resolved)
    assert "a.example:27017,b.example" in listing
    for text in (listing, repr(resolved), repr(resolved.settings)):
        assert "s3cret" not in text
        assert "writer" not in text
    with pytest.raises(SettingError) as refused:
        resolve({"mongodb_uri": "mongo://writer:s3cret@a.example"})
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("uri", "masked"),
    [
        ("mongodb://h/?a=b", "mongodb://h/?a=b"),
        ("mongodb+srv://u@h/db", "mongodb+srv://***@h/db"),
        (
            "mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:x&tls=true",
            "mongodb://h/?authMechanismProperties=***&tls=true",
        ),
        (
            "mongodb://h/?tls=true&tlscertificatekeyfilepassword=x",
            "mongodb://h/?tls=true&tlscertificatekeyfilepassword=***",
        ),
        ("mongodb://u:pass@word@h/", "***"),
        ("mongodb://u:p/w@h/", "***"),
        ("s3cret", "***"),
    ],
)
def test_masking_hides_everything_it_does_not_understand(uri: str, masked: str) -> None:
    assert mask_uri(uri) == masked


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_setting_is_refused_with_a_remedy(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = CliRunner().invoke(main, ["settings", flag_of(name), "4"])
    assert (ran.exit_code, ran.output.count("\n")) == (2, 1)
    assert f"{flag_of(name)}: {name} {REMOVED[name]}" in ran.output
    for variable in (variable_of(name), f"{variable_of(name)}_FILE"):
        with monkeypatch.context() as patched:
            patched.setenv(variable, "gevent")
            with pytest.raises(SettingError, match=f"^{variable}: {name} {REMOVED[name]}$"):
                resolve({})


def test_a_misspelt_variable_is_noticed_and_those_of_kubernetes_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GATEWAY_WORKRES", "4")
    monkeypatch.setenv("GATEWAY_PORT", "tcp://10.0.0.1:80")
    monkeypatch.setenv("GATEWAY_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("GATEWAY_TEST_MONGODB_URI", URI)
    assert unknown_variables() == [("GATEWAY_WORKRES", "GATEWAY_WORKERS")]


def test_the_data_directory_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert resolve({}).settings.data_dir == Path("/data/metadata-gateway/mongodb")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/somebody")
    expected = Path("/home/somebody/.local/share/metadata-gateway/mongodb")
    assert resolve({}).settings.data_dir == expected


def test_the_command_lists_every_setting_with_its_source() -> None:
    result = CliRunner().invoke(
        main, ["settings", "--deadline-ms", "2000"], env={"GATEWAY_LEADERS": "3"}
    )
    assert result.exit_code == 0
    rows = {line.split()[0]: re.split(r" {2,}", line) for line in result.output.splitlines()}
    assert set(rows) == {row.name for row in SETTINGS}
    assert rows["deadline_ms"] == ["deadline_ms", "2000", "--deadline-ms"]
    assert rows["leaders"] == ["leaders", "3", "GATEWAY_LEADERS"]
    assert rows["workers"][-1] == "default"


def test_every_setting_has_an_effect() -> None:
    """Something outside ``gateway.settings`` reads it, or names it as its limit's setting."""
    read = {
        name
        for path in (ROOT / "gateway").rglob("*.py")
        if "settings" not in path.parts
        for name in re.findall(r"""[."](\w+)""", path.read_text(encoding="utf-8"))
    }
    assert {row.name for row in SETTINGS} <= read


def test_the_serve_command_has_a_flag_for_every_setting() -> None:
    usage = CliRunner().invoke(main, ["serve", "--help"]).output
    for row in SETTINGS:
        assert row.flag in usage


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve"], "--mongodb-uri URI (or GATEWAY_MONGODB_URI)"),
        (["serve", "--workers", "0"], "--workers: workers must be an integer from 1 to 256"),
        (["serve", "--wrokers", "1"], "--wrokers"),
        (["server"], "server"),
    ],
)
def test_wrong_usage_is_one_line_on_stderr_and_exit_code_2(
    arguments: list[str], message: str
) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
def test_access_control_can_be_off_where_this_machine_alone_can_reach_it(host: str) -> None:
    assert resolve({"access": False, "bind": f"{host}:0"}).settings.access is False


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "[::]", "10.0.0.1", "gateway.example", "localhost.example", "127.0.0.1.nip.io"],
)
def test_access_control_cannot_be_off_on_a_reachable_address(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_ACCESS", "off")
    with pytest.raises(SettingError, match="GATEWAY_ACCESS: access control can't be off"):
        resolve({"bind": f"{host}:0"})
    assert resolve({"bind": f"{host}:0", "access": True}).settings.access is True
    result = CliRunner().invoke(main, ["serve", "--bind", f"{host}:0", "--embedded"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "access control can't be off" in result.stderr


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ({"tls_certificate": "c.pem"}, "tls_key"),
        ({"tls_key": "k.pem"}, "tls_certificate"),
        ({"tls_client_ca": "ca.pem"}, "tls_certificate"),
        ({"jwt_jwks_url": "https://a.example/jwks"}, "jwt_issuer"),
        ({"jwt_jwks_url": "https://a.example/jwks", "jwt_issuer": "a"}, "jwt_audience"),
        ({"jwt_audience": "a"}, "jwt_jwks_url"),
    ],
)
def test_a_setting_without_the_one_it_needs_is_refused(given: dict[str, str], needed: str) -> None:
    with pytest.raises(SettingError, match=f"has no effect without {needed}"):
        resolve(given)


@pytest.mark.parametrize("text", ["none", "HS256", "RS256,HS512", "", "RS256,RS256", "rs256"])
def test_symmetric_jwt_algorithms_are_refused(text: str) -> None:
    with pytest.raises(SettingError):
        resolve({"jwt_algorithms": text})
    assert resolve({"jwt_algorithms": "ES256, EdDSA"}).settings.jwt_algorithms == ("ES256", "EdDSA")


@pytest.mark.parametrize(
    "text",
    [
        "file:///etc/passwd",
        "ftp://a/",
        "https://",
        "https://u:p@a.example/",
        "http://a.example/jwks",
        "http://10.0.0.7/jwks",
        "http://localhost.a.example/jwks",
        "a.example",
        "https://a /",
    ],
)
def test_keys_are_fetched_only_by_http_or_https(text: str) -> None:
    with pytest.raises(SettingError, match="jwt_jwks_url must be"):
        resolve({"jwt_jwks_url": text, "jwt_issuer": "a", "jwt_audience": "b"})


@pytest.mark.parametrize("text", ["http://127.0.0.1:9/jwks", "http://[::1]/", "http://localhost/"])
def test_keys_may_be_fetched_by_plain_http_from_this_machine_only(text: str) -> None:
    given = {"jwt_jwks_url": text, "jwt_issuer": "a", "jwt_audience": "b"}
    assert resolve(given).settings.jwt_jwks_url == text

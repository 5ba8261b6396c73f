"""The Helm chart, rendered by Helm itself: valid for Kubernetes, and what it promises of secrets and networks."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from service.app import GRACEFUL_SECONDS
from service.settings import Settings
from worker.settings import WorkerSettings

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "tan-search"
HELM = shutil.which("helm")
KUBERNETES = "1.34"
GPU: dict[str, Any] = {
    "name": "gpu", "maxReplicas": 4, "gpus": 2, "cpus": 16, "memory": "64Gi", "sharedMemory": "16Gi"
}  # fmt: skip

pytestmark = pytest.mark.skipif(HELM is None, reason="needs helm on the PATH")

Document = dict[str, Any]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False)


def rendered(values: Document | None = None, *, folder: Path) -> list[Document]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values or {}))
    done = helm("template", "tan", str(CHART), "--namespace", "tan", "--values", str(file))
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> list[Document]:
    return rendered(
        {
            "storage": {"dataClaim": "datasets"},
            "ray": {"groups": [GPU]},
            "api": {
                "ingress": {"enabled": True, "host": "tan.example.org", "tlsSecret": "tan-tls"},
            },
        },
        folder=tmp_path_factory.mktemp("chart"),
    )


def of_kind(documents: list[Document], kind: str) -> list[Document]:
    return [document for document in documents if document["kind"] == kind]


def pods(documents: list[Document]) -> dict[str, Document]:
    """Pod templates by what they are for."""
    (ray,) = of_kind(documents, "RayCluster")
    of_ray = {"ray-head": ray["spec"]["headGroupSpec"]["template"]} | {
        f"ray-{group['groupName']}": group["template"] for group in ray["spec"]["workerGroupSpecs"]
    }
    return of_ray | {
        each["metadata"]["name"].removeprefix("tan-"): each["spec"]["template"]
        for kind in ("Deployment", "Job")
        for each in of_kind(documents, kind)
    }


def of_autoscaler(documents: list[Document]) -> Document:
    """What KubeRay is told of the container that it adds to the pod of Ray's head."""
    (ray,) = of_kind(documents, "RayCluster")
    options: Document = ray["spec"]["autoscalerOptions"]
    return options


def secrets(pod: Document) -> set[str]:
    """Names of the files with secrets that a pod sees."""
    return {
        item["path"]
        for volume in pod["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
        if "secret" in source
        for item in source["secret"]["items"]
    }


def variables(pod: Document) -> dict[str, str]:
    """The environment of a pod's only container; none is given twice."""
    (container,) = pod["spec"]["containers"]
    names = [each["name"] for each in container["env"]]
    assert len(names) == len(set(names)), names
    return {each["name"]: each["value"] for each in container["env"]}


def num_bytes(quantity: str) -> float:
    """Kubernetes' notation of bytes."""
    found = re.fullmatch(r"([0-9.]+)([kKMGT]?)(i?)", quantity)
    assert found, quantity
    number, unit, binary = found.groups()
    return float(number) * (1024 if binary else 1000) ** " KMGT".index(unit.upper() or " ")


def policy(documents: list[Document], name: str) -> Document:
    (found,) = (
        each["spec"]
        for each in of_kind(documents, "NetworkPolicy")
        if each["metadata"]["name"] == f"tan-{name}"
    )
    return found


def test_helm_finds_no_fault() -> None:
    done = helm("lint", "--strict", str(CHART))

    assert done.returncode == 0, done.stdout


def test_kubernetes_knows_every_field(documents: list[Document]) -> None:
    for document in documents:
        if document["kind"] not in {"RayCluster", "ServiceMonitor"}:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_a_misspelt_field_is_found(documents: list[Document]) -> None:
    (deployment, *_) = of_kind(documents, "Deployment")
    wrong = json.loads(json.dumps(deployment))
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


class TestValues:
    @pytest.mark.parametrize(
        ("given", "at"),
        [
            ({"api": {"ingress": {"enabled": True}}}, "tlsSecret"),
            ({"image": {"service": "tan-search-service"}}, "service"),
            ({"settings": {"MAX_STUDIES": "4"}}, "MAX_STUDIES"),
            ({"replicas": 2}, "replicas"),
            ({"ray": {"groups": []}}, "groups"),
            ({"ray": {"groups": [GPU | {"minReplicas": 5}]}}, "minReplicas"),
            ({"ray": {"groups": [GPU, GPU]}}, "twice"),
            ({"ray": {"head": {"sharedMemory": "1024m"}}}, "sharedMemory"),
            ({"settings": {"TAN_API_TOKEN": "x"}}, "TAN_API_TOKEN"),
            ({"settings": {"TAN_DATABASE_URL": "x"}}, "TAN_DATABASE_URL"),
            ({"settings": {"TAN_DATABASE_OWNER_URL": "x"}}, "TAN_DATABASE_OWNER_URL"),
        ],
        ids=[
            "no TLS",
            "an image without a version",
            "no setting",
            "unknown",
            "no nodes",
            "more nodes than there may be",
            "two groups of one name",
            "a thousandth of a byte",
            "the token",
            "a password",
            "the owner's password",
        ],
    )
    def test_what_would_not_work_is_refused(self, tmp_path: Path, given: Document, at: str) -> None:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(given))

        done = helm("template", "tan", str(CHART), "--values", str(file))

        assert done.returncode != 0
        assert at in done.stderr


class TestPods:
    def test_all_are_there(self, documents: list[Document]) -> None:
        assert pods(documents).keys() == {"api", "orchestrator", "migrate", "ray-head", "ray-gpu"}

    def test_none_is_root_or_may_become_it(self, documents: list[Document]) -> None:
        for name, pod in pods(documents).items():
            assert pod["spec"]["securityContext"]["runAsNonRoot"], name
            for container in pod["spec"]["containers"]:
                assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
                assert not container["securityContext"]["allowPrivilegeEscalation"], name

    def test_no_service_of_the_namespace_sets_a_setting(self, documents: list[Document]) -> None:
        # That of a service `tan` would be TAN_PORT=tcp://10.0.0.1:80, and no process of ours would start.
        for name, pod in pods(documents).items():
            assert pod["spec"]["enableServiceLinks"] is False, name

    def test_only_the_autoscaler_may_talk_to_kubernetes(self, documents: list[Document]) -> None:
        found = pods(documents)

        assert not any(
            pod["spec"].get("automountServiceAccountToken", True) for pod in found.values()
        )
        with_token = {
            (name, volume["name"])
            for name, pod in found.items()
            for volume in pod["spec"]["volumes"]
            for source in volume.get("projected", {}).get("sources", [])
            if "serviceAccountToken" in source
        }
        assert with_token == {("ray-head", "kubernetes")}
        # Whoever has it may make pods with any secret of the namespace: no driver.
        (container,) = found["ray-head"]["spec"]["containers"]
        assert "kubernetes" not in {each["name"] for each in container["volumeMounts"]}
        (mount,) = of_autoscaler(documents)["volumeMounts"]
        assert mount == {
            "name": "kubernetes",
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            "readOnly": True,
        }

    def test_each_sees_the_secrets_that_it_needs(self, documents: list[Document]) -> None:
        assert {name: secrets(pod) for name, pod in pods(documents).items()} == {
            "api": {"tan_database_url", "tan_api_token"},
            "orchestrator": {"tan_database_url", "ray_token"},
            "migrate": {"tan_database_owner_url", "tan_database_url"},
            "ray-head": set(),
            "ray-gpu": set(),
        }

    @pytest.mark.parametrize("name", ["api", "orchestrator", "migrate"])
    def test_what_they_are_given_is_a_setting_and_a_module(
        self, documents: list[Document], name: str
    ) -> None:
        (container,) = pods(documents)[name]["spec"]["containers"]
        given = {each["name"] for each in container["env"]} - {"TAN_SECRETS_DIR"}
        program, flag, module = container["command"]

        assert {each.removeprefix("TAN_").lower() for each in given} <= Settings.model_fields.keys()
        assert (program, flag) == ("python", "-m")
        assert importlib.util.find_spec(module) is not None

    @pytest.mark.parametrize("name", ["api", "orchestrator", "migrate"])
    def test_a_setting_goes_before_what_the_chart_says(self, tmp_path: Path, name: str) -> None:
        said = {"TAN_LOG_FORMAT": "text", "TAN_AUTOSCALING": "false", "TAN_HOST": "10.0.0.1"}

        given = variables(pods(rendered({"settings": said}, folder=tmp_path))[name])

        assert given.items() >= said.items()

    def test_every_setting_that_is_no_secret_can_be_said(self, tmp_path: Path) -> None:
        kept = {"api_token", "database_url", "database_owner_url", "otlp_endpoint"}
        said = {f"TAN_{name.upper()}": "x" for name in Settings.model_fields.keys() - kept}

        assert "TAN_DATABASE_POOL" in said
        assert (
            said.keys()
            <= variables(pods(rendered({"settings": said}, folder=tmp_path))["api"]).keys()
        )

    def test_annotations_can_be_taken_away_by_null(self, tmp_path: Path) -> None:
        nothing: Document = {"ray": {"podAnnotations": None}}

        assert "annotations" not in pods(rendered(nothing, folder=tmp_path))["ray-head"]["metadata"]

    def test_the_api_listens_where_its_probes_and_its_service_look(self, tmp_path: Path) -> None:
        pod = pods(rendered({"settings": {"TAN_PORT": "9000"}}, folder=tmp_path))["api"]
        (container,) = pod["spec"]["containers"]

        assert variables(pod)["TAN_PORT"] == str(container["ports"][0]["containerPort"])

    def test_what_is_bound_to_a_volume_stays(self, tmp_path: Path) -> None:
        of_nodes = {"TAN_NODE_CACHE_DIR": "/mnt/nvme", "TAN_NODE_CACHE_GB": "900"}
        found = pods(rendered({"settings": of_nodes}, folder=tmp_path))

        assert variables(found["orchestrator"]).items() >= of_nodes.items()
        assert variables(found["api"])["TAN_NODE_CACHE_DIR"] == "/var/cache/tan"
        assert float(variables(found["api"])["TAN_NODE_CACHE_GB"]) < 900

    @pytest.mark.parametrize("size", ["20Gi", "1.5Ti", "500M"])
    def test_the_api_may_fetch_datasets_onto_a_disk_of_its_own(
        self, tmp_path: Path, size: str
    ) -> None:
        pod = pods(rendered({"api": {"cacheSize": size}}, folder=tmp_path))["api"]
        given = variables(pod)
        (mount,) = (
            each
            for each in pod["spec"]["containers"][0]["volumeMounts"]
            if each["mountPath"] == given["TAN_NODE_CACHE_DIR"]
        )
        (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])

        assert not mount.get("readOnly")
        assert volume["emptyDir"] == {"sizeLimit": size}
        assert float(given["TAN_NODE_CACHE_GB"]) * 1e9 == pytest.approx(
            0.9 * num_bytes(size), rel=1e-2
        )

    def test_the_api_may_read_what_is_registered(self, documents: list[Document]) -> None:
        (container,) = pods(documents)["api"]["spec"]["containers"]

        # Splits of images up to 2 GiB are decoded in memory (tan_core.data.storage).
        assert num_bytes(container["resources"]["limits"]["memory"]) >= 3 * 2**30
        assert num_bytes(container["resources"]["requests"]["memory"]) < 2**30

    @pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe"])
    def test_the_orchestrator_is_alive_while_its_pulse_is_fresh(
        self,
        documents: list[Document],
        tmp_path: Path,
        probe: str,
        passes: Callable[[list[str], dict[str, str]], bool],
    ) -> None:
        pod = pods(documents)["orchestrator"]
        (container,) = pod["spec"]["containers"]
        file = Path(variables(pod)["TAN_PULSE_FILE"])
        pulse = tmp_path / "pulse"
        command = container[probe]["exec"]["command"]

        assert str(file.parent) in {each["mountPath"] for each in container["volumeMounts"]}
        assert not passes(command, {"TAN_PULSE_FILE": str(pulse)})
        pulse.touch()
        assert passes(command, {"TAN_PULSE_FILE": str(pulse)})
        os.utime(pulse, (0, pulse.stat().st_mtime - 400))
        assert not passes(command, {"TAN_PULSE_FILE": str(pulse)})

    def test_a_rollout_of_the_api_loses_no_request(self, documents: list[Document]) -> None:
        (api,) = (
            each
            for each in of_kind(documents, "Deployment")
            if each["metadata"]["name"] == "tan-api"
        )
        pod = api["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]

        assert api["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
        assert program == "sleep"
        # What is in flight at SIGTERM has its own time beside the pause before it.
        assert pod["terminationGracePeriodSeconds"] >= int(seconds) + GRACEFUL_SECONDS + 5

    @pytest.mark.parametrize(("replicas", "budgets"), [(1, 0), (2, 1)])
    def test_a_drain_takes_one_api_of_several_at_a_time(
        self, tmp_path: Path, replicas: int, budgets: int
    ) -> None:
        documents = rendered({"api": {"replicas": replicas}}, folder=tmp_path)
        found = [
            each["spec"]
            for each in of_kind(documents, "PodDisruptionBudget")
            if each["metadata"]["name"] == "tan-api"
        ]
        labels = pods(documents)["api"]["metadata"]["labels"].items()

        assert [each["maxUnavailable"] for each in found] == [1] * budgets
        assert all(each["selector"]["matchLabels"].items() <= labels for each in found)
        test_kubernetes_knows_every_field(documents)

    def test_they_run_where_they_are_told(self, tmp_path: Path) -> None:
        where: Document = {
            "nodeSelector": {"pool": "tan"},
            "tolerations": [{"key": "tan", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
        }
        documents = rendered(
            {
                "api": where,
                "orchestrator": where,
                "ray": {"head": where, "groups": [GPU | where]},
            },
            folder=tmp_path,
        )

        for name, pod in pods(documents).items():
            assert pod["spec"].items() >= where.items(), name
        test_kubernetes_knows_every_field(documents)

    def test_they_are_started_anew_for_other_secrets(
        self, documents: list[Document], tmp_path: Path
    ) -> None:
        changed = rendered({"secrets": {"revision": "2", "rayRevision": "3"}}, folder=tmp_path)

        def told(documents: list[Document]) -> dict[str, set[str]]:
            return {
                name: {
                    value
                    for key, value in pod["metadata"].get("annotations", {}).items()
                    if key.startswith("tan-search/")
                }
                for name, pod in pods(documents).items()
            }

        assert not set().union(*told(documents).values())
        assert told(changed) == {
            "api": {"2"},
            "orchestrator": {"2", "3"},
            "migrate": set(),
            "ray-head": {"3"},
            "ray-cpu": {"3"},
        }

    def test_a_gpu_is_asked_for_where_there_is_one(self, documents: list[Document]) -> None:
        (container,) = pods(documents)["ray-gpu"]["spec"]["containers"]

        assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"

    def test_volumes_that_are_mounted_exist(self, documents: list[Document]) -> None:
        for name, pod in pods(documents).items():
            volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
            if name == "ray-head":  # KubeRay adds the autoscaler
                volumes -= {each["name"] for each in of_autoscaler(documents)["volumeMounts"]}
            for container in pod["spec"]["containers"]:
                assert {each["name"] for each in container["volumeMounts"]} == volumes, name


class TestRay:
    def test_its_version_is_the_one_in_the_lock(self, documents: list[Document]) -> None:
        (ray,) = of_kind(documents, "RayCluster")
        lock = (ROOT / "deploy" / "requirements-worker.lock").read_text()

        assert f"\nray=={ray['spec']['rayVersion']} " in lock

    def test_its_head_runs_no_trial_and_asks_for_a_token(self, documents: list[Document]) -> None:
        (ray,) = of_kind(documents, "RayCluster")

        assert ray["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
        assert ray["spec"]["authOptions"] == {"mode": "token", "secretName": "tan-search-ray"}

    def test_an_upgrade_reaches_its_pods(self, documents: list[Document]) -> None:
        (ray,) = of_kind(documents, "RayCluster")

        assert ray["spec"]["upgradeStrategy"] == {"type": "Recreate"}

    @pytest.mark.parametrize("size", ["1Gi", "4Gi", "1500M", "0.5Ti"])
    def test_its_object_store_fits_into_shared_memory(self, tmp_path: Path, size: str) -> None:
        group = GPU | {"sharedMemory": size}
        (ray,) = of_kind(
            rendered({"ray": {"head": {"sharedMemory": size}, "groups": [group]}}, folder=tmp_path),
            "RayCluster",
        )
        for spec in (ray["spec"]["headGroupSpec"], *ray["spec"]["workerGroupSpecs"]):
            (shm,) = (
                each["emptyDir"]["sizeLimit"]
                for each in spec["template"]["spec"]["volumes"]
                if each["name"] == "shm"
            )
            store = spec["rayStartParams"]["object-store-memory"]

            assert shm == size
            assert re.fullmatch(r"\d+", store)
            assert 0.89 * num_bytes(size) < int(store) <= 0.9 * num_bytes(size)

    def test_its_pods_know_their_image_as_statements_name_it(self, tmp_path: Path) -> None:
        image = f"registry.example.org/tan-search-worker@sha256:{'ab' * 32}"
        of_ray = {
            name: pod
            for name, pod in pods(rendered({"image": {"worker": image}}, folder=tmp_path)).items()
            if "TAN_IMAGE" in variables(pod)
        }
        assert len(of_ray) >= 2
        assert "image" in WorkerSettings.model_fields
        for pod in of_ray.values():
            assert variables(pod)["TAN_IMAGE"] == pod["spec"]["containers"][0]["image"] == image

    def test_pod_security_restricted_lets_its_head_in(self, documents: list[Document]) -> None:
        (ray,) = of_kind(documents, "RayCluster")
        autoscaler = ray["spec"]["autoscalerOptions"]["securityContext"]

        # What KubeRay adds to the pod without being asked; ours are looked at above.
        assert autoscaler == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }

    def test_nothing_evicts_it(self, documents: list[Document], tmp_path: Path) -> None:
        (budget,) = of_kind(documents, "PodDisruptionBudget")
        of_ray = [pod for name, pod in pods(documents).items() if name.startswith("ray-")]
        selected = budget["spec"]["selector"]["matchLabels"].items()

        assert budget["spec"]["minAvailable"] > 1 + GPU["maxReplicas"]
        for pod in of_ray:
            assert selected <= pod["metadata"]["labels"].items()
            assert pod["metadata"]["annotations"] == {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"
            }
        for name in ("api", "orchestrator"):
            assert not selected <= pods(documents)[name]["metadata"]["labels"].items()
        without = rendered({"ray": {"disruptionBudget": {"enabled": False}}}, folder=tmp_path)
        assert not of_kind(without, "PodDisruptionBudget")

    def test_what_outlives_its_head_needs_a_newer_operator(self, tmp_path: Path) -> None:
        tolerant = {"ray": {"head": {"faultTolerance": {"enabled": True}}}}
        (ray,) = of_kind(rendered(tolerant, folder=tmp_path), "RayCluster")

        # KubeRay 1.6 knows neither field and asks for the address of a Redis.
        assert ray["spec"]["gcsFaultToleranceOptions"].keys() == {"backend", "storage"}
        for path in (CHART / "Chart.yaml", CHART / "values.yaml", ROOT / "deploy" / "README.md"):
            lines = path.read_text().splitlines()
            assert [line for line in lines if "1.7" in line], path

    def test_the_orchestrator_calls_it_by_its_name(self, documents: list[Document]) -> None:
        (ray,) = of_kind(documents, "RayCluster")
        (container,) = pods(documents)["orchestrator"]["spec"]["containers"]
        (address,) = (e["value"] for e in container["env"] if e["name"] == "TAN_RAY_ADDRESS")

        # KubeRay names the service of a head after its cluster.
        assert address == f"http://{ray['metadata']['name']}-head-svc:8265"


class TestNetworks:
    def test_ray_reaches_itself_the_api_and_names(self, documents: list[Document]) -> None:
        ports = [
            {port["port"] for port in rule.get("ports", [])}
            for rule in policy(documents, "ray")["egress"]
        ]

        assert ports == [set(), {8321}, {53}]
        assert all(rule["to"] for rule in policy(documents, "ray")["egress"])

    def test_ray_fetches_datasets_from_where_it_was_told_alone(self, tmp_path: Path) -> None:
        peer = {"ipBlock": {"cidr": "10.1.0.0/16"}}
        documents = rendered({"networkPolicy": {"dataTo": [peer]}}, folder=tmp_path)

        assert policy(documents, "ray")["egress"][-1] == {"to": [peer], "ports": [{"port": 443}]}

    def test_data_and_kubernetes_may_be_on_other_ports(self, tmp_path: Path) -> None:
        told = {
            "dataTo": [{"ipBlock": {"cidr": "10.1.0.0/16"}}],
            "dataPorts": [443, 9000],
            "kubernetesPorts": [8443],
        }
        documents = rendered({"networkPolicy": told}, folder=tmp_path)

        assert policy(documents, "ray")["egress"][-1]["ports"] == [{"port": 443}, {"port": 9000}]
        assert policy(documents, "ray-head")["egress"] == [{"ports": [{"port": 8443}]}]
        test_kubernetes_knows_every_field(documents)

    def test_names_are_resolved_where_it_is_told(self, tmp_path: Path) -> None:
        peers = [{"ipBlock": {"cidr": "169.254.20.10/32"}}]
        told = {"dnsTo": peers, "dnsPorts": [53, 5353]}
        documents = rendered({"networkPolicy": told}, folder=tmp_path)

        assert policy(documents, "ray")["egress"][-1] == {
            "to": peers,
            "ports": [
                {"port": port, "protocol": protocol}
                for port in (53, 5353)
                for protocol in ("UDP", "TCP")
            ],
        }
        test_kubernetes_knows_every_field(documents)

    def test_the_head_alone_reaches_kubernetes_by_its_ports_or_where_it_is_told(
        self, documents: list[Document], tmp_path: Path
    ) -> None:
        peer = {"ipBlock": {"cidr": "10.0.0.10/32"}}
        told = rendered({"networkPolicy": {"kubernetesTo": [peer]}}, folder=tmp_path)
        ports = [{"port": 443}, {"port": 6443}]

        head = policy(documents, "ray-head")["podSelector"]["matchLabels"]
        assert head == policy(documents, "ray")["podSelector"]["matchLabels"] | {
            "ray.io/node-type": "head"
        }
        assert policy(documents, "ray-head")["egress"] == [{"ports": ports}]
        assert policy(told, "ray-head")["egress"] == [{"ports": ports, "to": [peer]}]
        for document in told:
            if document["kind"] == "NetworkPolicy":
                kubernetes_validate.validate(document, KUBERNETES, strict=True)

    def test_the_policies_are_for_pods_that_there_are(self, documents: list[Document]) -> None:
        labels = [pod["metadata"]["labels"].items() for pod in pods(documents).values()]
        for name in ("ray", "orchestrator", "api"):
            wanted = policy(documents, name)["podSelector"]["matchLabels"].items()
            assert any(wanted <= each for each in labels), name

    def test_they_can_be_left_out(self, tmp_path: Path) -> None:
        found = rendered({"networkPolicy": {"enabled": False}}, folder=tmp_path)

        assert not of_kind(found, "NetworkPolicy")


def test_models_and_the_signing_key_outlive_the_release(documents: list[Document]) -> None:
    claims = of_kind(documents, "PersistentVolumeClaim")

    assert {each["metadata"]["name"] for each in claims} == {"tan-runs", "tan-home"}
    assert all(
        each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for each in claims
    )


def test_versions_are_the_products_own() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert version is not None
    assert chart["appVersion"] == chart["version"] == version[1]
    assert values["image"]["service"].endswith(f":{version[1]}")
    assert values["image"]["worker"].endswith(f":{version[1]}")

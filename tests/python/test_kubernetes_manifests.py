"""The manifests of `ciranda kubernetes manifest`: valid by Kubernetes' own schemas, and what users of them rely on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ciranda.engines.manifests import Document, Kind, Wanted, documents
from ciranda.engines.to_yaml import to_yaml
from ciranda.launch.errors import LaunchError

_SCHEMAS = ("1.37", "1.29")  # the newest, and the first that has podReplacementPolicy without a switch
_SECRET = "ab" * 32


def wanted(**more: Any) -> Wanted:
    usual = {"name": "j", "image": "i", "hosts": 4, "slots": 2, "command": ["python", "train.py"], "secret": _SECRET}
    return Wanted(**{**usual, **more})


def printed(kind: Kind, **more: Any) -> dict[str, Any]:
    """The documents, as they are read again, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(to_yaml(documents(kind, wanted(**more))))}


def jobs_in(kind: Kind, made: dict[str, Any]) -> Iterator[Document]:
    """The specs of Jobs in it."""
    if kind is Kind.JOB:
        yield made["Job"]["spec"]
    if kind is Kind.JOBSET:
        yield made["JobSet"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    if kind is Kind.TRAINJOB:
        yield made["TrainingRuntime"]["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]


def pods_in(kind: Kind, made: dict[str, Any]) -> Iterator[Document]:
    for job in jobs_in(kind, made):
        yield job["template"]["spec"]
    if kind is Kind.MPIJOB:
        for replicas in made["MPIJob"]["spec"]["mpiReplicaSpecs"].values():
            yield replicas["template"]["spec"]


@pytest.mark.parametrize("version", _SCHEMAS)
@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("more", [{}, {"gpus": 2, "env": {"A": "$(x) 1"}, "secret_name": "mine", "grace": 30.5}])
def test_they_are_valid(kind: Kind, version: str, more: dict[str, Any]) -> None:
    """What is no kind of Kubernetes itself, by the Jobs and pods that are made of it."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="NOT TESTED, manifests: pip install it")
    made = printed(kind, **more)
    core = [each for name, each in made.items() if name in ("Secret", "Service", "Job")]
    meta = {"name": "j"}
    core += [{"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job} for job in jobs_in(kind, made)]
    core += [{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod} for pod in pods_in(kind, made)]
    assert len(core) >= 2
    for each in core:
        kubernetes_validate.validate(each, version, strict=True)


def test_a_misspelt_field_is_not_valid() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="NOT TESTED, manifests: pip install it")
    job = printed(Kind.JOB)["Job"]
    job["spec"]["podReplacementPolicies"] = "Failed"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, _SCHEMAS[0], strict=True)


@pytest.mark.parametrize("kind", Kind)
def test_no_pod_gets_more_than_it_needs(kind: Kind) -> None:
    made = printed(kind, gpus=1)
    pods = list(pods_in(kind, made))
    assert pods
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert _SECRET not in str(pod)
    if kind is not Kind.MPIJOB:  # its image starts an ssh server
        assert pods[0]["securityContext"]["runAsNonRoot"] is True
        assert pods[0]["securityContext"]["fsGroup"] == pods[0]["securityContext"]["runAsUser"] == 1000
        (secret,) = [each["secret"] for each in pods[0]["volumes"] if "secret" in each]
        assert (secret["secretName"], secret["defaultMode"]) == ("j", 0o400)
        assert made["Secret"]["stringData"] == {"secret": _SECRET}
    assert {"medium": "Memory", "sizeLimit": "1Gi"} in [each.get("emptyDir") for each in pods[-1]["volumes"]]


def test_an_existing_secret_is_used() -> None:
    made = printed(Kind.JOB, secret_name="mine")
    assert "Secret" not in made
    assert _SECRET not in str(made)
    assert "'secretName': 'mine'" in str(made["Job"])


def test_pods_find_the_one_of_index_0_by_its_name() -> None:
    job = printed(Kind.JOB)
    pod = job["Job"]["spec"]["template"]["spec"]
    assert pod["subdomain"] == job["Service"]["metadata"]["name"] == "j"
    assert job["Service"]["spec"]["publishNotReadyAddresses"] is True
    assert job["Service"]["spec"]["clusterIP"] == "None"
    names = {Kind.JOB: "j-0.j", Kind.JOBSET: "j-host-0-0.j", Kind.TRAINJOB: "j-node-0-0.j"}
    for kind, name in names.items():
        (pod,) = pods_in(kind, printed(kind))
        command = pod["containers"][0]["command"]
        assert command[command.index("--launcher") + 1] == name
        assert command[command.index("--") :] == ["--", "python", "train.py"]


@pytest.mark.parametrize("kind", [Kind.JOB, Kind.JOBSET, Kind.TRAINJOB])
def test_a_lost_host_is_not_a_script_s_failure(kind: Kind) -> None:
    made = printed(kind, restarts=2)
    (job,) = jobs_in(kind, made)
    ignored, counted, final = job["podFailurePolicy"]["rules"]
    assert ignored == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert (counted["action"], counted["onExitCodes"]["operator"]) == ("Count", "In")
    assert (final["action"], final["onExitCodes"]["operator"]) == ("FailJob", "NotIn")
    (name,) = {each["name"] for each in job["template"]["spec"]["containers"]}
    for rule in (counted, final):
        assert rule["onExitCodes"]["values"] == [75, 143]
        assert rule["onExitCodes"]["containerName"] == name
    assert job["podReplacementPolicy"] == "Failed"
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert job["backoffLimit"] == (8 if kind is Kind.JOB else 0)


@pytest.mark.parametrize("name", ["", "J", "1j", "j-", "j.k", "a" * 41, "j\n"])
def test_a_name_that_no_pod_can_have_is_refused(name: str) -> None:
    with pytest.raises(LaunchError, match="--name"):
        wanted(name=name)


_texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["no", "Null", "~", "1e3", "0x1", "2024-01-01", "- a", "a: b", "#", "=", "<<", ".", "a-", "-a", "None", "'", "x #y"]
)
_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["no", "a b", "a: b", "#"]
)  # YAML limits the length of keys
_scalars = _texts | st.integers() | st.booleans()
_values = st.recursive(_scalars, lambda of: st.lists(of) | st.dictionaries(_names, of), max_leaves=8)


@settings(max_examples=30)
@given(st.lists(st.dictionaries(_names, _values, min_size=1), min_size=1, max_size=3))
def test_yaml_is_read_as_it_was_written(written: list[Document]) -> None:
    assert list(yaml.safe_load_all(to_yaml(written))) == written

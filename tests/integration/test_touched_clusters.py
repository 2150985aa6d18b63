"""Clusters that others have touched: the preflight says in a sentence what their admission makes of a run's pods."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from kubetwin.server import ApiServer

from lambdas.backends.registry import KINDS
from lambdas.gateways.examination import Examination
from lambdas.logic.jobs import Job, job_of
from lambdas.logic.preflight.admission import Admission, admission_findings, distinct_pods
from lambdas.logic.preflight.findings import Finding, Note, Problem
from tests.fakes.runs import run_of, spec_with
from trainflow.deployment.backends import KUBERNETES_KINDS, BackendName
from trainflow.errors import ClusterAccessDenied
from trainflow.kubernetes.api import KubernetesApi
from trainflow.kubernetes.connection import from_endpoint
from trainflow.nodes.instances import INSTANCE_TYPES
from trainflow.workflow.run import Stage

INSTANCE = INSTANCE_TYPES["trn1.32xlarge"]
SIDECAR = {"name": "istio-proxy", "image": "mesh/proxy:1", "resources": {"requests": {"cpu": "100m"}}}
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    server = ApiServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def api(server: ApiServer) -> KubernetesApi:
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
        file.write(server.ca_pem)
    return KubernetesApi(from_endpoint(server.endpoint, ca_file=file.name, token=server.admin_token))


class Namespace:
    """A namespace of runs in the cluster of others."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api, self.name = api, f"runs-{next(NUMBERS)}"
        self.label()
        self.add("serviceaccounts", "ServiceAccount", "training")

    def label(self, **labels: str) -> None:
        metadata = {"name": self.name, "labels": {key.replace("__", "/"): value for key, value in labels.items()}}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        found = self._api.find(f"/api/v1/namespaces/{self.name}")
        if found is None:
            self._api.call("POST", "/api/v1/namespaces", body=body)
        else:
            found["metadata"]["labels"] |= metadata["labels"]
            self._api.call("PUT", f"/api/v1/namespaces/{self.name}", body=found)

    def add(self, plural: str, kind: str, name: str, **fields: Any) -> None:
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}
        self._api.call("POST", f"/api/v1/namespaces/{self.name}/{plural}", body=body)

    def admission(self, **rule: Any) -> None:
        """A rule of the software of others for this namespace."""
        metadata = {"name": self.name, "labels": {"kubetwin/admission": "rules"}}
        data = {f"policy.{self.name}": json.dumps({"namespace": self.name, **rule})}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        self._api.call("POST", "/api/v1/namespaces/kube-system/configmaps", body=body)

    def quota(self, **hard: str) -> None:
        self.add(
            "resourcequotas", "ResourceQuota", "team", spec={"hard": {k.replace("_", "."): v for k, v in hard.items()}}
        )

    def findings(self, job: Job) -> list[Finding]:
        examination = Examination(self._api, namespace=self.name)
        admissions = [
            Admission(sent=pod, answer=examination.admitted(pod), number=number)
            for pod, number in distinct_pods(KINDS[job.ref.backend].render(job), job=job.ref.name)
        ]
        return list(admission_findings(admissions, examination.quotas(), INSTANCE))

    def pods(self) -> list[Any]:
        return self._api.list(f"/api/v1/namespaces/{self.name}/pods", "")


@pytest.fixture
def namespace(api: KubernetesApi) -> Namespace:
    return Namespace(api)


def gang(backend: BackendName = "job", num_nodes: int = 2) -> Job:
    nodes = 1 if backend == "pod" else num_nodes
    run = run_of(spec_with(compute__backend=backend, compute__num_nodes=nodes))
    return job_of(run, Stage.TRAINING, 1, artifacts_url="s3://a/")


@pytest.mark.parametrize("backend", KUBERNETES_KINDS)
def test_a_namespace_that_nobody_has_touched_takes_the_pods_as_they_are(
    namespace: Namespace, backend: BackendName
) -> None:
    assert namespace.findings(gang(backend)) == []
    assert namespace.pods() == []


@pytest.mark.parametrize("backend", KUBERNETES_KINDS)
@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_pod_security_of_every_level_takes_the_pods(namespace: Namespace, backend: BackendName, level: str) -> None:
    namespace.label(**{"pod-security.kubernetes.io__enforce": level})
    assert namespace.findings(gang(backend)) == []


def test_a_mesh_that_injects_containers_is_a_note(namespace: Namespace) -> None:
    namespace.admission(containers=[SIDECAR], initContainers=[{"name": "istio-init", "image": "mesh/init:1"}])
    assert namespace.findings(gang()) == [
        Note(
            "The cluster adds containers to the pods of this run: istio-proxy, istio-init. They run beside the "
            "program, and do not decide how it ends (docs/existing-clusters.md)."
        )
    ]


def test_an_injected_container_for_which_a_node_has_no_room_is_a_problem(namespace: Namespace) -> None:
    large = {**SIDECAR, "resources": {"requests": {"cpu": "20", "memory": "64Gi"}}}
    namespace.admission(containers=[large])
    note, cpu, memory = namespace.findings(gang())
    assert isinstance(note, Note)
    assert isinstance(cpu, Problem)
    assert "a pod of this run requests 135.2 of cpu, and a node of trn1.32xlarge has" in cpu.sentence
    assert isinstance(memory, Problem)
    assert "of memory" in memory.sentence


@pytest.mark.parametrize("backend", KUBERNETES_KINDS)
def test_a_policy_that_refuses_the_pods_refuses_the_run_in_its_own_words(
    namespace: Namespace, backend: BackendName
) -> None:
    namespace.admission(deny="validation error: label 'team' is required", unless_label="team")
    found = namespace.findings(gang(backend))
    assert set(found) == {
        Problem(
            f'The cluster refuses the pods of this run: admission webhook "policy.{namespace.name}" denied the '
            "request: validation error: label 'team' is required; let the runs' namespace take them "
            "(docs/existing-clusters.md)."
        )
    }


def test_a_policy_that_adds_the_label_it_asks_for_is_no_finding(namespace: Namespace) -> None:
    namespace.admission(labels={"team": "research"}, deny="label 'team' is required", unless_label="team")
    assert namespace.findings(gang()) == []


def test_a_mirror_of_images_is_a_note(namespace: Namespace) -> None:
    job = gang()
    namespace.admission(images={"registry.example/": "mirror.example/"})
    (found,) = namespace.findings(job)
    assert found == Note(
        f"The cluster replaces workload.image '{job.image}' by '{str(job.image).replace('registry', 'mirror')}'."
    )


@pytest.mark.parametrize("more", [{}, {"HTTPS_PROXY": "http://proxy:3128"}])
def test_a_changed_variable_of_the_program_is_a_problem(namespace: Namespace, more: dict[str, str]) -> None:
    namespace.admission(env={"TRAINFLOW_RUN_ID": "another", **more})
    assert namespace.findings(gang()) == [
        Problem(
            "The cluster changes the program's container: env, which this run needs as they are; exempt the runs' "
            "namespace from that policy (docs/existing-clusters.md)."
        )
    ]


def test_a_proxy_whose_variables_are_added_is_no_finding(namespace: Namespace) -> None:
    namespace.admission(env={"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ".internal"})
    assert namespace.findings(gang()) == []


def test_another_place_for_the_pods_is_a_note(namespace: Namespace) -> None:
    namespace.admission(set={"nodeSelector": {"pool": "shared"}, "schedulerName": "theirs"})
    assert namespace.findings(gang()) == [
        Note(
            "The cluster changes where the pods of this run may run: nodeSelector, schedulerName "
            "(docs/existing-clusters.md)."
        )
    ]


def test_a_place_that_is_taken_from_the_pods_is_a_note(namespace: Namespace) -> None:
    namespace.admission(set={"affinity": None, "nodeSelector": None})
    (found,) = namespace.findings(gang())
    assert isinstance(found, Note)
    assert found.sentence.startswith("The cluster changes where the pods of this run may run: ")


@pytest.mark.parametrize("backend", KUBERNETES_KINDS)
@pytest.mark.parametrize(
    "field, changed",
    [
        ("securityContext", {"runAsUser": 1000660000, "runAsNonRoot": True}),  # as OpenShift assigns users
        ("terminationGracePeriodSeconds", 5),
        ("serviceAccountName", "default"),
        ("restartPolicy", "Always"),
        ("tolerations", []),
    ],
)
def test_a_changed_field_of_the_pods_is_a_problem_that_names_it(
    namespace: Namespace, backend: BackendName, field: str, changed: Any
) -> None:
    namespace.admission(set={field: changed})
    assert set(namespace.findings(gang(backend))) == {
        Problem(
            f"The cluster changes the pods of this run: {field}, which this run needs as they are; exempt the runs' "
            "namespace from that policy (docs/existing-clusters.md)."
        )
    }


def test_a_queue_that_holds_pods_back_is_a_note(namespace: Namespace) -> None:
    namespace.admission(set={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})
    assert namespace.findings(gang()) == [
        Note(
            "The cluster holds the pods of this run back by scheduling gates: kueue.x-k8s.io/admission. They start "
            "when the gates' owners remove them (docs/existing-clusters.md)."
        )
    ]


def test_a_deadline_that_the_cluster_adds_is_a_note(namespace: Namespace) -> None:
    namespace.admission(set={"activeDeadlineSeconds": 3600})
    assert namespace.findings(gang()) == [
        Note("The cluster ends each pod of this run after 3600 seconds (docs/existing-clusters.md).")
    ]


@pytest.mark.parametrize(
    "variable, value",
    [
        ("PYTHONPATH", "/agent/instrumentation:/agent"),  # as the OpenTelemetry operator instruments Python
        ("LD_PRELOAD", "/opt/agent/launcher.preload.so"),  # as Datadog's admission controller and Dynatrace's do
    ],
)
def test_an_agent_that_loads_its_code_into_the_program_is_a_note(
    namespace: Namespace, variable: str, value: str
) -> None:
    namespace.admission(env={variable: value, "AGENT_HOST": "10.0.0.1"})
    assert namespace.findings(gang()) == [
        Note(
            f"The cluster adds variables that load other code into the program: {variable}. If the program fails in "
            "that code, exempt the runs' namespace (docs/existing-clusters.md)."
        )
    ]


def test_defaults_of_a_limit_range_change_nothing_for_pods_that_name_their_amounts(namespace: Namespace) -> None:
    namespace.admission(defaults={"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}})
    assert namespace.findings(gang()) == []


def test_a_maximum_of_a_limit_range_below_the_pods_is_a_problem_in_its_words(namespace: Namespace) -> None:
    namespace.admission(maximum={"memory": "64Gi"})
    (problem,) = namespace.findings(gang())
    assert isinstance(problem, Problem)
    assert "maximum memory usage per Container is 64Gi, but " in problem.sentence


def test_pull_secrets_of_the_service_account_are_no_finding(api: KubernetesApi, namespace: Namespace) -> None:
    """The cluster adds them to pods that name none, and the kubelet logs in to a private registry with them."""
    path = f"/api/v1/namespaces/{namespace.name}/serviceaccounts/training"
    account = api.find(path)
    assert account is not None
    api.call("PUT", path, body={**account, "imagePullSecrets": [{"name": "registry"}]})
    assert namespace.findings(gang()) == []
    examination = Examination(api, namespace=namespace.name)
    ((pod, _),) = distinct_pods(KINDS["job"].render(gang()), job="gang")
    answer = examination.admitted(pod)
    assert isinstance(answer, dict)
    assert answer["spec"]["imagePullSecrets"] == [{"name": "registry"}]


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("backend", ["job", "jobset", "volcano", "pytorchjob", "trainjob"])
def test_a_quota_below_the_gang_is_a_problem_with_both_numbers(
    namespace: Namespace, backend: BackendName, num_nodes: int
) -> None:
    job = gang(backend, num_nodes)
    allowed = 16 * num_nodes
    namespace.quota(**{"requests_aws.amazon.com/neuron": str(allowed), "pods": "50"})
    assert namespace.findings(job) == []
    assert pods_in(job) == num_nodes


def pods_in(job: Job) -> int:
    return sum(number for _, number in distinct_pods(KINDS[job.ref.backend].render(job), job=job.ref.name))


def test_a_quota_that_can_never_hold_the_gang_is_a_problem(namespace: Namespace) -> None:
    namespace.quota(**{"requests_aws.amazon.com/neuron": "31"})
    assert namespace.findings(gang()) == [
        Problem(
            "The ResourceQuota 'team' of the runs' namespace allows 31 of requests.aws.amazon.com/neuron, and the pods "
            "of this run need 32 together; raise it, or ask for fewer nodes."
        )
    ]


def test_a_quota_that_others_use_at_the_moment_is_a_note(namespace: Namespace) -> None:
    namespace.quota(pods="2")
    container = {"name": "c", "image": "i", "command": ["sleep", "9"]}
    for name in ("one", "two"):
        namespace.add("pods", "Pod", name, spec={"containers": [container]})
    (found,) = namespace.findings(gang())
    assert isinstance(found, Note)
    assert found.sentence.startswith("At the moment the cluster takes no pod of this run: ")
    assert "exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2" in found.sentence


def test_who_may_not_ask_says_so(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_options: Any) -> Any:
        raise ClusterAccessDenied(
            'The Kubernetes API refused: pods is forbidden: User "u" cannot create resource "pods".'
        )

    monkeypatch.setattr(KubernetesApi, "call", refuse)
    assert [type(each) for each in namespace.findings(gang())] == [Note, Note]

"""The training operator's decisions, without a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubetwin.controllers.pytorch_plan import Plan, plan
from kubetwin.controllers.pytorch_pods import Replica, pod_of, service_of, variables
from kubetwin.model import times

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BOTH = ["pt-master-0", "pt-worker-0"]


def replicas(count: int = 1, restarts: str = "Never", **container: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "i", **container}]}}
    return {"replicas": count, "restartPolicy": restarts, "template": template}


def job(
    status: dict[str, Any] | None = None,
    *,
    master: dict[str, Any] | None = None,
    worker: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    specs = {"Master": master or replicas(), "Worker": worker or replicas()}
    if spec.pop("masterless", False):
        del specs["Master"]
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "pt", "namespace": "ns", "uid": "u"},
        "spec": {"pytorchReplicaSpecs": specs, "runPolicy": run or {}, **spec},
        "status": status or {},
    }


def pod(kind: str, phase: str = "Running", *, index: int = 0, code: int = 1, restarts: int = 0) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code}} if phase == "Failed" else {}
    return {
        "metadata": {
            "name": f"pt-{kind}-{index}",
            "labels": {"training.kubeflow.org/replica-type": kind},
        },
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "pytorch", "state": state, "restartCount": restarts}],
        },
    }


def conditions(steps: Plan) -> dict[str, str]:
    return {c["type"]: c["status"] for c in steps.status["conditions"]}


def message(steps: Plan) -> str:
    return str(steps.status["conditions"][-1]["message"])


def environment(wanted: dict[str, Any], kind: str, index: int = 0) -> dict[str, str]:
    return {v["name"]: v["value"] for v in variables(wanted, Replica(kind, index, f"pt-{kind.lower()}-{index}"))}


def test_a_new_job_is_created_and_gets_its_pods_the_master_first() -> None:
    steps = plan(job(worker=replicas(2)), [], [], NOW)
    assert [replica.name for replica in steps.create] == ["pt-master-0", "pt-worker-0", "pt-worker-1"]
    assert conditions(steps) == {"Created": "True"}
    assert steps.status["startTime"] == times.seconds(NOW)


def test_the_job_runs_when_the_master_does() -> None:
    assert "Running" not in conditions(plan(job(), [pod("master", "Pending"), pod("worker")], BOTH, NOW))
    assert conditions(plan(job(), [pod("master"), pod("worker", "Pending")], BOTH, NOW))["Running"] == "True"


def test_the_job_has_succeeded_when_the_master_has_whatever_the_workers_do() -> None:
    steps = plan(job(), [pod("master", "Succeeded"), pod("worker")], BOTH, NOW)
    assert conditions(steps)["Succeeded"] == "True"
    assert steps.status["completionTime"] == times.seconds(NOW)


def test_without_a_master_all_workers_have_to_succeed() -> None:
    wanted = job(masterless=True, worker=replicas(2))
    ends = [pod("worker", "Succeeded"), pod("worker", index=1)]
    running = plan(wanted, ends, [], NOW)
    assert conditions(running) == {"Created": "True", "Running": "True"}
    assert message(running) == "PyTorchJob ns/pt is running."
    done = plan(wanted, [pod("worker", "Succeeded"), pod("worker", "Succeeded", index=1)], [], NOW)
    assert message(done) == "PyTorchJob ns/pt successfully completed."


def test_one_elastic_worker_is_enough() -> None:
    wanted = job(masterless=True, worker=replicas(2), elasticPolicy={})
    steps = plan(wanted, [pod("worker", "Succeeded"), pod("worker", index=1)], [], NOW)
    assert conditions(steps)["Succeeded"] == "True"


def test_running_stays_in_the_list_as_false_once_the_job_has_ended() -> None:
    running = plan(job(), [pod("master"), pod("worker")], BOTH, NOW)
    steps = plan(job(running.status), [pod("master"), pod("worker", "Failed")], BOTH, NOW)
    assert conditions(steps) == {"Created": "True", "Running": "False", "Failed": "True"}
    assert message(steps) == "PyTorchJob pt is failed because 1 Worker replica(s) failed."


@pytest.mark.parametrize(("restarts", "code"), [("OnFailure", 1), ("Always", 1), ("ExitCode", 137)])
def test_a_failed_pod_that_may_be_tried_again_is_deleted(restarts: str, code: int) -> None:
    wanted = job(worker=replicas(restarts=restarts))
    steps = plan(wanted, [pod("master"), pod("worker", "Failed", code=code)], BOTH, NOW)
    assert (steps.delete_pods, steps.remade) == (("pt-worker-0",), 1)
    assert conditions(steps)["Restarting"] == "True"
    assert "Running" not in conditions(steps), "the two exclude each other"
    after = plan(job(steps.status, worker=replicas(restarts=restarts)), [pod("master")], BOTH, NOW)
    assert [replica.name for replica in after.create] == ["pt-worker-0"]


def test_an_error_of_the_programs_own_is_final_under_exit_code() -> None:
    steps = plan(job(worker=replicas(restarts="ExitCode")), [pod("master"), pod("worker", "Failed")], BOTH, NOW)
    assert message(steps) == 'job "pt" is failing because "Worker" replica(s) failed.'


@pytest.mark.parametrize(("limit", "restarts", "failed"), [(2, 1, False), (2, 2, True), (0, 1, True), (0, 0, False)])
def test_restarts_of_containers_count_towards_the_back_off_limit(limit: int, restarts: int, failed: bool) -> None:
    wanted = job(worker=replicas(restarts="OnFailure"), run={"backoffLimit": limit})
    steps = plan(wanted, [pod("master"), pod("worker", restarts=restarts)], BOTH, NOW)
    assert (conditions(steps).get("Failed") == "True") == failed
    if failed:
        assert message(steps) == "Job pt has failed because it has reached the specified backoff limit"


def test_pods_made_again_count_towards_the_back_off_limit() -> None:
    wanted = job(worker=replicas(restarts="ExitCode"), run={"backoffLimit": 1})
    pods = [pod("master"), pod("worker", "Failed", code=143)]
    assert "Failed" not in conditions(plan(wanted, pods, BOTH, NOW, remade=0))
    assert conditions(plan(wanted, pods, BOTH, NOW, remade=1))["Failed"] == "True"


def test_a_job_over_its_deadline_fails_and_is_reconciled_in_time() -> None:
    started = {
        "startTime": times.seconds(NOW - timedelta(seconds=50)),
        "conditions": [{"type": "Created", "status": "True"}],
    }
    pods = [pod("master"), pod("worker")]
    assert plan(job(started, run={"activeDeadlineSeconds": 60}), pods, BOTH, NOW).requeue_seconds == 10
    late = plan(job(started, run={"activeDeadlineSeconds": 50}), pods, BOTH, NOW)
    assert message(late) == "Job pt has failed because it was active longer than specified deadline"


def finished(**run: Any) -> dict[str, Any]:
    done = {"type": "Succeeded", "status": "True", "reason": "r"}
    status = {
        "conditions": [done],
        "completionTime": times.seconds(NOW),
        "replicaStatuses": {"Master": {"succeeded": 1}, "Worker": {"active": 1}},
    }
    return job(status, run=run)


def test_pods_of_a_finished_job_stay_by_default() -> None:
    pods = [pod("master", "Succeeded"), pod("worker")]
    kept = plan(finished(), pods, BOTH, NOW)
    assert (kept.delete_pods, kept.delete_services) == ((), ())
    some = plan(finished(cleanPodPolicy="Running"), pods, BOTH, NOW)
    assert (some.delete_pods, some.delete_services) == (("pt-worker-0",), ("pt-worker-0",))
    assert some.status["replicaStatuses"]["Worker"] == {"succeeded": 1}
    everything = plan(finished(cleanPodPolicy="All"), pods, BOTH, NOW)
    assert (everything.delete_pods, everything.delete_services) == (tuple(BOTH), tuple(BOTH))


def test_a_finished_job_is_deleted_after_its_time_to_live() -> None:
    assert plan(finished(ttlSecondsAfterFinished=5), [], [], NOW).requeue_seconds == 5
    assert plan(finished(ttlSecondsAfterFinished=5), [], [], NOW + timedelta(seconds=5)).expired


def test_a_suspended_job_has_neither_pods_nor_services_and_starts_anew_when_resumed() -> None:
    running = plan(job(), [pod("master"), pod("worker")], BOTH, NOW).status
    steps = plan(job(running, run={"suspend": True}), [pod("master"), pod("worker")], BOTH, NOW)
    assert (steps.delete_pods, steps.delete_services) == (tuple(BOTH), tuple(BOTH))
    assert conditions(steps) == {"Created": "True", "Running": "False", "Suspended": "True"}
    later = NOW + timedelta(seconds=30)
    resumed = plan(job(steps.status), [], [], later)
    assert conditions(resumed)["Suspended"] == "False"
    assert resumed.status["startTime"] == times.seconds(later)
    assert len(resumed.create) == 2


def test_workers_are_ranked_behind_the_master() -> None:
    wanted = job(worker=replicas(2), nprocPerNode="4")
    assert environment(wanted, "Master")["RANK"] == "0"
    worker = environment(wanted, "Worker", 1)
    assert (worker["RANK"], worker["PET_NODE_RANK"]) == ("2", "2")
    assert (worker["WORLD_SIZE"], worker["PET_NNODES"], worker["PET_NPROC_PER_NODE"]) == ("12", "3", "4")
    assert (worker["MASTER_ADDR"], worker["MASTER_PORT"]) == ("pt-master-0", "23456")


def test_the_named_port_is_the_masters_port_and_the_services() -> None:
    ports = [{"name": "pytorchjob-port", "containerPort": 29400}]
    wanted = job(master=replicas(ports=ports))
    assert environment(wanted, "Worker")["MASTER_PORT"] == "29400"
    assert service_of(wanted, Replica("Master", 0, "pt-master-0"))["spec"]["ports"][0]["port"] == 29400


def test_elastic_workers_have_variables_for_limits_and_rendezvous() -> None:
    policy = {
        "minReplicas": 1,
        "maxReplicas": 3,
        "maxRestarts": 5,
        "rdzvId": "x",
        "rdzvConf": [{"key": "a", "value": "b"}],
    }
    found = environment(job(masterless=True, elasticPolicy=policy), "Worker")
    assert found == {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": "auto",
        "PET_RDZV_ENDPOINT": "pt-worker-0:23456",
        "PET_RDZV_BACKEND": "c10d",
        "PET_NNODES": "1:3",
        "PET_MAX_RESTARTS": "5",
        "PET_RDZV_ID": "x",
        "PET_RDZV_CONF": "a=b",
    }


def test_a_worker_waits_for_the_masters_name_and_takes_its_replicas_restart_policy() -> None:
    made = pod_of(job(worker=replicas(restarts="ExitCode")), Replica("Worker", 0, "pt-worker-0"))
    assert made["spec"]["restartPolicy"] == "Never"
    assert "nslookup pt-master-0" in made["spec"]["initContainers"][0]["command"][2]
    alone = pod_of(job(masterless=True), Replica("Worker", 0, "pt-worker-0"))
    assert "initContainers" not in alone["spec"]
    assert alone["metadata"]["labels"]["training.kubeflow.org/job-role"] == "master"

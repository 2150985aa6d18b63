"""Faults in the stacks that would cost money, data or secrets, and whether the tests that forbid them notice.

    python -m tests.stack_mutants [--jobs 2]

Each fault is a line that a person could change, with the test that states the opposite. That test runs on a copy of the
repository with the fault, and has to fail: one survivor is an error. Most of what stands in a stack is not in the list:
names, sizes and descriptions, which a test would only repeat.
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.module_mutants import copy_repository


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A change of one place in a stack, and who has to notice."""

    what: str
    """What it would mean for a deployment."""
    module: str
    """File below stacks/."""
    before: str
    """Text that stands once in the file."""
    after: str
    test: str
    """Test below tests/infrastructure/ that states the opposite."""


_SMALL_JOBS = "test_small_jobs_have_tainted_nodes_of_their_own_and_stay_off_those_of_controllers"
_PERMANENT_NODES = "test_permanent_nodes_ask_for_tokens_and_write_to_encrypted_disks_and_can_mount_the_file_system"

FAULTS = (
    Fault(
        what="a training pod takes the role of its node from the instance metadata",
        module="capacity/launch_template.py",
        before="METADATA_HOPS = 1\n",
        after="METADATA_HOPS = 2\n",
        test="test_capacity.py::test_a_node_s_disk_is_encrypted_and_its_metadata_wants_a_token",
    ),
    Fault(
        what="training nodes answer requests for metadata without a token",
        module="capacity/launch_template.py",
        before='http_tokens="required"',
        after='http_tokens="optional"',
        test="test_capacity.py::test_a_node_s_disk_is_encrypted_and_its_metadata_wants_a_token",
    ),
    Fault(
        what="disks of training nodes are in the clear",
        module="capacity/launch_template.py",
        before="encrypted=True",
        after="encrypted=False",
        test="test_capacity.py::test_a_node_s_disk_is_encrypted_and_its_metadata_wants_a_token",
    ),
    Fault(
        what="a reserved instance is asked for in a placement group that its reservation is not in",
        module="capacity/launch_template.py",
        before='if not instance.efa_interfaces or mode in ("capacity-block", "reservation"):',
        after='if not instance.efa_interfaces or mode in ("capacity-block",):',
        test="test_capacity.py::test_nodes_stand_close_together_where_efa_gains_from_it_and_nothing_else_places_them",
    ),
    Fault(
        what="a small pod takes the role of its node from the instance metadata",
        module="cluster/permanent_nodes.py",
        before="http_put_response_hop_limit=METADATA_HOPS",
        after="http_put_response_hop_limit=2",
        test=f"test_cluster.py::{_PERMANENT_NODES}",
    ),
    Fault(
        what="disks of permanent nodes are in the clear",
        module="cluster/permanent_nodes.py",
        before="encrypted=True",
        after="encrypted=False",
        test=f"test_cluster.py::{_PERMANENT_NODES}",
    ),
    Fault(
        what="controllers may run beside programs of users",
        module="cluster/permanent_nodes.py",
        before="labels=SMALL_JOB_NODES, taints=SMALL_JOB_NODES",
        after="labels=SMALL_JOB_NODES, taints={}",
        test=f"test_cluster.py::{_SMALL_JOBS}",
    ),
    Fault(
        what="programs of users may run beside controllers",
        module="cluster/permanent_nodes.py",
        before="labels=CONTROLLER_NODES",
        after="labels={}",
        test=f"test_cluster.py::{_SMALL_JOBS}",
    ),
    Fault(
        what="pods reach the services of their node",
        module="cluster/network_policies.py",
        before='"except": [LINK_LOCAL]',
        after='"except": []',
        test="test_cluster.py::test_nothing_reaches_a_pod_but_what_its_job_lets_in_and_pods_reach_dns_their_credentials_and_https",
    ),
    Fault(
        what="pods of other namespaces reach those of runs",
        module="cluster/network_policies.py",
        before='"ingress": []',
        after='"ingress": [{}]',
        test="test_cluster.py::test_nothing_reaches_a_pod_but_what_its_job_lets_in_and_pods_reach_dns_their_credentials_and_https",
    ),
    Fault(
        what="privileged pods are let into the namespace of the runs",
        module="cluster/workload.py",
        before='{"enforce": "baseline"',
        after='{"enforce": "privileged"',
        test="test_cluster.py::test_the_namespace_takes_our_pods_and_refuses_those_that_get_at_the_node",
    ),
    Fault(
        what="a claim that is deleted takes the data of the file system with it",
        module="cluster/workload.py",
        before='"persistentVolumeReclaimPolicy": "Retain"',
        after='"persistentVolumeReclaimPolicy": "Delete"',
        test="test_cluster.py::test_the_volume_is_the_file_system_and_outlives_its_claim",
    ),
    Fault(
        what="pods of every namespace with a service account of that name get the role of runs",
        module="cluster/pod_identity.py",
        before='                "aws:RequestTag/kubernetes-namespace": namespace,\n',
        after="",
        test="test_cluster.py::test_the_pods_role_is_for_one_service_account_of_this_cluster",
    ),
    Fault(
        what="whoever deploys administers the cluster for good",
        module="cluster/stack.py",
        before="bootstrap_cluster_creator_admin_permissions=False",
        after="bootstrap_cluster_creator_admin_permissions=True",
        test="test_cluster.py::test_only_the_named_and_the_kubectl_handler_administer_the_cluster",
    ),
    Fault(
        what="the API server is open to the internet",
        module="cluster/stack.py",
        before="if cidrs else eks.EndpointAccess.PRIVATE",
        after="if cidrs else eks.EndpointAccess.PUBLIC_AND_PRIVATE",
        test="test_cluster.py::test_the_endpoint_is_private_unless_networks_are_named",
    ),
    Fault(
        what="people open sessions on nodes where the configuration does not say so",
        module="cluster/stack.py",
        before="if self._configuration.cluster.ssm_access:",
        after="if True:",
        test="test_cluster.py::test_nodes_offer_no_sessions_unless_the_configuration_says_so",
    ),
    Fault(
        what="buckets answer without TLS",
        module="storage/stack.py",
        before="enforce_ssl=True",
        after="enforce_ssl=False",
        test="test_storage.py::test_no_bucket_is_public_or_answers_without_tls",
    ),
    Fault(
        what="the key of the buckets never changes",
        module="storage/stack.py",
        before="enable_key_rotation=True",
        after="enable_key_rotation=False",
        test="test_storage.py::test_data_and_artifacts_keep_old_versions_under_a_key_that_rotates",
    ),
    Fault(
        what="the destruction of a production deployment deletes its data",
        module="storage/stack.py",
        before='return self._configuration.production or self._configuration.storage.buckets_on_destroy == "retain"',
        after='return self._configuration.storage.buckets_on_destroy == "retain"',
        test="test_storage.py::test_production_keeps_its_buckets_whatever_the_configuration_says",
    ),
    Fault(
        what="the key goes before the buckets that it encrypts",
        module="storage/stack.py",
        before="removal_policy=_policy(keep=self._keeps_buckets)",
        after="removal_policy=_policy(keep=False)",
        test="test_storage.py::test_what_survives_destroy_is_what_was_to_be_kept_and_what_it_needs",
    ),
    Fault(
        what="file systems of other accounts use the key",
        module="storage/stack.py",
        before='                    "kms:CallerAccount": self.account,\n',
        after="",
        test="test_storage.py::test_only_fsx_may_use_the_key_beside_the_account_s_own_roles_and_only_through_s3",
    ),
    Fault(
        what="programs of runs overwrite packed code and the copy of the file system",
        module="storage/runs.py",
        before="resources=[artifacts.arn_for_objects(ARTIFACTS)]",
        after='resources=[artifacts.arn_for_objects("*")]',
        test="test_cluster.py::test_pods_read_data_and_write_artifacts_and_delete_nothing",
    ),
    Fault(
        what="programs of runs delete artifacts",
        module="storage/runs.py",
        before='actions=["s3:PutObject", "s3:AbortMultipartUpload"]',
        after='actions=["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]',
        test="test_cluster.py::test_pods_read_data_and_write_artifacts_and_delete_nothing",
    ),
    Fault(
        what="programs of runs decrypt with the key what they have from elsewhere",
        module="storage/runs.py",
        before='            conditions={"StringEquals": {"kms:ViaService": '
        'f"s3.{cdk.Stack.of(storage).region}.amazonaws.com"}},\n',
        after="",
        test="test_cluster.py::test_the_key_serves_pods_through_s3_only",
    ),
    Fault(
        what="runs list the whole of a bucket of which they were granted a prefix",
        module="storage/further_buckets.py",
        before=" if each.prefix else None\n",
        after=" if False else None\n",
        test="test_grants.py::test_runs_may_do_with_granted_buckets_what_the_configuration_says_and_no_more",
    ),
    Fault(
        what="every client reaches the nodes by EFA's security group",
        module="network/stack.py",
        before="            source_security_group_id=group.security_group_id,\n",
        after='            cidr_ip="0.0.0.0/0",\n',
        test="test_network.py::test_efa_traffic_may_leave_and_enter_its_group_and_come_from_nowhere_else",
    ),
    Fault(
        what="functions open connections to any port",
        module="network/stack.py",
        before="allow_all_outbound=False",
        after="allow_all_outbound=True",
        test="test_network.py::test_functions_speak_https_and_accept_no_connection",
    ),
    Fault(
        what="services act on the key for other accounts",
        module="orchestration/permissions.py",
        before='conditions={"StringEquals": {"aws:SourceAccount": account}}',
        after="conditions={}",
        test="test_orchestration.py::test_services_use_the_key_and_the_roles_for_this_account_alone",
    ),
    Fault(
        what="functions publish metrics under every name",
        module="orchestration/permissions.py",
        before=', when={"StringEquals": {"cloudwatch:namespace": NAMESPACE}}',
        after="",
        test="test_orchestration.py::test_who_may_publish_metrics_and_where",
    ),
    Fault(
        what="functions resize node groups that are not of runs",
        module="orchestration/grants.py",
        before="/trainflow-*/*",
        after="/*/*",
        test="test_orchestration.py::test_who_may_resize_node_groups_and_which",
    ),
    Fault(
        what="preflight reads everything in the data bucket",
        module="orchestration/grants.py",
        before='            when={"StringLike": {"s3:prefix": f"{DATA_PREFIX}*"}},\n',
        after="",
        test="test_orchestration.py::test_who_may_check_objects_and_only_among_data_sets",
    ),
    Fault(
        what="an update deletes the code that running executions call",
        module="orchestration/functions.py",
        before="cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE",
        after="cdk.RemovalPolicy.DESTROY",
        test="test_functions.py::test_a_function_has_a_version_that_outlives_updates_and_not_failed_ones",
    ),
    Fault(
        what="an event that a function could not handle is lost",
        module="orchestration/functions.py",
        before="            dead_letter_queue=dead_letter_queue,\n",
        after="",
        test="test_functions.py::test_what_an_event_handler_could_not_handle_is_kept",
    ),
    Fault(
        what="production loses its tables with one call",
        module="orchestration/stack.py",
        before="deletion_protection=self._configuration.production",
        after="deletion_protection=False",
        test="test_orchestration.py::test_production_refuses_to_delete_its_tables",
    ),
    Fault(
        what="messages are published in the clear",
        module="orchestration/stack.py",
        before="master_key=self.key, enforce_ssl=True",
        after="master_key=self.key",
        test="test_orchestration.py::test_people_are_told_over_an_encrypted_topic_that_takes_nothing_in_the_clear",
    ),
    Fault(
        what="the nodes of an aborted run stay",
        module="triggers/stack.py",
        before='"FAILED", "ABORTED", "TIMED_OUT"',
        after='"FAILED", "TIMED_OUT"',
        test="test_triggers.py::test_every_end_of_a_run_is_recorded_and_cleaned_up_after",
    ),
    Fault(
        what="a request that was not answered is taken for done",
        module="triggers/stack.py",
        before='            function_response_types=["ReportBatchItemFailures"],\n',
        after="",
        test="test_triggers.py::test_a_function_is_handed_one_message_at_a_time_so_that_no_other_shares_its_fate",
    ),
    Fault(
        what="one bad request takes others along",
        module="triggers/stack.py",
        before="batch_size=BATCH,",
        after="batch_size=BATCH + 1,",
        test="test_triggers.py::test_a_function_is_handed_one_message_at_a_time_so_that_no_other_shares_its_fate",
    ),
    Fault(
        what="rules of strangers send to the queues",
        module="triggers/stack.py",
        before='            conditions={"ArnEquals": {"aws:SourceArn": rule.attr_arn}},\n',
        after="",
        test="test_triggers.py::test_only_our_rules_may_send_to_our_queues",
    ),
    Fault(
        what="a request comes again while its function still works on it",
        module="triggers/queues.py",
        before="return cdk.Duration.seconds(6 * timeout.to_seconds())",
        after="return timeout",
        test="test_triggers.py::test_requests_come_back_only_when_start_run_has_certainly_ended",
    ),
    Fault(
        what="the reason of a refusal is written where it starts a run",
        module="triggers/grants.py",
        before='REFUSALS = tuple(f"{RUN_REQUESTS}.{suffix}.refused.txt"',
        after='REFUSALS = tuple(f"{RUN_REQUESTS}.{suffix}"',
        test="test_triggers.py::test_start_run_may_write_and_delete_the_reasons_of_refusals_alone",
    ),
    Fault(
        what="a survey that has stopped is not noticed",
        module="observability/alarm_definitions.py",
        before="missing=cloudwatch.TreatMissingData.BREACHING",
        after="missing=cloudwatch.TreatMissingData.NOT_BREACHING",
        test="test_observability.py::test_silence_rings_only_where_silence_is_the_trouble",
    ),
    Fault(
        what="the alarm for a person calls nobody",
        module="observability/alarms.py",
        before="        composite.add_alarm_action(self._pager)\n",
        after="",
        test="test_observability.py::test_one_mail_is_sent_of_an_event",
    ),
    Fault(
        what="an image is another one tomorrow",
        module="images/stack.py",
        before="ecr.TagMutability.IMMUTABLE",
        after="ecr.TagMutability.MUTABLE",
        test="test_images.py::test_an_image_that_was_pushed_is_never_another_one_tomorrow",
    ),
    Fault(
        what="every host reaches the nodes of Slurm",
        module="slurm/controller.py",
        before="nodes.add_ingress_rule(nodes, ",
        after="nodes.add_ingress_rule(ec2.Peer.any_ipv4(), ",
        test="test_slurm.py::test_nodes_are_reached_by_the_controller_and_by_each_other",
    ),
)


def unnoticed(faults: Sequence[Fault], *, jobs: int) -> list[Fault]:
    """The faults on which their tests pass.

    Raises:
        SystemExit: If a test fails without a fault, or cannot be run, with what pytest printed.
    """
    with tempfile.TemporaryDirectory(prefix="stack-mutants-") as made:
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(jobs):
            copy = Path(made, str(number))
            copy.mkdir()
            copy_repository(copy)
            copies.put(copy)
        without = Path(made, "0")
        if not _passes(without, *dict.fromkeys(fault.test for fault in faults)):
            raise SystemExit("tests of the stacks fail without a fault")

        def passes(fault: Fault) -> bool:
            copy = copies.get()
            module = copy / "stacks" / fault.module
            whole = module.read_text()
            try:
                module.write_text(whole.replace(fault.before, fault.after, 1))
                return _passes(copy, fault.test)
            finally:
                module.write_text(whole)
                copies.put(copy)

        with ThreadPoolExecutor(jobs) as pool:
            return [fault for fault, survived in zip(faults, pool.map(passes, faults), strict=True) if survived]


def _passes(copy: Path, *tests: str) -> bool:
    """Whether tests pass in a copy of the repository."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(f"tests/infrastructure/{test}" for test in tests)],
        cwd=copy,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(f"pytest did not run {', '.join(tests)}:\n{done.stdout[-3000:]}")
    return done.returncode == pytest.ExitCode.OK


def main(argv: list[str] | None = None) -> int:
    """Print the survivors and how many faults were noticed; 1 if one was not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="faults at a time")
    survivors = unnoticed(FAULTS, jobs=parser.parse_args(argv).jobs)
    for fault in survivors:
        print(f"survived: {fault.module}: {fault.what} ({fault.test})")
    print(f"stacks: {len(FAULTS) - len(survivors)} of {len(FAULTS)} faults were noticed, floor 100%")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

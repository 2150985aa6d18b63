"""All rules, and their findings in the templates of an app."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from stacks.checks import access, cluster, manifests, storage, workflow
from stacks.checks.accepted import ACCEPTED, Accepted
from stacks.checks.templates import Finding, Template, Templates

CHECKS: tuple[Callable[[Templates], Iterator[Finding]], ...] = (
    storage.lustre_is_encrypted_and_placed,
    storage.lustre_opens_its_ports_alone,
    storage.lustre_waits_for_its_rules,
    storage.lustre_links_are_made_one_by_one,
    storage.buckets_have_an_end,
    storage.logs_have_an_end,
    storage.log_groups_are_named_without_a_star,
    workflow.definitions_can_be_read,
    workflow.tasks_retry_and_catch,
    workflow.functions_end_before_their_tasks,
    access.roles_name_what_they_touch,
    access.cluster_roles_name_verbs_and_kinds,
    manifests.jobs_are_named_after_their_templates,
    cluster.nothing_lets_the_world_in,
    cluster.api_server_is_not_public,
    cluster.nodes_are_off,
    cluster.pods_do_not_reach_the_metadata_service,
    cluster.reserved_capacity_has_no_placement_group,
)


def findings(templates: Mapping[str, Template], *, accepted: tuple[Accepted, ...] = ACCEPTED) -> list[Finding]:
    """Findings in the templates of an app, by stack name, without the accepted ones."""
    read = Templates(templates)
    found = dict.fromkeys(finding for check in CHECKS for finding in check(read))
    return [finding for finding in found if not any(exception.covers(finding) for exception in accepted)]

"""Storage: who may reach the data, what ends up where, and what is left after `cdk destroy`."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from local.aws.access.evaluation import Caller, Permission, decide
from stacks.storage.lustre import EXPORT_PREFIX
from tests.infrastructure.alone import (
    Resources,
    configuration,
    make_app,
    network_and_storage,
    of_type,
    resources,
    the_only,
)
from trainflow.deployment.environment import ArtifactEnvironment

BUCKET = "AWS::S3::Bucket"
POLICY = "AWS::S3::BucketPolicy"
KEY = "AWS::KMS::Key"
FILE_SYSTEM = "AWS::FSx::FileSystem"
GROUP = "AWS::EC2::SecurityGroup"
LINK = "AWS::FSx::DataRepositoryAssociation"

DELETE = {"buckets_on_destroy": "delete", "lustre": {"on_destroy": "delete"}}


@cache
def _synthesized(changes: str = "{}") -> Resources:
    app = make_app()
    network_and_storage(app, configuration(**json.loads(changes)))
    return resources(app, "Storage")


def _storage(**changes: Any) -> Resources:
    return _synthesized(json.dumps(changes))


def _buckets(found: Resources) -> dict[str, dict[str, Any]]:
    """Data and artifacts: the buckets that log their accesses."""
    return {name: bucket for name, bucket in of_type(found, BUCKET).items() if "LoggingConfiguration" in bucket}


def _statements(found: Resources, bucket: str) -> list[dict[str, Any]]:
    (policy,) = (p for p in of_type(found, POLICY).values() if p["Bucket"] == {"Ref": bucket})
    statements: list[dict[str, Any]] = policy["PolicyDocument"]["Statement"]
    return statements


def _name_of(reference: Any) -> str:
    """Logical id that a Ref or GetAtt points at."""
    return str(reference["Ref"] if "Ref" in reference else reference["Fn::GetAtt"][0])


def _url(reference: dict[str, Any]) -> tuple[str, str]:
    """Logical id of the bucket and the prefix of an s3:// URL."""
    scheme, bucket, prefix = reference["Fn::Join"][1]
    assert scheme == "s3://"
    return bucket["Ref"], prefix.lstrip("/")


def test_the_two_links_are_created_one_after_the_other() -> None:
    found = _storage()
    first, second = sorted((name for name in of_type(found, LINK)), key=lambda name: "Export" in name)
    assert second in found and first in found[second]["DependsOn"]
    assert second not in found[first].get("DependsOn", [])


def test_the_file_system_is_created_after_every_rule_of_its_security_groups() -> None:
    found = _storage()
    (system,) = (resource for resource in found.values() if resource["Type"] == FILE_SYSTEM)
    rules = {*of_type(found, "AWS::EC2::SecurityGroupIngress"), *of_type(found, "AWS::EC2::SecurityGroupEgress")}
    assert len(rules) == 12
    assert rules <= set(system["DependsOn"])


def test_no_bucket_is_public_or_answers_without_tls() -> None:
    found = _storage()
    assert len(of_type(found, BUCKET)) == 3
    for name, bucket in of_type(found, BUCKET).items():
        assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
        refused = [s for s in _statements(found, name) if s["Effect"] == "Deny" and s["Action"] == "s3:*"]
        assert {"Bool": {"aws:SecureTransport": "false"}} in [s["Condition"] for s in refused]
        assert all(s["Principal"] == {"AWS": "*"} and len(s["Resource"]) == 2 for s in refused)


def test_data_and_artifacts_keep_old_versions_under_a_key_that_rotates() -> None:
    found = _storage()
    assert of_type(found, KEY) and the_only(found, KEY)["EnableKeyRotation"] is True
    assert len(_buckets(found)) == 2
    for bucket in _buckets(found).values():
        assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
        (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
        assert found[_name_of(rule["ServerSideEncryptionByDefault"]["KMSMasterKeyID"])]["Type"] == KEY


def test_uploads_are_announced_and_no_function_rewrites_what_fsx_asks_to_hear_of() -> None:
    found = _storage()
    for bucket in _buckets(found).values():
        assert bucket["NotificationConfiguration"] == {"EventBridgeConfiguration": {"EventBridgeEnabled": True}}
    assert not of_type(found, "Custom::S3BucketNotifications")


def test_accesses_are_logged_to_a_bucket_that_forgets_them() -> None:
    found = _storage()
    (logs,) = {_name_of(bucket["LoggingConfiguration"]["DestinationBucketName"]) for bucket in _buckets(found).values()}
    assert any("ExpirationInDays" in rule for rule in of_type(found, BUCKET)[logs]["LifecycleConfiguration"]["Rules"])
    deliveries = [s for s in _statements(found, logs) if s["Principal"] == {"Service": "logging.s3.amazonaws.com"}]
    sources = {_name_of(s["Condition"]["ArnLike"]["aws:SourceArn"]) for s in deliveries}
    assert sources == set(_buckets(found))


def test_unfinished_uploads_and_old_versions_do_not_pile_up() -> None:
    for bucket in _buckets(_storage()).values():
        rules = bucket["LifecycleConfiguration"]["Rules"]
        assert any("AbortIncompleteMultipartUpload" in rule for rule in rules)
        assert any("NoncurrentVersionExpiration" in rule for rule in rules)


@pytest.mark.parametrize("days", [None, 90])
def test_artifacts_expire_only_if_told_to_and_data_never(days: int | None) -> None:
    buckets = _buckets(_storage(storage={"artifact_days": days}))
    expirations = {
        name: [
            rule["ExpirationInDays"] for rule in bucket["LifecycleConfiguration"]["Rules"] if "ExpirationInDays" in rule
        ]
        for name, bucket in buckets.items()
    }
    (artifacts,) = (name for name in buckets if name.startswith("Artifacts"))
    assert expirations.pop(artifacts) == ([days] if days else [])
    assert list(expirations.values()) == [[]]


@pytest.mark.parametrize(
    ("environment", "storage", "survivors"),
    [
        ("development", {}, {BUCKET, POLICY, KEY, FILE_SYSTEM}),
        ("development", DELETE, set()),
        ("development", {"lustre": {"on_destroy": "delete"}}, {BUCKET, POLICY, KEY}),
        ("production", {}, {BUCKET, POLICY, KEY, FILE_SYSTEM}),
    ],
)
def test_what_survives_destroy_is_what_was_to_be_kept_and_what_it_needs(
    environment: str, storage: dict[str, Any], survivors: set[str]
) -> None:
    found = _storage(environment=environment, storage=storage)
    kept = {resource["Type"] for resource in found.values() if resource.get("DeletionPolicy") == "Retain"}
    assert kept & {BUCKET, POLICY, KEY, FILE_SYSTEM} == survivors
    # A file system keeps the network interface that uses its group, so the group cannot be deleted before it.
    assert (GROUP in kept) == (FILE_SYSTEM in survivors)


def test_production_keeps_its_buckets_whatever_the_configuration_says() -> None:
    of = configuration(environment="production")
    app = make_app()
    network_and_storage(
        app, of.model_copy(update={"storage": of.storage.model_copy(update={"buckets_on_destroy": "delete"})})
    )
    buckets = [resource for resource in resources(app, "Storage").values() if resource["Type"] == BUCKET]
    assert {bucket["DeletionPolicy"] for bucket in buckets} == {"Retain"}


def test_what_is_retained_is_never_replaced_away_either() -> None:
    for resource in _storage().values():
        assert resource.get("UpdateReplacePolicy") == resource.get("DeletionPolicy")


def test_buckets_that_go_are_emptied_after_the_file_system_has_stopped_writing_to_them() -> None:
    found = _storage(storage=DELETE)
    emptying = {
        name: props["BucketName"]["Ref"] for name, props in of_type(found, "Custom::S3AutoDeleteObjects").items()
    }
    assert len(emptying) == 3
    for name, link in of_type(found, LINK).items():
        bucket, _ = _url(link["DataRepositoryPath"])
        (its_emptying,) = (emptier for emptier, emptied in emptying.items() if emptied == bucket)
        assert its_emptying in found[name]["DependsOn"]  # deletion goes the other way round


def test_the_file_system_stands_in_the_zone_of_the_nodes() -> None:
    app = make_app()
    network, _ = network_and_storage(app, configuration())
    assert network is not None
    (subnet,) = the_only(resources(app, "Storage"), FILE_SYSTEM)["SubnetIds"]
    exports = app.synth().get_stack_by_name("Network").template["Outputs"]
    (exported,) = (o["Value"]["Ref"] for o in exports.values() if o["Export"]["Name"] == subnet["Fn::ImportValue"])
    assert of_type(resources(app, "Network"), "AWS::EC2::Subnet")[exported]["AvailabilityZoneId"] == "usw2-az4"


@pytest.mark.parametrize(("size_gib", "throughput"), [(1200, 125), (4800, 500)])
def test_the_file_system_is_encrypted_compressed_and_as_large_and_fast_as_configured(
    size_gib: int, throughput: int
) -> None:
    lustre = {"size_gib": size_gib, "throughput_mbps_per_tib": throughput}
    found = _storage(storage={"lustre": lustre})
    file_system = the_only(found, FILE_SYSTEM)
    assert found[_name_of(file_system["KmsKeyId"])]["Type"] == KEY
    assert file_system["StorageCapacity"] == size_gib
    assert file_system["LustreConfiguration"]["PerUnitStorageThroughput"] == throughput
    assert file_system["LustreConfiguration"]["DeploymentType"] == "PERSISTENT_2"
    assert file_system["LustreConfiguration"]["DataCompressionType"] == "LZ4"


def _allowed(found: Resources, direction: str, peer: str) -> set[tuple[str, str, str, int, int]]:
    rules = of_type(found, f"AWS::EC2::SecurityGroup{direction}").values()
    return {(_name_of(r["GroupId"]), _name_of(r[peer]), r["IpProtocol"], r["FromPort"], r["ToPort"]) for r in rules}


def test_clients_and_servers_reach_each_other_on_lustre_s_ports_and_no_other_host_does() -> None:
    found = _storage()
    (servers,) = (_name_of(group) for group in the_only(found, FILE_SYSTEM)["SecurityGroupIds"])
    (clients,) = set(of_type(found, GROUP)) - {servers}
    ports = [("tcp", 988, 988), ("tcp", 1018, 1023)]
    pairs = [(servers, servers), (servers, clients), (clients, servers)]
    expected = {(one, other, *port) for one, other in pairs for port in ports}
    assert _allowed(found, "Ingress", "SourceSecurityGroupId") == expected
    assert _allowed(found, "Egress", "DestinationSecurityGroupId") == expected
    for group in of_type(found, GROUP).values():
        assert "SecurityGroupIngress" not in group
        # Without a rule of its own EC2 would let the group out to everywhere.
        assert [rule["CidrIp"] for rule in group["SecurityGroupEgress"]] == ["255.255.255.255/32"]


def test_data_is_imported_and_runs_are_exported_and_neither_goes_the_other_way() -> None:
    found = _storage()
    links = {link["FileSystemPath"]: link for link in of_type(found, LINK).values()}
    every = {"Events": ["NEW", "CHANGED", "DELETED"]}
    assert links["/data"]["S3"] == {"AutoImportPolicy": every}
    assert links["/runs"]["S3"] == {"AutoExportPolicy": every}
    assert _url(links["/data"]["DataRepositoryPath"])[1] == "data/"
    assert _url(links["/data"]["DataRepositoryPath"])[0].startswith("Data")
    assert _url(links["/runs"]["DataRepositoryPath"])[0].startswith("Artifacts")
    assert set(links) == {"/data", "/runs"}


def test_others_are_told_the_very_prefix_that_is_linked() -> None:
    app = make_app()
    _, storage = network_and_storage(app, configuration())
    assert storage.shared is not None
    (link,) = (link for link in of_type(resources(app, "Storage"), LINK).values() if link["FileSystemPath"] == "/data")
    assert storage.resolve(storage.shared.linked_url) == link["DataRepositoryPath"]


def test_the_copy_of_a_run_s_folder_never_overwrites_or_deletes_its_published_artifacts() -> None:
    published = ArtifactEnvironment(artifact_bucket="artifacts").key_of("demo-1", "")
    (link,) = (link for link in of_type(_storage(), LINK).values() if link["FileSystemPath"] == "/runs")
    _, prefix = _url(link["DataRepositoryPath"])
    assert prefix == EXPORT_PREFIX
    assert not published.startswith(prefix)
    assert not f"{prefix}demo-1/".startswith(published)


def test_only_fsx_may_use_the_key_beside_the_account_s_own_roles_and_only_through_s3() -> None:
    statements = the_only(_storage(), KEY)["KeyPolicy"]["Statement"]
    (any_principal,) = (s for s in statements if s["Principal"] == {"AWS": "*"})
    assert any_principal["Condition"]["StringEquals"]["kms:ViaService"] == "s3.us-west-2.amazonaws.com"
    assert any_principal["Condition"]["StringEquals"]["kms:CallerAccount"] == {"Ref": "AWS::AccountId"}
    assert "/AWSServiceRoleForFSxS3Access_" in json.dumps(any_principal["Condition"]["ArnLike"]["aws:PrincipalArn"])
    assert "kms:*" not in any_principal["Action"]


def test_the_file_system_says_in_a_log_that_ends_what_it_could_not_import_or_export() -> None:
    found = _storage()
    configured = the_only(found, FILE_SYSTEM)["LustreConfiguration"]["LogConfiguration"]
    *_, before, name = configured["Destination"]["Fn::Join"][1]
    assert before == ":log-group:"  # and nothing behind the name: `Fn::GetAtt Arn` would end with ':*'
    group = found[_name_of(name)]["Properties"]
    assert configured["Level"] == "WARN_ERROR"
    assert group["RetentionInDays"] == 30
    assert group["LogGroupName"]["Fn::Join"][1][0].startswith("/aws/fsx/trainflow-")


def test_access_logs_keep_old_versions_for_a_month_under_keys_of_s3() -> None:
    (logs,) = (
        bucket for name, bucket in of_type(_storage(), "AWS::S3::Bucket").items() if name.startswith("AccessLogs")
    )
    [encryption] = logs["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    assert logs["VersioningConfiguration"] == {"Status": "Enabled"}
    assert [
        rule["NoncurrentVersionExpiration"]["NoncurrentDays"]
        for rule in logs["LifecycleConfiguration"]["Rules"]
        if "NoncurrentVersionExpiration" in rule
    ] == [30]


def test_a_cluster_of_one_s_own_brings_its_own_file_system() -> None:
    app = make_app()
    theirs = configuration(network=None, existing_cluster={"name": "theirs"}, storage={"lustre": None})
    _, storage = network_and_storage(app, theirs)
    assert storage.shared is None
    found = resources(app, "Storage")
    assert not of_type(found, FILE_SYSTEM) and not of_type(found, GROUP)
    assert len(_buckets(found)) == 2


ACCOUNT = "123456789012"
REQUESTER = f"arn:aws:iam::{ACCOUNT}:role/ml-platform"
_DATA = "data"


@pytest.mark.parametrize(
    ("caller", "key", "is_allowed"),
    [
        (REQUESTER, "runs/a.yaml", True),
        (REQUESTER, "runs/team/a.json", True),
        ("arn:aws:iam::123456789012:role/data-writer", "runs/a.yaml", False),
        ("arn:aws:iam::123456789012:role/data-writer", "runs/team/a.yml", False),
        ("arn:aws:iam::123456789012:role/data-writer", "runs/a.json", False),
        ("arn:aws:iam::123456789012:role/ml-platform-data", "runs/a.yaml", False),
        ("arn:aws:iam::123456789012:role/data-writer", "datasets/a.tar", True),
        ("arn:aws:iam::123456789012:role/StartRun", "runs/a.yaml.refused.txt", True),
    ],
)
def test_specs_are_uploaded_by_the_requesters_alone(caller: str, key: str, is_allowed: bool) -> None:
    """As IAM decides for callers whose own policies allow everything."""
    found = _storage(storage={"requesters": [REQUESTER]})
    everything = {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    for action in ("s3:PutObject", "s3:ReplicateObject"):
        permission = Permission(
            action, f"arn:aws:s3:::{_DATA}/{key}", {"aws:securetransport": ("true",), "s3:tlsversion": ("1.3",)}
        )
        decision = decide(
            Caller("role", caller, "session"),
            permission,
            identity=[everything],
            resource=_data_policy(found),
            account=ACCOUNT,
        )
        assert decision.allowed is is_allowed, decision.reason


def test_without_requesters_the_bucket_leaves_specs_to_the_policies_of_their_writers() -> None:
    (data,) = (name for name in _buckets(_storage()) if name.startswith("Data"))
    assert not any("runs/" in json.dumps(statement) for statement in _statements(_storage(), data))


def _data_policy(found: Resources) -> dict[str, Any]:
    """The data bucket's policy, with a name in place of references to the bucket."""
    (data,) = (name for name in _buckets(found) if name.startswith("Data"))

    def named(value: Any) -> Any:
        if isinstance(value, dict):
            if value == {"Fn::GetAtt": [data, "Arn"]}:
                return f"arn:aws:s3:::{_DATA}"
            if "Fn::Join" in value:
                return "".join(named(part) if not isinstance(part, str) else part for part in value["Fn::Join"][1])
            return {key: named(each) for key, each in value.items()}
        return [named(each) for each in value] if isinstance(value, list) else value

    return {"Statement": [named(each) for each in _statements(found, data) if each["Effect"] == "Deny"]}

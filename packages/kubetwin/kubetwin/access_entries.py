"""EKS's access entries: the Kubernetes groups of clients that log in as an IAM role."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

from kubetwin.authentication import Fetch, fetch

ASSUMED_ROLE = re.compile(r"arn:(aws[\w-]*):sts::(\d{12}):assumed-role/([^/]+)/.+")

SIGNED = "AWS4-HMAC-SHA256 Credential={key}/20260101/us-west-2/eks/aws4_request, SignedHeaders=host, Signature=0"
"""Header by which moto recognises the service and the caller; it does not check the signature."""


class AccessEntries:
    """The access entries of one cluster, read at each login."""

    def __init__(self, endpoint: str, cluster_name: str, *, access_key: str, fetch: Fetch = fetch) -> None:
        """
        Args:
            endpoint: Base URL of EKS.
            cluster_name: The EKS cluster's name.
            access_key: Access key with which the entries are read.
            fetch: Replaced in tests.
        """
        self._entries = f"{endpoint}/clusters/{quote(cluster_name)}/access-entries"
        self._signed = {"Authorization": SIGNED.format(key=access_key)}
        self._fetch = fetch

    def groups_of(self, caller_arn: str) -> tuple[str, ...] | None:
        """Groups of a caller of AWS; None if the cluster has no entry for its role or user."""
        principal = role_of(caller_arn)
        try:
            answer = self._fetch(f"{self._entries}/{quote(principal, safe='')}", self._signed)
        except OSError:  # 404, most of the time
            return None
        return tuple(json.loads(answer)["accessEntry"]["kubernetesGroups"])


def role_of(caller_arn: str) -> str:
    """The role whose session a caller is; users are themselves."""
    match = ASSUMED_ROLE.fullmatch(caller_arn)
    return f"arn:{match[1]}:iam::{match[2]}:role/{match[3]}" if match else caller_arn

"""EKS's access entries: the Kubernetes groups of clients that log in as an IAM role."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

from kubetwin.authentication import Fetch, fetch

ASSUMED_ROLE = re.compile(r"arn:(aws[\w-]*):sts::(\d{12}):assumed-role/([^/]+)/.+")

REGION = "us-west-2"
"""Region that requests are signed for; endpoints of tests know no other."""


class AccessEntries:
    """The access entries of one cluster, read at each login."""

    def __init__(self, endpoint: str, cluster_name: str, *, access_key: str, fetch: Fetch = fetch) -> None:
        """
        Args:
            endpoint: Base URL of EKS.
            cluster_name: The EKS cluster's name.
            access_key: Access key for reading the entries, and its secret: ID:SECRET.
            fetch: Replaced in tests.
        """
        self._entries = f"{endpoint}/clusters/{quote(cluster_name)}/access-entries"
        self._key, _, self._secret = access_key.partition(":")
        self._fetch = fetch

    def groups_of(self, caller_arn: str) -> tuple[str, ...] | None:
        """Groups of a caller of AWS; None if the cluster lacks an entry for its role or user."""
        principal = role_of(caller_arn)
        url = f"{self._entries}/{quote(principal, safe='')}"
        try:
            answer = self._fetch(url, self._signed(url))
        except OSError:  # 404, most of the time
            return None
        return tuple(json.loads(answer)["accessEntry"]["kubernetesGroups"])

    def _signed(self, url: str) -> dict[str, str]:
        """Headers of a signed request."""
        from botocore.auth import SigV4Auth  # only clusters that stand for one of EKS need it
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        request = AWSRequest(method="GET", url=url)
        SigV4Auth(Credentials(self._key, self._secret), "eks", REGION).add_auth(request)
        return dict(request.headers.items())


def role_of(caller_arn: str) -> str:
    """The role whose session a caller is; users are themselves."""
    match = ASSUMED_ROLE.fullmatch(caller_arn)
    return f"arn:{match[1]}:iam::{match[2]}:role/{match[3]}" if match else caller_arn

"""What the kubelet of a training node is told besides what EKS tells it.

A pod's log is rotated at 10 MiB (Kubernetes' default), and only the newest file can be read through the API: lines that
are rotated away between two looks are lost to the metrics. A gang that logs 10 MiB/s writes 300 MiB in a look's 30 s:
it has a new file every 100 s instead of every second, and still loses lines each time, which PublishMetrics counts.
"""

from __future__ import annotations

import base64

LOG_FILE_SIZE = "1Gi"
LOG_FILES = 2
"""The least that the kubelet takes: the file that is written and the one before it."""

USER_DATA = f"""MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="SETTINGS"

--SETTINGS
Content-Type: application/node.eks.aws

---
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      containerLogMaxSize: {LOG_FILE_SIZE}
      containerLogMaxFiles: {LOG_FILES}

--SETTINGS--
"""
"""For Amazon Linux 2023; EKS adds what a node needs to join the cluster."""


def user_data() -> str:
    """As a launch template takes it: in base64."""
    return base64.b64encode(USER_DATA.encode()).decode()

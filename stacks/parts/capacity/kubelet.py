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

END = "--SETTINGS--\n"

LOCAL_DISKS = """\
--SETTINGS
Content-Type: application/node.eks.aws

---
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  instance:
    localStorage:
      strategy: RAID0

"""
"""All NVMe disks of the instance as one volume, which holds the folders of containerd and of the kubelet (nodeadm,
LocalStorageOptions): images unpack there, and so does every emptyDir, pods' `/scratch` among them. nodeadm merges the
NodeConfigs that it is given."""


def user_data(*, local_disks: bool) -> str:
    """As a launch template takes it: in base64.

    Args:
        local_disks: Whether the instance has NVMe disks, and they are to be used.
    """
    text = USER_DATA.replace(END, LOCAL_DISKS + END) if local_disks else USER_DATA
    return base64.b64encode(text.encode()).decode()

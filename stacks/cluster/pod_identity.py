"""Trust policies of roles for pods."""

from __future__ import annotations

from aws_cdk import aws_iam as iam


def pod_identity(*, cluster_name: str, namespace: str, service_account: str) -> iam.IPrincipal:
    """A principal that is one service account of one cluster.

    EKS Pod Identity assumes the roles of all pods; its session tags name the pod's service account (EKS user guide,
    'Create IAM role with trust policy required by EKS Pod Identity').
    """
    return iam.ServicePrincipal(
        "pods.eks.amazonaws.com",
        conditions={
            "StringEquals": {
                "aws:RequestTag/eks-cluster-name": cluster_name,
                "aws:RequestTag/kubernetes-namespace": namespace,
                "aws:RequestTag/kubernetes-service-account": service_account,
            }
        },
    ).with_session_tags()

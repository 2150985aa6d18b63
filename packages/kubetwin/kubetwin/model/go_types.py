"""Objects as the API server's messages show them: its internal Go types, printed as JSON.

The internal types lack names for JSON, so a message shows the fields of Go, in their order, the empty ones too
(pkg/apis/core/types.go and pkg/apis/batch/types.go of Kubernetes v1.36).
"""

from __future__ import annotations

import difflib
import json
from itertools import islice
from typing import Any

from kubetwin.model.errors import Object, escaped

_EMPTY: dict[str, Any] = {"s": "", "b": False, "i": 0, "0": "0", "-": None}
"""Empty value of a field by the mark of its type: string, bool, number, quantity; all else is null."""

_JSON_NAMES = {"CephFS": "cephfs", "StorageOS": "storageos", "HostIPC": "hostIPC"}
"""Names that do not follow from the field's."""

_DECLARED = """
PodSpec Volumes:[]Volume InitContainers:[]Container Containers:[]Container EphemeralContainers:[]Container
 RestartPolicy:s TerminationGracePeriodSeconds ActiveDeadlineSeconds DNSPolicy:s NodeSelector ServiceAccountName:s
 AutomountServiceAccountToken NodeName:s SecurityContext:PodSecurityContext ImagePullSecrets:[]Name Hostname:s
 Subdomain:s SetHostnameAsFQDN Affinity:Affinity SchedulerName:s Tolerations:[]Toleration HostAliases:[]HostAlias
 PriorityClassName:s Priority PreemptionPolicy DNSConfig:DNSConfig ReadinessGates:[]ReadinessGate RuntimeClassName
 Overhead EnableServiceLinks TopologySpreadConstraints:[]TopologySpreadConstraint OS:Name SchedulingGates:[]Name
 ResourceClaims:[]PodResourceClaim Resources:Resources HostnameOverride SchedulingGroup:SchedulingGroup
PodSecurityContext HostNetwork:b HostPID:b HostIPC:b ShareProcessNamespace HostUsers SELinuxOptions:SELinuxOptions
 WindowsOptions:WindowsOptions RunAsUser RunAsGroup RunAsNonRoot SupplementalGroups SupplementalGroupsPolicy FSGroup
 FSGroupChangePolicy Sysctls:[]NameValue SeccompProfile:Profile AppArmorProfile:Profile SELinuxChangePolicy
Container Name:s Image:s Command Args WorkingDir:s Ports:[]ContainerPort EnvFrom:[]EnvFrom Env:[]EnvVar
 Resources:=Resources ResizePolicy:[]ResizePolicy RestartPolicy RestartPolicyRules:[]RestartRule
 VolumeMounts:[]VolumeMount VolumeDevices:[]VolumeDevice LivenessProbe:Probe ReadinessProbe:Probe StartupProbe:Probe
 Lifecycle:Lifecycle TerminationMessagePath:s TerminationMessagePolicy:s ImagePullPolicy:s
 SecurityContext:SecurityContext Stdin:b StdinOnce:b TTY:b
ContainerPort Name:s HostPort:i ContainerPort:i Protocol:s HostIP:s
EnvFrom Prefix:s ConfigMapRef:Optional SecretRef:Optional
Optional Name:s Optional
EnvVar Name:s Value:s ValueFrom:EnvVarSource
EnvVarSource FieldRef:FieldRef ResourceFieldRef:ResourceFieldRef ConfigMapKeyRef:KeyRef SecretKeyRef:KeyRef
 FileKeyRef:FileKeyRef
FieldRef APIVersion:s FieldPath:s
ResourceFieldRef ContainerName:s Resource:s Divisor:0
KeyRef Name:s Key:s Optional
FileKeyRef VolumeName:s Path:s Key:s Optional
Resources Limits Requests Claims:[]ResourceClaim
ResourceClaim Name:s Request:s
ResizePolicy ResourceName:s RestartPolicy:s
RestartRule Action:s ExitCodes:ExitCodes
ExitCodes Operator:s Values
VolumeMount Name:s ReadOnly:b RecursiveReadOnly MountPath:s SubPath:s MountPropagation SubPathExpr:s
VolumeDevice Name:s DevicePath:s
Probe Exec:Exec HTTPGet:HTTPGet TCPSocket:TCPSocket GRPC:GRPC InitialDelaySeconds:i TimeoutSeconds:i PeriodSeconds:i
 SuccessThreshold:i FailureThreshold:i TerminationGracePeriodSeconds
Exec Command
HTTPGet Path:s Port:i Host:s Scheme:s HTTPHeaders:[]NameValue
TCPSocket Port:i Host:s
GRPC Port:i Service
NameValue Name:s Value:s
Lifecycle PostStart:Handler PreStop:Handler StopSignal
Handler Exec:Exec HTTPGet:HTTPGet TCPSocket:TCPSocket Sleep:Sleep
Sleep Seconds:i
SecurityContext Capabilities:Capabilities Privileged SELinuxOptions:SELinuxOptions WindowsOptions:WindowsOptions
 RunAsUser RunAsGroup RunAsNonRoot ReadOnlyRootFilesystem AllowPrivilegeEscalation ProcMount SeccompProfile:Profile
 AppArmorProfile:Profile
Capabilities Add Drop
SELinuxOptions User:s Role:s Type:s Level:s
WindowsOptions GMSACredentialSpecName GMSACredentialSpec RunAsUserName HostProcess
Profile Type:s LocalhostProfile
Volume Name:s HostPath:HostPath EmptyDir:EmptyDir GCEPersistentDisk AWSElasticBlockStore GitRepo Secret:SecretVolume
 NFS:NFS ISCSI Glusterfs PersistentVolumeClaim:ClaimVolume RBD Quobyte FlexVolume Cinder CephFS Flocker
 DownwardAPI:DownwardVolume FC AzureFile ConfigMap:ConfigVolume VsphereVolume AzureDisk PhotonPersistentDisk
 Projected:Projected PortworxVolume ScaleIO StorageOS CSI:CSI Ephemeral Image:ImageVolume
HostPath Path:s Type
EmptyDir Medium:s SizeLimit
SecretVolume SecretName:s Items:[]KeyToPath DefaultMode Optional
ConfigVolume Name:s Items:[]KeyToPath DefaultMode Optional
KeyToPath Key:s Path:s Mode
NFS Server:s Path:s ReadOnly:b
ClaimVolume ClaimName:s ReadOnly:b
DownwardVolume Items:[]DownwardFile DefaultMode
DownwardFile Path:s FieldRef:FieldRef ResourceFieldRef:ResourceFieldRef Mode
Projected Sources:[]Projection DefaultMode
Projection Secret:ProjectedKeys DownwardAPI:DownwardItems ConfigMap:ProjectedKeys ServiceAccountToken:Token
 ClusterTrustBundle PodCertificate
ProjectedKeys Name:s Items:[]KeyToPath Optional
DownwardItems Items:[]DownwardFile
Token Audience:s ExpirationSeconds:i Path:s
CSI Driver:s ReadOnly FSType VolumeAttributes NodePublishSecretRef:Name
ImageVolume Reference:s PullPolicy:s
Affinity NodeAffinity:NodeAffinity PodAffinity:PodAffinity PodAntiAffinity:PodAffinity
NodeAffinity RequiredDuringSchedulingIgnoredDuringExecution:NodeSelector
 PreferredDuringSchedulingIgnoredDuringExecution:[]PreferredNode
NodeSelector NodeSelectorTerms:[]NodeTerm
NodeTerm MatchExpressions:[]NodeRequirement MatchFields:[]NodeRequirement
NodeRequirement Key:s Operator:s Values
PreferredNode Weight:i Preference:=NodeTerm
PodAffinity RequiredDuringSchedulingIgnoredDuringExecution:[]PodTerm
 PreferredDuringSchedulingIgnoredDuringExecution:[]PreferredPod
PodTerm LabelSelector Namespaces TopologyKey:s NamespaceSelector MatchLabelKeys MismatchLabelKeys
PreferredPod Weight:i PodAffinityTerm:=PodTerm
Toleration Key:s Operator:s Value:s Effect:s TolerationSeconds
HostAlias IP:s Hostnames
DNSConfig Nameservers Searches Options:[]DNSOption
DNSOption Name:s Value
ReadinessGate ConditionType:s
TopologySpreadConstraint MaxSkew:i TopologyKey:s WhenUnsatisfiable:s LabelSelector MinDomains NodeAffinityPolicy
 NodeTaintsPolicy MatchLabelKeys
PodResourceClaim Name:s ResourceClaimName ResourceClaimTemplateName
SchedulingGroup PodGroupName
Name Name:s
PersistentVolumeClaimSpec AccessModes Selector Resources:=ClaimResources VolumeName:s StorageClassName VolumeMode
 DataSource:DataSource DataSourceRef:DataSourceRef VolumeAttributesClassName
ClaimResources Limits Requests
DataSource APIGroup Kind:s Name:s
DataSourceRef APIGroup Kind:s Name:s Namespace
PodFailurePolicy Rules:[]FailureRule
FailureRule Action:s OnExitCodes:OnExitCodes OnPodConditions:[]OnPodCondition
OnExitCodes ContainerName Operator:s Values
OnPodCondition Type:s Status:s
SuccessPolicy Rules:[]SuccessRule
SuccessRule SucceededIndexes SucceededCount
NonResourceAttributes Path:s Verb:s
Taint Key:s Value:s Effect:s TimeAdded
ServicePort Name:s Protocol:s AppProtocol Port:i TargetPort:i NodePort:i
"""
"""A type a line: fields with their types. `=` is a struct that is always there; other structs are pointers."""

_OF_THE_HOST = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
"""Fields of a pod's spec that the internal type has in its security context."""


def _parse(declared: str) -> dict[str, list[tuple[str, str, str]]]:
    """Of each type the Go name, the JSON name and the type of its fields."""
    types: dict[str, list[tuple[str, str, str]]] = {}
    for line in declared.replace("\n ", " ").strip().splitlines():
        name, *fields = line.split()
        pairs = [field.partition(":") for field in fields]
        types[name] = [(go, _json_name(go), kind or "-") for go, _, kind in pairs]
    return types


def _json_name(go: str) -> str:
    """`DNSPolicy` is `dnsPolicy`, `TTY` is `tty`, `HostPID` is `hostPID`."""
    if go in _JSON_NAMES:
        return _JSON_NAMES[go]
    capitals = next((place for place, letter in enumerate(go) if not letter.isupper()), len(go))
    lowered = capitals if capitals in (1, len(go)) else capitals - 1
    return go[:lowered].lower() + go[lowered:]


_TYPES = _parse(_DECLARED)


def go_value(value: Any, kind: str) -> Any:
    """A value as the internal type prints it; `value` is that of the API, or None if the field is missing."""
    if kind in _EMPTY:
        return _EMPTY[kind] if value is None else _plain(value)
    if kind.startswith("[]"):
        return [go_value(item, f"={kind[2:]}") for item in value] if value else None
    if value is None and not kind.startswith("="):
        return None
    name, given = kind.removeprefix("="), value or {}
    if name == "PodSpec":
        moved = {field: given[field] for field in _OF_THE_HOST if field in given}
        given = {**given, "securityContext": {**(given.get("securityContext") or {}), **moved}}
    return {go: go_value(given.get(key), of) for go, key, of in _TYPES[name]}


def _plain(value: Any) -> Any:
    """A value without an internal type: maps in the order of their keys, selectors in that of their fields."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = ("matchLabels", "matchExpressions")
    keys = [key for key in fields if key in value] if set(value) <= set(fields) else sorted(value)
    return {key: _plain(value[key]) for key in keys}


def go_text(value: Any, kind: str) -> str:
    """A value as it stands in `Invalid value: …`."""
    return escaped(json.dumps(go_value(value, kind), separators=(",", ":"), ensure_ascii=False))


def go_difference(old: Object, new: Object, kind: str) -> str:
    """Difference of two objects, as `diff.Diff` of apimachinery prints it: a unified diff of the printed values."""
    before, after = (f"{_indented(each, kind)}\n".splitlines(keepends=True) for each in (old, new))
    return "".join(islice(difflib.unified_diff(before, after), 2, None))


def _indented(value: Object, kind: str) -> str:
    return escaped(json.dumps(go_value(value, f"={kind}"), indent=1, ensure_ascii=False))

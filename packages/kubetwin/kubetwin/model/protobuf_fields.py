"""Field numbers of the messages that kubectl sends as protobuf: those of `kubectl create KIND` and `kubectl auth`.

Source: `generated.proto` of k8s.io/api and k8s.io/apimachinery; numbers are never reused. A message is written with its
fields behind it, each `number:name:type`, with `[]` for a list and `{}` for a map with text as keys. Types: `text`,
`number`, `flag`, `bytes` (base64 in JSON), `quantity` and `either` (IntOrString), `ignored` (a status: clients send an
empty one, and the server sets it), or the name of another message here.
"""

from __future__ import annotations

_DECLARED = """
ObjectMeta 1:name:text 2:generateName:text 3:namespace:text 5:uid:text 6:resourceVersion:text 11:labels:{}text
 12:annotations:{}text 14:finalizers:[]text
ConfigMap 1:metadata:ObjectMeta 2:data:{}text 3:binaryData:{}bytes 4:immutable:flag
Secret 1:metadata:ObjectMeta 2:data:{}bytes 3:type:text 4:stringData:{}text 5:immutable:flag
Namespace 1:metadata:ObjectMeta 3:status:ignored
ServiceAccount 1:metadata:ObjectMeta 4:automountServiceAccountToken:flag
ResourceQuota 1:metadata:ObjectMeta 2:spec:ResourceQuotaSpec 3:status:ignored
ResourceQuotaSpec 1:hard:{}quantity 2:scopes:[]text
Service 1:metadata:ObjectMeta 2:spec:ServiceSpec 3:status:ignored
ServiceSpec 1:ports:[]ServicePort 2:selector:{}text 3:clusterIP:text 4:type:text 7:sessionAffinity:text
 10:externalName:text
ServicePort 1:name:text 2:protocol:text 3:port:number 4:targetPort:either 5:nodePort:number
Job 1:metadata:ObjectMeta 2:spec:JobSpec 3:status:ignored
JobSpec 1:parallelism:number 2:completions:number 3:activeDeadlineSeconds:number 6:template:PodTemplateSpec
 7:backoffLimit:number 8:ttlSecondsAfterFinished:number 9:completionMode:text 10:suspend:flag
PodTemplateSpec 1:metadata:ObjectMeta 2:spec:PodSpec
PodSpec 2:containers:[]Container 3:restartPolicy:text 6:dnsPolicy:text 7:nodeSelector:{}text 8:serviceAccountName:text
 10:nodeName:text 11:hostNetwork:flag 12:hostPID:flag 13:hostIPC:flag 16:hostname:text 17:subdomain:text
 19:schedulerName:text
Container 1:name:text 2:image:text 3:command:[]text 4:args:[]text 5:workingDir:text 13:terminationMessagePath:text
 14:imagePullPolicy:text 16:stdin:flag 17:stdinOnce:flag 18:tty:flag 20:terminationMessagePolicy:text
PodDisruptionBudget 1:metadata:ObjectMeta 2:spec:PodDisruptionBudgetSpec 3:status:ignored
PodDisruptionBudgetSpec 1:minAvailable:either 2:selector:LabelSelector 3:maxUnavailable:either
LabelSelector 1:matchLabels:{}text 2:matchExpressions:[]LabelSelectorRequirement
LabelSelectorRequirement 1:key:text 2:operator:text 3:values:[]text
PriorityClass 1:metadata:ObjectMeta 2:value:number 3:globalDefault:flag 4:description:text 5:preemptionPolicy:text
Role 1:metadata:ObjectMeta 2:rules:[]PolicyRule
ClusterRole 1:metadata:ObjectMeta 2:rules:[]PolicyRule
PolicyRule 1:verbs:[]text 2:apiGroups:[]text 3:resources:[]text 4:resourceNames:[]text 5:nonResourceURLs:[]text
RoleBinding 1:metadata:ObjectMeta 2:subjects:[]Subject 3:roleRef:RoleRef
ClusterRoleBinding 1:metadata:ObjectMeta 2:subjects:[]Subject 3:roleRef:RoleRef
Subject 1:kind:text 2:apiGroup:text 3:name:text 4:namespace:text
RoleRef 1:apiGroup:text 2:kind:text 3:name:text
TokenRequest 1:metadata:ObjectMeta 2:spec:TokenRequestSpec 3:status:ignored
TokenRequestSpec 1:audiences:[]text 3:boundObjectRef:BoundObjectReference 4:expirationSeconds:number
BoundObjectReference 1:kind:text 2:apiVersion:text 3:name:text 4:uid:text
Eviction 1:metadata:ObjectMeta 2:deleteOptions:DeleteOptions
DeleteOptions 1:gracePeriodSeconds:number 2:preconditions:Preconditions 3:orphanDependents:flag
 4:propagationPolicy:text 5:dryRun:[]text
Preconditions 1:uid:text 2:resourceVersion:text
SelfSubjectReview 1:metadata:ObjectMeta 2:status:ignored
SelfSubjectRulesReview 1:metadata:ObjectMeta 2:spec:SelfSubjectRulesReviewSpec 3:status:ignored
SelfSubjectRulesReviewSpec 1:namespace:text
SelfSubjectAccessReview 1:metadata:ObjectMeta 2:spec:SelfSubjectAccessReviewSpec 3:status:ignored
SelfSubjectAccessReviewSpec 1:resourceAttributes:ResourceAttributes 2:nonResourceAttributes:NonResourceAttributes
ResourceAttributes 1:namespace:text 2:verb:text 3:group:text 4:version:text 5:resource:text 6:subresource:text
 7:name:text
NonResourceAttributes 1:path:text 2:verb:text
Unknown 1:typeMeta:TypeMeta 2:raw:bytes
TypeMeta 1:apiVersion:text 2:kind:text
Quantity 1:string:text
IntOrString 1:type:number 2:intVal:number 3:strVal:text
"""


def _parse(declared: str) -> dict[str, dict[int, str]]:
    """Of each message the fields, `name:type` by their number."""
    messages: dict[str, dict[int, str]] = {}
    for line in declared.replace("\n ", " ").strip().splitlines():
        name, *fields = line.split()
        pairs = [field.partition(":") for field in fields]
        messages[name] = {int(number): field for number, _, field in pairs}
    return messages


MESSAGES = _parse(_DECLARED)

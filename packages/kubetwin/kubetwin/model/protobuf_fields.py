"""Field numbers of the messages that kubectl sends as protobuf: those of `kubectl create KIND` and `kubectl auth`.

Source: `generated.proto` of k8s.io/api and k8s.io/apimachinery; numbers are never reused. A field is written
`name:type`, with `[]` for a list and `{}` for a map with text as keys. Types: `text`, `number`, `flag`, `bytes`
(base64 in JSON), `quantity` and `either` (IntOrString), `ignored`, or the name of another message here.
"""

from __future__ import annotations

_META = {1: "metadata:ObjectMeta"}
_STATUS = {3: "status:ignored"}
"""Field of the status: clients send an empty one, and the server sets a new object's status."""
_RULES = {**_META, 2: "rules:[]PolicyRule"}
_BINDING = {**_META, 2: "subjects:[]Subject", 3: "roleRef:RoleRef"}

MESSAGES: dict[str, dict[int, str]] = {
    "ObjectMeta": {
        1: "name:text",
        2: "generateName:text",
        3: "namespace:text",
        5: "uid:text",
        6: "resourceVersion:text",
        11: "labels:{}text",
        12: "annotations:{}text",
        14: "finalizers:[]text",
    },
    "ConfigMap": {**_META, 2: "data:{}text", 3: "binaryData:{}bytes", 4: "immutable:flag"},
    "Secret": {**_META, 2: "data:{}bytes", 3: "type:text", 4: "stringData:{}text", 5: "immutable:flag"},
    "Namespace": {**_META, **_STATUS},
    "ServiceAccount": {**_META, 4: "automountServiceAccountToken:flag"},
    "ResourceQuota": {**_META, 2: "spec:ResourceQuotaSpec", **_STATUS},
    "ResourceQuotaSpec": {1: "hard:{}quantity", 2: "scopes:[]text"},
    "Service": {**_META, 2: "spec:ServiceSpec", **_STATUS},
    "ServiceSpec": {
        1: "ports:[]ServicePort",
        2: "selector:{}text",
        3: "clusterIP:text",
        4: "type:text",
        7: "sessionAffinity:text",
        10: "externalName:text",
    },
    "ServicePort": {1: "name:text", 2: "protocol:text", 3: "port:number", 4: "targetPort:either", 5: "nodePort:number"},
    "Job": {**_META, 2: "spec:JobSpec", **_STATUS},
    "JobSpec": {
        1: "parallelism:number",
        2: "completions:number",
        3: "activeDeadlineSeconds:number",
        6: "template:PodTemplateSpec",
        7: "backoffLimit:number",
        8: "ttlSecondsAfterFinished:number",
        9: "completionMode:text",
        10: "suspend:flag",
    },
    "PodTemplateSpec": {**_META, 2: "spec:PodSpec"},
    "PodSpec": {
        2: "containers:[]Container",
        3: "restartPolicy:text",
        6: "dnsPolicy:text",
        7: "nodeSelector:{}text",
        8: "serviceAccountName:text",
        10: "nodeName:text",
        11: "hostNetwork:flag",
        12: "hostPID:flag",
        13: "hostIPC:flag",
        16: "hostname:text",
        17: "subdomain:text",
        19: "schedulerName:text",
    },
    "Container": {
        1: "name:text",
        2: "image:text",
        3: "command:[]text",
        4: "args:[]text",
        5: "workingDir:text",
        13: "terminationMessagePath:text",
        14: "imagePullPolicy:text",
        16: "stdin:flag",
        17: "stdinOnce:flag",
        18: "tty:flag",
        20: "terminationMessagePolicy:text",
    },
    "PodDisruptionBudget": {**_META, 2: "spec:PodDisruptionBudgetSpec", **_STATUS},
    "PodDisruptionBudgetSpec": {1: "minAvailable:either", 2: "selector:LabelSelector", 3: "maxUnavailable:either"},
    "LabelSelector": {1: "matchLabels:{}text", 2: "matchExpressions:[]LabelSelectorRequirement"},
    "LabelSelectorRequirement": {1: "key:text", 2: "operator:text", 3: "values:[]text"},
    "PriorityClass": {
        **_META,
        2: "value:number",
        3: "globalDefault:flag",
        4: "description:text",
        5: "preemptionPolicy:text",
    },
    "Role": _RULES,
    "ClusterRole": _RULES,
    "PolicyRule": {
        1: "verbs:[]text",
        2: "apiGroups:[]text",
        3: "resources:[]text",
        4: "resourceNames:[]text",
        5: "nonResourceURLs:[]text",
    },
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "Subject": {1: "kind:text", 2: "apiGroup:text", 3: "name:text", 4: "namespace:text"},
    "RoleRef": {1: "apiGroup:text", 2: "kind:text", 3: "name:text"},
    "TokenRequest": {**_META, 2: "spec:TokenRequestSpec", **_STATUS},
    "TokenRequestSpec": {
        1: "audiences:[]text",
        3: "boundObjectRef:BoundObjectReference",
        4: "expirationSeconds:number",
    },
    "BoundReference": {1: "kind:text", 2: "apiVersion:text", 3: "name:text", 4: "uid:text"},
    "Eviction": {**_META, 2: "deleteOptions:DeleteOptions"},
    "DeleteOptions": {
        1: "gracePeriodSeconds:number",
        2: "preconditions:Preconditions",
        3: "orphanDependents:flag",
        4: "propagationPolicy:text",
        5: "dryRun:[]text",
    },
    "Preconditions": {1: "uid:text", 2: "resourceVersion:text"},
    "SelfSubjectReview": {**_META, 2: "status:ignored"},
    "SelfSubjectRulesReview": {**_META, 2: "spec:SelfSubjectRulesReviewSpec", **_STATUS},
    "SelfSubjectRulesReviewSpec": {1: "namespace:text"},
    "SelfSubjectAccessReview": {**_META, 2: "spec:SelfSubjectAccessReviewSpec", **_STATUS},
    "SelfSubjectAccessReviewSpec": {
        1: "resourceAttributes:ResourceAttributes",
        2: "nonResourceAttributes:NonResourceAttributes",
    },
    "ResourceAttributes": {
        1: "namespace:text",
        2: "verb:text",
        3: "group:text",
        4: "version:text",
        5: "resource:text",
        6: "subresource:text",
        7: "name:text",
    },
    "NonResourceAttributes": {1: "path:text", 2: "verb:text"},
    "Unknown": {1: "typeMeta:TypeMeta", 2: "raw:bytes"},
    "TypeMeta": {1: "apiVersion:text", 2: "kind:text"},
    "Quantity": {1: "string:text"},
    "IntOrString": {1: "type:number", 2: "intVal:number", 3: "strVal:text"},
}

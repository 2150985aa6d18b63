"""Commands of kubectl that people type, with a part of what each prints; those that have to fail begin with `!`.

They run one after the other in one namespace, against two nodes, after `SETUP` was applied and its pod `web` runs.
"""

from __future__ import annotations

SETUP = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "busybox:1.36", command: [sh, -c, "echo hello; exec sleep 600"]}
  - {name: side, image: "busybox:1.36", command: [sh, -c, "echo side; exec sleep 600"]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: quick, labels: {app: quick}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "busybox:1.36", command: [sh, -c, "echo done"]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: "1", b: "2"}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
"""

COMMANDS: tuple[tuple[str, str], ...] = (
    # what there is
    ("version", "Server Version: v1.36"),
    ("cluster-info", "Kubernetes control plane"),
    ("api-versions", "batch/v1"),
    ("api-resources", "pytorchjobs"),
    ("api-resources --namespaced=false", "persistentvolumes"),
    ("api-resources --api-group=batch -o name", "jobs.batch"),
    ("explain pod.spec.containers.image", "FIELD: image"),
    ("explain job.spec.backoffLimit", "retries"),
    ("auth whoami", "system:"),
    ("auth can-i create pods", "yes"),
    ("auth can-i --list", "jobs.batch"),
    # get
    ("get pods", "web"),
    ("get pods -o wide", "127.0.0.1"),
    ("get pods -A", "NAMESPACE"),
    ("get pods -l app=web -o name", "pod/web"),
    ("get pods -l app!=web,app -o name", ""),
    ("get pods --field-selector=status.phase=Running", "web"),
    ("get pods --show-labels", "app=web"),
    ("get pods -L app", "APP"),
    ("get pods --no-headers", "web"),
    ("get pods --sort-by=.metadata.name", "web"),
    ("get pods --chunk-size=1", "web"),
    ("get pod web -o yaml", "kind: Pod"),
    ("get pod web -o json", '"kind": "Pod"'),
    ("get pod web -o jsonpath={.spec.containers[*].name}", "main side"),
    ("get pod web -o go-template={{.metadata.name}}", "web"),
    ("get pod web -o custom-columns=N:.metadata.name,P:.status.phase", "Running"),
    ("get pod web --show-managed-fields -o yaml", "managedFields"),
    ("get pod/web job/quick cm/settings svc/web", "service/web"),
    ("get all", "job.batch/quick"),
    ("get nodes", "Ready"),
    ("get nodes -o wide", "INTERNAL-IP"),
    ("get ns", "kube-system"),
    ("get events", "Scheduled"),
    ("get events --sort-by=.lastTimestamp", "Scheduled"),
    ("get events --field-selector involvedObject.name=web", "web"),
    ("events --for pod/web", "Scheduled"),
    ("get cm settings -o jsonpath={.data.a}", "1"),
    ("get jobs", "quick"),
    ("get sa", "default"),
    ("get leases -n kube-node-lease", "HOLDER"),
    ("get priorityclasses", "No resources found"),
    ("get pytorchjobs,jobsets.jobset.x-k8s.io", "No resources found"),
    ("get --raw /healthz", "ok"),
    ("get --raw /api/v1/namespaces/default", '"kind":"Namespace"'),
    ("!get pod nothing", 'pods "nothing" not found'),
    ("!get things", "doesn't have a resource type"),
    ("!get pods --field-selector=spec.odd=1", "field label not supported"),
    # describe, logs, commands in pods
    ("describe pod web", "Scheduled"),
    ("describe job quick", "SuccessfulCreate"),
    ("describe node", "Allocatable"),
    ("describe cm settings", "Data"),
    ("describe svc web", "Selector"),
    ("describe ns default", "Active"),
    ("logs web -c main", "hello"),
    ("logs web --all-containers --prefix", "[pod/web/side] side"),
    ("logs web -c main --tail=1 --timestamps", "hello"),
    ("logs -l app=web -c side", "side"),
    ("logs job/quick", "done"),
    ("!logs web -c odd", "container odd is not valid for pod web"),
    ("!logs web -c main --previous", 'previous terminated container "main" in pod "web" not found'),
    ("exec web -c main -- echo inside", "inside"),
    ("!exec web -c main -- sh -c exit\\ 3", "exit code 3"),
    ("!exec web -c odd -- true", "container odd is not valid for pod web"),
    ("cp -c main FILE web:/tmp/copied", ""),
    ("!port-forward pod/web 18437:80", "this cluster forwards no ports"),
    # create and change
    ("create cm made --from-literal=k=v", "configmap/made created"),
    ("create cm made2 --from-literal=k=v --dry-run=server", "created (server dry run)"),
    ("create secret generic hidden --from-literal=k=v", "secret/hidden created"),
    ("create sa robot", "serviceaccount/robot created"),
    ("create role reader --verb=get --resource=pods", "role.rbac.authorization.k8s.io/reader created"),
    ("create rolebinding reader --role=reader --serviceaccount=default:robot", "rolebinding"),
    ("create token robot", "ey"),
    ("create quota small --hard=pods=50", "resourcequota/small created"),
    ("create priorityclass high --value=10", "priorityclass"),
    ("create pdb guard --selector=app=none --min-available=1", "poddisruptionbudget"),
    ("create job again --image=busybox:1.36 -- true", "job.batch/again created"),
    ("run one --image=busybox:1.36 --restart=Never -- sleep 600", "pod/one created"),
    ("wait --for=condition=Complete job/again --timeout=30s", "condition met"),
    ("wait --for=jsonpath={.status.phase}=Running pod/one --timeout=30s", "condition met"),
    ("label pod web tier=front", "labeled"),
    ("!label pod web tier=back", "--overwrite"),
    ("label pod web tier-", "unlabeled"),
    ("annotate pod web note=x", "annotated"),
    ('patch cm settings -p {"data":{"a":"3"}}', "patched"),
    ('patch cm settings --type=merge -p {"data":{"b":null}}', "patched"),
    ('patch cm settings --type=json -p [{"op":"add","path":"/data/c","value":"4"}]', "patched"),
    ("set image pod/web main=busybox:1.37", "image updated"),
    ('patch job quick -p {"spec":{"ttlSecondsAfterFinished":600}}', "patched"),
    ('!patch job quick -p {"spec":{"completions":7}}', "field is immutable"),
    ("cordon NODE", "cordoned"),
    ("uncordon NODE", "uncordoned"),
    ("taint nodes NODE odd=1:NoSchedule", "tainted"),
    ("taint nodes NODE odd-", "untainted"),
    # what is not offered answers in a sentence
    ("!create deployment d --image=busybox", "this cluster runs no Deployments: create a Pod, a Job or a JobSet"),
    ("get deployments,statefulsets,rs,rc,hpa,ingress,sc,cronjobs.batch", "No resources found"),
    ("!get deployment d", 'deployments.apps "d" not found'),
    ("!scale deployment d --replicas=2", 'deployments.apps "d" not found'),
    ("!create cronjob c --image=busybox --schedule=@daily", "this cluster runs no CronJobs: create the job itself"),
    ("!create ingress i --rule=a/b=c:80", "this cluster runs no Ingresses: nothing routes traffic"),
    ("!autoscale deployment d --max=3", 'deployments.apps "d" not found'),
    ("get crd", "pytorchjobs.kubeflow.org"),
    ("get crd jobsets.jobset.x-k8s.io -o jsonpath={.status.conditions[1].type}", "Established"),
    ("wait --for=condition=Established crd/jobs.batch.volcano.sh --timeout=5s", "condition met"),
    ("!get limitranges", "doesn't have a resource type"),
    ("!get endpoints", "doesn't have a resource type"),
    ("!top nodes", "Metrics API not available"),
    # delete
    ("delete pod one --grace-period=1", "deleted"),
    ("delete cm,secret made hidden --ignore-not-found", "deleted"),
    ("delete jobs --all", "deleted"),
    ("delete pod web --now", "deleted"),
    ("!delete pod web", 'pods "web" not found'),
)

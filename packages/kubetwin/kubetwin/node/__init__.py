"""The process node: a kubelet that runs pods as groups of local processes.

It knows the cluster only through the Kubernetes API, so that it serves kubetwin's API server and a
real one alike. `agent.ProcessNode` is the way in; what it is made of:

* `agent` registers the node, watches its pods and gives each a `pod_worker`;
* `pod_worker` takes one pod from Pending to its end: `environment`, `volumes` and `rewriting` make the
  container's world, `container` and `supervisor` run it, `status` says what became of it;
* `log_writer`, `log_reader` and `log_server` keep the output and serve it as a kubelet does;
* `api` and `kubeconfig` are the connection to the API server.
"""

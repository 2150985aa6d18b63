"""The process node: a kubelet that runs pods as groups of local processes.

It knows the cluster only through the Kubernetes API, so that it serves kubetwin's API server and a
real one alike. `agent.ProcessNode` is the entry point. Its parts:

* `agent` registers the node, watches its pods and gives each a `pod_worker`;
* `pod_worker` takes one pod from Pending to its end: `environment`, `volumes` and `rewriting` make the
  container's surroundings, `container` and `supervisor` run it, `status` computes its reported state;
* `log_writer` and `log_reader` keep the output; `kubelet_server` serves it, and commands in the containers
  (`exec_session`), as a kubelet does.

`kubetwin.client` is the connection to the API server.
"""

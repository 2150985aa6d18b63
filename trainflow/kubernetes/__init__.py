"""The one Kubernetes client of functions, command and doctor, over the official `kubernetes` package.

`api.py` sends requests and reads streams, `connection.py` says where a cluster is, `faults.py` names what a cluster
refuses, `lines.py` cuts streams into lines. Importing the official package takes half a second of CPU, so only modules
that talk to a cluster import `api.py`.
"""

"""The functions' rights in the cluster as YAML, for a cluster that somebody else looks after.

python -m stacks.tools.access training | kubectl apply -f -
"""

from __future__ import annotations

import sys

import yaml

from lambdas.models.kubernetes_access import access_manifests

if __name__ == "__main__":
    print(yaml.safe_dump_all(access_manifests(sys.argv[1]), sort_keys=False), end="")

"""The twin over a Kubernetes cluster that was there before it."""

from __future__ import annotations

import io
import re
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection
from kubetwin_testing.cluster import command
from rich.console import Console

from local.twin import NAMESPACE, Twin
from tests.integration.running import follow_run
from tests.integration.strangers import answers_to_another_user, granted, listening, only_root
from tests.integration.test_runs import TIME_SCALE, steps_spec
from trainflow.spec.run_spec import parse_run_spec

ROLES = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles"


@only_root
def test_another_user_has_nothing_from_the_door_to_the_cluster(tmp_path: Path) -> None:
    with command("--state", str(tmp_path / "cluster"), "--nodes", "0") as (_, ready):
        kubeconfig = Path(ready["kubeconfig"])
        with Twin(
            home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=TIME_SCALE, kubeconfig=kubeconfig
        ) as twin:
            door = twin.client("eks").describe_cluster(name="trainflow")["cluster"]["endpoint"]
            found = listening([psutil.Process(), *psutil.Process().children(recursive=True)])
            answers = answers_to_another_user(found)
    assert f"127.0.0.1:{urlsplit(door).port} https GET /api/v1/secrets" in answers
    assert granted(answers) == {}


def test_a_run_goes_end_to_end_with_the_rights_of_the_functions_groups(tmp_path: Path) -> None:
    """Its functions have no others: with the roles of an older version, which lack some, it is refused."""
    run_id = "steps-own-cluster"
    with command("--state", str(tmp_path / "cluster"), "--nodes", "0") as (_, ready):
        kubeconfig = Path(ready["kubeconfig"])
        api = ApiClient(load_connection(kubeconfig))
        with Twin(
            home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=TIME_SCALE, kubeconfig=kubeconfig
        ) as twin:
            console = Console(file=io.StringIO())
            record = follow_run(twin, parse_run_spec(steps_spec(max_steps=3)), run_id, folder=tmp_path, console=console)
            assert (record.error, record.status) == (None, "SUCCEEDED")

            roles = api.get(ROLES)["items"]
            assert roles, "the functions' groups have roles in it"
            for role in roles:
                api.patch(f"{ROLES}/{role['metadata']['name']}", {"rules": []})
            refused = follow_run(
                twin, parse_run_spec(steps_spec(max_steps=3)), f"{run_id}-2", folder=tmp_path, console=console
            )
            assert refused.status == "FAILED"
            assert refused.error is not None
            assert re.search(r"cannot \w+ resource", refused.error.message), refused.error.message
        with Twin(home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=TIME_SCALE, kubeconfig=kubeconfig):
            mended = {role["metadata"]["name"]: role["rules"] for role in api.get(ROLES)["items"]}
            assert mended == {role["metadata"]["name"]: role["rules"] for role in roles}

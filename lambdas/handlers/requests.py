"""The run that a request makes, for Task state `ValidateRun` and for `trainflow plan`."""

from __future__ import annotations

from lambdas.handlers.environment import read
from lambdas.logic.staging import linked_folder
from trainflow.deployment.environment import (
    ImagesEnvironment,
    LinkEnvironment,
    OwnershipEnvironment,
    ToolsEnvironment,
)
from trainflow.deployment.image_names import is_allowed
from trainflow.errors import InvalidRunSpec
from trainflow.record.cost import region_of
from trainflow.spec.code import unpacked_reason
from trainflow.spec.limits import require_limits_ahead
from trainflow.spec.run_spec import RunSpec, decided, excess_name_length, parse_run_spec
from trainflow.workflow.owner import owner_of_input, spec_of_input
from trainflow.workflow.planned_run import RunRequest
from trainflow.workflow.run import Run, run_id_for


def run_of(request: RunRequest) -> Run:
    """The run, with all defaults of its spec filled in.

    Raises:
        InvalidRunSpec: If the spec cannot be run, or the owner beside it is malformed; names the field.
    """
    try:
        run_id = run_id_for(request.execution_name)
    except ValueError as error:
        raise InvalidRunSpec(f"The run cannot be named: {error}.") from None
    owner = owner_of_input(request.spec)
    spec = _with_team(decided(parse_run_spec(spec_of_input(request.spec))))
    _require_names(run_id, spec)
    _require_allowed_image(spec.workload.image)
    if reason := unpacked_reason(spec.workload.code):
        raise InvalidRunSpec(reason)
    require_limits_ahead(spec, now=request.started_at, region=region_of(request.execution_arn))
    return Run(
        run_id=run_id,
        execution_arn=request.execution_arn,
        started_at=request.started_at,
        spec=spec,
        owner=owner,
        linked_folder=_linked_folder(spec),
        tools_image=read(ToolsEnvironment).tools_image if spec.compute.backend_description.runs_on_kubernetes else None,
    )


def _with_team(spec: RunSpec) -> RunSpec:
    """The spec with the deployment's team and project where it names none."""
    default = read(OwnershipEnvironment)
    team, project = spec.team or default.default_team or None, spec.project or default.default_project or None
    return spec.model_copy(update={"team": team, "project": project})


def _require_names(run_id: str, spec: RunSpec) -> None:
    """Require that the names of the pods fit: an execution started from the console may have a long name."""
    if (excess := excess_name_length(run_id, spec.compute)) > 0:
        raise InvalidRunSpec(
            f"The execution's name '{run_id}' is {excess} characters too long for the names of the pods that backend "
            f"'{spec.compute.backend}' makes of it; start the execution under a shorter name."
        )


# Decision 60: every run passes here, however it was started.
def _require_allowed_image(image: str | None) -> None:
    allowed = read(ImagesEnvironment).allowed_images
    if image is not None and not is_allowed(image, allowed):
        raise InvalidRunSpec(
            f"workload.image: '{image}' is not among the images that this deployment allows: {', '.join(allowed)}. "
            "Use one of them, or add it to images.allowed and deploy again."
        )


def _linked_folder(spec: RunSpec) -> str | None:
    """Folder of a data set that is linked and not copied. Slurm's nodes have another file system, without links."""
    if spec.dataset is None or not spec.compute.backend_description.runs_on_kubernetes:
        return None
    return linked_folder(spec.dataset, read(LinkEnvironment).linked_url)

"""Composes the stacks of one deployment; makes no AWS call.

make deploy CONFIG=example        # cdk deploy --all -c config=config/example.yaml
"""

from __future__ import annotations

import sys
from pathlib import Path

import aws_cdk as cdk

from stacks.checks import TrainflowChecks
from stacks.checks.packs import packs
from stacks.composition import compose
from trainflow.configuration.deployment import ConfigurationError, load_configuration

DEFAULT_CONFIGURATION = "config/example.yaml"


def main() -> None:
    """Synthesize, with every check; a configuration that cannot be deployed is refused with a sentence."""
    app = cdk.App()
    cdk.Validations.of(app).add_plugins(*packs(app), TrainflowChecks())
    try:
        compose(app, load_configuration(Path(app.node.try_get_context("config") or DEFAULT_CONFIGURATION)))
    except ConfigurationError as error:
        sys.exit(f"trainflow: {error}")
    app.synth()


if __name__ == "__main__":
    main()

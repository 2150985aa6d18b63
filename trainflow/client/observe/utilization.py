"""Utilization of a run's nodes; a refusal by AWS is one sentence.

Both functions raise `PlaceRefused` if the caller may not read it, or if CloudWatch does not answer.
"""

from __future__ import annotations

from trainflow import container_insights
from trainflow.client.refusals import told
from trainflow.container_insights import Utilization as Utilization

read_utilization = told(container_insights.read_utilization)
read_mean_utilization = told(container_insights.read_mean_utilization)

"""The environment variable that names the place to use. The help of the commands needs no more of places."""

from __future__ import annotations

VARIABLE = "TRAINFLOW_PLACE"

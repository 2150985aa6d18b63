"""The report of a run (`report.html`)."""

from __future__ import annotations

from trainflow.report.page import render_report

__all__ = ["render_report"]

"""The observability stack: metrics, alarms and dashboards."""

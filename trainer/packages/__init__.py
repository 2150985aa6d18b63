"""Packages of `workload.requirements`: resolved against the image, installed once for equal content, shared read-only.

Decision 92 describes who resolves, who writes and who deletes.
"""

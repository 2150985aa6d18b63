"""Programs of Trainflow that run in the workload's own container, before or around the workload's program.

The workload's image may be any image with Python, so an init container of the tools image installs the helpers into a
folder that the container mounts (`install`), and the container starts each helper from there (`start`).
"""

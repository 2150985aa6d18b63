"""What the workflow, the command and the programs in pods agree on, and what users install.

This file imports nothing: the trainer's images hold it beside `trainflow.protocol`, and none of the rest.
"""

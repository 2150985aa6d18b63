"""Code that the workflow, the command and the programs in pods share, and the client that users install.

This file imports nothing: the trainer's images hold it beside `trainflow.protocol`, and none of the rest.
"""

"""A second engine for the state machines: a strict interpreter of Amazon States Language that shares no code with moto.

It knows the states, fields and functions that our texts use, and refuses every other one by name. Where the developer
guide and executions on AWS differ, it does as the executions (decision 50).
"""

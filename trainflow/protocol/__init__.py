"""Messages between the workflow and the programs in the pods, one module per message with its writer and its reader.

The trainer's images contain only this package of ours, so it imports only the standard library. Readers of external
input do not raise: they return None, or an empty message, for text of another form.
"""

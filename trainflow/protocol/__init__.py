"""What the workflow and the programs in the pods tell each other, one module per message, writer beside reader.

The trainer's images hold this package and none of the rest, so it imports the standard library alone. Readers of what
comes from outside raise nothing: text that is no such message is None, or an empty one.
"""

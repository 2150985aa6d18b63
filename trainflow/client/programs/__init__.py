"""Facts about a training program of someone else, read from its source: nothing here runs it, except `help`.

| module | answers |
|---|---|
| `program` | all of the facts that `trainflow init` writes into a spec |
| `outputs` | the flags that say where it writes |
| `printed_line` | the line that it prints of a step |
| `help` | the flags that its own `--help` prints, which needs a start of the program |
"""

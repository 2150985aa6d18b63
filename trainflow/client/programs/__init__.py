"""Facts about a training program of someone else, read from its source: nothing here runs it, except `help`.

| module | answers |
|---|---|
| `program` | all of the facts that `trainflow init` writes into a spec |
| `source`, `reachable` | which files a program has, and which parts of them it can reach |
| `command_lines`, `options`, `signatures`, `words`, `demands` | what its command line takes and requires |
| `flow`, `path_uses`, `path_calls` | which option a path begins with, and what is done there |
| `paths_above` | which paths it names above its working folder |
| `outputs`, `checkpoints` | which options say where it writes, and how it continues from a checkpoint |
| `libraries` | which launcher it needs, and which library has its training loop |
| `one_process` | whether one process of it trains without a launcher |
| `placing` | whether it is a script or a module |
| `printed_line` | the line that it prints of a step |
| `arguments` | what a spec's arguments lack |
| `help` | the flags that its own `--help` prints, which needs a start of the program |
"""

"""Recoveries by what has ended: seconds from the kill to the first new step, in parts.

| module | contents |
|---|---|
| `program.py` | the program: it writes down when it began, imported, loaded, and made each step |
| `parts.py` | the parts of a recovery, from these lines |
| `ranks.py` | a rank is killed under the supervisors of a gang, and under plain `torchrun --max-restarts` |
| `runs.py` | a rank, a pod and a node end in the twin, at time scale 1 |
| `run.py` | the benchmark `recovery`, with the goals |
| `page.py` | the table of docs/recovery.md, from the results |
"""

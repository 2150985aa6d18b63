"""Public training programs, run unchanged in the twin with the commands of the documentation.

| module | contents |
|---|---|
| `programs.toml`, `programs.py` | the programs: repository, commit, path, and the flags that make them small |
| `data_makers.py` | small synthetic data, because the programs would download theirs |
| `attempt.py` | types the commands, kills a worker after the first checkpoint, and keeps what was seen when |
| `cells.py` | judges the evidence of an attempt: one cell for each promise |
| `page.py` | docs/gallery.md, from the programs and the results |
| `run.py` | the benchmark `gallery` |

The programs are not part of this repository.
"""

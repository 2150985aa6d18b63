"""How a data set comes to the shared file system, whole or not at all; `trainer.stage` is the command.

`source` says what there is to read, `transfer` reads it in parallel ranges, `stream`, `compression` and `archive` take
an archive apart while it arrives, `prefix` brings single objects, `writer` puts files on the disk, `journal` remembers
which are complete, `marker` says what a folder holds, `place` has the lock and the steps at the end that no crash mixes
up.
"""

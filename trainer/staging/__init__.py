"""Bring a data set to the shared file system, whole or not at all; the command is `trainer.stage`.

`source` finds out what there is to read. `transfer` reads it in parallel ranges. `stream`, `compression` and
`unpacking` unpack an archive while it arrives, and `prefix` brings single objects. `writer` writes files to the disk,
`completed_files` records which of them are complete, `marker` says what a folder holds, and `staging_folder` holds the
lock and moves the finished data set to its destination in steps that survive a crash.
"""

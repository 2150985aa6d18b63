"""What the functions and the command share: the run record and the report. Pure: nothing here does I/O."""

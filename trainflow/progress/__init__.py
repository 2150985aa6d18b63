"""Reading the progress of any program in the lines of its log; pure."""

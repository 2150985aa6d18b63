"""The storage stack: buckets, FSx for Lustre, and the tables of runs."""

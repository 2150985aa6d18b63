"""Common code of the programs in pods: environment, arguments, errors, files, results, and the gang."""

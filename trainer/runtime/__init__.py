"""What every program in a pod uses: environment, arguments, errors, files, results, and the gang."""

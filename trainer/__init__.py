"""Programs that run inside the pods. The image contains only this package and `trainflow.protocol` of ours, so it
imports no others."""

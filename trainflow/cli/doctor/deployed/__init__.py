"""`trainflow doctor` without a run: what keeps a deployment and its cluster from running anything?

`gathering.py` asks AWS and the cluster for each part that a run meets; `checks.py` judges the answers.
Nothing is written anywhere.
"""

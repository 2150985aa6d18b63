"""The line that a node prints when all its ranks have ended, while torchrun waits for those of other nodes.

torchrun keeps a node's pod alive for up to five minutes after its ranks have ended with exit code 0 ("exit barrier",
`torch.distributed.elastic.agent.server.api`), and prints nothing about it. In this time the pod looks like one whose
ranks still train.
"""

from __future__ import annotations

LINE = "trainflow: all ranks of this node have ended; torchrun waits for those of other nodes."

"""rayched: kube-scheduler's semantics without Kubernetes. Rooms and their order: docs/ARCHITECTURE.md.

gRPC reads its settings when it is first imported, so these stand before everything else that is imported from here. They let the
thread that waits for an answer do its own reading (docs/adr/0009). Whoever has set them is left alone.
"""

import os

os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
# A connection that is being made while nobody waits for it makes its steps at these intervals.
os.environ.setdefault("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100")

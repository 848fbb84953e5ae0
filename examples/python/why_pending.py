"""A pod that fits nowhere: what the wait says, what the queue knows, and what every plugin says about one node."""

from rayched.client import ApiError, Client, NotBound

HUGE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "huge"},
    "spec": {
        "containers": [{"name": "main", "image": "registry.example/huge:1", "resources": {"requests": {"cpu": "1000"}}}],
    },
}

with Client() as client:
    submitted = client.submit(HUGE)
    try:
        client.wait_bound(submitted, timeout_seconds=2)
    except NotBound as error:
        print(error)
    for waiting in client.queue(name="huge").pods:
        print(f"held by {', '.join(waiting.held_by)}; attempts: {waiting.attempts}")
    for verdict in client.explain("huge", limit=1).verdicts:
        print(f"{verdict.node}: {'; '.join(reason for rejection in verdict.rejections for reason in rejection.reasons)}")
    client.delete("pod", "huge", grace_period_seconds=0)
    try:
        client.get("pod", "huge")
    except ApiError as error:
        print(error)

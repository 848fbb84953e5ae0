"""Submits a manifest, waits until its pods have a node, says where they are, and removes them."""

from rayched.client import Client

MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: greeter-0, labels: {app: greeter}}
spec:
  containers: [{name: main, image: "registry.example/greeter:1", resources: {requests: {cpu: 250m}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: greeter-1, labels: {app: greeter}}
spec:
  containers: [{name: main, image: "registry.example/greeter:1", resources: {requests: {cpu: 250m}}}]
"""

with Client() as client:
    submitted = client.submit(MANIFEST)
    for pod in client.wait_bound(submitted, timeout_seconds=30):
        print(f"{pod.metadata.name} is on {pod.spec.node_name}")
    for greeter in client.list("pods", label_selector="app=greeter"):
        client.delete("pod", greeter.metadata.name, grace_period_seconds=0)

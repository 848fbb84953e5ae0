"""The shim: one process a pod, parent of all that the pod runs. It outlives the agent and needs the standard library alone."""

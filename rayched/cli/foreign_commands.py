"""Commands of kubectl, Nomad, Slurm and HyperQueue that rayched does not have under that name, and what to do in their place."""

from __future__ import annotations

from typing import Final

_NO_DEPLOYMENTS: Final = "there are no Deployments here; a ReplicaSet keeps so many pods running"
_ELSEWHERE: Final[dict[str, str]] = {
    "api-versions": "`rayched api-resources` lists the kinds with their versions",
    "attach": "`rayched logs -f POD` follows what it writes; `rayched exec POD -- COMMAND` runs a command beside it",
    "auth": "`rayched whoami`, `rayched can-i` and `rayched access` are about roles",
    "autoscale": "`rayched scale rs NAME --replicas N` sets a number; nothing changes it by load",
    "cluster-info": "`rayched leader` says who leads and where, `rayched status` how full the cluster is",
    "config": "the replicas to ask are named with --server or RAYCHED_SERVER",
    "cp": "`rayched exec POD -- tar c DIR` writes files to standard output",
    "debug": "`rayched explain POD` says why a pod waits; `rayched exec POD -- COMMAND` looks inside",
    "expose": "a Service is only a label selector here, and has no address",
    "kustomize": "`kubectl kustomize DIR | rayched apply -f -`",
    "proxy": "replicas speak gRPC, not HTTP; `rayched port-forward` reaches a pod",
    "rollout": _NO_DEPLOYMENTS,
    "set": "`rayched patch` and `rayched edit` change an object",
    "alloc": "`rayched logs`, `rayched exec` and `rayched describe pod` look at what runs",
    "job": "`rayched get jobs`, `rayched describe job NAME`, `rayched run --count N NAME -- COMMAND`",
    "jobs": "`rayched get jobs`",
    "sacct": "`rayched history` shows what has ended",
    "sbatch": "`rayched run --detach NAME -- COMMAND`, with --count N for an array",
    "scancel": "`rayched delete pod NAME`, or `rayched delete pods --field-selector status.phase=Pending`",
    "scontrol": "`rayched hold POD`, `rayched release POD`, `rayched describe pod POD`",
    "sinfo": "`rayched status` shows how full the cluster is",
    "squeue": "`rayched queue` shows what waits",
    "srun": "`rayched run NAME -- COMMAND`",
    "submit": "`rayched create -f FILE`, or `rayched run NAME -- COMMAND`",
}


def advice(command: str) -> str:
    """What to say to whoever calls it; empty of what nobody has."""
    found = _ELSEWHERE.get(command.lower())
    return f"there is no command {command!r} here: {found}" if found else ""

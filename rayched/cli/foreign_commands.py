"""Commands and options of kubectl, Nomad, Slurm and HyperQueue that rayched does not have so, and what to do in their place."""

from __future__ import annotations

from typing import Final

_NO_DEPLOYMENTS: Final = "there are no Deployments here; a ReplicaSet keeps so many pods running"
_ELSEWHERE: Final[dict[str, str]] = {
    "api-versions": "`rayched api-resources` lists the kinds with their versions",
    "attach": "`rayched logs -f POD` follows what it writes; `rayched exec POD -- COMMAND` runs a command beside it",
    "auth": "`rayched whoami`, `rayched can-i` and `rayched access` are about roles",
    "autoscale": "`rayched scale rs NAME --replicas N` sets a number; nothing changes it by load",
    "cluster-info": "`rayched leader` says who leads and where, `rayched status` how full the cluster is",
    "config": "contexts are files below ~/.config/rayched; --context or RAYCHED_CONTEXT names one, RAYCHED_NAMESPACE a namespace",
    "cp": "`rayched exec POD -- tar c DIR` writes files to standard output",
    "debug": "`rayched explain POD` says why a pod waits; `rayched exec POD -- COMMAND` looks inside",
    "expose": "a Service is only a label selector here, and has no address",
    "kustomize": "`rayched apply -k DIR` builds and applies, `rayched diff -k DIR` shows what that would change",
    "proxy": "`rayched gateway` serves the Kubernetes API over HTTP; `rayched port-forward` reaches a pod",
    "rollout": _NO_DEPLOYMENTS,
    "version": "the option --version says this command's; a replica tells its own at /version of its HTTP address",
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


_OF_CONTEXTS: Final = "--context names what a cluster is reached with: its servers, and a certificate or a token"
_NO_MANAGERS: Final = "fields have no managers here; leave it out: the server merges, and takes back what the apply before it set"
_OPTIONS: Final[dict[str, str]] = {
    "--allow-missing-template-keys": "what is missing is never an error, and shown as <no value>",
    "--as": "nobody acts in another's name; --context names another identity of your own, and `rayched can-i` asks for others",
    "--as-group": "nobody acts in another's name; groups are not known here",
    "--certificate-authority": _OF_CONTEXTS,
    "--chunk-size": "lists come in parts by themselves",
    "--client-certificate": _OF_CONTEXTS,
    "--client-key": _OF_CONTEXTS,
    "--cluster": _OF_CONTEXTS,
    "--field-manager": _NO_MANAGERS,
    "--force-conflicts": _NO_MANAGERS,
    "--insecure-skip-tls-verify": "a server is always verified; `--context none` speaks to one without TLS",
    "--kubeconfig": f"{_OF_CONTEXTS}; `rayched kubeconfig` writes one for kubectl",
    "--raw": "replicas speak gRPC; `kubectl get --raw` works through `rayched gateway`",
    "--request-timeout": "an unanswered call is given up after 10 s",
    "--save-config": "`rayched apply` notes by itself what it set",
    "--server-side": _NO_MANAGERS,
    "--show-managed-fields": "fields have no managers here",
    "--template": "a template stands behind -o, as in -o go-template='{{.metadata.name}}'",
    "--token": _OF_CONTEXTS,
    "--user": _OF_CONTEXTS,
    "--validate": "manifests are always validated",
}
"""Of kubectl."""


def option_advice(option: str) -> str:
    """What to say to whoever gives it to a command that has no such option; empty of what nobody has."""
    found = _OPTIONS.get(option.partition("=")[0])
    return f"there is no option {option.partition('=')[0]} here: {found}" if found else ""

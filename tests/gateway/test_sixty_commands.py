"""The commands of kubectl that people type daily, one after the other against three replicas with certificates; `make kubectl`.

Each is typed as people type it, and held against what kubectl's documentation says that it prints. What is not served ends with
an error that says so. Two of them, a watch and a wait, go on while the leader is killed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rayched.client.client import Client
from rayched.client.contexts import write_context_file
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.cluster.free_ports import neighbouring_ports
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.cluster.local_pki import LocalPki
from rayched.replica.cluster.local_start import wait_until_up
from tests.cli.cluster import run_here, wait_until
from tests.gateway.kubectl import KUBECTL, MISSING, VERSION, Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(KUBECTL is None, reason=MISSING)]

REPLICAS = 3
FILES = {
    "pod.yaml": """apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: main, image: "registry.example/web:1"}]}
""",
    "other.yaml": """apiVersion: v1
kind: Pod
metadata: {name: other, labels: {app: other}}
spec: {containers: [{name: main, image: "registry.example/web:1"}]}
""",
    "rs.yaml": """apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: few}
spec:
  replicas: 2
  selector: {matchLabels: {app: few}}
  template:
    metadata: {labels: {app: few}}
    spec: {containers: [{name: main, image: "registry.example/web:1"}]}
""",
    "dir/pdb.yaml": """apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: few}
spec: {minAvailable: 1, selector: {matchLabels: {app: few}}}
""",
    "dir/pc.yaml": """apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 10
""",
    "kustom/kustomization.yaml": "resources: [pod.yaml]\nnamePrefix: k-\n",
    "kustom/pod.yaml": """apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: k}}
spec: {containers: [{name: main, image: "registry.example/web:1"}]}
""",
    "pruned/pod.yaml": """apiVersion: v1
kind: Pod
metadata: {name: pruned, labels: {app: pruned}}
spec: {containers: [{name: main, image: "registry.example/web:1"}]}
""",
}

COMMANDS = r"""
version                                                    | Server Version: (v1\.|version\.Info\{Major:"1")
cluster-info                                               | is running at https://127\.0\.0\.1
api-versions                                               | policy/v1
api-resources                                              | poddisruptionbudgets
explain pod.spec                                           | containers
config view                                                | current-context: rayched
completion bash                                            | bash completion
cordon node-003                                            | node/node-003 cordoned
apply -f rs.yaml                                           | replicaset\.apps/few created
apply -f dir                                               | poddisruptionbudget\.policy/few created
apply -f pod.yaml                                          | pod/web created
apply -f - < pod.yaml                                      | pod/web unchanged
apply -f pod.yaml --dry-run=server                         | pod/web unchanged \(server dry run\)
apply -k kustom                                            | pod/k-web created
apply -f other.yaml --server-side                          ! Server-side apply not available on the server
apply -f pruned -l app=pruned --prune --prune-allowlist=core/v1/Pod | pod/pruned created
diff -f pod.yaml                                           |
create -f other.yaml                                       | pod/other created
create ns team                                             | namespace/team created
create job once --image=busybox -- true                    | job\.batch/once created
create job x --image=busybox --dry-run=client -o yaml      | kind: Job
run solo --image=busybox                                   | pod/solo created
wait pod/web --for=condition=Ready --timeout=60s           | pod/web condition met
wait rs/few --for=jsonpath={.status.readyReplicas}=2 --timeout=60s | condition met
get pods                                                   | NAME +READY +STATUS +RESTARTS +AGE
get pods -o wide                                           | NOMINATED NODE
get pods -A                                                | NAMESPACE
get pods -o name                                           | pod/web
get pods -o json                                           | "kind": "List"
get pod web -o yaml                                        | name: web
get pods -o jsonpath={.items[*].metadata.name}             | web
get pods -o custom-columns=N:.metadata.name                | ^N$
get nodes                                                  | node-000 +Ready
get events                                                 | LAST SEEN
get ns                                                     | team +Active
get pdb                                                    | few
get pc                                                     | high
get rs                                                     | few +2
get jobs                                                   | once
get leases -A                                              | kube-system +rayched
get all                                                    | replicaset\.apps/few
get pods -l app=web                                        | web
get pods --field-selector=status.phase=Running             | web
get pods --sort-by=.metadata.name                          | web
get pods --show-labels                                     | app=web
get -f pod.yaml                                            | web
describe pod web                                           | Successfully assigned
describe node node-000                                     | Allocatable:
describe ns team                                           | Status: +Active
describe pdb few                                           | Min available: +1
events                                                     | Scheduled
events --for pod/web                                       | Scheduled
patch pod web -p {"metadata":{"labels":{"p":"1"}}}         | pod/web patched
patch pod web --type=merge -p {"metadata":{"labels":{"p":"2"}}} | pod/web patched
patch pod web --type=json -p [{"op":"remove","path":"/metadata/labels/p"}] | pod/web patched
label pod web tier=front                                   | pod/web labeled
label pod web tier=back                                    ! --overwrite is false
label pod web tier=back --overwrite                        | pod/web labeled
label pod web tier-                                        | pod/web unlabeled
annotate pod web note=as-it-was                            | pod/web annotated
edit pod web                                               | pod/web edited
set image pod/web main=registry.example/web:2              | pod/web image updated
replace -f pod.yaml                                        ! cannot be changed|is invalid|Conflict
replace --force -f pod.yaml                                | pod/web replaced
scale rs few --replicas=3                                  | replicaset\.apps/few scaled
taint node node-001 dedicated=x:NoSchedule                 | node/node-001 tainted
taint node node-001 dedicated-                             | node/node-001 untainted
cordon node-001                                            | node/node-001 cordoned
uncordon node-001                                          | node/node-001 uncordoned
run last --image=busybox --overrides={"spec":{"nodeName":"node-003"}} | pod/last created
drain node-003 --force --dry-run=server                    | \(server dry run\)
drain node-003 --force --ignore-daemonsets --delete-emptydir-data --timeout=60s | pod/last evicted
uncordon node-003                                          | node/node-003 uncordoned
rollout status rs/few                                      ! no status viewer has been implemented
logs web                                                   ! .
logs -l app=web --tail=1                                   ! .
exec web -- true                                           ! .
cp web:/x /dev/null                                        ! .
port-forward pod/nobody :80                                ! pods "nobody" not found
attach web                                                 ! .
top node                                                   ! metrics not available yet
auth can-i list pods                                       | ^yes
auth can-i delete events                                   ! ^no
auth whoami                                                | Username
delete pod solo --wait=false                               | pod "solo" deleted
delete pod pruned --grace-period=0 --force                 | pod "pruned" force deleted
delete pod other --cascade=foreground                      | pod "other" deleted
delete pods -l app=k                                       | pod "k-web" deleted
wait pod/solo --for=delete --timeout=60s                   |
delete -f dir                                              | poddisruptionbudget\.policy "few" deleted
delete job once                                            | job\.batch "once" deleted
delete rs few                                              | replicaset\.apps "few" deleted
delete pods --all                                          | pod "web" deleted
delete ns team                                             | namespace "team" deleted
"""


@dataclass(frozen=True)
class Typed:
    """A line of COMMANDS. `fails`: it ends with an error."""

    words: tuple[str, ...]
    stdin: str
    fails: bool
    said: str


def typed(line: str) -> Typed:
    found = re.fullmatch(r"(.+?) +([|!])(?: (.*))?", line.rstrip())
    assert found is not None, line
    command, mark, said = found.groups()
    words, _, file = command.partition(" < ")
    return Typed(tuple(words.split()), file.strip(), mark == "!", said or "")


COLOUR = re.compile("\x1b" + r"\[[0-9;]*m")
LINES = [typed(line) for line in COMMANDS.strip().splitlines()]
SINCE = {("auth", "whoami"): 28}
"""Minor versions of kubectl from which on a command asks for what Kubernetes 1.34 has."""
SAYS_OTHERWISE = {("1.27", ("annotate", "pod")): "pod/web annotate$"}


class ThreeReplicas:
    """The cluster, and kubectl through the gateway beside each replica."""

    def __init__(self, cluster: LocalCluster, client: Client, directory: Path) -> None:
        self.cluster = cluster
        self.client = client
        self.directory = directory
        assert cluster.tls is not None
        context = directory / "context.yaml"
        write_context_file(context, cluster.addresses, cluster.tls)
        urls = ",".join(f"https://{address}" for address in cluster.gateways)
        words = ["kubeconfig", "--context", str(context), "--gateway", urls, "-o", str(directory / "kubeconfig")]
        assert run_here(words).code == 0
        self.kubectl = Kubectl(directory / "kubeconfig", directory)

    def context_of(self, number: int) -> str:
        return "rayched" if number == 0 else f"rayched-{number}"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeReplicas]:
    directory = tmp_path_factory.mktemp("three")
    for name, text in FILES.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    pki = LocalPki(directory / "pki", REPLICAS, gateways=True)
    cluster = LocalCluster(
        directory / "up",
        REPLICAS,
        first_gateway_port=neighbouring_ports(REPLICAS),
        unsafe_no_fsync=True,
        options=["--workers", "0"],
        pki=pki,
    )
    with cluster, cluster.client(timeout_seconds=30.0) as client:
        wait_until_up(cluster, client)
        agents = HollowNodes(client, hollow_nodes(4, 2, NodeShape()), heartbeat_seconds=5.0)
        agents.register()
        agents.start()
        try:
            found = ThreeReplicas(cluster, client, directory)
            for number in range(REPLICAS):
                wait_until(
                    lambda number=number: found.kubectl("--context", found.context_of(number), "get", "nodes").code == 0,  # type: ignore[misc]
                    "each gateway answers",
                )
            yield found
        finally:
            agents.stop()


@pytest.mark.row("KC34")
def test_what_people_type_daily_does_what_its_documentation_says(three: ThreeReplicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(three.directory)
    failed = []
    for number, one in enumerate(LINES):
        if VERSION and int(VERSION.split(".")[1]) < SINCE.get(one.words[:2], 0):
            continue
        stdin = Path(one.stdin).read_text() if one.stdin else None
        # Through each of the three in turn.
        context = three.context_of(number % REPLICAS)
        result = three.kubectl("--context", context, *one.words, stdin=stdin)
        # Before 1.30 kubectl colours what `cluster-info` says, also for a pipe.
        said = COLOUR.sub("", "\n".join([result.out, *result.errors]))
        wanted = SAYS_OTHERWISE.get((VERSION, one.words[:2]), one.said)
        if (result.code != 0) is not one.fails or not re.search(wanted, said, re.MULTILINE):
            failed.append(f"kubectl {' '.join(one.words)}: {result.code}: {said[-300:]}")
    assert len(LINES) >= 60
    assert not failed, "\n".join(failed)


@pytest.mark.row("KC35")
def test_a_watch_and_a_wait_go_on_while_the_leader_is_killed(three: ThreeReplicas) -> None:
    leader = three.client.leader().address
    number, victim = next((n, one) for n, one in enumerate(three.cluster.replicas) if one.address == leader)
    # Its own gateway ends with it: whoever used that goes to another one, as a kubeconfig has them.
    context = ("--context", three.context_of((number + 1) % REPLICAS))
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\nspec: {containers: [{name: main, image: x}]}\n"
    three.kubectl.ok(*context, "apply", "-f", "-", stdin=pod.replace("NAME", "before"))
    with (
        three.kubectl.started(*context, "get", "pods", "-w", "-o", "name") as watch,
        three.kubectl.started(*context, "wait", "pod/before", "--for=delete", "--timeout=200s") as waits,
    ):
        assert watch.line_with("pod/before")
        assert victim.process is not None
        victim.process.kill()
        victim.wait(30.0)
        wait_until(lambda: three.kubectl(*context, "apply", "-f", "-", stdin=pod.replace("NAME", "after")).code == 0, "a write")
        assert watch.line_with("pod/after", 90.0)
        assert waits.process.poll() is None
        three.kubectl.ok(*context, "delete", "pod", "before")
        assert waits.process.wait(90.0) == 0
        ready = three.kubectl.ok(*context, "wait", "pod/after", "--for=condition=Ready", "--timeout=90s")
        assert ready == ["pod/after condition met"]
    victim.start()

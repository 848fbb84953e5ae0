"""The names of all keys in etcd, and the way back from a key to what it names.

```
<root>/cluster/<plural>/<namespace>/<name>   objects of kinds with a namespace     one watch follows <root>/cluster/:
<root>/cluster/<plural>/<name>               objects of the cluster's own kinds    all that scheduling reads
<root>/cluster/epoch                         the leader's epoch; its mod_revision is the fencing token
<root>/cluster/groupplans/<namespace>/<group> where the members of a pod group are going to be, until all are there
<root>/cluster/suspects/<uid>                pods in whose cycles schedulers died, and how often
<root>/cluster/taken/<number>                written with each pod that names its node itself; one key for some of the nodes
<root>/events/<namespace>/<name>             Events                                outside that watch: nothing decides by them
<root>/submissions/<uid>                     records of submissions
<root>/submissions/<namespace>/<uid>         the same, of uids that another namespace had before; _cluster for kinds without one
<root>/heartbeats/<node>                     signs of life of nodes
<root>/agents/<node>                         the agent that runs a node's pods; its mod_revision is the agent's incarnation
<root>/access/bindings/<id>                  role bindings: who may what
<root>/access/tokens/<id>                    bearer tokens, without their secrets
<root>/access/revoked/<id>                   certificates and identities that are refused
<root>/access/signed/<id>                    the newest certificate that was signed for an identity
<root>/leader/record                         the leader's record, rewritten at each renewal
<root>/leader/revocation                     who ended a leader's term before its lease did, and why; the last one
<root>/leader/followers/<identity>           who stands and does not lead, and which epoch it suspects
<root>/compaction                            revisions and when they were current
```

A part of a key never holds a slash, so a key names one thing only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from rayched.api.kinds import EVENT, KINDS, Kind

TAKEN_KEYS: Final = 1024
"""So many however many nodes there are, or are named: none of them ever has to be removed."""


PART_CHARACTERS_MAX: Final = 1024
"""No name or uid is that long; what is would be carried through every process for nothing."""

NO_NAMESPACE: Final = "_cluster"
"""Stands for the namespace of kinds without one: no name of a namespace begins with an underscore."""


class KeyTextError(ValueError):
    """A text that cannot be part of a key, or a root that cannot begin one."""


class ObjectKey(NamedTuple):
    """Names one object. `kind` as in a manifest ("Pod"); `namespace` is empty for kinds of the cluster."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Keys:
    """The keys below one root. Two clusters in one etcd have different roots."""

    def __init__(self, root: str = "/rayched") -> None:
        if not root.startswith("/") or root.endswith("/") or "\0" in root:
            raise KeyTextError(f"root {root!r} of the keys: want a text that begins with a slash and does not end with one")
        self.root: Final = root
        self.cluster_prefix: Final = f"{root}/cluster/".encode()
        self.events_prefix: Final = f"{root}/events/".encode()
        self.submissions_prefix: Final = f"{root}/submissions/".encode()
        self.heartbeats_prefix: Final = f"{root}/heartbeats/".encode()
        self.agents_prefix: Final = f"{root}/agents/".encode()
        self.access_prefix: Final = f"{root}/access/".encode()
        self.bindings_prefix: Final = self.access_prefix + b"bindings/"
        self.tokens_prefix: Final = self.access_prefix + b"tokens/"
        self.revoked_prefix: Final = self.access_prefix + b"revoked/"
        self.signed_prefix: Final = self.access_prefix + b"signed/"
        self.epoch: Final = f"{root}/cluster/epoch".encode()
        self.taken_prefix: Final = f"{root}/cluster/taken/".encode()
        self.group_plans_prefix: Final = f"{root}/cluster/groupplans/".encode()
        self.suspects_prefix: Final = f"{root}/cluster/suspects/".encode()
        self.record: Final = f"{root}/leader/record".encode()
        self.revocation: Final = f"{root}/leader/revocation".encode()
        self.followers_prefix: Final = f"{root}/leader/followers/".encode()
        self.compaction: Final = f"{root}/compaction".encode()
        self._prefixes: Final = {
            kind.name: self.events_prefix if kind is EVENT else self.cluster_prefix + f"{kind.plural}/".encode() for kind in KINDS
        }
        self._kinds: Final = {kind.plural.encode(): kind for kind in KINDS if kind is not EVENT}

    def prefix(self, kind: Kind, namespace: str = "") -> bytes:
        """What the keys of a kind begin with; of one namespace where one is given."""
        prefix = self._prefixes[kind.name]
        return prefix + key_part(namespace, "namespace") + b"/" if namespace else prefix

    def object_key(self, kind: Kind, namespace: str, name: str) -> bytes:
        """The key of one object; `namespace` is empty exactly for kinds of the cluster."""
        if kind.namespaced:
            return self._prefixes[kind.name] + key_part(namespace, "namespace") + b"/" + key_part(name, "name")
        if namespace:
            raise KeyTextError(f"{kind.name} {name!r}: namespace is {namespace!r}, but the kind has none")
        return self._prefixes[kind.name] + key_part(name, "name")

    def taken(self, node: str) -> bytes:
        """Whoever relies on a node's room relies on this key too: it changes when a pod takes room there unasked."""
        return self.cluster_prefix + _taken(node)

    def group_plan(self, namespace: str, name: str) -> bytes:
        """Of the plan of a pod group. Below the prefix that schedulers follow."""
        return self.group_plans_prefix + key_part(namespace, "namespace") + b"/" + key_part(name, "name")

    def submission(self, uid: str) -> bytes:
        """Of the record of a uid: whoever is the first to send a uid has it, and an object's uid is one object's."""
        return self.submissions_prefix + key_part(uid, "uid")

    def submission_in(self, namespace: str, uid: str) -> bytes:
        """Of what came of a uid that another namespace had before; `namespace` is empty for kinds of the cluster.

        Raises KeyTextError also for the text that stands for no namespace: none can be called that.
        """
        if namespace == NO_NAMESPACE:
            raise KeyTextError(f"namespace {namespace!r}: no namespace is called that")
        place = key_part(namespace, "namespace") if namespace else NO_NAMESPACE.encode()
        return self.submissions_prefix + place + b"/" + key_part(uid, "uid")

    def suspect(self, uid: str) -> bytes:
        """Of a pod in whose cycle a scheduler died. Below the prefix that schedulers follow."""
        return self.suspects_prefix + key_part(uid, "uid")

    def heartbeat(self, node: str) -> bytes:
        return self.heartbeats_prefix + key_part(node, "node's name")

    def parse(self, key: bytes) -> ObjectKey | None:
        """What object a key names; None for the epoch and all that is no object's key."""
        if key.startswith(self.cluster_prefix):
            plural, _, rest = key[len(self.cluster_prefix) :].partition(b"/")
            kind = self._kinds.get(plural)
        elif key.startswith(self.events_prefix):
            kind, rest = EVENT, key[len(self.events_prefix) :]
        else:
            return None
        if kind is None:
            return None
        namespace, slash, name = _text(rest).rpartition("/")
        if not name or "/" in namespace or bool(slash) != kind.namespaced or bool(namespace) != kind.namespaced:
            return None
        return ObjectKey(kind.name, namespace, name)

    def agent(self, node: str) -> bytes:
        """Outside the watched prefix: the agent itself and whoever writes for it are all that read it."""
        return self.agents_prefix + key_part(node, "node's name")

    def binding(self, id: str) -> bytes:
        """Outside the prefix that schedulers follow: nothing that is scheduled depends on it."""
        return self.bindings_prefix + key_part(id, "id of a role binding")

    def token(self, id: str) -> bytes:
        """Of the token with this id."""
        return self.tokens_prefix + key_part(id, "id of a token")

    def revocation_of(self, id: str) -> bytes:
        """Of a certificate or an identity that is refused."""
        return self.revoked_prefix + key_part(id, "id of a revocation")

    def signed(self, id: str) -> bytes:
        """Of the newest certificate of an identity."""
        return self.signed_prefix + key_part(id, "id of an identity")

    def node_of_heartbeat(self, key: bytes) -> str | None:
        return _tail(key, self.heartbeats_prefix)

    def group_of_plan(self, key: bytes) -> str | None:
        """namespace/name of the group whose plan lies under the key."""
        name = _text(key[len(self.group_plans_prefix) :]) if key.startswith(self.group_plans_prefix) else ""
        return name if name.count("/") == 1 and not name.startswith("/") and not name.endswith("/") else None

    def uid_of_suspect(self, key: bytes) -> str | None:
        return _tail(key, self.suspects_prefix)

    def uid_of_submission(self, key: bytes) -> str | None:
        return _tail(key, self.submissions_prefix)


@lru_cache(maxsize=8_192)
def _taken(node: str) -> bytes:
    """Behind the cluster's prefix. Each binding asks."""
    return b"taken/%d" % (crc32(node.encode(errors="surrogatepass")) % TAKEN_KEYS)


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all keys that begin with the prefix: etcd's `range_end`."""
    stem = prefix.rstrip(b"\xff")
    # etcd reads a single zero byte as "to the end of all keys".
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\0"


def key_part(text: str, what: str) -> bytes:
    """A text as a part of a key; raises KeyTextError, which calls it `what`."""
    if not text or "/" in text or "\0" in text:
        raise KeyTextError(f"{what} {text[:80]!r}: want a text that is not empty and holds no slash and no zero byte")
    if len(text) > PART_CHARACTERS_MAX:
        raise KeyTextError(f"{what} {text[:80]!r}...: has {len(text)} characters, and {PART_CHARACTERS_MAX} is the most")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise KeyTextError(f"{what} {text[:80]!r}: is not valid Unicode") from error


def _text(data: bytes) -> str:
    """Empty for what is not UTF-8: no key of ours."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""


def _tail(key: bytes, prefix: bytes) -> str | None:
    tail = _text(key[len(prefix) :]) if key.startswith(prefix) else ""
    return tail if tail and "/" not in tail else None

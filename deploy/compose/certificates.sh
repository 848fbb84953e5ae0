#!/bin/sh
# Issues what the services of compose.yaml show each other, and anew each time it runs; whoever runs meanwhile reads it again.
#
# There are two authorities, as whoever has a certificate of etcd's may do everything there: one for etcd's members and the
# replicas, as its clients, and one for all who talk with the replicas. Each holder has a directory of its own and nobody else's.
set -eu

TLS="${TLS:-/tls}"
# Of rayched in its image. The members of etcd are root, without any capability.
OWNER="${OWNER:-7420:7420}"
HOST_SERVERS="${HOST_SERVERS:-127.0.0.1:7420,127.0.0.1:7421,127.0.0.1:7422}"
SERVERS="${SERVERS:-replica-1:7420,replica-2:7420,replica-3:7420}"

for authority in etcd cluster; do
  [ -e "$TLS/authorities/$authority/ca.crt" ] || rayched pki init --dir "$TLS/authorities/$authority"
done

issue() { # AUTHORITY DIRECTORY KIND NAME OPTION...
  authority="$TLS/authorities/$1" directory="$TLS/$2"
  shift 2
  rayched pki issue "$@" --dir "$authority" --out "$directory"
}

for number in 1 2 3; do
  # All members have the name `etcd` as well: a replica asks each of them for it.
  issue etcd "etcd-$number/member" etcd "etcd-$number" --san "etcd-$number,etcd"
  issue etcd "replica-$number/etcd" etcd "replica-$number"
  issue cluster "replica-$number/api" replica "replica-$number" --san "replica-$number"
  # All at once, as a replica reads it again meanwhile.
  cp "$TLS/authorities/cluster/revoked" "$TLS/replica-$number/api/revoked.new"
  chown -R "$OWNER" "$TLS/replica-$number"
  mv "$TLS/replica-$number/api/revoked.new" "$TLS/replica-$number/api/revoked"
done
issue cluster admin/user user admin --servers "$HOST_SERVERS"
issue cluster hollow/nodes nodes hollow --servers "$SERVERS"
chown -R "$OWNER" "$TLS/admin" "$TLS/hollow"

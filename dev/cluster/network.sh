#!/bin/sh
# Lays out a cluster's network and becomes the process that holds it.
#
# Runs in a fresh network namespace. Pods hang on the bridge `pods` (see
# cni/bridge); the bridge is their gateway, and has the node's own address too.
#
# usage: network.sh ADDRESS INIT IDENTITY
set -eu
ip link set lo up
# The bridge has a hardware address of its own: without one it takes that of a port, and changes it as
# pods come and go; their neighbours learn that only after seconds.
ip link add pods address 02:00:0a:f4:00:01 type bridge
ip address add 10.244.0.1/24 dev pods
ip address add "$1/32" dev pods
ip link set pods up
exec "$2" "$3"

#!/bin/sh
# Starts docker's daemon in a root of its own, Debian's with docker, and stays as process 1.
#
# Runs in fresh mount, network and process namespaces, so that all it makes ends with process 1:
# containers, mounts, bridges, rules. The root is an overlay, in which nothing is kept. The paths are the
# machine's, and are there under the same names.
#
# usage: engine.sh ROOT STATE DATA INIT PATH...
set -eu
base=$1 state=$2 data=$3 init=$4
shift 4

layers=$state/root
mkdir -p "$layers"
mount -t tmpfs -o mode=755 docker "$layers"
mkdir "$layers/upper" "$layers/work" "$layers/merged"
root=$layers/merged
mount -t overlay docker -o "lowerdir=$base,upperdir=$layers/upper,workdir=$layers/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 run "$root/run"
for path in "$state" "$data" "$@"; do
    mkdir -p "$root$path"
    mount --bind "$path" "$root$path"
done
ip link set lo up
cd "$root"
mkdir -p .machine
pivot_root . .machine
umount -l /.machine
mount --make-rshared /
mkdir -p /lib/modules
cd /
PATH=/usr/sbin:/usr/bin:/sbin:/bin dockerd --data-root "$data" --exec-root "$state/exec" \
    --host "unix://$state/docker.sock" --pidfile "$state/docker.pid" \
    --cgroup-parent "/${state##*/}" &
exec "$init"

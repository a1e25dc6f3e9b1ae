#!/bin/sh
# Starts docker's daemon in a root of its own, Debian's with docker, and stays as process 1.
#
# Runs in fresh mount, network and process namespaces, so that all it makes ends with process 1:
# containers, mounts, bridges, rules. The root is an overlay, in which nothing is kept. The paths are the
# machine's, and are there under the same names.
#
# usage: engine.sh ROOT STATE DATA INIT PATH...
set -eu
exec 9>"$3.lock"
flock --nonblock 9 || {
    echo "another docker of our own runs; \`just kind down\` ends that of \`just kind up\`" >&2
    exit 1
}
base=$1 state=$2 data=$3 init=$4
shift 4
read -r pid _ </proc/self/stat # as the processes outside number them
echo "$pid" >"$state/pid"
# What containers of a killed one have left could not be removed else.
chattr -R -f -i "$data/volumes" 2>/dev/null || true
for mount in "$data"/image/overlay2/layerdb/mounts/*/mount-id; do
    [ ! -e "$mount" ] || chattr -R -f -i "$data/overlay2/$(cat "$mount")/diff" 2>/dev/null || true
done

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

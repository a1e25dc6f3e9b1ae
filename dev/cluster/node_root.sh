#!/bin/sh
# Gives the node a root of its own and becomes its process 1.
#
# Runs in a fresh mount and process namespace. The new root is an overlay: the
# machine's files below, a tmpfs for every write above, so that the node's
# /etc/cdi, /var/lib/kubelet or /usr/local/Ascend are the real paths and the
# machine's are never touched. All of it ends with process 1.
#
# usage: node_root.sh STATE PROGRAMS INIT [SOURCE TARGET]...
set -eu
state=$1 programs=$2 init=$3
shift 3

layers=$state/root
mkdir -p "$layers"
mount -t tmpfs -o mode=755 node "$layers"
mkdir "$layers/upper" "$layers/work" "$layers/merged"
root=$layers/merged
mount -t overlay node \
    -o "lowerdir=/,upperdir=$layers/upper,workdir=$layers/work" "$root"

# bind SOURCE TARGET: shows a file or folder at a path of the node.
bind() {
    if [ -d "$1" ]; then
        mkdir -p "$root$2"
    else
        mkdir -p "$root${2%/*}"
        [ -e "$root$2" ] || : >"$root$2"
    fi
    mount --rbind "$1" "$root$2"
}

# device NAME MAJOR MINOR: a character device that every machine has.
device() {
    [ -e "$root/dev/$1" ] || mknod -m 666 "$root/dev/$1" c "$2" "$3"
}

# settled NAME VALUE: the kubelet wants this kernel parameter, and writes it if
# it differs. A file with the value hides it, because it is the machine's.
settled() {
    [ -e "$root/proc/sys/$1" ] || return 0
    echo "$2" >"$layers/${1##*/}"
    mount --bind "$layers/${1##*/}" "$root/proc/sys/$1"
}

mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=755 dev "$root/dev"
mkdir -p "$root$state" "$state/kubelet"
mount --bind "$state" "$root$state"
bind "$programs" "$programs"
bind "$state/kubelet" /var/lib/kubelet

while [ $# -gt 0 ]; do
    bind "$1" "$2"
    shift 2
done

device null 1 3
device zero 1 5
device full 1 7
device random 1 8
device urandom 1 9
device tty 5 0
device kmsg 1 11
mkdir -p "$root/dev/pts" "$root/dev/shm" "$root/dev/mqueue"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t mqueue mqueue "$root/dev/mqueue"
ln -sf pts/ptmx "$root/dev/ptmx"
ln -sf /proc/self/fd "$root/dev/fd"

settled vm/overcommit_memory 1
settled vm/panic_on_oom 0
settled kernel/panic 10
settled kernel/panic_on_oops 1
settled kernel/keys/root_maxkeys 1000000
settled kernel/keys/root_maxbytes 25000000

cd "$root"
mkdir -p .machine
pivot_root . .machine
umount -l /.machine
# A host's mounts are shared, and pods may ask for mountPropagation.
mount --make-rshared /
exec "$init"

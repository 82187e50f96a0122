#!/bin/sh
# Runs a program as if on another host: ranks from 1 on have another boot id, two of them the same
# one. usage: host.sh DIRECTORY PROGRAM ARGUMENTS...
directory=$1
shift
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
[ "$rank" = 0 ] && exec "$@"
host=$rank
[ "$rank" = 3 ] && host=1
id=$directory/boot-$host-$rank
echo "00000000-0000-4000-8000-00000000000$host" >"$id"
exec unshare --mount sh -c 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"' "$id" "$@"

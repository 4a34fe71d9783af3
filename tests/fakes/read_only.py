"""A machine whose file systems can't be written, for a command in a mount namespace of its own."""

READ_ONLY = """
set -e
mount --bind "$1" "$1"
for place in / /tmp /var/tmp; do
    ! mountpoint -q $place || mount -o remount,bind,ro $place
done
shift
exec "$@"
"""
"""A shell that lets a command write to its first argument and nowhere else."""

#!/bin/sh
# MuJoCo draws cube and reacher with an off-screen OpenGL library. If there is none, install Debian's
# package; without the rights, print the command that does. The caller goes on either way.
set -u
has_gl() {
    "$PYTHON" -c 'import sys; from goalward.tasks.rendering import available_backends; sys.exit(not available_backends())'
}
has_gl && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing an off-screen GL library, which MuJoCo draws with"
    apt-get update -qq
    # Newer releases of Mesa have no OSMesa; EGL with a software driver does as well.
    for packages in "libosmesa6" "libegl1 libopengl0 libgl1-mesa-dri"; do
        # shellcheck disable=SC2086 -- several packages
        apt-get install -y -qq $packages >/dev/null 2>&1 && has_gl && exit 0
    done
fi
echo "goalward: no off-screen GL library, so cube and reacher cannot be drawn; as root: apt-get update && apt-get install -y libosmesa6" >&2
exit 0

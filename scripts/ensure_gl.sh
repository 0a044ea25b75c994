#!/bin/sh
# MuJoCo draws cube and reacher through an off-screen OpenGL library. Install Debian's if none is
# there and we are allowed to; otherwise say how, in one line.
set -eu
has_gl() {
    "$PYTHON" -c 'import sys; from goalward.tasks.gl import available_backends; sys.exit(not available_backends())'
}
has_gl && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing libosmesa6, the off-screen GL library that MuJoCo draws with"
    apt-get update -qq && apt-get install -y -qq libosmesa6 >/dev/null
    has_gl && exit 0
fi
echo "goalward: no off-screen GL library; run as root: apt-get update && apt-get install -y libosmesa6" >&2
exit 2

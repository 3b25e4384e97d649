#!/bin/sh
# can_make_venv.sh PYTHON GOALS: fails, and says what to type, when PYTHON is too old for lockd or can't make virtual
# environments. Without ensurepip (Debian splits it off into python3-venv) `python -m venv` leaves half a folder: so this
# looks first, and as root installs what is missing.
set -eu
python=$1
package=${python##*/}-venv

has_venv() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null
}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "lockd needs Python 3.11 or newer, $python is $("$python" --version 2>&1): make PYTHON=python3.12 $2" >&2
    exit 1
fi
if has_venv; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "$python can't make virtual environments. Type: sudo apt-get install $package" >&2
    exit 1
fi
echo "$python has no venv: installing $package"
exec 9</var/lib/dpkg
flock 9 # as install.sh does, which may run beside this
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null

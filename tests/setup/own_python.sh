#!/bin/sh
# own_python.sh: prints the Python of the distribution, if it is new enough for lockd and makes virtual environments.
exec /usr/bin/python3 -c 'import ensurepip, sys, venv; print("/usr/bin/python3" * (sys.version_info >= (3, 11)))' 2>/dev/null

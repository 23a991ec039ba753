#!/bin/sh
# make_environment.sh DIR REQUIREMENTS...: a virtual environment with hashed requirements and this project in it.
# Made anew when a requirement file or pyproject.toml changed; a half-made one is recognised and made again.
set -eu
dir=$1
shift
python=${PYTHON:-python3}
stamp="$dir/.made-from"

if ! command -v "$python" >/dev/null 2>&1; then
    echo "Python is missing. On Debian: apt-get install python3 python3-venv" >&2
    exit 2
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Python 3.11 or newer is needed, but $("$python" -V) was found. Name another one: make PYTHON=python3.12 ..." >&2
    exit 2
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "Python's venv module is missing. On Debian: apt-get install python3-venv" >&2
    exit 2
fi
wanted=$(cat pyproject.toml "$@" | sha256sum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi
echo "Making the environment $dir (about a minute) ..."
rm -rf "$dir"
"$python" -m venv "$dir"
for file in "$@"; do
    # Each file is complete. pip's own look at dependencies would refuse those with extras: they are pinned without.
    "$dir/bin/pip" install -qq --disable-pip-version-check --require-hashes --no-deps -r "$file"
done
"$dir/bin/pip" install -qq --disable-pip-version-check --no-deps --no-build-isolation --no-index -e .
"$dir/bin/python" -c 'import service.contract, runners' # fails here rather than later when something did not install
echo "$wanted" > "$stamp"

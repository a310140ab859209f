# shellcheck shell=bash
# Sourced by bin/demo and bin/test: makes .venv beside the project and installs the project into it, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_python() {
    for name in "${PYTHON:-}" python3.13 python3.12 python3.11 python3 python; do
        if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 \
            && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "pgczmq needs Python 3.11 or newer; set PYTHON=/path/to/python." >&2
    exit 2
}

# install [EXTRA]: nothing to do when it was done for the same pyproject.toml before.
install() {
    local wanted
    wanted="$(cat pyproject.toml; echo "$1")"
    if [ -x .venv/bin/python ] && [ "$(cat .venv/installed 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    echo "Setting up .venv (PyTorch is large: this takes a few minutes the first time) ..."
    [ -x .venv/bin/python ] || "$(find_python)" -m venv .venv
    .venv/bin/python -m pip install --quiet --editable ".$1"
    echo "$wanted" >.venv/installed
}

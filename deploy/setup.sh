#!/usr/bin/env bash
# Makes this machine ready for Nightschool. Every step looks first and does nothing when there is nothing to do,
# so it may be repeated, or interrupted and started again, at any time. `make` calls it.
#
#   deploy/setup.sh env                   .venv, from the pinned requirements
#   deploy/setup.sh docker                a Docker engine that answers
#   deploy/setup.sh image                 the base image of the sandboxes
#   deploy/setup.sh --optional STEP...    what cannot be done is reported, and is no failure
#   deploy/setup.sh run COMMAND...        run COMMAND as a member of the group docker
#
# NIGHTSCHOOL_YES=1  install system packages without asking; 0 never installs any. Without a terminal nobody is asked.
# NIGHTSCHOOL_MIN_FREE_GB=12  what the first set-up needs on disk, in GB.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=deploy/system.sh
. deploy/system.sh

UV_VERSION=0.13.9
PYTHON_RANGE=">=3.12,<3.15"

# Free space in GB where directory $1 is, or will be.
free_gb() {
    local dir=$1
    while [ ! -d "$dir" ]; do dir=$(dirname "$dir"); done
    df -Pk "$dir" | awk 'NR == 2 { print int($4 / 1024 / 1024) }'
}

require_space() {
    local need=${NIGHTSCHOOL_MIN_FREE_GB:-12} dir free
    for dir in "$PWD" "${UV_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/uv}"; do
        free=$(free_gb "$dir")
        [ "$free" -ge "$need" ] || fail "not enough disk space for $dir: $free GB free, the first set-up needs about $need GB." \
            "Free some, move the checkout (or UV_CACHE_DIR) to a larger disk, or lower NIGHTSCHOOL_MIN_FREE_GB if you know better."
    done
}

# Prints the path of a working uv: the user's own, or one of ours in .venv-uv.
find_uv() {
    local candidate
    for candidate in "$(command -v uv || true)" "$PWD/.venv-uv/bin/uv"; do
        # A pyenv shim exists even where the active Python has no uv: only running it tells.
        if [ -n "$candidate" ] && "$candidate" --version >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

# pip --target works without venv, and where Debian marks its Python as externally managed.
install_uv_with() {
    rm -rf .venv-uv
    PIP_ROOT_USER_ACTION=ignore "$1" -m pip install --quiet --disable-pip-version-check --target .venv-uv "uv==$UV_VERSION" >&2 && find_uv
}

obtain_uv() {
    local python
    if find_uv; then return; fi
    say "getting uv $UV_VERSION"
    for python in python3 python3.12 python3.13 python3.14; do
        if "$python" -m pip --version >/dev/null 2>&1; then
            install_uv_with "$python" && return
        fi
    done
    say "no Python with pip here"
    system_packages "python3-pip, to install uv" python3-pip python3 || fail "uv is missing, and there is no pip to install it with." \
        "Install uv (for example: pipx install uv), or pip for your python3, then run this again."
    install_uv_with python3 || fail "pip could not install uv $UV_VERSION." "See its message above; then run this again."
}

# Succeeds where $1 is an ordinary CPython in our range with the modules the pipeline needs.
python_fits() {
    "$1" -c 'import sys, sysconfig, bz2, ctypes, lzma, sqlite3, ssl
sys.exit(not ((3, 12) <= sys.version_info[:2] < (3, 15)) or bool(sysconfig.get_config_var("Py_GIL_DISABLED")))' >/dev/null 2>&1
}

# Prints a Python for .venv: on the PATH, of pyenv, or what uv knows or fetches.
find_python() {
    local uv=$1 candidate
    for candidate in python3.12 python3.13 python3.14 python3 \
        {"${PYENV_ROOT:-$HOME/.pyenv}","$HOME/.pyenv"}/versions/3.1[234]*/bin/python; do
        if python_fits "$candidate"; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    if candidate=$("$uv" python find --no-project "$PYTHON_RANGE" 2>/dev/null) && python_fits "$candidate"; then
        echo "$candidate"
        return
    fi
    say "no Python $PYTHON_RANGE here: uv fetches one"
    "$uv" python install 3.12 >&2 || fail "no Python $PYTHON_RANGE was found, and uv could not fetch one." \
        "Install python3.12 or newer (Debian, Ubuntu: apt-get install python3.12; or pyenv install 3.12), then run this again."
    "$uv" python find --no-project 3.12
}

# What .venv is made from. A change of any of it makes the environment anew.
env_digest() {
    { cat requirements/pipeline.txt requirements/dev.txt pyproject.toml; echo "$PWD"; } | git hash-object --stdin
}

env_is_current() {
    [ "$(cat .venv/.nightschool 2>/dev/null)" = "$(env_digest)" ] && .venv/bin/python -c '' 2>/dev/null
}

make_env() {
    local uv python
    if env_is_current; then return; fi
    [ -x .venv/bin/python ] || require_space
    uv=$(obtain_uv)
    # An interrupted installation leaves half a package that looks whole: then start over, from uv's cache.
    if [ -e .venv/.unfinished ] || ! python_fits .venv/bin/python; then
        python=$(find_python "$uv")
        say "making .venv with $("$python" --version) ($python)"
        "$uv" venv --quiet --clear --python "$python" .venv
    fi
    rm -f .venv/.nightschool
    touch .venv/.unfinished
    say "installing the pinned packages into .venv: about 3 GB to download the first time (torch and its libraries)"
    heartbeat "$uv" pip install --python .venv/bin/python -r requirements/pipeline.txt -r requirements/dev.txt ||
        fail "the packages could not be installed." "See uv's message above. Running this again continues with what is already there."
    "$uv" pip install --quiet --python .venv/bin/python --no-deps --editable .
    env_digest >.venv/.nightschool
    rm .venv/.unfinished
    say ".venv is ready"
}

# Runs one step; with --optional its failure is a remark, and ends the set-up early.
step() {
    local state
    # Not `(...) || state=$?`: there bash would ignore set -e inside the step.
    set +e
    (set -e; "$1")
    state=$?
    set -e
    [ "$state" != 0 ] || return 0
    [ "$optional" = yes ] && [ "$state" = 1 ] || exit "$state"
    say "going on without it: what needs it will be skipped"
    exit 0
}

main() {
    local optional=no name
    if [ "${1:-}" = run ]; then
        shift
        run_with_docker "$@"
    fi
    one_at_a_time
    for name in "$@"; do
        case $name in
            --optional) optional=yes ;;
            env) step make_env ;;
            docker) step ensure_docker ;;
            image) step ensure_image ;;
            *) sed -n '5,9s/^# *//p' "$0" >&2; exit 2 ;;
        esac
    done
}

main "$@"

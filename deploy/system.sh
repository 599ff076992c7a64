# shellcheck shell=bash
# What deploy/setup.sh and deploy/base_image.sh share, and what concerns the system: packages, Docker, the base image.
# To be sourced in the checkout's top directory.

BASE_IMAGE=nightschool-base:bookworm

say() { printf 'nightschool: %s\n' "$*" >&2; }

# fail WHAT REMEDY
fail() {
    say "$1"
    shift
    printf '             %s\n' "$@" >&2
    exit 1
}

# Two set-ups at once would undo each other's work. The lock ends with the process.
one_at_a_time() {
    command -v flock >/dev/null || return 0
    exec 9>.setup.lock
    if flock --nonblock 9; then return; fi
    say "waiting for another set-up of this checkout to end"
    flock 9
}

# heartbeat COMMAND...: runs COMMAND. Where there is no terminal for its own progress bars, says every half minute
# how long it has run and how much it has put on this disk.
heartbeat() {
    local ticker state=0
    if [ -t 2 ]; then
        "$@" 9>&-
        return
    fi
    (
        exec 9>&-
        used() { df -Pk . | awk 'NR == 2 { printf "%d", $3 / 1024 }'; }
        before=$(used)
        while sleep 30; do say "... $SECONDS s, $(($(used) - before)) MB so far"; done
    ) &
    ticker=$!
    "$@" 9>&- || state=$?
    kill "$ticker" 2>/dev/null
    wait "$ticker" 2>/dev/null || true
    return "$state"
}

# Runs a command as root, with sudo if we are not.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# consent QUESTION: whether the system may be changed. Without a terminal, silence is consent.
consent() {
    local answer
    case ${NIGHTSCHOOL_YES:-} in 0) return 1 ;; 1) return 0 ;; esac
    if [ ! -t 0 ] || [ -n "${CI:-}" ]; then return 0; fi
    read -r -p "nightschool: $1 [Y/n] " answer
    case $answer in [nN]*) return 1 ;; esac
}

# system_packages WHY PACKAGE...: installs them with apt; fails where that is not possible or not wanted.
system_packages() {
    local why=$1
    shift
    command -v apt-get >/dev/null || return 1
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || return 1
    consent "$why is missing. Install with apt-get: $*?" || return 1
    say "installing with apt-get: $*"
    as_root apt-get update -q >&2 9>&- || say "apt-get update failed; trying with the lists that are there"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >&2 9>&-
}

docker_answers() { command -v docker >/dev/null && timeout 20 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# The engine answers root but not us: a group is missing, not an engine.
docker_refuses_us() {
    # Not piped into grep: docker's own failure would be the pipeline's.
    case $(docker version 2>&1) in *[Pp]'ermission denied'*) return 0 ;; *) return 1 ;; esac
}

in_docker_group() {
    case " $(id -nG "$(id -un)") " in *' docker '*) return 0 ;; *) return 1 ;; esac
}

wait_for_docker() {
    local second
    for second in $(seq 60); do
        docker_answers || docker_refuses_us && return
        [ "$second" != 10 ] || say "waiting for the Docker engine"
        sleep 1
    done
    return 1
}

start_docker() {
    local log=/var/log/nightschool-dockerd.log
    say "starting the Docker engine"
    if [ -d /run/systemd/system ]; then
        as_root systemctl enable --now docker >&2
    else
        # A session of its own: Ctrl-C in this terminal must not end the engine.
        as_root sh -c "nohup setsid dockerd >$log 2>&1 </dev/null &" 9>&-
    fi
    if wait_for_docker; then return; fi
    [ ! -e $log ] || tail -n 15 $log >&2
    fail "the Docker engine did not start." "See its log (journalctl -u docker, or $log). In a container it needs --privileged."
}

join_docker_group() {
    local me
    if ! docker_refuses_us || in_docker_group; then return; fi
    me=$(id -un)
    if ! consent "$me may not use Docker. Add $me to the group docker (it controls the engine, and so this machine)?" ||
        ! as_root usermod -aG docker "$me"; then
        fail "the Docker engine does not let $me in." \
            "Run: sudo usermod -aG docker $me, then log in again. Or run make as root."
    fi
}

ensure_docker() {
    local remedy="Install Docker Engine or Docker Desktop for your system and start it; \`docker info\` must answer. Then run this again."
    if docker_answers; then return; fi
    if [ -n "${DOCKER_HOST:-}" ]; then
        fail "no Docker engine answers at DOCKER_HOST=$DOCKER_HOST." "Start it, or unset DOCKER_HOST to use this machine's own."
    fi
    if ! command -v docker >/dev/null || { ! docker_refuses_us && ! command -v dockerd >/dev/null; }; then
        system_packages "a Docker engine" docker.io || fail "no Docker engine answers: the sandboxes need one." "$remedy"
    fi
    docker_answers || docker_refuses_us || start_docker
    join_docker_group
    (run_with_docker docker version --format 'nightschool: Docker engine {{.Server.Version}} answers') >&2 ||
        fail "the Docker engine still does not answer." "$remedy"
}

# Replaces this shell by COMMAND, with the group docker that we may have joined since we logged in.
run_with_docker() {
    if docker_answers || ! command -v sg >/dev/null || ! in_docker_group; then
        exec "$@"
    fi
    exec sg docker -c "$(printf '%q ' "$@")"
}

ensure_image() {
    if (run_with_docker docker image inspect "$BASE_IMAGE") >/dev/null 2>&1; then return; fi
    (run_with_docker docker version) >/dev/null 2>&1 ||
        fail "the base image needs a Docker engine, and none answers." "Run deploy/setup.sh docker."
    run_with_docker bash deploy/base_image.sh 9>&-
}

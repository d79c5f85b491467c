# Sourced by other scripts: installs Debian packages, or says which command would.

# install_packages PACKAGE...: as root or through sudo. Fails with the exact command where neither is possible.
install_packages() {
    if [ "$(id -u)" -eq 0 ]; then
        as_root=""
    elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        as_root="sudo"
    else
        as_root="none"
    fi
    if [ "$as_root" = none ] || ! command -v apt-get >/dev/null 2>&1; then
        echo "expected: the package(s) $* on this machine; found: not installed, and no right to install them." >&2
        echo "Run as root on Debian or Ubuntu: apt-get update && apt-get install -y $*" >&2
        return 1
    fi
    echo "installing the Debian package(s) $*" >&2
    $as_root apt-get -qq update
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" </dev/null >/dev/null
}

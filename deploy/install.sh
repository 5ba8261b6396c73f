#!/usr/bin/env bash
# Makes the virtual environment: torch first, in the build that fits this machine, then the lock.
#
#   TAN_TORCH        cpu | cuda        default: cuda where an NVIDIA driver answers, else cpu
#   TAN_TORCH_INDEX  URL               an extra index that holds torch's CPU build
#   LOCK             FILE              default: requirements.lock
#   EDITABLE         yes | no | none   default: yes, the sources are used where they lie; none: not installed here
#
# Why torch is not in requirements.lock: one version exists in two builds, and on Linux the build of
# the default index brings several gigabytes of CUDA packages with it. The version is the same in
# both; torch pins its CUDA packages exactly, so neither build floats.
set -euo pipefail

python="${PYTHON:-python3}"
venv="${VENV:-.venv}"
version="${TORCH_VERSION:?}"

"$python" - <<'PY' || { echo "install: Python 3.11 or newer is needed (set PYTHON=...)" >&2; exit 1; }
import sys
sys.exit(sys.version_info < (3, 11))
PY

if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  echo "install: making $venv"
  "$python" -m venv --clear "$venv"
fi
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)

build="${TAN_TORCH:-}"
if [ -z "$build" ]; then
  build=cpu
  if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; then build=cuda; fi
fi
# Only the Linux wheels of the default index carry CUDA; elsewhere the plain wheel is the CPU build.
if [ "$build" = cpu ] && [ "$(uname -s)" = Linux ]; then wanted="torch==$version+cpu"; else wanted="torch==$version"; fi

have="$("$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null || true)"
case "$wanted:$have" in
  "torch==$have:$have") ;;
  "torch==$version:$version"*) ;;
  *)
    echo "install: $wanted ($build build)"
    index=()
    if [ -n "${TAN_TORCH_INDEX:-}" ]; then index=(--extra-index-url "$TAN_TORCH_INDEX"); fi
    if ! "${pip[@]}" install "${index[@]}" "$wanted"; then
      echo "install: pip did not install $wanted; what it says stands above" >&2
      if [ "$build" = cpu ]; then
        cat >&2 <<MSG
  Where it found no such version: the CPU build lives in PyTorch's own wheel index ("Get started" on the PyTorch site,
  choose CPU). Then either
    make setup TAN_TORCH_INDEX=<that index>     takes the CPU build from there, or
    make setup TAN_TORCH=cuda                   takes the default build, with several GB of CUDA.
MSG
      fi
      exit 1
    fi
    ;;
esac

lock="${LOCK:-requirements.lock}"
echo "install: $lock"
"${pip[@]}" install --no-deps --require-hashes -r "$lock"
case "${EDITABLE:-yes}" in
  yes) "${pip[@]}" install --no-deps --no-build-isolation -e . ;;
  no) "${pip[@]}" install --no-deps --no-build-isolation . ;;
  none) ;;
  *) echo "install: EDITABLE is yes, no or none" >&2; exit 1 ;;
esac
echo "install: done"

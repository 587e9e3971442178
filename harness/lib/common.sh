# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the shell programs of the harness share. Sourced, after `set -eu`.

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
BUILD=${ODP_BUILD:-$TOP/build}
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/rdma-odp
JOBS=${JOBS:-$(nproc)}
export TOP BUILD CACHE JOBS

# A fresh clone finds what another one has compiled: paths below the build
# folder do not count, and neither does the folder the compiler ran in.
export CCACHE_DIR=$CACHE/ccache CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$BUILD
export CCACHE_SLOPPINESS=time_macros CCACHE_MAXSIZE=5G
# What a file includes comes from the compiler's -MMD: no preprocessor of its own.
export CCACHE_DEPEND=1
# Neither do the time and the machine a kernel was built at.
export KBUILD_BUILD_TIMESTAMP='1970-01-01' KBUILD_BUILD_USER=odp KBUILD_BUILD_HOST=guest
export KBUILD_BUILD_VERSION=1

die() { echo "${0##*/}: $*" >&2; exit 1; }
note() { echo "${0##*/}: $*"; }

need()
{
	command -v "$1" >/dev/null || die "$1 is not installed; 'make deps' installs it"
}

# What the assembled tree holds, as one word: commits by content, edits by hash.
tree_state()
{
	local index=$BUILD/.state-index

	rm -f "$index"
	cp "$(git -C "$1" rev-parse --absolute-git-dir)/index" "$index"
	GIT_INDEX_FILE=$index git -C "$1" add -A . &&
	GIT_INDEX_FILE=$index git -C "$1" write-tree
	rm -f "$index"
}

# Two builds at once would only fight for the same processors.
build_lock()
{
	mkdir -p "$BUILD"
	exec 9>"${ODP_LOCK:-$BUILD/.lock}"
	flock 9
}

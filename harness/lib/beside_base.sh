# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For programs that run the same thing on the base kernel and on ours. Sourced
# after common.sh.

# quietly LOG COMMAND...: nobody wants to see it, unless it fails
quietly()
{
	local log=$1

	shift
	"$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2; die "${1##*/} failed, see $log"; }
}

# two_kernels LOG [BASE [OURS]]: kernel[base] and kernel[ours], as harness/vm names them
two_kernels()
{
	declare -gA kernel=([base]=${2:-base} [ours]=${3:-plain})
	[ "${kernel[base]}" != base ] || quietly "$1" "$TOP/harness/kernel" build base
}

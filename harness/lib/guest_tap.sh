# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# KTAP for shell tests that run in the guest. Sourced.

points=0
failures=0

# try NAME COMMAND...: a test is a command; what it prints explains a failure
try()
{
	local name=$1 output status

	shift
	points=$((points + 1))
	output=$("$@" 2>&1)
	status=$?
	if [ $status = 0 ]; then
		echo "ok $points $name"
		return
	fi
	failures=$((failures + 1))
	printf '%s\n' "$output" | tail -n 20 | sed 's/^/# /'
	echo "not ok $points $name # status $status"
}

# fails ERROR COMMAND...: the command must fail, and say ERROR
fails()
{
	local error=$1 output

	shift
	if output=$("$@" 2>&1); then
		echo "'$*' succeeded"
		return 1
	fi
	case $output in
	*"$error"*) return 0 ;;
	esac
	echo "'$*' failed with '$output', not with '$error'"
	return 1
}

finish()
{
	echo "1..$points"
	[ $failures = 0 ]
	exit
}

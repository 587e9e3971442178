#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Stands in for the tests where the build machine could not compile them.
echo "TAP version 13"
echo "1..0 # SKIP libibverbs (infiniband/verbs.h) or a C++17 compiler not found at build time"
exit 4

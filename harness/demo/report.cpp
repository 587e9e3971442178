// SPDX-License-Identifier: GPL-2.0
#include "report.hpp"

#include <cstdio>

void Report::step(const std::string &text, const std::string &left, const std::string &right)
{
	if (left.empty())
		printf("%d %s\n", ++steps_, text.c_str());
	else
		printf("%d %-40s%15s%15s\n", ++steps_, text.c_str(), left.c_str(), right.c_str());
	fflush(stdout);
}

void Report::verdict(bool ok)
{
	claims_++;
	failed_ += !ok;
	printf("  %s\n", ok ? "ok" : "FAILED");
	fflush(stdout);
}

void Report::row(const std::string &what, const std::string &seen, bool ok)
{
	printf("    %-38s%30s", what.c_str(), seen.c_str());
	verdict(ok);
}

void Report::row(const std::string &what, const std::string &pinned, const std::string &odp,
		 bool ok)
{
	printf("    %-38s%15s%15s", what.c_str(), pinned.c_str(), odp.c_str());
	verdict(ok);
}

void Report::text(const std::string &line)
{
	printf("%s\n", line.c_str());
	fflush(stdout);
}

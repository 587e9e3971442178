/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The table on the terminal: a heading a step, below it what was seen, and
 * whether that is what it has to be. 80 columns.
 */
#ifndef REPORT_HPP
#define REPORT_HPP

#include <string>

class Report {
public:
	void step(const std::string &text, const std::string &left = "",
		  const std::string &right = "");
	/* A claim: @seen, or one value each for the pinned and the ODP column */
	void row(const std::string &what, const std::string &seen, bool ok);
	void row(const std::string &what, const std::string &pinned, const std::string &odp,
		 bool ok);
	void text(const std::string &line);

	int failed() const { return failed_; }
	int claims() const { return claims_; }

private:
	void verdict(bool ok);

	int steps_ = 0, claims_ = 0, failed_ = 0;
};

#endif /* REPORT_HPP */

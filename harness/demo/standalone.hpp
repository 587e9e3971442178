/* SPDX-License-Identifier: GPL-2.0 */
#ifndef STANDALONE_HPP
#define STANDALONE_HPP

#include "verbs.hpp"

/* Failures of destructors so far: none is expected where all went well */
int soft_failure_count();

#endif /* STANDALONE_HPP */

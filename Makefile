# SPDX-License-Identifier: GPL-2.0
#
# make run	everything from nothing to the demonstration
# make check	every test there is
# make help	the rest

H := harness
MAKEFLAGS += --no-print-directory
KERNEL ?=
TOPIC ?=
FLAVOUR ?= plain

ifneq ($(words $(CURDIR)),1)
$(error The path '$(CURDIR)' has a space in it, which no kernel builds with)
endif

.PHONY: help run check deps assemble series kernel kernel-debug rdma-core static kunit selftests \
	shell bench bisect clean

help:
	@echo 'make run                   build and boot the patched kernel, and show what it does'
	@echo 'make check                 every test; ends with N passed, N failed, N skipped'
	@echo 'make shell [FLAVOUR=debug] a shell in the VM, with the device up'
	@echo 'make series [TOPIC=] [KERNEL=DIR]'
	@echo '                           mails, quilt directory and bundle below build/series;'
	@echo '                           KERNEL: the commits on a new branch of your own clone'
	@echo 'make bench                 in instructions: what verbs cost, beside rxe; pins, and reclaim'
	@echo '                           of pinned memory, beside the base kernel (builds that)'
	@echo 'make kernel                both kernels: plain, and with KASAN and lockdep'
	@echo 'make static | selftests    single parts of the check'
	@echo 'make kunit | bisect        kunit.py on a kernel of its own; every patch boots'
	@echo '                           (neither is in the check)'
	@echo 'ACCEL=kvm|tcg SMP=n MEM=2G override what the VM chooses for itself.'

run: deps
	@$(H)/run

check: deps
	@$(H)/check

deps:
	@$(H)/deps

# The whole series needs the sources, a tree of one's own does not.
series:
ifeq ($(KERNEL),)
	@$(H)/deps
	@$(H)/assemble
	@$(H)/series export $(if $(TOPIC),--topic '$(TOPIC)')
	@$(if $(TOPIC),:,$(H)/series export --project rdma-core)
else
	@$(H)/series export --kernel '$(KERNEL)' $(if $(TOPIC),--topic '$(TOPIC)')
endif

assemble: deps
	@$(H)/assemble

kernel: assemble
	@$(H)/kernel build plain
	@$(H)/kernel build debug

rdma-core: assemble
	@$(H)/rdma-core build

static: deps
	@$(H)/check assemble static static-builds

kunit: deps
	@$(H)/check assemble kunit-py

selftests: deps
	@$(H)/check assemble kernel-debug rdma-core selftests-build selftests-odp_hca selftests-rxe

shell: deps
	@$(H)/run --only-build
	@$(if $(filter debug,$(FLAVOUR)),$(H)/kernel build debug)
	@$(H)/vm shell --kernel '$(FLAVOUR)'

bench: deps
	@$(H)/run --only-build
	@$(H)/bench/run
	@$(H)/bench/reclaim-run
	@$(H)/bench/pins-run

bisect: assemble
	@$(H)/bisect

clean:
	rm -rf build

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the parts of this program have in common; module.c says what it is. */
#ifndef MODULE_H
#define MODULE_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/kvm.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "perfctr_host.h"

/* module.c */
extern int failed;
void check(const char *name, int64_t got, int64_t want);
void expect(const char *name, int64_t got, int64_t want);
void die(const char *what);

/* device.c: the device as its user has it */
#define DEVICE		"/dev/perfctr-host"
#define USR		0x10000
#define OS		0x20000
#define INSNS		0xc0
#define BRANCHES	0xc2

extern int signo;
int device(void);
int attach(int fd);
int load(int fd, uint32_t counter, uint64_t evntsel);
int arm(int fd, uint32_t counter, uint64_t after);
volatile struct perfctr_host_state *map_state(int fd);
uint64_t rdpmc(uint32_t i);
uint64_t count(volatile struct perfctr_host_state *s, int i);
uint64_t msr(int cpu, uint32_t number);
void msr_set(int cpu, uint32_t number, uint64_t value);
void put(const char *path, const char *text);
void pin(int cpu);
void unpin(void);
int module_uses(void);
int in_child(void (*fn)(void));

/* guest.c: guests of known length */
#define GUEST_INSNS(n)		(2 + 2 * (uint64_t)(n))
#define GUEST_BRANCHES(n)	((uint64_t)(n))

struct guest {
	int vm, vcpu;
	struct kvm_run *run;
	uint8_t *ram;
	uint64_t kicks;		/* seen */
	void (*on_overflow)(struct guest *g);
	int fd;			/* of the device */
	volatile struct perfctr_host_state *state;
	uint64_t period, overflowed;
	int64_t late;		/* events, of those that were not in time */
};

extern __thread struct kvm_run *running;
extern __thread volatile int kicked;
void guests_init(void);
void guest_new(struct guest *g);
void guest_counted(struct guest *g);
void guest_free(struct guest *g);
void guest_run_with(struct guest *g, uint32_t n, const char *body, int len);
void guest_run(struct guest *g, uint32_t n);

/* errors.c: what is refused */
#define EVNTSEL_MSR	0xc0010200
#define COUNTERS	6
void no_register_was_written(const char *name);
void wrong_numbers(int fd, const unsigned long *calls, int n_calls);
void wrong_pointers(int fd, const unsigned long *calls, int n_calls);
void t_errors(void);
void t_mappings(void);
void t_users(void);

/* counts.c: exactness */
extern volatile int stop;
void t_exact(void);
void t_switches(void);
void at_overflow(struct guest *g);
void t_overflows(void);
void t_side_by_side(void);

/* sharing.c: with perf, and with other users */
#define LOOP(n) do { uint64_t i = (n); asm volatile("1: dec %0; jnz 1b" : "+r"(i)); } while (0)
#define RDPMC_SETTING	"/sys/bus/event_source/devices/cpu/rdpmc"
int perf_open(void);
int64_t perf_counts(void);
void t_perf(void);
pid_t inheritor(int go, void (*work)(void));
void comes_and_goes(void);
void t_dirty(void);
void rdpmc_setting(int fd, char value);
void t_rdpmc_setting(void);
void t_secret(void);

/* foreign.c: others' guests */
void t_foreign(void);

/* emulated.c: what KVM executes */
#define ROUNDS	1000
void t_emulated(void);

/* ends.c: processors and processes that end */
void online(int on);
uint64_t run_during(struct guest *g, void *(*what)(void *), void *argument);
void t_hotplug(void);
void no_more_uses(const char *name);
void t_killed(void);
void t_closed(void);
void t_closed_often(void);
void t_unload(void);

/* sleep.c: a machine that sleeps */
void *sleepless(void *times);
void in_thread(void *(*what)(void *), void *argument);
void t_sleep(void);
void *sleep_and_wake(void *unused);
void t_sleep_s3(void);

/* global.c: counters of whole processors */
#define GLOBAL		"/dev/perfctr-global"
int global_device(void);
int cpu_load(int fd, uint32_t cpu, uint32_t counter, uint64_t evntsel);
struct perfctr_host_cpu_state cpu_read(int fd, uint32_t cpu);
void t_global_sleep(void);
void t_global_sleep_s3(void);
void t_global(void);

/* rights.c: who has the counters */
void t_idle(void);
int executed(int fd);
void t_executed(void);
void t_revoked(void);
void t_revoked_while_loading(void);
void t_ftrace(void);
void t_mediated(void);

/* entries.c: an Intel processor */
void t_entries(void);

#endif

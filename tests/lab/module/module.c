// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Checks perfctr_host from inside the lab machine, by its own interface: what it
 * counts is compared for equality with guests of known length, and what it must
 * not do is tried.
 *
 *   cc -O1 -static -pthread -I../../../vpmu/host-module -o module *.c
 *   module [NAME]..        (as root) the parts with these names, or all
 *   module hold-perf       has a counter by perf, for others to find, until it
 *   module hold-module     is killed; or by the module; or in global mode
 *   module hold-global
 *   module busy            runs a loop on CPU 1, until it is killed
 *
 * One line per check, "ok NAME" or "FAIL NAME got want".  Exit status 1 if any
 * failed.  Nobody else may use the counters meanwhile.
 */
#include "module.h"

int failed;

void check(const char *name, int64_t got, int64_t want)
{
	if (got == want)
		printf("ok %s\n", name);
	else
		printf("FAIL %s %lld %lld\n", name, (long long)got, (long long)want);
	failed |= got != want;
	fflush(stdout);
}

/* For what happens too often for a line each. */
void expect(const char *name, int64_t got, int64_t want)
{
	if (got != want)
		check(name, got, want);
}

void die(const char *what)
{
	printf("FAIL %s: %s\n", what, strerror(errno));
	exit(1);
}

static const struct {
	const char *name;
	void (*run)(void);
	int by_name;		/* only where it is asked for */
} parts[] = {
	{ "errors", t_errors },
	{ "mappings", t_mappings },
	{ "users", t_users },
	{ "exact", t_exact },
	{ "emulated", t_emulated },
	{ "switches", t_switches },
	{ "overflows", t_overflows },
	{ "side-by-side", t_side_by_side },
	{ "perf", t_perf },
	{ "dirty", t_dirty },
	{ "rdpmc-setting", t_rdpmc_setting },
	{ "secret", t_secret },
	{ "foreign", t_foreign },
	{ "hotplug", t_hotplug },
	{ "sleep", t_sleep },
	{ "sleep-s3", t_sleep_s3, 1 },
	{ "killed", t_killed },
	{ "closed", t_closed },
	{ "closed-often", t_closed_often },
	{ "idle", t_idle },
	{ "executed", t_executed },
	{ "revoked", t_revoked },
	{ "revoked-while-loading", t_revoked_while_loading, 1 },
	{ "ftrace", t_ftrace },
	{ "mediated", t_mediated },
	{ "global", t_global },
	{ "global-sleep", t_global_sleep },
	{ "global-sleep-s3", t_global_sleep_s3, 1 },
	{ "entries", t_entries, 1 },
	{ "unload", t_unload },
};

/* What the kernel complained about meanwhile. */
static void t_log(void)
{
	static const char *const bad[] = { "WARNING:", "BUG:", "Uhhuh", "Oops",
					   "stall", "blocked for" };
	static char log[1 << 20];
	int size = klogctl(3, log, sizeof(log) - 1);	/* SYSLOG_ACTION_READ_ALL */
	int found = 0;

	log[size > 0 ? size : 0] = 0;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (strstr(log, bad[i])) {
			printf("FAIL the kernel's log has %s\n", bad[i]);
			found = 1;
		}
	check("log", found, 0);
}

static int open_device(void)
{
	return open(DEVICE, O_RDWR | O_CLOEXEC);
}

/* Open alone takes nothing. */
static int open_attached(void)
{
	int fd = open_device();

	if (fd >= 0 && attach(fd)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static int try_global(void)
{
	return open(GLOBAL, O_RDWR | O_CLOEXEC);
}

static _Noreturn void busy(void)
{
	pin(1);
	puts("held");
	fflush(stdout);
	for (;;)
		LOOP(1000000);
}

/* Who was killed before may have it for a moment yet. */
static int hold(int (*take)(void))
{
	int fd = take();

	for (int wait = 0; fd < 0 && wait < 500; wait++) {
		usleep(10000);
		fd = take();
	}
	if (fd < 0)
		die("hold");
	puts("held");
	fflush(stdout);
	return pause();
}

int main(int argc, char **argv)
{
	guests_init();
	if (argc == 2 && !strcmp(argv[1], "hold-perf"))
		return hold(perf_open);
	if (argc == 2 && !strcmp(argv[1], "hold-module"))
		return hold(open_attached);
	if (argc == 2 && !strcmp(argv[1], "hold-global"))
		return hold(try_global);
	if (argc == 3 && !strcmp(argv[1], "executed"))
		return executed(atoi(argv[2]));
	if (argc == 2 && !strcmp(argv[1], "busy"))
		busy();
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		int wanted = argc < 2 && !parts[i].by_name;

		for (int a = 1; a < argc; a++)
			wanted |= !strcmp(argv[a], parts[i].name);
		if (wanted)
			parts[i].run();
	}
	t_log();
	return failed;
}

/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs a command and says when it began, when it ended and what it took; and the workloads of the bench. Linked
 * statically and small: memory that the parent of a command had counts as that command's.
 *
 *     launch measure REPORT OUTPUT COMMAND...   "begin end maxrss_kB cpu_ns status" in REPORT; times are CLOCK_MONOTONIC's
 *     launch stamp FILE                         writes the time into FILE
 *     launch burst FILE COUNT                   the same, then asks events.bpf.c for COUNT events
 *     launch storm FILE COUNT                   calls getppid COUNT times, and writes the nanoseconds of a call into FILE
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* As in events.bpf.c. */
#define MAGIC 0x54574246
#define AT_A_TIME 1000

static unsigned long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static int stamp(const char *path)
{
	unsigned long long at = now();
	FILE *file = fopen(path, "w");

	if (!file)
		return 1;
	fprintf(file, "%llu\n", at);
	return fclose(file) != 0;
}

/* bpftrace and libbpf of Debian 12 look for tracepoints in debugfs: here it is for the command alone. */
static void give_tracefs(void)
{
	struct stat found;

	if (stat("/sys/kernel/tracing/events", &found) == 0 || stat("/sys/kernel/debug/tracing/events", &found) == 0)
		return;
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/sys/kernel/debug", "debugfs", 0, NULL))
		perror("debugfs");
}

static unsigned long long ns(struct timeval time)
{
	return time.tv_sec * 1000000000ULL + time.tv_usec * 1000ULL;
}

static int measure(const char *report, const char *output, char **command)
{
	unsigned long long *begin = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned long long end;
	struct rusage usage;
	FILE *file;
	int status;
	pid_t pid;

	give_tracefs();
	pid = fork();
	if (pid == 0) {
		if (dup2(open(output, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1) < 0)
			_exit(127);
		*begin = now();
		execvp(command[0], command);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &usage) != pid)
		return 1;
	end = now();
	file = fopen(report, "w");
	if (!file)
		return 1;
	fprintf(file, "%llu %llu %ld %llu %d\n", *begin, end, usage.ru_maxrss, ns(usage.ru_utime) + ns(usage.ru_stime),
		WIFEXITED(status) ? WEXITSTATUS(status) : 128);
	return fclose(file) != 0;
}

static int burst(const char *path, long count)
{
	int status = stamp(path);

	for (; count > 0; count -= AT_A_TIME)
		syscall(SYS_setpgid, MAGIC, count < AT_A_TIME ? count : AT_A_TIME);
	return status;
}

static int storm(const char *path, long count)
{
	unsigned long long begin = now();
	FILE *file;
	long at;

	for (at = 0; at < count; at++)
		syscall(SYS_getppid);
	begin = now() - begin;
	file = fopen(path, "w");
	if (!file)
		return 1;
	fprintf(file, "%.3f\n", (double)begin / count);
	return fclose(file) != 0;
}

int main(int argc, char **argv)
{
	if (argc > 4 && !strcmp(argv[1], "measure"))
		return measure(argv[2], argv[3], argv + 4);
	if (argc == 3 && !strcmp(argv[1], "stamp"))
		return stamp(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "burst"))
		return burst(argv[2], atol(argv[3]));
	if (argc == 4 && !strcmp(argv[1], "storm"))
		return storm(argv[2], atol(argv[3]));
	fprintf(stderr, "usage: launch measure REPORT OUTPUT COMMAND... | stamp FILE | burst FILE COUNT | storm FILE COUNT\n");
	return 2;
}

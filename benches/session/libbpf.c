/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The tools of the bench as C programs over libbpf, with the same objects.
 *
 *     libbpf counts OBJECT COMMAND...   attaches, runs the command, prints the map of counts
 *     libbpf events OBJECT COMMAND...   attaches, prints each record while the command runs, then the sums
 *     libbpf link OBJECT...             nanoseconds that opening and loading each takes, without the kernel's share
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

static unsigned long long in_kernel;

static unsigned long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

/* libbpf calls bpf(2) by this function, which is found here first. */
long syscall(long number, ...)
{
	static long (*real)(long, ...);
	unsigned long long begin;
	long args[6], result;
	va_list list;
	int at;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	va_start(list, number);
	for (at = 0; at < 6; at++)
		args[at] = va_arg(list, long);
	va_end(list);
	begin = now();
	result = real(number, args[0], args[1], args[2], args[3], args[4], args[5]);
	if (number == SYS_bpf)
		in_kernel += now() - begin;
	return result;
}

static struct bpf_object *load(const char *path)
{
	struct bpf_object *object = bpf_object__open(path);

	if (!object || bpf_object__load(object)) {
		perror(path);
		exit(1);
	}
	return object;
}

static void attach(struct bpf_object *object)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, object) {
		if (bpf_program__autoload(program) && !bpf_program__attach(program)) {
			perror(bpf_program__name(program));
			exit(1);
		}
	}
}

static pid_t start(char **command)
{
	pid_t pid = fork();

	if (pid == 0) {
		execvp(command[0], command);
		_exit(127);
	}
	return pid;
}

static int counts(const char *path, char **command)
{
	struct bpf_object *object = load(path);
	struct bpf_map *map = bpf_object__find_map_by_name(object, "counts");
	char key[16], *previous = NULL;
	unsigned long long value;
	int status = 1;

	attach(object);
	waitpid(start(command), &status, 0);
	while (!bpf_map__get_next_key(map, previous, key, sizeof(key))) {
		if (!bpf_map__lookup_elem(map, key, sizeof(key), &value, sizeof(value), 0))
			printf("%-16.16s %10llu\n", key, value);
		previous = key;
	}
	return status != 0;
}

/* As in events.bpf.c. */
struct event {
	unsigned long long number;
	unsigned long long time;
	unsigned int pid;
	unsigned int cpu;
	char comm[16];
};

/* Likewise. */
struct sums {
	unsigned long long sent;
	unsigned long long lost;
	unsigned long long delivered __attribute__((aligned(64)));
};

static unsigned long long delivered;

static int show(void *ctx, void *data, size_t size)
{
	const struct event *event = data;

	(void)ctx;
	(void)size;
	delivered++;
	printf("%8llu %6u %-16s %3u %llx\n", event->number, event->pid, event->comm, event->cpu, event->time & 0xff);
	return 0;
}

static int events(const char *path, char **command)
{
	struct bpf_object *object = load(path);
	struct bpf_map *map = bpf_object__find_map_by_name(object, "records");
	struct bpf_map *sums = bpf_object__find_map_by_name(object, ".bss");
	struct ring_buffer *ring = ring_buffer__new(bpf_map__fd(map), show, NULL, NULL);
	struct sums sum;
	int status = 1, zero = 0;
	pid_t pid;

	attach(object);
	pid = start(command);
	while (waitpid(pid, &status, WNOHANG) == 0)
		ring_buffer__poll(ring, 10);
	ring_buffer__consume(ring);
	if (!sums || bpf_map_lookup_elem(bpf_map__fd(sums), &zero, &sum))
		return 1;
	printf("sent %llu lost %llu delivered %llu\n", sum.sent, sum.lost, delivered);
	return status != 0;
}

static int link_all(char **paths)
{
	for (; *paths; paths++) {
		unsigned long long begin = now();

		in_kernel = 0;
		bpf_object__close(load(*paths));
		printf("%s %llu\n", *paths, now() - begin - in_kernel);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 3 && !strcmp(argv[1], "counts"))
		return counts(argv[2], argv + 3);
	if (argc > 3 && !strcmp(argv[1], "events"))
		return events(argv[2], argv + 3);
	if (argc > 2 && !strcmp(argv[1], "link"))
		return link_all(argv + 2);
	fprintf(stderr, "usage: libbpf counts|events OBJECT COMMAND... | link OBJECT...\n");
	return 2;
}

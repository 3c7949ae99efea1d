// An arena: global variables in it, and a list in pages that the program allocates. The kernel gives the same results.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define __arena __attribute__((address_space(1)))

struct {
	__uint(type, 33); /* BPF_MAP_TYPE_ARENA */
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16);
} pool SEC(".maps");

void __arena *bpf_arena_alloc_pages(void *map, void __arena *addr, __u32 pages, int node, __u64 flags) __ksym;
void bpf_arena_free_pages(void *map, void __arena *addr, __u32 pages) __ksym;

struct node {
	struct node __arena *next;
	__u64 value;
};

__u32 __arena answer = 42;
struct node __arena *__arena head;

SEC("syscall")
int globals(void *ctx)
{
	return answer;
}

SEC("syscall")
int list(void *ctx)
{
	struct node __arena *page = bpf_arena_alloc_pages(&pool, (void __arena *)0, 1, -1, 0);
	struct node __arena *node;
	__u64 sum = 0;

	if (!page)
		return -1;
	head = (struct node __arena *)0;
	for (int i = 0; i < 100; i++) {
		page[i].value = i;
		page[i].next = head;
		head = &page[i];
	}
	node = head;
	for (int i = 0; i < 200 && node; i++) {
		sum += node->value;
		node = node->next;
	}
	bpf_arena_free_pages(&pool, page, 1);
	return sum + answer;
}

/* One page holds the variables: 15 are left. */
SEC("syscall")
int pages(void *ctx)
{
	void __arena *first = bpf_arena_alloc_pages(&pool, (void __arena *)0, 15, -1, 0);
	void __arena *more = bpf_arena_alloc_pages(&pool, (void __arena *)0, 1, -1, 0);

	if (first)
		bpf_arena_free_pages(&pool, first, 15);
	return (first ? 1 : 0) | (more ? 2 : 0);
}

char LICENSE[] SEC("license") = "GPL";

// A tree of C's search functions that leads to nowhere: the comparison works, then C follows the bad pointer.
#include <twinbpf/script.h>

struct node {
	const void *key;
	unsigned long left, right;
};

extern void *tfind(const void *key, void **root, int (*compare)(const void *, const void *)) __ksym __weak;

static struct node node = { .left = 0x10001230 };
static void *root;
static int number = 5;
static __u64 called;

static int compare(const void *a, const void *b)
{
	called += bpf_get_prandom_u32() | 1;
	return -1;
}

int BEGIN(void)
{
	node.key = &number;
	root = &node;
	return tfind(&number, &root, compare) != NULL;
}

LICENSE("GPL");

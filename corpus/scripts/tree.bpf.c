// A binary search tree in static memory: pointers stored in memory, followed by recursion.
#include <twinbpf/script.h>

struct node {
	struct node *left, *right;
	__s32 key;
};

static struct node pool[32];
static __u32 used;

static __noinline struct node *insert(struct node *node, __s32 key)
{
	if (!node) {
		if (used == 32)
			return NULL;
		node = &pool[used++];
		node->key = key;
	} else if (key < node->key) {
		node->left = insert(node->left, key);
	} else if (key > node->key) {
		node->right = insert(node->right, key);
	}
	return node;
}

static __noinline __u32 height(const struct node *node)
{
	__u32 left, right;

	if (!node)
		return 0;
	left = height(node->left);
	right = height(node->right);
	return 1 + (left > right ? left : right);
}

static __noinline void walk(const struct node *node)
{
	if (!node)
		return;
	walk(node->left);
	printf("%d ", node->key);
	walk(node->right);
}

static struct node *root;

int BEGIN(void)
{
	static const __s32 keys[] = { 50, -20, 70, 10, 60, 90, -20, 5, 65 };
	__u32 i;

	for (i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		root = insert(root, keys[i]);
	return 0;
}

void END(void)
{
	walk(root);
	printf("\n%u nodes, height %u\n", used, height(root));
}

LICENSE("GPL");

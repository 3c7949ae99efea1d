// bpf_probe_read and its kin reach the program's own memory in the sandbox and fail politely elsewhere.
#include <twinbpf/script.h>

struct node {
	struct node *next;
	int value;
} third = { NULL, 30 }, second = { &third, 20 }, first = { &second, 10 };

char text[] = "a string to read";
struct node *volatile head = &first;

int BEGIN(void)
{
	struct node node, *at = head;
	char copy[8];
	__u32 filler = 0x55555555;

	while (at && bpf_probe_read_kernel(&node, sizeof(node), at) == 0) {
		printf("%d\n", node.value);
		at = node.next;
	}
	printf("%ld", bpf_probe_read_kernel_str(copy, sizeof(copy), text));
	printf(" %s\n", copy);
	printf("%ld", bpf_probe_read_user_str(copy, sizeof(copy), text + 12));
	printf(" %s\n", copy);
	printf("%ld", bpf_probe_read(&filler, sizeof(filler), NULL)); /* -EFAULT, and zeroes */
	printf(" %u\n", filler);
	printf("%ld\n", bpf_probe_read_user(&filler, sizeof(filler), (void *)0xdead000000000000));
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

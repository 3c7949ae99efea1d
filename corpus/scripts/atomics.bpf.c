// Atomic operations, with and without the old value, in both widths.
#include <twinbpf/script.h>

__u64 wide = 100;
__u32 narrow = 0xfffffff0;
__u64 bits = 0xff00;
__u32 slot = 5;

int BEGIN(void)
{
	__sync_fetch_and_add(&wide, 5);
	__sync_fetch_and_and(&bits, 0xf0f0);
	__sync_fetch_and_or(&bits, 0x000f);
	__sync_fetch_and_xor(&bits, 0xf00f);
	printf("%llu %llx\n", wide, bits);

	printf("%llu", __sync_fetch_and_add(&wide, (__u64)-10));
	printf(" %llu\n", wide);
	printf("%u", __sync_fetch_and_add(&narrow, 0x20));
	printf(" %u\n", narrow);
	printf("%llx", __sync_fetch_and_or(&bits, 3));
	printf(" %llx\n", bits);
	printf("%u", __sync_lock_test_and_set(&slot, 6));
	printf(" %u\n", slot);
	printf("%u", __sync_val_compare_and_swap(&slot, 6, 7));
	printf(" %u\n", slot);
	printf("%u", __sync_val_compare_and_swap(&slot, 6, 8));
	printf(" %u\n", slot);
	printf("%d", __sync_bool_compare_and_swap(&wide, 95, 1ULL << 40));
	printf(" %llu\n", wide);
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

// A spin lock inside a map value. Under a lock a kernel program may call nothing; the same holds here.
#include <twinbpf/script.h>

struct account {
	struct bpf_spin_lock lock;
	__u32 transfers;
	__s64 balance;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct account);
	__uint(max_entries, 2);
} accounts SEC(".maps");

static long deposit(__u32 key, __s64 amount)
{
	struct account *account = bpf_map_lookup_elem(&accounts, &key);

	if (!account)
		return -1;
	bpf_spin_lock(&account->lock);
	account->balance += amount;
	account->transfers++;
	bpf_spin_unlock(&account->lock);
	return 0;
}

int BEGIN(void)
{
	struct account copy = { .balance = 1000 };
	__u32 key = 0;

	deposit(0, 50);
	deposit(0, -80);
	deposit(1, 80);
	printf("%ld\n", deposit(2, 1));
	map_lookup_elem(&accounts, &key, &copy);
	printf("%lld after %u, lock %u\n", copy.balance, copy.transfers, copy.lock.val);
	/* With BPF_F_LOCK the map takes the lock itself and leaves the lock's bytes alone. */
	copy.balance = 7;
	copy.lock.val = 0x12345678;
	printf("%ld\n", bpf_map_update_elem(&accounts, &key, &copy, BPF_F_LOCK));
	deposit(0, 1);
	map_lookup_elem(&accounts, &key, &copy);
	printf("%lld after %u, lock %u\n", copy.balance, copy.transfers, copy.lock.val);
	return 0;
}

void END(void)
{
	printf("END\n");
}

LICENSE("GPL");

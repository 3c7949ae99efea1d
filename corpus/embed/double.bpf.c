// A function for an embedder: takes a pointer and a count, reports through a function that the host program gives.
#include <twinbpf/script.h>

HOST void report(__u64 n);

int double_all(__u64 *numbers, int count)
{
	for (int i = 0; i < count; i++) {
		numbers[i] *= 2;
		report(numbers[i]);
	}
	return count;
}

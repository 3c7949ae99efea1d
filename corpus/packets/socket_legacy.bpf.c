// Legacy packet loads: protocol and addresses of IPv4 in big-endian, an end with 0 past the packet.
#include <twinbpf/script.h>

unsigned long long load_byte(void *ctx, unsigned long long off) asm("llvm.bpf.load.byte");
unsigned long long load_half(void *ctx, unsigned long long off) asm("llvm.bpf.load.half");
unsigned long long load_word(void *ctx, unsigned long long off) asm("llvm.bpf.load.word");

SEC("socket")
int socket_legacy(void *ctx)
{
	if (load_half(ctx, 12) != 0x0800)
		return 1;
	if (load_byte(ctx, 23) != 17)
		return 2;
	return load_word(ctx, 30);
}

LICENSE("GPL");

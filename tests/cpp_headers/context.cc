#include <twinbpf/context.h>

TWINBPF_PROGRAM(sum);

int main()
{
	static unsigned char stack[64 * 1024];
	uint64_t numbers[] = { 3, 1, 2, 3 };
	twinbpf_context cx;

	twinbpf_init(&cx, stack, sizeof(stack), TWINBPF_FRAME);
	cx.regs[1] = reinterpret_cast<uintptr_t>(numbers);
	return static_cast<int>(sum(&cx));
}

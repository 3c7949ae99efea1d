// build: no-btf
// Compiled without -g: a call of an extern that only BTF could describe.
extern int frobnicate(int);

int BEGIN(void)
{
	return frobnicate(1);
}

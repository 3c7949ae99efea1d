// Functions that hooks refuse, each for its reason; and what says that a file is Go's.
__asm__(
    ".text\n"
    ".globl plain\n.type plain,@function\nplain: mov %rdi, %rax; add %rsi, %rax; ret\n.size plain, . - plain\n"
    ".globl short\n.type short,@function\nshort: xor %eax, %eax; ret\n.size short, . - short\n"
    ".globl back\n.type back,@function\nback: push %rbx; nop; dec %edi; jnz back + 2; pop %rbx; ret\n.size back, . - back\n"
    ".globl through\n.type through,@function\nthrough: push %rax; call *(%rdi); pop %rax; ret\n.size through, . - through\n"
    ".globl traps\n.type traps,@function\ntraps: ud2; nop; nop; nop; ret\n.size traps, . - traps\n"
    ".globl unsized\n.type unsized,@function\nunsized: mov %rdi, %rax; add %rsi, %rax; ret\n"
    ".globl block.cold\n.type block.cold,@function\nblock.cold: mov %rdi, %rax; add %rsi, %rax; ret\n.size block.cold, . - block.cold\n"
    ".globl getcontext\n.type getcontext,@function\ngetcontext: mov %rdi, %rax; add %rsi, %rax; ret\n.size getcontext, . - getcontext\n"
#ifdef GO
    ".section .gopclntab,\"a\"\n.quad 0\n.text\n"
#endif
);

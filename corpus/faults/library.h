/* What a host may declare for library_write.bpf.c: for --extern @library.h. */
long write(int fd, unsigned long buf, unsigned long count);

// Exceptions through hooked functions.
struct Counted { static thread_local long alive; Counted() { alive++; } ~Counted() { alive--; } };
thread_local long Counted::alive;

extern "C" __attribute__((noinline)) long thrower(long n) {
    Counted local;
    if (n == 0)
        throw 42L;
    return thrower(n - 1) + 1;
}
extern "C" __attribute__((noinline)) long middle(long n) {
    try {
        return thrower(n);
    } catch (char) {
        return -1;
    }
}
extern "C" long catches(long n) {
    try {
        return middle(n);
    } catch (long value) {
        return value + 1000 * Counted::alive;
    }
}

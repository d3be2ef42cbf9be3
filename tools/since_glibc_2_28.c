// What the engine, and the parts of libstdc++ that are linked statically, call of glibcs after 2.28. They are hidden in
// each library that links them; every process uses its own glibc for all else.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// glibc 2.30.
pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

// glibc 2.32, whose own is true until the process starts a thread: std::shared_ptr then counts without atomic
// instructions. False is always right.
char __libc_single_threaded = 0;

// glibc 2.33; until then they were inline. The kernel's struct is the C library's on 64-bit machines.
int stat(const char* restrict path, struct stat* restrict out) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, 0);
}

int lstat(const char* restrict path, struct stat* restrict out) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat* out) { return (int)syscall(SYS_fstat, fd, out); }

// glibc 2.30. Where the process has none, a wait until a time of the monotonic clock becomes waits until times of the
// clock of the day, each so short that a change of that clock makes the caller late by no more than a second. One that
// ends early is a spurious wakeup, which every caller expects.
typedef int ClockWait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);

enum { kNanosecondsOfSecond = 1000000000 };

static long long nanoseconds(const struct timespec* time) {
  return (long long)time->tv_sec * kNanosecondsOfSecond + time->tv_nsec;
}

static long long now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return nanoseconds(&time);
}

static int wait_by_clock_of_day(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                const struct timespec* deadline) {
  const long long left = nanoseconds(deadline) - now(clock);
  if (left <= 0) return ETIMEDOUT;
  const long long until = now(CLOCK_REALTIME) + (left < kNanosecondsOfSecond ? left : kNanosecondsOfSecond);
  const struct timespec time = {.tv_sec = until / kNanosecondsOfSecond, .tv_nsec = until % kNanosecondsOfSecond};
  const int status = pthread_cond_timedwait(condition, mutex, &time);
  return status == ETIMEDOUT && now(clock) < nanoseconds(deadline) ? 0 : status;
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* deadline) {
  static ClockWait* _Atomic found;
  ClockWait* wait = atomic_load_explicit(&found, memory_order_relaxed);
  if (!wait) {
    wait = (ClockWait*)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
    if (!wait) wait = &wait_by_clock_of_day;
    atomic_store_explicit(&found, wait, memory_order_relaxed);
  }
  return wait(condition, mutex, clock, deadline);
}

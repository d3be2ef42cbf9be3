/* A wall clock for LD_PRELOAD that jumps by a day, forwards and back, twenty times a second: what time daemons and
   administrators do to it, and more often. All other clocks go on. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { kJumpsPerSecond = 20, kNsPerSecond = 1000000000, kDaySeconds = 86400 };

static int read_clock(clockid_t clock, struct timespec* to) { return (int)syscall(SYS_clock_gettime, clock, to); }

int clock_gettime(clockid_t clock, struct timespec* to) {
  const int result = read_clock(clock, to);
  if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
  struct timespec steady;
  read_clock(CLOCK_MONOTONIC, &steady);
  const long n_jumps = steady.tv_sec * kJumpsPerSecond + steady.tv_nsec / (kNsPerSecond / kJumpsPerSecond);
  to->tv_sec += (n_jumps % 3 - 1) * kDaySeconds;
  return 0;
}

int gettimeofday(struct timeval* restrict to, void* restrict zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  to->tv_sec = now.tv_sec;
  to->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}

/* Makes every fsync and fdatasync of a process take FSYNC_DELAY_US longer, by LD_PRELOAD. Emulates a
   disk that really waits for its platter or its replica. The call itself is still made. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void delay(void) {
  const char *text = getenv("FSYNC_DELAY_US");
  long us = text ? atol(text) : 0;
  struct timespec wait = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&wait, NULL);
}

int fsync(int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  delay();
  return real(fd);
}

int fdatasync(int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  delay();
  return real(fd);
}

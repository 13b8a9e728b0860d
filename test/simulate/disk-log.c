// Logs what a process does to the files of the folder DISK_FOLDER, in order, to the file DISK_LOG.
// cc -shared -fPIC disk-log.c -o disk-log.so; LD_PRELOAD=disk-log.so node …
// A record is the line `operation name offset length`, and that many bytes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static void record(const char *operation, const char *path, off_t offset, const void *data, size_t length) {
  static int log = -1;
  const char *folder = getenv("DISK_FOLDER");
  size_t prefix = folder ? strlen(folder) : 0;
  if (prefix == 0 || strncmp(path, folder, prefix) != 0 || (path[prefix] != '/' && path[prefix] != 0)) return;
  const char *name = path[prefix] == '/' && path[prefix + 1] ? path + prefix + 1 : ".";
  int (*open_)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
  if (log < 0) log = open_(getenv("DISK_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  char head[PATH_MAX + 64];
  int size = snprintf(head, sizeof head, "%s %s %lld %zu\n", operation, name, (long long)offset, data ? length : 0);
  struct iovec parts[] = {{head, size}, {(void *)data, data ? length : 0}};
  if (writev(log, parts, 2) < size) abort();
}

static void record_fd(const char *operation, int fd, off_t offset, const void *data, size_t length) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, sizeof path - 1);
  if (size < 0) return;
  path[size] = 0;
  record(operation, path, offset, data, length);
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define PWRITE(name) ssize_t name(int fd, const void *data, size_t length, off_t offset) { \
  REAL(name); ssize_t done = real(fd, data, length, offset); \
  if (done > 0) record_fd("write", fd, offset, data, done); return done; }
#define TRUNCATE(name) int name(int fd, off_t length) { \
  REAL(name); int status = real(fd, length); if (status == 0) record_fd("truncate", fd, length, 0, 0); return status; }
#define SYNC(name) int name(int fd) { \
  REAL(name); int status = real(fd); if (status == 0) record_fd("sync", fd, 0, 0, 0); return status; }
#define OPEN(name) int name(const char *path, int flags, ...) { \
  va_list rest; va_start(rest, flags); mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0; va_end(rest); \
  REAL(name); int isNew = flags & O_CREAT && access(path, F_OK) != 0; int fd = real(path, flags, mode); \
  if (fd >= 0 && isNew) record_fd("create", fd, 0, 0, 0); return fd; }

PWRITE(pwrite)
PWRITE(pwrite64)
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)
SYNC(fsync)
SYNC(fdatasync)
OPEN(open)
OPEN(open64)

ssize_t write(int fd, const void *data, size_t length) {
  REAL(write);
  off_t offset = lseek(fd, 0, SEEK_CUR);
  ssize_t done = real(fd, data, length);
  if (done > 0 && offset >= 0) record_fd("write", fd, offset, data, done);
  return done;
}

int unlink(const char *path) {
  REAL(unlink);
  int status = real(path);
  if (status == 0) record("unlink", path, 0, 0, 0);
  return status;
}

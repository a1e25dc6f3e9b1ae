/* A process's view of the state file: mapping, locks, waiting for changes. */
#include "board.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const struct board *mapped;
static int state_fd = -1;
static char state_path[PATH_MAX];

static bool find_state_path(void)
{
    Dl_info self;
    char real[PATH_MAX];
    bool known = dladdr(&state_fd, &self) != 0 && realpath(self.dli_fname, real) != NULL;
    /* For a program that was found in PATH only the bare name is known. */
    if (!known && realpath("/proc/self/exe", real) == NULL) {
        return false;
    }
    char *name = strrchr(real, '/');
    if (name == NULL) {
        return false;
    }
    *name = '\0';
    int length = snprintf(state_path, sizeof state_path, "%s/" BOARD_FILE, real);
    return length > 0 && (size_t)length < sizeof state_path;
}

static bool is_board(int fd)
{
    struct board_facts head;
    struct stat file;
    return pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
           memcmp(head.magic, BOARD_MAGIC, sizeof head.magic) == 0 &&
           head.version == BOARD_VERSION && head.size == sizeof(struct board) &&
           fstat(fd, &file) == 0 && file.st_size == (off_t)sizeof(struct board);
}

static bool map_state(void)
{
    if (mapped != NULL) {
        return true;
    }
    if (!find_state_path()) {
        return false;
    }
    int fd = open(state_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    void *map = is_board(fd) ? mmap(NULL, sizeof(struct board), PROT_READ, MAP_SHARED, fd, 0)
                             : MAP_FAILED;
    if (map == MAP_FAILED) {
        close(fd);
        return false;
    }
    mapped = map;
    state_fd = fd;
    return true;
}

static void lock_file(int fd, int operation)
{
    while (flock(fd, operation) != 0 && errno == EINTR) {
    }
}

const struct board *board_lock(void)
{
    pthread_mutex_lock(&mutex);
    if (!map_state()) {
        pthread_mutex_unlock(&mutex);
        return NULL;
    }
    lock_file(state_fd, LOCK_SH);
    return mapped;
}

void board_unlock(void)
{
    lock_file(state_fd, LOCK_UN);
    pthread_mutex_unlock(&mutex);
}

const char *board_dev_folder(const struct board *board)
{
    const char *own = board->facts.dev_root;
    return own[0] != '\0' && access(own, F_OK) == 0 ? own : "/dev";
}

/* The driver pod mounts the driver's folder read-only. The real library sends changes through the
 * device nodes; here they go to a second link of the state file in the dev folder. A container
 * without that link can change nothing, like an unprivileged one on real hardware. */
static int open_writable(void)
{
    char path[PATH_MAX];
    const struct board *board = board_lock();
    if (board == NULL) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/" BOARD_DEV_LINK, board_dev_folder(board));
    board_unlock();
    int fd = open(state_path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    if (fd >= 0 && !is_board(fd)) {
        close(fd);
        return -1;
    }
    return fd;
}

int board_file(void)
{
    return state_fd;
}

/* The kernel module takes a process with all capabilities up to CAP_AUDIT_READ, in the node's own
 * user namespace, for an administrator's, whatever container it runs in. Here the one that no usual
 * container has counts: on machines for tests root itself may lack others. */
static bool is_privileged(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct has[2] = {{0}};
    char map[64] = "";
    int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
    bool known = fd >= 0 && read(fd, map, sizeof map - 1) > 0 && syscall(SYS_capget, &head, has) == 0;
    close(fd);
    bool is_admin = (has[0].effective & (1U << CAP_SYS_ADMIN)) != 0;
    return known && is_admin && strstr(map, "4294967295") != NULL;
}

bool board_is_in_container(void)
{
    int fd = open_writable();
    if (fd >= 0) {
        close(fd);
    }
    return fd < 0 && !is_privileged();
}

static bool has_rights(int fd)
{
    return fd >= 0 && mapped->facts.unprivileged == 0;
}

int board_write(const void *field, const void *value, size_t length)
{
    int fd = open_writable();
    if (!has_rights(fd)) {
        close(fd);
        return DCMI_OPER_NOT_PERMITTED;
    }
    off_t offset = (const char *)field - (const char *)mapped;
    lock_file(fd, LOCK_EX);
    ssize_t written = pwrite(fd, value, length, offset);
    close(fd);
    return written == (ssize_t)length ? DCMI_OK : DCMI_INNER_ERR;
}

int board_change_device(int index, board_change change, void *argument)
{
    int fd = open_writable();
    if (!has_rights(fd)) {
        close(fd);
        return DCMI_OPER_NOT_PERMITTED;
    }
    lock_file(fd, LOCK_EX);
    struct board_device device = mapped->devices[index];
    int code = change(mapped, &device, argument);
    off_t offset = (const char *)&mapped->devices[index] - (const char *)mapped;
    if (code == DCMI_OK &&
        pwrite(fd, &device, sizeof device, offset) != (ssize_t)sizeof device) {
        code = DCMI_INNER_ERR;
    }
    close(fd);
    return code;
}

void board_count(size_t offset, uint32_t number)
{
    uint32_t count;
    int fd = open_writable();
    if (fd < 0) {
        return;
    }
    lock_file(fd, LOCK_EX);
    if (pread(fd, &count, sizeof count, (off_t)offset) == (ssize_t)sizeof count) {
        count += number;
        ssize_t written = pwrite(fd, &count, sizeof count, (off_t)offset);
        (void)written; /* only a count is lost */
    }
    close(fd);
}

void board_wait(int *watch, int timeout_ms)
{
    char ignored[4096];
    if (*watch < 0) {
        /* Do not sleep on the first call: the state may have changed before the watch began. */
        *watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (*watch >= 0 && inotify_add_watch(*watch, state_path, IN_MODIFY) >= 0) {
            return;
        }
        if (*watch >= 0) {
            close(*watch);
            *watch = -1;
        }
        poll(NULL, 0, 5); /* no watches are left on this host: read often instead */
        return;
    }
    struct pollfd changed = {.fd = *watch, .events = POLLIN};
    poll(&changed, 1, timeout_ms);
    while (read(*watch, ignored, sizeof ignored) > 0) {
    }
}

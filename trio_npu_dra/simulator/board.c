/* The state file seen from a process: mapping, locks, rules, and the card table of dcmi_init. */
#include "board.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct snapshot snapshot;
static const struct board *mapped;
static int state_fd = -1;
static char state_path[PATH_MAX];

static bool find_state_path(void)
{
    Dl_info self;
    char real[PATH_MAX];
    if (dladdr(&state_fd, &self) == 0 || realpath(self.dli_fname, real) == NULL) {
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

static const char *dev_folder(const struct board *board)
{
    const char *own = board->facts.dev_root;
    return own[0] != '\0' && access(own, F_OK) == 0 ? own : "/dev";
}

/* The driver's folder is mounted read-only into the driver pod, as is usual; what the real library
 * sends through the device nodes goes to a second link of the state file in the dev folder. A
 * container without it may change nothing, as an unprivileged one may not on real hardware. */
static int open_writable(void)
{
    char path[PATH_MAX];
    const struct board *board = board_lock();
    if (board == NULL) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/" BOARD_DEV_LINK, dev_folder(board));
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

int board_write(const void *field, const void *value, size_t length)
{
    int fd = open_writable();
    if (fd < 0) {
        return DCMI_OPER_NOT_PERMITTED;
    }
    off_t offset = (const char *)field - (const char *)mapped;
    lock_file(fd, LOCK_EX);
    ssize_t written = pwrite(fd, value, length, offset);
    close(fd);
    return written == (ssize_t)length ? DCMI_OK : DCMI_INNER_ERR;
}

void board_wait(int *watch, int timeout_ms)
{
    char ignored[4096];
    if (*watch < 0) {
        /* Not asleep on the first call: what changed before the watch began must be looked at. */
        *watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (*watch >= 0 && inotify_add_watch(*watch, state_path, IN_MODIFY) >= 0) {
            return;
        }
        if (*watch >= 0) {
            close(*watch);
            *watch = -1;
        }
        poll(NULL, 0, 5); /* no watches left on this host: look often instead */
        return;
    }
    struct pollfd changed = {.fd = *watch, .events = POLLIN};
    poll(&changed, 1, timeout_ms);
    while (read(*watch, ignored, sizeof ignored) > 0) {
    }
}

/* --- the cards that dcmi_init saw ------------------------------------------------------------ */

struct snapshot *cards(void)
{
    return &snapshot;
}

static bool node_exists(const struct board *board, unsigned physical_id)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/davinci%u", dev_folder(board), physical_id);
    return access(path, F_OK) == 0;
}

/* Under the union policy one bad die takes its whole card out of the list. */
static bool card_is_whole(const struct board *board, uint32_t card_id)
{
    for (uint32_t i = 0; i < board->facts.device_count; i++) {
        if (board->devices[i].card_id == card_id && board->devices[i].presence == GONE) {
            return false;
        }
    }
    return true;
}

static bool is_listed(const struct board *board, const struct board_device *device)
{
    return device->presence != GONE && node_exists(board, device->physical_id) &&
           (board->facts.multi_die_policy != 0 || card_is_whole(board, device->card_id));
}

static int by_physical_id(const void *left, const void *right)
{
    return ((const struct slot *)left)->physical_id - ((const struct slot *)right)->physical_id;
}

int cards_refresh(const struct board *board)
{
    snapshot.count = 0;
    for (uint32_t i = 0; i < board->facts.device_count; i++) {
        const struct board_device *device = &board->devices[i];
        if (is_listed(board, device)) {
            snapshot.slots[snapshot.count++] = (struct slot){
                .index = (int)i,
                .card_id = (int)device->card_id,
                .device_id = (int)device->device_id,
                .physical_id = (int)device->physical_id,
                .silent = device->presence == SILENT,
            };
        }
    }
    qsort(snapshot.slots, (size_t)snapshot.count, sizeof snapshot.slots[0], by_physical_id);
    snapshot.ready = snapshot.count > 0;
    return snapshot.ready ? DCMI_OK : DCMI_INNER_ERR;
}

const struct slot *cards_find(int card_id, int device_id)
{
    for (int i = 0; snapshot.ready && i < snapshot.count; i++) {
        if (snapshot.slots[i].card_id == card_id && snapshot.slots[i].device_id == device_id) {
            return &snapshot.slots[i];
        }
    }
    return NULL;
}

/* --- rules ----------------------------------------------------------------------------------- */

static bool find_rule(const char *function, int physical_id, struct board_rule *found)
{
    const struct board *board = board_lock();
    bool hit = false;
    for (int i = 0; board != NULL && !hit && i < BOARD_RULES; i++) {
        const struct board_rule *rule = &board->rules[i];
        hit = rule->active != 0 &&
              (strcmp(rule->function, "*") == 0 || strcmp(rule->function, function) == 0) &&
              (rule->physical_id == -1 || rule->physical_id == physical_id);
        if (hit) {
            *found = *rule;
        }
    }
    if (board != NULL) {
        board_unlock();
    }
    return hit;
}

static void sleep_ms(unsigned milliseconds)
{
    struct timespec left = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

int obey(const char *function, int physical_id)
{
    struct board_rule rule;
    if (!find_rule(function, physical_id, &rule)) {
        return DCMI_OK;
    }
    sleep_ms(rule.delay_ms);
    while (rule.hang != 0) {
        sleep_ms(1);
        if (!find_rule(function, physical_id, &rule)) {
            return DCMI_OK;
        }
    }
    return rule.code;
}

/* --- what the calls begin with --------------------------------------------------------------- */

int look_up(const char *function, int card_id, int device_id, struct slot *found,
            struct board_device *device)
{
    const struct board *board = board_lock();
    if (board == NULL) {
        return DCMI_INNER_ERR;
    }
    const struct slot *slot = cards_find(card_id, device_id);
    bool ready = snapshot.ready, listed = slot != NULL;
    if (listed) {
        *found = *slot;
    }
    board_unlock();
    int code = obey(function, listed ? found->physical_id : -1);
    if (code != DCMI_OK) {
        return code;
    }
    if (!ready) {
        return DCMI_NOT_SUPPORT;
    }
    if (!listed) {
        return DCMI_INVALID_DEVICE_ID;
    }
    board = board_lock();
    *device = board->devices[found->index];
    board_unlock();
    return DCMI_OK;
}

int open_device(const char *function, int card_id, int device_id, struct board_device *device)
{
    struct slot slot;
    int code = look_up(function, card_id, device_id, &slot, device);
    if (code != DCMI_OK) {
        return code;
    }
    if (device->presence == PRESENT) {
        return DCMI_OK;
    }
    return device->presence == GONE ? DCMI_DEVICE_NOT_EXIST : DCMI_NOT_READY;
}

int read_facts(struct board_facts *facts)
{
    const struct board *board = board_lock();
    if (board == NULL) {
        return DCMI_INNER_ERR;
    }
    *facts = board->facts;
    bool ready = snapshot.ready;
    board_unlock();
    return ready ? DCMI_OK : DCMI_NOT_SUPPORT;
}

int open_with_facts(const char *function, int card_id, int device_id, struct board_device *device,
                    struct board_facts *facts)
{
    int code = open_device(function, card_id, device_id, device);
    return code != DCMI_OK ? code : read_facts(facts);
}

void put_text(char *out, size_t size, const char *text)
{
    if (size > 0) {
        snprintf(out, size, "%s", text);
    }
}

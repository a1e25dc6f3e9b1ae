/* The device nodes of vNPUs, which the kernel makes on a real host. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "vnpu.h"

/* Nodes of a host appear wherever its /dev is seen: in the board's own folder, on a node to which
 * the board was copied, and in a pod that has that node's root at /host. */
static const char *folder(const struct board *board, int number)
{
    const char *const places[] = {board_dev_folder(board), "/dev", "/host/dev"};
    return number < (int)(sizeof places / sizeof places[0]) ? places[number] : NULL;
}

static bool has_chip(const char *place, uint32_t physical_id)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/davinci%u", place, physical_id);
    return access(path, F_OK) == 0;
}

static bool make(const char *path)
{
    if (access(path, F_OK) == 0) {
        return true;
    }
    if (mknod(path, S_IFCHR | 0666, makedev(1, 3)) == 0) {
        return chmod(path, 0666) == 0; /* the umask narrowed it */
    }
    return errno == EPERM && symlink("/dev/null", path) == 0;
}

int vnpu_make_node(const struct board *board, uint32_t physical_id, uint32_t id)
{
    char path[PATH_MAX];
    bool is_made = false;
    const char *place;
    for (int i = 0; (place = folder(board, i)) != NULL; i++) {
        snprintf(path, sizeof path, "%s/vdavinci%u", place, id);
        is_made |= has_chip(place, physical_id) && make(path);
    }
    return is_made ? DCMI_OK : DCMI_OPER_NOT_PERMITTED;
}

void vnpu_remove_node(const struct board *board, uint32_t physical_id, uint32_t id)
{
    char path[PATH_MAX];
    const char *place;
    for (int i = 0; (place = folder(board, i)) != NULL; i++) {
        snprintf(path, sizeof path, "%s/vdavinci%u", place, id);
        if (has_chip(place, physical_id)) {
            unlink(path);
        }
    }
}

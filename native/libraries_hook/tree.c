#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define A_FOLDER (O_PATH | O_DIRECTORY | O_CLOEXEC)
#ifndef OPENAT2
#define OPENAT2 SYS_openat2
#endif
#define TRIES 32 /* of a lookup that a change anywhere on the node disturbed */

int tree_separate(void)
{
    if (unshare(CLONE_NEWNS) != 0)
        return -1;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

int tree_alone(const char *folder)
{
    if (mount(folder, folder, NULL, MS_BIND, NULL) != 0)
        return -1;
    return open(folder, A_FOLDER);
}

int tree_enter(int tree)
{
    return fchdir(tree) == 0 && chroot(".") == 0 ? 0 : -1;
}

int tree_become(int tree)
{
    if (fchdir(tree) != 0)
        return -1;
    if (syscall(SYS_pivot_root, ".", ".") == 0)
        return umount2(".", MNT_DETACH) == 0 ? chdir("/") : -1;
    /* A root in the initial RAM disk cannot be pivoted away. Moved over it, the tree hides it, and
     * a process that may not change its root does not get behind that. */
    if (errno != EINVAL || mount(".", "/", NULL, MS_MOVE, NULL) != 0)
        return -1;
    return chroot(".") == 0 ? chdir("/") : -1;
}

int tree_limit(const char *path, unsigned long flags)
{
    return mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | flags, NULL);
}

/* Opens a folder that no link may be in the way to: for kernels before 5.6. */
static int open_without_links(int tree, const char *path)
{
    char name[NAME_MAX + 1];
    int at = openat(tree, ".", A_FOLDER);

    while (at >= 0 && *(path += strspn(path, "/")) != 0) {
        size_t length = strcspn(path, "/");
        int next = -1;
        if (length < sizeof(name)) {
            memcpy(name, path, length);
            name[length] = 0;
            if (strcmp(name, "..") != 0)
                next = openat(at, name, A_FOLDER | O_NOFOLLOW);
        }
        close(at);
        at = next;
        path += length;
    }
    return at;
}

/* Opens a folder of a tree, which has volumes whose owners may change them now, and /proc. Links
 * stay within the tree, and those of /proc, which lead to what a process has open, are refused; so
 * is a folder of /proc, from which others could follow them. */
static int open_folder(int tree, const char *path)
{
    struct open_how how = {.flags = A_FOLDER, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    struct statfs file_system;
    int found, tries = TRIES;

    do
        found = (int)syscall(OPENAT2, tree, path, &how, sizeof(how));
    while (found < 0 && errno == EAGAIN && --tries > 0);
    if (found < 0 && errno == ENOSYS)
        found = open_without_links(tree, path);
    if (found >= 0 &&
        (fstatfs(found, &file_system) != 0 || file_system.f_type == PROC_SUPER_MAGIC)) {
        close(found);
        return -1;
    }
    return found;
}

/* Makes a folder of the tree that is the root now, and writes nothing into the tree: what it lacks
 * is made in a tmpfs over the last folder that there is. A volume hides that one in the container,
 * or the folder would not be missing. */
static int make_folder(const char *target)
{
    char path[PATH_MAX];
    size_t length = strlen(target);
    struct stat found;

    if (length >= sizeof(path))
        return -1;
    memcpy(path, target, length + 1);
    char *end = path + length;
    do {
        while (end > path && *end != '/')
            end--;
        if (end == path)
            return -1; /* the tree itself must stay seen */
        *end = 0;
    } while (stat(path, &found) != 0);
    if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k") != 0)
        return -1;
    while (end < path + length) {
        *end = '/';
        end += strlen(end);
        if (mkdir(path, 0755) != 0 && errno != EEXIST)
            return -1;
    }
    return 0;
}

static bool lay_over(int folder, const char *target)
{
    return fchdir(folder) == 0 && mount(".", target, NULL, MS_BIND, NULL) == 0;
}

int tree_carry(int from, const char *source, int into, const char *target, unsigned long flags)
{
    int result = -1;
    int found = open_folder(from, source);

    if (found < 0)
        return -1;
    if (tree_enter(into) == 0 &&
        (lay_over(found, target) ||
         (errno == ENOENT && make_folder(target) == 0 && lay_over(found, target))))
        result = tree_limit(target, flags);
    close(found);
    return result;
}
